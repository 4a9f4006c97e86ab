"""Charts of the last hour: the samples of a cluster as lines with times and a unit, for the script that draws them.

Without the script, a sentence says the same: now, and at most. Knows no page and no request.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from orbitmq.dashboard.clusters import History, of_broker_key, of_group_key, of_topic_key
from orbitmq.dashboard.formats import rate
from orbitmq.dashboard.words import N_
from orbitmq.runtime.languages import gettext

SPAN_SECONDS = 3600
SHORTEST_SECONDS = 300  # of the time axis, while there are few samples
GROUPS_MAX = 5  # lines of groups in a chart: more cannot be distinguished


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart."""

    label: str
    """In English; shown in the language of the page, unless it is a name."""
    values: Sequence[float | None]
    """The oldest first; None where a sample lacks it."""
    colour: int = 0
    """The number of its colour and dashes in the style sheet."""
    is_name: bool = False

    @property
    def text(self) -> str:
        return self.label if self.is_name else gettext(self.label)


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines with a common unit."""

    title: str
    unit: str
    times: Sequence[float]
    """Of the values, in seconds since the epoch."""
    lines: Sequence[Line]
    interval_ms: float
    """Between two samples."""

    @property
    def is_drawn(self) -> bool:
        """Whether there is a line at all: it takes two values."""
        return any(sum(value is not None for value in line.values) > 1 for line in self.lines)

    @property
    def summary(self) -> str:
        """The latest and the largest value of each line: `produced/s 12, at most 40`."""
        return "; ".join(filter(None, (self._summary(line) for line in self.lines)))

    def _summary(self, line: Line) -> str:
        known = [value for value in line.values if value is not None]
        if not known:
            return ""
        text = gettext("%(label)s: %(now)s %(unit)s, at most %(most)s")
        unit = gettext(self.unit)
        return text % {"label": line.text, "now": rate(known[-1]), "unit": unit, "most": rate(max(known))}

    @property
    def json(self) -> str:
        """For the script, with its texts."""
        times = [round(at) for at in self.times]
        end = times[-1] if times else 0
        series = [
            {"label": line.text, "colour": line.colour, "values": [_short(one) for one in line.values]}
            for line in self.lines
        ]
        data = {
            "unit": gettext(self.unit), "time": gettext("time"), "times": times, "series": series,
            "begin": max(end - SPAN_SECONDS, min(times[0] if times else end, end - SHORTEST_SECONDS)),
            "end": end,
        }  # fmt: skip
        return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def _short(value: float | None) -> float | None:
    """Three digits after the point: a page has hundreds of values."""
    return value if value is None or isinstance(value, int) else round(value, 3)


def of_cluster(history: History, interval_ms: float) -> list[Chart]:
    """Rates, lag and latency of all brokers."""
    return [*_of_nodes(history, "", interval_ms), _lag(history, "lag", interval_ms)]


def of_broker(history: History, name: str, broker_id: int, interval_ms: float) -> list[Chart]:
    return _of_nodes(history, of_broker_key(name, broker_id), interval_ms)


def of_group(history: History, name: str, interval_ms: float) -> list[Chart]:
    rates = Line(N_("delivered"), history.of(f"rate{of_group_key(name)}"))
    delivered = Chart(N_("Deliveries"), N_("messages/s"), history.times, [rates], interval_ms)
    return [_lag(history, f"lag{of_group_key(name)}", interval_ms), delivered]


def of_topic(history: History, name: str, interval_ms: float) -> list[Chart]:
    """What is produced and delivered a second, and the lag: of the groups with the longest lag, in one colour each."""
    produced = _produced(history, name)
    groups = _furthest_behind(history, name)
    delivered = [
        Line(group, history.of(f"rate{of_topic_key(name, group)}"), colour, is_name=True)
        for colour, group in enumerate(groups, 1)
    ]
    lags = [
        Line(group, history.of(f"lag{of_topic_key(name, group)}"), colour, is_name=True)
        for colour, group in enumerate(groups, 1)
    ]
    rates = Chart(
        N_("Produced, and delivered to groups"), N_("messages/s"), history.times,
        [Line(N_("produced"), produced), *delivered], interval_ms,
    )  # fmt: skip
    return [rates, Chart(N_("Lag of groups"), N_("messages"), history.times, lags, interval_ms)] if groups else [rates]


def _produced(history: History, name: str) -> list[float | None]:
    """The rate by the broker where it was requested, else by the number of messages stored between two samples."""
    key = of_topic_key(name)
    by_end = rates_of(history.times, history.of(f"end{key}"))
    by_broker = history.of(f"in{key}") or [None] * len(by_end)
    return [mine if stored is None else stored for stored, mine in zip(by_end or by_broker, by_broker, strict=True)]


def rates_of(times: Iterable[float], counts: Sequence[float | None]) -> list[float | None]:
    """How much a count grew per second since the sample before; None where that is unknown, or where it shrank."""
    if not counts:
        return []
    rates: list[float | None] = [None]
    for (before_s, before), (at_s, count) in pairwise(zip(times, counts, strict=True)):
        is_known = before is not None and count is not None and count >= before and at_s > before_s
        rates.append((count - before) / (at_s - before_s) if is_known else None)  # type: ignore[operator]
    return rates


def _furthest_behind(history: History, name: str) -> list[str]:
    prefix = f"lag{of_topic_key(name, '')}"

    def lag(group: str) -> float:
        return next((value for value in reversed(history.of(f"{prefix}{group}")) if value is not None), 0)

    return sorted(sorted(history.names(prefix)), key=lag, reverse=True)[:GROUPS_MAX]


def _lag(history: History, series: str, interval_ms: float) -> Chart:
    return Chart(N_("Lag"), N_("messages"), history.times, [Line(N_("lag"), history.of(series))], interval_ms)


def _of_nodes(history: History, suffix: str, interval_ms: float) -> list[Chart]:
    rates = [
        Line(N_("produced"), history.of(f"in{suffix}")), Line(N_("delivered"), history.of(f"out{suffix}"), 1)
    ]  # fmt: skip
    waits = [
        Line(N_("put, 99 of 100 faster"), history.of(f"put{suffix}")),
        Line(N_("longest stall"), history.of(f"delay{suffix}"), 1),
    ]
    return [
        Chart(N_("Messages"), N_("messages/s"), history.times, rates, interval_ms),
        Chart(N_("Latency"), N_("ms"), history.times, waits, interval_ms),
    ]
