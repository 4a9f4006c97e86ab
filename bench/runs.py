"""Several runs of `make bench` side by side. `python -m bench.runs FILE...` prints a table in Markdown from their JSON.

On a shared machine one run says little about a goal that is close: this shows the spread of the runs and the medians of
all their rounds. Arithmetic only.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.report import bars, ratio, title
from bench.systems import OURS, RIVAL
from bench.works import WORKS

TIMES = {"p50Micros": "half of the calls", "p99Micros": "99 of 100 calls"}

Run = Mapping[str, Any]


def page(runs: Sequence[Run]) -> str:
    """Ratios of ours to the rival's of each figure that has a bar and was measured in all of these runs."""
    times = ", ".join(str(run["time"]).rstrip("Z").replace("T", " ") for run in runs)
    lines = [
        f"Runs of {times}: of each the best of its rounds, at last the medians of all; `!` where a bar is missed.",
        "",
        bars(["work", "", *(f"run {number}" for number in range(1, len(runs) + 1)), "medians"]),
        bars(["---", "---", *["---:"] * (len(runs) + 1)]),
    ]
    for name, work in WORKS.items():
        bar = work.bars
        figures = [("rate", "a second", bar.rate, None), ("cpuMicros", "CPU", None, bar.cpu)]
        figures += [(figure, words, None, bar.times) for figure, words in TIMES.items()]
        for figure, words, least, most in figures:
            if least is None and most is None:
                continue
            if not all(_is_measured(run, name, figure) for run in runs):
                continue
            of_runs = [_of_run(run, name, figure) for run in runs]
            medians = _median(runs, name, OURS, figure) / _median(runs, name, RIVAL, figure)
            cells = [*(ratio(one, least, most, with_bar=False) for one in of_runs), ratio(medians, least, most)]
            lines.append(bars([title(name), words, *cells]))
    return "\n".join(lines) + "\n"


def _is_measured(run: Run, name: str, figure: str) -> bool:
    return name in run["rows"] and all(run["rows"][name][system][figure] is not None for system in (OURS, RIVAL))


def _of_run(run: Run, name: str, figure: str) -> float:
    row = run["rows"][name]
    return float(row[OURS][figure] / row[RIVAL][figure])


def _median(runs: Sequence[Run], name: str, system: str, figure: str) -> float:
    return statistics.median(one[figure] for run in runs for one in run["measurements"][name][system])


def main(paths: Sequence[str]) -> int:
    if not paths:
        print("python -m bench.runs FILE...: which runs? `make bench` says where it writes them", file=sys.stderr)
        return 2
    sys.stdout.write(page([json.loads(Path(path).read_text(encoding="utf-8")) for path in paths]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
