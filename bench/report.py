"""From single measurements to the table and the file of a run. Arithmetic only."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from bench.systems import OURS, RIVAL, SYSTEMS, Measurement
from bench.works import MEMORY_BAR, START_BAR, WORKS, Bars

FIGURES = ("rate", "cpuMicros", "p50Micros", "p99Micros", "p999Micros", "errors")
TIMES = ("p50Micros", "p99Micros", "p999Micros")

Results = Mapping[str, Mapping[str, Sequence[Measurement]]]  # row -> system -> its rounds


def line(name: str, row: Measurement) -> str:
    """One measurement in words."""
    each = WORKS[name].each
    cpu = "" if row["cpuMicros"] is None else f", {row['cpuMicros']:.1f} µs broker CPU each"
    return f"{row['rate']:,.0f} {each}/s{cpu}, {row['errors']} errors"


def best(rows: Sequence[Measurement]) -> dict[str, float | None]:
    """Of each figure over the rounds, but the most errors; None for one that was not measured."""
    found: dict[str, float | None] = {}
    for name in FIGURES:
        values = [row.get(name) for row in rows]
        there = [value for value in values if value is not None]
        pick = max if name in ("rate", "errors") else min
        found[name] = pick(there) if len(there) == len(values) else None
    return found


def _median(values: Sequence[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return statistics.median(there) if len(there) == len(values) else None


def rows_of(results: Results) -> dict[str, dict[str, dict[str, float | None]]]:
    return {name: {system: best(rounds) for system, rounds in of.items()} for name, of in results.items()}


def lag_notes(results: Results) -> list[str]:
    """How far slaves were behind, a line for each row that had some."""
    found = []
    for name, of in results.items():
        told = [
            f"{system} {_lag(rounds)}" for system, rounds in of.items() if any("lagMaxKiB" in row for row in rounds)
        ]
        if told:
            found.append(f"{WORKS[name].title}: the slave was behind by (median / most KiB): {'; '.join(told)}")
    return found


def error_notes(results: Results) -> list[str]:
    """A line for each row in which calls failed."""
    return [
        f"{WORKS[name].title}: errors in the worst round: {'; '.join(told)}"
        for name, of in rows_of(results).items()
        if (told := [f"{system} {row['errors']:,.0f}" for system, row in of.items() if row["errors"]])
    ]


def _lag(rounds: Sequence[Measurement]) -> str:
    middle, most = _median([row["lagMedianKiB"] for row in rounds]), [row["lagMaxKiB"] for row in rounds]
    return "unknown" if middle is None or None in most else f"{middle:,.0f} / {max(most):,.0f}"


TITLE = "the same load on both; behind a ratio its bar, `!` where it is missed"


def table(report: Mapping[str, Any]) -> Table:
    """What is printed; a ratio is ours to the rival's."""
    made = Table(title=TITLE)
    first, *others = _headings("\n")
    made.add_column(first)
    for heading in others:
        made.add_column(heading, justify="right")
    for row in _lines(report):
        made.add_row(*row)
    return made


def page(report: Mapping[str, Any]) -> str:
    """The same as a piece of a page in Markdown, with what has to be known of the run."""
    headings = _headings(", ")
    lines = [
        f"Run of {report['time'][:10]}: {TITLE}.",
        "",
        bars(headings),
        bars(["---", *["---:"] * (len(headings) - 1)]),
        *(bars([*row, *[""] * (len(headings) - len(row))]) for row in _lines(report)),
        "",
        *(f"- {note}" for note in report["notes"]),
    ]
    return "\n".join(lines) + "\n"


def bars(cells: Sequence[str]) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


def _headings(joint: str) -> list[str]:
    compared = [
        name
        for heading in ("a second", "CPU µs each")
        for name in (*(f"{heading}{joint}{system}" for system in SYSTEMS), "ratio")
    ]
    return ["work", *compared, "floor, µs", *(f"p50 / p99 / p99.9 ms{joint}{system}" for system in SYSTEMS)]


def _lines(report: Mapping[str, Any]) -> list[tuple[str, ...]]:
    floors = report["floors"]
    lines = [
        (title(name), *_cells(row[RIVAL], row[OURS], WORKS[name].bars, floors.get(WORKS[name].floor)))
        for name, row in report["rows"].items()
    ]
    if report["memory"]:  # else no setting was measured to its end
        lines += _process(report["start_seconds"], report["memory"])
    return lines


def _process(start: Mapping[str, float], memory: Mapping[str, Mapping[str, int]]) -> list[tuple[str, ...]]:
    return [
        ("start-up, s", *_compared(start[RIVAL], start[OURS], "{:.2f}", most=START_BAR)),
        *(
            (f"{kind} memory, MiB", *_compared(memory[RIVAL][kind], memory[OURS][kind], "{:,.0f}", most=most))
            for kind, most in (("own", MEMORY_BAR), ("resident", None))
        ),
    ]


def title(name: str) -> str:
    """Of a row, with what it counts where that is no message."""
    work = WORKS[name]
    return work.title if work.each == "messages" else f"{work.title}: {work.each}"


def _cells(rival: Measurement, ours: Measurement, bars: Bars, floor: float | None) -> tuple[str, ...]:
    return (
        *_compared(rival["rate"], ours["rate"], "{:,.0f}", least=bars.rate),
        *_compared(rival["cpuMicros"], ours["cpuMicros"], "{:,.1f}", most=bars.cpu),
        "" if floor is None else f"{floor:,.1f}",
        _times(rival),
        _times(ours) + _times_bar(rival, ours, bars.times),
    )


def _compared(
    rival: float | None, ours: float | None, form: str, *, least: float | None = None, most: float | None = None
) -> tuple[str, str, str]:
    if rival is None or ours is None:
        return "", "", ""
    return form.format(rival), form.format(ours), ratio(ours / rival, least, most) if rival else ""


def ratio(value: float, least: float | None = None, most: float | None = None, *, with_bar: bool = True) -> str:
    """The figure, its bar, and a mark where that is missed."""
    bar = "" if least is None else f" ≥{least:.1f}"
    bar += "" if most is None else f" ≤{most:.2f}"
    missed = (least is not None and value < least) or (most is not None and value > most)
    return f"{value:.2f}{bar if with_bar else ''}{' !' if missed else ''}"


def _times(row: Measurement) -> str:
    """The times of one call; a row whose calls were not timed has none."""
    if any(row[name] is None for name in TIMES):
        return ""
    return " / ".join(f"{row[name] / 1000:.2f}" for name in TIMES)


def _times_bar(rival: Measurement, ours: Measurement, most: float | None) -> str:
    """Of the middle and the 99th of a hundred."""
    if most is None:
        return ""
    return "".join(f" ({ratio(ours[name] / rival[name], most=most)})" for name in TIMES[:2])
