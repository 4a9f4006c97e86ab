"""What the log says about timer messages: which were delivered, and how far they were moved. And what RocketMQ 5 says
of those that it delivered, in its file config/timercheck, big-endian:

    offset | size | field
         0 |    8 | time of the slot of its wheel that comes next: all due then or before were delivered
         8 |    8 | end of its timer log
        16 |    8 | offset in the queue of the timer topic: all before were put into the wheel, or delivered
        24 |    8 | that of its master
        32 |   24 | a data version
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from struct import Struct
from typing import Final

from orbitmq.message.properties import TIMER_OUT_MS, TIMER_ROLL_TIMES, EncodedProperties
from orbitmq.message.topics import TIMER_TOPIC
from orbitmq.message.unit import Unit

TIMER_CHECK: Final = Struct(">qqq")


def read_timer_check(path: Path) -> tuple[int, int] | None:
    """Time in milliseconds and queue offset; None without the file, or when it is too short. OSError."""
    if not path.exists():
        return None
    content = path.read_bytes()
    if len(content) < TIMER_CHECK.size:
        return None
    done_due_ms, _, queue_offset = TIMER_CHECK.unpack_from(content)
    return done_due_ms, queue_offset


class DoneSince:
    """What messages of the log say was done: `places` that were delivered, and `moved`, as in `TimerProgress` of
    `wire.bodies`.

    The copy of a timer message has its place, plus 1, in its unit, where that of a committed transaction has the
    place of its half message.
    """

    def __init__(self, units: Iterable[Unit], moved: int) -> None:
        self.places: set[int] = set()
        self.moved = moved
        for unit in units:
            if unit.prepared_transaction_offset > 0:
                self._look(unit, unit.prepared_transaction_offset - 1)

    def _look(self, unit: Unit, origin: int) -> None:
        properties = EncodedProperties(unit.properties.encode())
        if unit.topic != TIMER_TOPIC:
            if properties.get(TIMER_OUT_MS) is not None:
                self.places.add(origin)
        elif properties.get(TIMER_ROLL_TIMES) is not None:
            self.moved = max(self.moved, origin + 1)
