"""The queues of one group summed by topic and by member. Pure: no I/O. An unknown value makes the sum unknown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from msgspec import Struct

from orbitmq.admin.progress import GroupQueue


class QueueSpread(Struct, frozen=True, rename="camel"):
    """A value of some queues: the smallest, the mean, the largest."""

    low: int
    mean: float
    high: int


class Share(Struct, frozen=True, rename="camel"):
    """Some queues of a group."""

    name: str
    """The topic, or the client."""
    queues: int
    lag_messages: int | None
    known_lag_messages: int
    """Of the queues that are known: the least it is."""
    expired_messages: int | None
    delay_ms: int | None
    """The longest that a next message has waited since it was stored; None when that of a queue is not known."""
    last_consumed_at_ms: int | None
    """When the newest message that was consumed was stored."""
    lag_by_queue: QueueSpread | None
    """In messages; None when that of a queue is not known, as for the next."""
    delay_by_queue: QueueSpread | None
    """In milliseconds."""


def by_topic(queues: Iterable[GroupQueue]) -> list[Share]:
    """In the order topics first come."""
    return _shares(queues, lambda one: one.topic)


def by_client(queues: Iterable[GroupQueue]) -> dict[str, Share]:
    """By client id. Queues without an owner, or with an unknown one, are left out."""
    return {one.name: one for one in _shares(queues, lambda one: one.client_id)}


def _shares(queues: Iterable[GroupQueue], name: Callable[[GroupQueue], str | None]) -> list[Share]:
    found: dict[str, list[GroupQueue]] = defaultdict(list)
    for one in queues:
        if (key := name(one)) is not None:
            found[key].append(one)
    return [_share(key, some) for key, some in found.items()]


def _share(name: str, queues: list[GroupQueue]) -> Share:
    lags = [one.lag_messages for one in queues]
    delays = [one.delay_ms for one in queues]
    return Share(
        name,
        len(queues),
        _sum(lags),
        sum(lag or 0 for lag in lags),
        _sum([one.expired_messages for one in queues]),
        None if None in delays else max((delay for delay in delays if delay is not None), default=None),
        max((one.last_consumed_at_ms for one in queues if one.last_consumed_at_ms is not None), default=None),
        _spread(lags),
        _spread(delays),
    )


def _sum(counts: list[int | None]) -> int | None:
    return None if None in counts else sum(count for count in counts if count is not None)


def _spread(values: list[int | None]) -> QueueSpread | None:
    known = [value for value in values if value is not None]
    if len(known) < len(values) or not known:
        return None
    return QueueSpread(min(known), sum(known) / len(known), max(known))
