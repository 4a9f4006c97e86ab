"""Multi-dispatch: a message names further queues, and is dispatched to each of them besides its own. Pure.

The names are in the property INNER_MULTI_DISPATCH, joined by commas. The store adds INNER_MULTI_QUEUE_OFFSET, the
message's offset in each, so that the queues can be rebuilt from the log. A further queue has the id of the message's
own one; a light queue, whose name begins with %LMQ%, always has id 0.

A delayed message, half message or retry is dispatched to them when it is put to its real topic. RocketMQ dispatches it
both times.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from orbitmq.message.batch import PackedBatch
from orbitmq.message.properties import (
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    NAME_END,
    PAIR_END,
    WAIT,
    find_property,
)
from orbitmq.message.topics import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    REVIVE_PREFIX,
    SEND_FORBIDDEN_TOPICS,
    check_send_allowed,
    is_lmq,
    is_system_topic,
)
from orbitmq.store.queues import check_storable

_NAMES: Final = (INNER_MULTI_DISPATCH + NAME_END).encode()
_OFFSETS: Final = (INNER_MULTI_QUEUE_OFFSET + NAME_END).encode()
_WAIT: Final = (WAIT + NAME_END).encode()
_PAIR_END: Final = PAIR_END.encode()
OFFSET_MAX: Final = (1 << 63) - 1  # no queue offset has more digits


class MultiDispatch(NamedTuple):
    """What of it is switched on: light queues have number 0 only when they are."""

    is_enabled: bool = False
    with_light_queues: bool = False

    def queues(self, topic: str, queue_id: int, properties: bytes) -> list[tuple[str, int]]:
        """(topic, queue id) of the further queues of a message to be stored."""
        if not self.is_enabled or not is_dispatched(topic):
            return []
        names = dispatch_names(properties)
        for name in names:
            check_send_allowed(name)  # what enters a queue of the broker's own is obeyed
        return [(name, self._queue_id(name, queue_id)) for name in names]

    def entries(self, topic: str, queue_id: int, properties: bytes) -> list[tuple[str, int, int]]:
        """(topic, queue id, queue offset) of the further queues of a stored message; none if the counts disagree.

        A retried message still has its first offsets, and is not dispatched again.
        """
        if not self.is_enabled or not is_dispatched(topic):
            return []
        names, offsets = dispatch_names(properties), (find_property(properties, _OFFSETS) or b"").split(b",")
        if len(names) != len(offsets) or not all(map(bytes.isdigit, offsets)):
            return []
        return [
            (name, self._queue_id(name, queue_id), int(offset))
            for name, offset in zip(names, offsets, strict=True)
            if name not in SEND_FORBIDDEN_TOPICS and not name.startswith(REVIVE_PREFIX)
        ]

    def names_queues(self, batch: PackedBatch) -> bool:
        """Whether one of these messages names further queues."""
        return self.is_enabled and any(_NAMES in text for text in batch.texts())

    def _queue_id(self, name: str, queue_id: int) -> int:
        return 0 if self.with_light_queues and is_lmq(name) else queue_id


def with_offsets(properties: bytes, offsets: Iterable[int]) -> bytes:
    """The properties to be stored: with the offset in each further queue, without WAIT."""
    pairs = [pair for pair in properties.split(_PAIR_END) if pair and not pair.startswith((_OFFSETS, _WAIT))]
    return _PAIR_END.join((*pairs, _OFFSETS + ",".join(map(str, offsets)).encode()))


def is_dispatched(topic: str) -> bool:
    """Whether messages of this topic enter further queues."""
    return not is_system_topic(topic) and not topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def size_when_stored(topic: str, properties: bytes) -> int:
    """How many bytes the properties of a message that waits may have when it comes to `topic`. MessageIllegal when it
    cannot be stored under the names it brings along, switched on or not: that may change while it waits.
    """
    names = dispatch_names(properties) if is_dispatched(topic) else []
    for name in names:
        check_send_allowed(name)
        check_storable(name)
    return len(with_offsets(properties, [OFFSET_MAX] * len(names))) if names else len(properties)


def dispatch_names(properties: bytes) -> list[str]:
    """The further queues that a message names."""
    text = find_property(properties, _NAMES)
    return text.decode("utf-8", "replace").rstrip(",").split(",") if text and text.strip() else []
