"""The results of checks, from which tables, summary and page are made. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from orbitmq.runtime.printable import printable

Row = Mapping[str, Any]
TEXT_MAX = 200  # characters of a value in the report; the Parquet tables have it in full


def plain(text: str) -> str:
    """A text from a message, escaped and shortened for a page or a terminal."""
    return printable(text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}…")


def counted(number: int, noun: str) -> str:
    """`1 gap`, `1,234 gaps`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


class Field(NamedTuple):
    """A column of a table. `kind` says what its values are: text, count, bytes, ms, seconds, time (milliseconds since
    the epoch), percent or flag."""

    name: str
    title: str
    kind: str = "text"


@dataclass(frozen=True)
class Table:
    """A table as it is shown: the first rows of `total`."""

    name: str
    title: str
    fields: Sequence[Field]
    rows: Sequence[Row]
    total: int


@dataclass(frozen=True)
class AuditFinding:
    """A finding and its count."""

    kind: str
    count: int
    text: str


class ChartBar(NamedTuple):
    """One bar of a chart: a value in the chart's unit, and a note."""

    label: str
    value: float
    note: str = ""


class LatencyStrip(NamedTuple):
    """Percentiles of a latency in milliseconds: p50, p95 and p99."""

    label: str
    half: float
    most: float
    nearly_all: float


@dataclass(frozen=True)
class ReportChart:
    """`kind` is bars, columns (bars side by side, in the order of time or size) or strips. `unit` as a field's kind."""

    title: str
    kind: str
    unit: str
    points: Sequence[ChartBar] | Sequence[LatencyStrip]


@dataclass(frozen=True)
class Section:
    """The result of one check. `figures` are its numbers for the summary and the closing table. `missing` is the reason
    when the check could not run."""

    name: str
    title: str
    text: str
    figures: Mapping[str, int] = field(default_factory=dict)
    findings: Sequence[AuditFinding] = ()
    tables: Sequence[Table] = ()
    charts: Sequence[ReportChart] = ()
    missing: str = ""
