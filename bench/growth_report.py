"""The report of the growth benchmark: rows, ratios, and results that fall where RocketMQ's do not. Pure arithmetic."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.systems import OURS, RIVAL

FALL_MAX = 0.20  # of a figure, against the first step, before it counts as fallen
FIGURES = {"rate": True, "cpuMicros": False, "p99Micros": False}  # whether more is better

FORMS = {"rate": "{:,.0f}", "cpuMicros": "{:,.1f}", "p99Micros": "{:,.1f}"}  # of the table; the last one in ms


@dataclass(frozen=True)
class Row:
    """One work at one step on one system: the median of its rounds. None for what was not measured."""

    growth: str
    step: float
    work: str
    system: str
    rate: float
    cpuMicros: float | None  # noqa: N815 - the names of the load generators
    p50Micros: float | None  # noqa: N815
    p99Micros: float | None  # noqa: N815
    delivered: float
    errors: float


def row(growth: str, step: float, work: str, system: str, rounds: Sequence[Mapping[str, Any]]) -> Row:
    def middle(name: str) -> float | None:
        there = [one[name] for one in rounds if one.get(name) is not None]
        return round(statistics.median(there), 1) if len(there) == len(rounds) else None

    rate, delivered, errors = middle("rate"), middle("delivered"), max(one["errors"] for one in rounds)
    times = (middle("cpuMicros"), middle("p50Micros"), middle("p99Micros"))
    return Row(growth, step, work, system, rate or 0.0, *times, delivered or 0.0, errors)


def kept(first: Row, later: Row, figure: str) -> float | None:
    """How much of a figure is left: below 1 it has become worse. None where one of the two is missing."""
    before, after = getattr(first, figure), getattr(later, figure)
    if not before or not after:
        return None
    share: float = after / before if FIGURES[figure] else before / after
    return share


def series(rows: Sequence[Row], growth: str, work: str, system: str) -> list[Row]:
    """One line of a plot, step by step."""
    found = [one for one in rows if (one.growth, one.work, one.system) == (growth, work, system)]
    return sorted(found, key=lambda one: one.step)


def falls(rows: Sequence[Row]) -> Iterator[str]:
    """Each figure of ours that falls by more than FALL_MAX against the first step where the rival's does not."""
    for growth, work in sorted({(one.growth, one.work) for one in rows}):
        ours, rivals = (series(rows, growth, work, system) for system in (OURS, RIVAL))
        for later in ours[1:]:
            twin = next((one for one in rivals if one.step == later.step), None)
            for figure in FIGURES:
                own = kept(ours[0], later, figure)
                its = kept(rivals[0], twin, figure) if twin is not None else None
                if own is not None and its is not None and own < 1 - FALL_MAX <= its:
                    step = f"{later.step:g}"
                    yield f"{growth} {step}, {work}, {figure}: {own:.2f} of the first step is left, {RIVAL}'s {its:.2f}"


def failures(rows: Sequence[Row]) -> Iterator[str]:
    """What was measured although requests failed, or nothing was done at all."""
    for one in rows:
        if one.errors or not one.rate:
            yield f"{one.growth} {one.step:g}, {one.work}, {one.system}: {one.errors:g} errors, {one.rate:,.0f}/s"


def table(rows: Sequence[Row]) -> str:
    """As CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(Row.__dataclass_fields__), lineterminator="\n")
    writer.writeheader()
    writer.writerows(map(asdict, rows))
    return text.getvalue()


def fragment(report: Mapping[str, Any], rows: Sequence[Row]) -> str:
    """What docs/performance shows of a run, in Markdown: the machine, the figures of both, and what falls."""
    machine = ", ".join(f"{name} {value}" for name, value in report["machine"].items())
    how = f"{report['rounds']} x {report['seconds']:g} s a figure, with `{report['command'].strip()}`"
    heads = " | ".join(f"{what}: {RIVAL} | {OURS}" for what in ("messages/s", "CPU µs each", "p99 ms"))
    lines = [
        f"Measured at {report['time']} in {report['took']} s, {how}: {machine}.",
        "",
        f"| growth | | work | {heads} |",
        "|---|--:|---|--:|--:|--:|--:|--:|--:|",
    ]
    for key in dict.fromkeys((one.growth, one.step, one.work) for one in rows):
        both = {one.system: one for one in rows if (one.growth, one.step, one.work) == key}
        cells = [_cell(both.get(system), figure) for figure in FIGURES for system in (RIVAL, OURS)]
        lines.append(f"| {key[0]} | {key[1]:,g} | {key[2]} | " + " | ".join(cells) + " |")
    lines += ["", "Figures of orbitmq that fall by more than 20 % against the first step where RocketMQ's do not:", ""]
    lines += [f"- {text}" for text in report["falls"]] or ["- none"]
    return "\n".join(lines) + "\n"


def _cell(one: Row | None, figure: str) -> str:
    value = None if one is None else getattr(one, figure)
    if value is None:
        return ""
    return FORMS[figure].format(value / 1000 if figure == "p99Micros" else value)


def line(one: Row) -> str:
    """In words, as it is printed."""
    cpu = "" if one.cpuMicros is None else f", {one.cpuMicros:.1f} µs broker CPU each"
    times = "" if one.p99Micros is None else f", p50 {one.p50Micros or 0:,.0f} p99 {one.p99Micros:,.0f} µs"
    handed = f", {one.delivered:,.0f}/s delivered" if one.delivered else ""
    return f"{one.growth} {one.step:g}, {one.work}, {one.system}: {one.rate:,.0f}/s{cpu}{times}{handed}"
