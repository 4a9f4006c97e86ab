"""The report: a single page without scripts and without network access. Knows no Spark.

Texts from messages (keys, topics, groups, ids) are untrusted: the template escapes everything, and control characters
are shown as symbols.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from typing import Any

from orbitmq.pipeline.audit.results import ChartBar, LatencyStrip, ReportChart, Section, plain

TEMPLATE = "report.html"
BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
NONE = "–"


@dataclass(frozen=True)
class ReportHead:
    """The head of the report: `now_ms` is the time in milliseconds since the epoch, `fatal` has kinds of findings."""

    now_ms: int
    input: str
    where: str
    checks: Sequence[str]
    fatal: Sequence[str]


def page(head: ReportHead, sections: Sequence[Section]) -> str:
    """The whole page. It needs the package jinja2."""
    from jinja2 import Environment, StrictUndefined  # not needed by executors, which import this package, too

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"shown": shown, "plain": plain}
    source = resources.files(__package__ or "").joinpath(TEMPLATE).read_text(encoding="utf-8")
    findings = [(section, finding) for section in sections for finding in section.findings]
    findings.sort(key=lambda pair: pair[1].kind not in head.fatal)
    return environment.from_string(source).render(
        head=head, sections=sections, findings=findings, bars=_bars, columns=_columns, strips=_strips, time=_time
    )


# --------------------------------------------------------------------------------------------------------------- values


def shown(value: Any, kind: str) -> str:
    """A formatted value. `kind` is that of a table's field."""
    if value is None:
        return NONE
    if kind == "bytes":
        return _bytes(int(value))
    if kind == "time":
        return _time(int(value))
    if kind == "percent":
        return f"{value:.1f} %"
    if kind == "ms":
        return f"{value:,.0f} ms"
    if kind == "seconds":
        return duration(int(value))
    if kind == "flag":
        return "yes" if value else ""
    return f"{value:,.0f}" if kind == "count" else plain(str(value))


def _bytes(size: int) -> str:
    power = min(len(BYTE_UNITS) - 1, max(0, size.bit_length() - 1) // 10)
    return f"{size / (1 << 10 * power):,.1f} {BYTE_UNITS[power]}" if power else f"{size:,} B"


def _time(milliseconds: int) -> str:
    try:
        return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):  # a producer may claim any time
        return f"{milliseconds} ms"


def duration(seconds: int) -> str:
    """A duration in at most two units."""
    if seconds < 60:
        return f"{seconds} s"
    minutes, hours = seconds // 60, seconds // 3600
    if minutes < 60:
        return f"{minutes} min {seconds % 60} s"
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


# ------------------------------------------------------------------------------------------------------------- drawings


def _bars(chart: ReportChart) -> list[dict[str, Any]]:
    """Each with its width as a part of the longest one, in percent."""
    points = [point for point in chart.points if isinstance(point, ChartBar)]
    most = max((point.value for point in points), default=0) or 1
    return [
        {"label": point.label, "width": round(100 * point.value / most, 2), "value": shown(point.value, chart.unit),
         "note": point.note}
        for point in points
    ]  # fmt: skip


def _columns(chart: ReportChart) -> dict[str, Any]:
    """Bars side by side in a drawing of 100 units in height and one a bar in width. Labels are times, or with unit ms
    the limit the bar's values lie below."""
    points = [point for point in chart.points if isinstance(point, ChartBar)]
    most = max((point.value for point in points), default=0) or 1
    names = [f"≤ {int(point.label):,} ms" if chart.unit == "ms" else _time(int(point.label)) for point in points]
    bars = [
        {"x": number, "height": round(max(0.5 if point.value else 0, 100 * point.value / most), 2),
         "text": f"{name}: {shown(point.value, 'count')}"}
        for number, (point, name) in enumerate(zip(points, names, strict=True))
    ]  # fmt: skip
    marks = [names[0], names[len(names) // 2], names[-1]] if len(names) > 2 else names
    return {"bars": bars, "most": shown(most, "count"), "marks": marks}


def _strips(chart: ReportChart) -> dict[str, Any]:
    """Each from its half to its 99 of a hundred on one logarithmic scale, places in percent of the width."""
    points = [point for point in chart.points if isinstance(point, LatencyStrip)]
    power = max(1, math.ceil(math.log10(max((point.nearly_all for point in points), default=1) + 1)))
    rows = [
        {
            "label": point.label,
            "at": [_at(value, power) for value in (point.half, point.most, point.nearly_all)],
            "text": " / ".join(shown(value, "count") for value in (point.half, point.most, point.nearly_all)) + " ms",
        }
        for point in points
    ]
    marks = [{"at": _at(10**step, power), "text": f"{10**step:,}"} for step in range(power + 1)]
    return {"rows": rows, "marks": marks}


def _at(value: float, power: int) -> float:
    """One millisecond and less is at the left end, the power of ten at the right."""
    return round(100 * min(1.0, math.log10(max(1.0, value)) / power), 2)
