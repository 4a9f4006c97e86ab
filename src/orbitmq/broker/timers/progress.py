"""What the log says about timer messages: which were delivered, and how far they were moved. And what RocketMQ 5 says
of those that it delivered, in its file config/timercheck.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from orbitmq.message.properties import TIMER_OUT_MS, TIMER_ROLL_TIMES, EncodedProperties
from orbitmq.message.topics import TIMER_TOPIC
from orbitmq.message.unit import Unit
from orbitmq.wire.timer_check import decode_timer_check


def read_timer_check(path: Path) -> tuple[int, int] | None:
    """Time in milliseconds and queue offset; None without the file, or when it is too short. OSError."""
    if not path.exists():
        return None
    return decode_timer_check(path.read_bytes())


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
