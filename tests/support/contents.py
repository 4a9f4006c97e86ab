"""What a store holds, in a form that can be compared with what another system says about the same directory."""

from __future__ import annotations

import hashlib
from typing import TypeAlias

from orbitmq.message.unit import decode_unit
from orbitmq.store.engine import MessageStore
from orbitmq.store.pull_batch import GetStatus
from tests.support.stores import units_of

Place: TypeAlias = tuple[int, int, int, str]  # queue offset, physical offset, size, SHA-256 of the unit
Contents: TypeAlias = dict[tuple[str, int], list[Place]]  # of each queue that has messages


def contents(store: MessageStore) -> Contents:
    """Every message of every queue, got the way a consumer gets it."""
    found = {key: places(store, *key) for key in store._queues.table}
    return {key: those for key, those in found.items() if those}


def places(store: MessageStore, topic: str, queue_id: int) -> list[Place]:
    found: list[Place] = []
    offset = int(store.min_offset(topic, queue_id))
    while offset < store.max_offset(topic, queue_id):
        result = store.get(topic, queue_id, offset, 32)
        assert result.status is GetStatus.FOUND, (topic, queue_id, offset, result.status)
        found += map(_place, units_of(result))
        offset = result.next_offset
    return found


def _place(buffer: memoryview) -> Place:
    unit = decode_unit(buffer, with_body=False)
    return unit.queue_offset, unit.physical_offset, unit.size, hashlib.sha256(buffer).hexdigest()
