"""Whose a stored message is: some requests name a place of the commit log only. Must not know accounts or rules."""

from __future__ import annotations

from orbitmq.errors import UnitError
from orbitmq.message.properties import REAL_TOPIC, decode_properties
from orbitmq.message.topics import HALF_TOPIC, SCHEDULE_TOPIC
from orbitmq.message.unit import decode_unit
from orbitmq.store.engine import MessageStore

_WAITING_ROOMS = (HALF_TOPIC, SCHEDULE_TOPIC)
"""Topics the broker itself puts messages into; the one they are for stands in a property then."""


class StoredTopics:
    """Looks into the store."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def topic_at(self, offset: int) -> str | None:
        """The topic of the message that begins at `offset` of the commit log; None when none does.

        Bytes inside a body can be made to look like a message of any topic and size: only what the queue of that
        topic leads to is one.
        """
        stored = self._store.unit_at(offset) if offset >= 0 else None
        if stored is None:
            return None
        try:
            unit = decode_unit(stored, with_body=False)
        except UnitError:
            return None
        entries = self._store.entries(unit.topic, unit.queue_id, unit.queue_offset, 1)
        if not entries or entries[0][:2] != (offset, len(stored)):
            return None
        if unit.topic in _WAITING_ROOMS:
            return decode_properties(unit.properties).get(REAL_TOPIC, unit.topic)
        return unit.topic
