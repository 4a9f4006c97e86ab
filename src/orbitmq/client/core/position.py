"""Where the consumption of a queue starts. Pure."""

from __future__ import annotations

from enum import Enum

from orbitmq.message.topics import RETRY_PREFIX
from orbitmq.wire.bodies import ConsumeFromWhere


class StartLookup(Enum):
    """A start position that the broker knows."""

    MAX_OFFSET = "the next offset to be written"
    MIN_OFFSET = "the first offset that can be read"
    OFFSET_OF_TIME = "the offset of the first message stored at or after the configured time"


def start_position(topic: str, stored: int, where: ConsumeFromWhere) -> int | StartLookup:
    """The offset to start at. `stored` is the group's offset, negative when it has none.

    A retry topic is read from its beginning, whatever the group wants of old messages: what is in it was delivered
    to this group before. (With CONSUME_FROM_TIMESTAMP Java starts it at its end.) Java answers 0 for
    CONSUME_FROM_FIRST_OFFSET and stands still for 10 s when that offset is deleted already; the minimum is asked here.
    """
    if stored >= 0:
        return stored
    retry = topic.startswith(RETRY_PREFIX)
    if where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
        return StartLookup.MAX_OFFSET if retry else StartLookup.OFFSET_OF_TIME
    if where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
        return 0 if retry else StartLookup.MIN_OFFSET
    return 0 if retry else StartLookup.MAX_OFFSET
