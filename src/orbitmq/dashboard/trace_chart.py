"""Traces as bars: the start of each step of a message, its duration, and its position on a time axis.

Pure: takes records, returns lengths; a template draws them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orbitmq.admin.traces import ENDINGS, FAILED, UNKNOWN, Traced, TraceNode, graph, ids

WIDTH = 1000
"""Length of the time axis, in units of the drawing."""
NARROWEST = 6
"""Shortest bar, so that a step without a duration is visible."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One step of a message."""

    what: str
    """sent, decided, checked, or consumed with the number of the attempt."""
    group: str
    client: str | None
    begin_ms: int | None
    cost_ms: int | None
    status: str
    """success, failed or unknown; the decision for a transaction."""
    ending: str | None
    """How a listener failed."""
    x: int
    width: int
    since_ms: int | None
    """Milliseconds since the start of the first step."""
    attempt: int | None = None
    """The number of this consumption, from 1."""


@dataclass(frozen=True, slots=True)
class Chart:
    """The trace of one message."""

    msg_id: str
    topic: str | None
    keys: str | None
    tags: str | None
    offset_msg_id: str | None
    bars: list[Bar]
    span_ms: int


@dataclass(frozen=True, slots=True)
class _Part:
    what: str
    group: str
    node: TraceNode
    status: str
    ending: str | None = None
    attempt: int | None = None


def charts(records: Sequence[Traced]) -> list[Chart]:
    """One chart for each message, because several may have the same key."""
    names = list(dict.fromkeys(name for one in ids(records) for name in one.split(",") if name))
    return [_chart(name, [one for one in records if name in one.msg_id.split(",")]) for name in names]


def _chart(msg_id: str, records: Sequence[Traced]) -> Chart:
    traced = graph(records)
    parts = list(_parts(records))
    begins = [part.node.begin_timestamp for part in parts if part.node.begin_timestamp != UNKNOWN]
    first = min(begins, default=0)
    last = max((max(part.node.end_timestamp, part.node.begin_timestamp) for part in parts), default=first)
    sent = traced.producer_node
    keys = next((one.keys for one in records if one.keys), None)
    return Chart(
        msg_id,
        sent.topic if sent else None,
        keys,
        sent.tags if sent else None,
        sent.offset_msg_id if sent else None,
        [_bar(part, first, max(last - first, 1)) for part in parts],
        max(last - first, 0),
    )


def _parts(records: Sequence[Traced]) -> Iterable[_Part]:
    """By start time; steps without one are last."""
    traced = graph(records)
    found: list[_Part] = []
    if traced.producer_node is not None:
        sent = traced.producer_node
        found.append(_Part("sent", sent.group_name, sent.trace_node, sent.trace_node.status))
    group = traced.producer_node.group_name if traced.producer_node else ""
    for end in [one for one in records if one.kind == "EndTransaction"]:
        what = "decided, on check" if end.from_check else "decided"
        node = TraceNode(client_host=end.client_host, begin_timestamp=end.at_ms or UNKNOWN)
        found.append(_Part(what, end.group or group, node, end.state or "unknown"))
    endings = {one.request_id: one.outcome for one in records if one.kind == "SubAfter"}
    for subscription in traced.subscription_node_list:
        for node in subscription.consume_node_list:
            attempt = None if node.retry_times == UNKNOWN else node.retry_times + 1
            what = "consumed" if attempt is None else f"consumed, attempt {attempt}"
            outcome = endings.get(node.request_id) if node.status == FAILED else None
            ending = None if outcome is None else ENDINGS.get(outcome)
            found.append(_Part(what, subscription.subscription_group, node, node.status, ending, attempt))
    return sorted(found, key=lambda part: (part.node.begin_timestamp == UNKNOWN, part.node.begin_timestamp))


def _bar(part: _Part, first: int, span: int) -> Bar:
    node = part.node
    begin = None if node.begin_timestamp == UNKNOWN else node.begin_timestamp
    cost = None if node.cost_time == UNKNOWN else node.cost_time
    left = 0 if begin is None else round((begin - first) * WIDTH / span)
    width = max(NARROWEST, round((cost or 0) * WIDTH / span))
    x = min(left, WIDTH - NARROWEST)
    return Bar(
        part.what,
        part.group,
        node.client_host,
        begin,
        cost,
        part.status,
        part.ending,
        x,
        min(width, WIDTH - x),
        None if begin is None else begin - first,
        part.attempt,
    )
