"""Multi-dispatch: a message names further queues, and enters each of them besides its own. Pure.

The names stand in the property INNER_MULTI_DISPATCH, joined by commas. The store adds INNER_MULTI_QUEUE_OFFSET, the
offset the message gets in each, so that the queues can be built anew from the log. A further queue has the id of the
message's own one; a light queue, whose name begins with %LMQ%, is always number 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from orbitmq.message.properties import (
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    NAME_END,
    PAIR_END,
    WAIT,
    find_property,
)
from orbitmq.message.topics import DLQ_PREFIX, RETRY_PREFIX, is_lmq, is_system_topic

_NAMES: Final = (INNER_MULTI_DISPATCH + NAME_END).encode()
_OFFSETS: Final = (INNER_MULTI_QUEUE_OFFSET + NAME_END).encode()
_WAIT: Final = (WAIT + NAME_END).encode()
_PAIR_END: Final = PAIR_END.encode()


class MultiDispatch(NamedTuple):
    """What of it is switched on: light queues have number 0 only when they are."""

    is_enabled: bool = False
    with_light_queues: bool = False

    def queues(self, topic: str, queue_id: int, properties: bytes) -> list[tuple[str, int]]:
        """(topic, queue id) of the further queues of a message that is to be stored.

        A message that waits (delayed, half, for a retry) enters them when it comes to its real topic. RocketMQ enters
        it now and then again.
        """
        if not self.is_enabled or is_system_topic(topic) or topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            return []
        return [(name, self._queue_id(name, queue_id)) for name in _names(properties)]

    def entries(self, queue_id: int, properties: bytes) -> list[tuple[str, int, int]]:
        """(topic, queue id, queue offset) of the further queues of a stored message; none when counts disagree."""
        if not self.is_enabled:
            return []
        names, offsets = _names(properties), (find_property(properties, _OFFSETS) or b"").split(b",")
        if len(names) != len(offsets) or not all(map(bytes.isdigit, offsets)):
            return []
        return [
            (name, self._queue_id(name, queue_id), int(offset)) for name, offset in zip(names, offsets, strict=True)
        ]

    def _queue_id(self, name: str, queue_id: int) -> int:
        return 0 if self.with_light_queues and is_lmq(name) else queue_id


def with_offsets(properties: bytes, offsets: Iterable[int]) -> bytes:
    """The properties as they are stored: with the offset in each further queue, without the wish to wait."""
    pairs = [pair for pair in properties.split(_PAIR_END) if pair and not pair.startswith((_OFFSETS, _WAIT))]
    return _PAIR_END.join((*pairs, _OFFSETS + ",".join(map(str, offsets)).encode()))


def _names(properties: bytes) -> list[str]:
    text = find_property(properties, _NAMES)
    return text.decode("utf-8", "replace").rstrip(",").split(",") if text and text.strip() else []
