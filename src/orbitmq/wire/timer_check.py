"""How far RocketMQ 5 has delivered timer messages, as in its file config/timercheck and for its slaves, big-endian:

offset | size | field
     0 |    8 | time of the slot of its wheel that comes next: all due then or before were delivered
     8 |    8 | end of its timer log
    16 |    8 | offset in the queue of the timer topic: all before were put into the wheel, or delivered
    24 |    8 | that of its master
    32 |   24 | a data version: state, timestamp, counter
"""

from __future__ import annotations

from struct import Struct
from typing import Final

_READ: Final = Struct(">qqq")
_SENT: Final = Struct(">7q")


def decode_timer_check(content: bytes | memoryview) -> tuple[int, int] | None:
    """Time in milliseconds and queue offset; None if it is too short."""
    if len(content) < _READ.size:
        return None
    done_due_ms, _, queue_offset = _READ.unpack_from(content)
    return done_due_ms, queue_offset


def encode_timer_check(done_due_ms: int, queue_offset: int) -> bytes:
    """That of a master without a wheel; the time is a full second."""
    return _SENT.pack(done_due_ms, 0, queue_offset, queue_offset, 0, done_due_ms, queue_offset)
