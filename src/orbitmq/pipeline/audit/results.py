"""What a check finds, in the form that tables, summary and page are made from. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from orbitmq.runtime.printable import printable

Row = Mapping[str, Any]
TEXT_MAX = 200  # characters of a value that people are shown; tables have it whole


def plain(text: str) -> str:
    """A text of a message as a page or a terminal may show it, shortened."""
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
    """Something that somebody should look at. `count` says how much of it."""

    kind: str
    count: int
    text: str


class ChartBar(NamedTuple):
    """One line of a chart: a value in the chart's unit, and what else there is to say."""

    label: str
    value: float
    note: str = ""


class LatencyStrip(NamedTuple):
    """The spread of a latency in milliseconds: half, 95 and 99 of a hundred are below."""

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
    """All that one check has to say. `figures` are its numbers for summary and closing table; `missing` says why it
    could not look."""

    name: str
    title: str
    text: str
    figures: Mapping[str, int] = field(default_factory=dict)
    findings: Sequence[AuditFinding] = ()
    tables: Sequence[Table] = ()
    charts: Sequence[ReportChart] = ()
    missing: str = ""
