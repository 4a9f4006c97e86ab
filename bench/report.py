"""From single measurements to the table and the file of a run. Arithmetic only."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from bench.systems import OURS, RIVAL, SYSTEMS, Measurement
from bench.works import WORKS

FIGURES = ("rate", "cpuMicros", "p50Micros", "p99Micros", "p999Micros", "errors")
TIMES = ("p50Micros", "p99Micros", "p999Micros")

Results = Mapping[str, Mapping[str, Sequence[Measurement]]]  # row -> system -> its rounds


def line(name: str, row: Measurement) -> str:
    """One measurement in words."""
    each = WORKS[name].each
    cpu = "" if row["cpuMicros"] is None else f", {row['cpuMicros']:.1f} µs broker CPU each"
    return f"{row['rate']:,.0f} {each}/s{cpu}, {row['errors']} errors"


def medians(rows: Sequence[Measurement]) -> dict[str, float | None]:
    """Of each figure over the rounds; None for one that was not measured."""
    return {name: _median([row.get(name) for row in rows]) for name in FIGURES}


def _median(values: Sequence[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return statistics.median(there) if len(there) == len(values) else None


def rows_of(results: Results) -> dict[str, dict[str, dict[str, float | None]]]:
    return {name: {system: medians(rounds) for system, rounds in of.items()} for name, of in results.items()}


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


def _lag(rounds: Sequence[Measurement]) -> str:
    middle, most = _median([row["lagMedianKiB"] for row in rounds]), [row["lagMaxKiB"] for row in rounds]
    return "unknown" if middle is None or None in most else f"{middle:,.0f} / {max(most):,.0f}"


def table(report: Mapping[str, Any]) -> Table:
    """What is printed; a ratio is ours to the rival's."""
    made = Table(title="the same load on both")
    made.add_column("work")
    for heading in ("a second", "CPU µs each"):
        for system in SYSTEMS:
            made.add_column(f"{heading}\n{system}", justify="right")
        made.add_column("ratio", justify="right")
    for system in SYSTEMS:
        made.add_column(f"p50 / p99 / p99.9 ms\n{system}", justify="right")
    for name, row in report["rows"].items():
        made.add_row(_title(name), *_cells(row[RIVAL], row[OURS]))
    if report["memory"]:  # else no setting was measured to its end
        _add_process(made, report["start_seconds"], report["memory"])
    return made


def _add_process(made: Table, start: Mapping[str, float], memory: Mapping[str, Mapping[str, int]]) -> None:
    made.add_row("start-up, s", *_compared(start[RIVAL], start[OURS], "{:.2f}"))
    for kind in ("own", "resident"):
        made.add_row(f"{kind} memory, MiB", *_compared(memory[RIVAL][kind], memory[OURS][kind], "{:,.0f}"))


def _title(name: str) -> str:
    work = WORKS[name]
    return work.title if work.each == "messages" else f"{work.title}: {work.each}"


def _cells(rival: Measurement, ours: Measurement) -> tuple[str, ...]:
    return (
        *_compared(rival["rate"], ours["rate"], "{:,.0f}"),
        *_compared(rival["cpuMicros"], ours["cpuMicros"], "{:,.1f}"),
        _times(rival),
        _times(ours),
    )


def _compared(rival: float | None, ours: float | None, form: str) -> tuple[str, str, str]:
    if rival is None or ours is None:
        return "", "", ""
    return form.format(rival), form.format(ours), f"{ours / rival:.2f}" if rival else ""


def _times(row: Measurement) -> str:
    """The times of one call; a row whose calls were not timed has none."""
    if any(row[name] is None for name in TIMES):
        return ""
    return " / ".join(f"{row[name] / 1000:.2f}" for name in TIMES)
