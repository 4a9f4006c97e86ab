"""The copies of a timer message: the one that is delivered, and the one that goes on waiting. Pure."""

from __future__ import annotations

from typing import Final

from orbitmq.message.delay import real_place
from orbitmq.message.properties import (
    TIMER_DEQUEUE_MS,
    TIMER_ENQUEUE_MS,
    TIMER_ROLL_TIMES,
    decode_properties,
    encode_properties,
)
from orbitmq.message.topics import TIMER_TOPIC
from orbitmq.message.unit import Unit
from orbitmq.store.records import PutRecord, copy_of

TIMES_DIGITS_MAX: Final = 10


def delivered_copy(unit: Unit, properties: dict[str, str], now_ms: int) -> PutRecord | None:
    """The message for its real topic, with the properties that RocketMQ 5 gives it; None when it names none where a
    timer message belongs.
    """
    if (place := real_place(properties.get)) is None:
        return None
    properties[TIMER_ENQUEUE_MS] = str(unit.store_timestamp)
    properties[TIMER_DEQUEUE_MS] = str(now_ms)
    return _copy(unit, *place, properties)


def moved_copy(unit: Unit) -> PutRecord:
    """The message for the end of the timer topic; it may be stored when the disk is full, for a file goes then."""
    properties = decode_properties(unit.properties)
    times = properties.get(TIMER_ROLL_TIMES, "")
    properties[TIMER_ROLL_TIMES] = str(int(times) + 1 if times.isdecimal() and len(times) <= TIMES_DIGITS_MAX else 1)
    record = _copy(unit, TIMER_TOPIC, 0, properties)
    record.makes_room = True
    return record


def _copy(unit: Unit, topic: str, queue_id: int, properties: dict[str, str]) -> PutRecord:
    """With the place of the original, plus 1 as 0 is none: it says after a crash that this was done (`progress`)."""
    record = copy_of(unit, topic, queue_id, encode_properties(properties).encode())
    record.prepared_transaction_offset = unit.physical_offset + 1
    return record
