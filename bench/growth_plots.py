"""Plots the results of `bench/growth.py`, one plot per kind of growth, next to growth.json. Must not know how anything
was measured.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

PANELS = (
    ("rate", "messages a second", 1),
    ("cpuMicros", "broker CPU, µs a message", 1),
    ("p99Micros", "p99 of a request, ms", 1000),
)
COLOURS = ("#b3541e", "#1e6fb3")
STYLES = {"send": "-", "pull": "--"}

Row = dict[str, Any]
Lines = dict[tuple[str, str], list[tuple[float, float]]]  # (system, work) -> points


def picture_name(growth: str) -> str:
    return "growth-" + growth.split()[-1] + ".png"


def lines(rows: Iterable[Row], growth: str, figure: str, unit: float) -> Lines:
    """Points in the order of the steps; steps without that figure are left out."""
    found: Lines = {}
    for row in sorted(rows, key=lambda one: one["step"]):
        if row["growth"] == growth and row[figure]:
            found.setdefault((row["system"], row["work"]), []).append((row["step"], row[figure] / unit))
    return found


def draw(report: dict[str, Any], directory: Path) -> list[Path]:
    """The pictures; each has a panel a figure."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    mpl.rcParams |= {"svg.hashsalt": "orbitmq", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3}
    growths = list(dict.fromkeys(row["growth"] for row in report["rows"]))
    made = []
    for growth in growths:
        shape, axes = plt.subplots(1, len(PANELS), figsize=(11, 3.2), layout="constrained")
        for axis, (figure, title, unit) in zip(axes, PANELS, strict=True):
            _panel(axis, lines(report["rows"], growth, figure, unit), report["systems"], title)
            axis.set_xlabel(growth)
        handles, names = axes[0].get_legend_handles_labels()
        shape.legend(handles, names, loc="outside lower center", ncols=4, frameon=False)
        path = directory / picture_name(growth)
        shape.savefig(path, dpi=110, metadata={"Software": None})
        plt.close(shape)
        made.append(path)
    return made


def _panel(axis: Any, found: Lines, systems: Sequence[str], title: str) -> None:
    steps = sorted({step for points in found.values() for step, _ in points})
    places = {step: place for place, step in enumerate(steps)}  # equally far apart
    for (system, work), points in found.items():
        axis.plot(
            [places[step] for step, _ in points],
            [value for _, value in points],
            STYLES[work],
            marker="o",
            color=COLOURS[systems.index(system)],
            label=f"{system}, {work}",
        )
    axis.set_xticks(range(len(steps)), [f"{step:,g}" for step in steps])
    axis.set_ylim(bottom=0)
    axis.set_title(title)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path, help="growth.json; the plots are written next to it")
    path = parser.parse_args().report
    for made in draw(json.loads(path.read_text(encoding="utf-8")), path.parent):
        print(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
