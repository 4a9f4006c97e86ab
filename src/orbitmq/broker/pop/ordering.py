"""Orderly POP consumption: which messages of a queue a group has in flight, and when it gets them again.

A queue is blocked while messages of its last response are neither acknowledged nor visible again. The table is saved as
config/consumerOrderInfo.json, in the form of RocketMQ 5. After a crash it may be some seconds old: messages in flight
may be redelivered then, in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from orbitmq.errors import BodyError
from orbitmq.message.javajson import dumps_pretty, loads
from orbitmq.runtime.clock import Clock
from orbitmq.runtime.saved import SavedFile

SEPARATOR: Final = "@"
IDLE_MS: Final = 24 * 3600 * 1000  # then a queue is forgotten, as in RocketMQ
QUEUES_MAX: Final = 100_000  # that are remembered; beyond it the longest idle ones are forgotten

UNKNOWN, NOT_ITS_TIME = -1, -2
QueueKey = tuple[str, str, int]  # topic, group, queue id


class Order(msgspec.Struct):
    """The last response for one queue. `counts` and `visible_ms` are by queue offset, times milliseconds."""

    pop_ms: int
    invisible_ms: int
    offsets: list[int]
    attempt_id: str | None = None
    done: int = 0
    counts: dict[int, int] = {}
    visible_ms: dict[int, int] = {}
    used_ms: int = 0

    def is_blocked(self, now_ms: int, attempt_id: str | None) -> bool:
        """Whether the queue waits; not for a request that is the last one again, whose response was lost."""
        if attempt_id is not None and attempt_id == self.attempt_id:
            return False
        return (self.free_ms() or 0) > now_ms

    def free_ms(self) -> int | None:
        """When all messages that are not acknowledged are visible again; None if there are none."""
        left = [offset for bit, offset in enumerate(self.offsets) if not self.done >> bit & 1]
        if not left:
            return None
        return max(self.visible_ms.get(offset, self.pop_ms + self.invisible_ms) for offset in left)

    def following(self) -> int:
        """Where the group goes on: the first message that is not acknowledged, or behind the last."""
        for bit, offset in enumerate(self.offsets):
            if not self.done >> bit & 1:
                return offset
        return self.offsets[-1] + 1


class Orders:
    """The table: (topic, group, queue id) -> order."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._clock = clock
        self.table: dict[QueueKey, Order] = {}
        self.file = SavedFile(directory / "consumerOrderInfo.json", self._text)
        self._is_changed = False

    def load(self) -> None:
        self.table = self.file.load(_parsed) or {}

    def text(self) -> Callable[[], str]:
        """A function that makes the content of the file; it may be called off the event loop."""
        return partial(_rendered, [(key, _plain(order)) for key, order in self.table.items()])

    async def take(self, text: str) -> None:
        """Of a slave, which delivers nothing: the orders of its master. BodyError."""
        found = await asyncio.to_thread(_parsed, text)
        if found != self.table:
            self.table, self._is_changed = found, True
            self.save_soon()

    def save_soon(self) -> None:
        if self._is_changed:
            self.file.mark()

    def forget_idle(self) -> None:
        """To be called now and then."""
        since_ms = self._clock.now_ms() - IDLE_MS
        self._forget([key for key, order in self.table.items() if order.used_ms < since_ms])

    def forget_topic(self, topic: str) -> None:
        """It is deleted."""
        self._forget([key for key in self.table if key[0] == topic])

    def _forget(self, keys: list[QueueKey]) -> None:
        for key in keys:
            del self.table[key]
            self._is_changed = True

    def of(self, topic: str, group: str, queue_id: int) -> Order | None:
        return self.table.get((topic, group, queue_id))

    def deliver(
        self, key: QueueKey, pop_ms: int, invisible_ms: int, offsets: list[int], attempt_id: str | None
    ) -> dict[int, int]:
        """Note a response; how often each of its messages was delivered before."""
        before = self.table.pop(key, None)
        counts = {} if before is None else before.counts
        if before is None or attempt_id is None or attempt_id != before.attempt_id:
            known = set() if before is None else set(before.offsets)
            counts = {offset: counts.get(offset, 0) + (offset in known) for offset in offsets}
        if len(self.table) >= QUEUES_MAX:
            del self.table[next(iter(self.table))]
        self.table[key] = Order(pop_ms, invisible_ms, offsets, attempt_id, 0, counts, {}, pop_ms)
        self._is_changed = True
        return counts

    def acknowledge(self, key: QueueKey, offset: int, pop_ms: int, committed: int) -> int:
        """Where the group goes on now, of which `committed` is the offset; UNKNOWN for a message that was not
        delivered, NOT_ITS_TIME for a delivery that is not the last one, or if the offset was set meanwhile.
        """
        order = self.table.get(key)
        if order is None or offset not in order.offsets:
            return UNKNOWN
        if order.pop_ms != pop_ms or order.following() != committed:
            return NOT_ITS_TIME
        order.done |= 1 << order.offsets.index(offset)
        order.used_ms = self._clock.now_ms()
        self._is_changed = True
        return order.following()

    def change(self, key: QueueKey, offset: int, pop_ms: int, visible_ms: int) -> bool:
        """Whether a message is visible again at another time from now on."""
        order = self.table.get(key)
        if order is None or order.pop_ms != pop_ms or offset not in order.offsets:
            return False
        order.visible_ms[offset] = visible_ms
        self._is_changed = True
        return True

    def _text(self) -> Callable[[], str]:
        self._is_changed = False
        return self.text()


def _rendered(rows: list[tuple[QueueKey, dict[str, Any]]]) -> str:
    table: dict[str, dict[int, Any]] = {}
    for (topic, group, queue_id), fields in rows:
        table.setdefault(topic + SEPARATOR + group, {})[queue_id] = fields
    return dumps_pretty({"table": table})


def _plain(order: Order) -> dict[str, Any]:
    first = order.offsets[0]
    fields: dict[str, Any] = {
        "popTime": order.pop_ms,
        "i": order.invisible_ms,
        "o": [first, *(offset - first for offset in order.offsets[1:])],
        "ot": dict(order.visible_ms),
        "oc": dict(order.counts),
        "l": order.used_ms,
        "cm": order.done,
    }
    return fields if order.attempt_id is None else {**fields, "a": order.attempt_id}


def _parsed(text: str) -> dict[QueueKey, Order]:
    found: dict[QueueKey, Order] = {}
    try:
        for name, queues in loads(text)["table"].items():
            topic, _, group = name.partition(SEPARATOR)
            for queue_id, fields in queues.items():
                if order := _order(fields):
                    found[topic, group, int(queue_id)] = order
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BodyError(f"the table of orderly consumption is damaged: {error!r}") from error
    return found


def _order(fields: Mapping[str, Any]) -> Order | None:
    offsets: Sequence[int] = fields.get("o") or ()
    if not offsets:
        return None
    return Order(
        pop_ms=int(fields["popTime"]),
        invisible_ms=int(fields.get("i") or 0),
        offsets=[int(offsets[0]), *(int(offsets[0]) + int(one) for one in offsets[1:])],
        attempt_id=fields.get("a"),
        done=int(fields.get("cm") or 0),
        counts={int(offset): int(count) for offset, count in (fields.get("oc") or {}).items()},
        visible_ms={int(offset): int(at) for offset, at in (fields.get("ot") or {}).items()},
        used_ms=int(fields.get("l") or 0),
    )
