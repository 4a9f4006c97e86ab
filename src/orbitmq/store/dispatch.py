"""From the log to the queues: every stored message gets its entries here.

A put hands its message over directly, recovery reads it back from the log; both go through `enter`, so that a
rebuilt queue is the same as the first one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from orbitmq.message.batch import TAGS_START, PackedBatch
from orbitmq.message.flags import TRANSACTION_PREPARED
from orbitmq.message.java_hash import tags_code
from orbitmq.message.properties import find_property
from orbitmq.message.unit import Unit, decode_unit
from orbitmq.store.extended_queue import ExtendedQueue
from orbitmq.store.multi_dispatch import MultiDispatch
from orbitmq.store.queue import ConsumeQueue, Entry
from orbitmq.store.queues import ConsumeQueues, is_storable

_log = logging.getLogger(__name__)

NeedRoom = Callable[[Sequence[ConsumeQueue], int], object]  # for so many entries in each
FilterBitmap = Callable[[str, bytes], bytes]  # topic and properties of a message -> which filters of the topic take it

EntryCode = Callable[[bytes, int], int | None]
"""Properties and store timestamp of a message -> what its queue entry holds instead of the hash of its tags, None for
the hash. It must give the same at a recovery as when the message was put.
"""
TAGS_ONLY: Final[Mapping[str, EntryCode]] = MappingProxyType({})  # no topic has other entries


def no_bitmap(topic: str, properties: bytes) -> bytes:  # noqa: ARG001
    """No group filters."""
    return b""


def is_queued(sys_flag: int) -> bool:
    """Prepared and rolled back messages lie in the log only; both have this bit, the others have not."""
    return not sys_flag & TRANSACTION_PREPARED


class Dispatcher:
    """Enters messages into their queues. `store_timestamp` is that of the last one. `entry_codes` has a function for
    each topic whose queue entries hold something else than the hash of the tags.
    """

    def __init__(
        self,
        queues: ConsumeQueues,
        entry_codes: Mapping[str, EntryCode] = TAGS_ONLY,
        multi_dispatch: MultiDispatch = MultiDispatch(),  # noqa: B008  a tuple
        bitmap_of: FilterBitmap = no_bitmap,
    ) -> None:
        self.store_timestamp = 0
        self.multi_dispatch = multi_dispatch
        self._queues = queues
        self._entry_codes = entry_codes
        self._bitmap_of = bitmap_of

    def code_of(self, queue: ConsumeQueue, properties: bytes, store_timestamp: int) -> int:
        """The code in the queue entry of a message: the hash of its tags, unless its topic has an `EntryCode`."""
        entry_code = self._entry_codes.get(queue.topic)
        code = entry_code(properties, store_timestamp) if entry_code is not None else None
        return tags_code(find_property(properties, TAGS_START)) if code is None else code

    def has_entry_code(self, topic: str) -> bool:
        """Whether the queue entries of a topic may hold something else than the hash of the tags."""
        return topic in self._entry_codes

    def resolved(self, queue: ConsumeQueue, entry: Entry, unit_at: Callable[[int], memoryview | None]) -> Entry:
        """The entry, with the code of its extension unit; if that is lost, the message's own."""
        offset, size, field = entry
        code = queue.resolve(field)
        if code is None:
            stored = unit_at(offset)
            if stored is None:
                return entry
            unit = decode_unit(stored, with_body=False)
            code = self.code_of(queue, unit.properties.encode(), unit.store_timestamp)
        return offset, size, code

    def enter(
        self,
        queue: ConsumeQueue,
        queue_offset: int,
        physical_offset: int,
        size: int,
        properties: bytes,
        store_timestamp: int,
    ) -> int:
        """Add a message's entry to its own queue; returns what was read from it. OSError if the disk is full."""
        code = field = self.code_of(queue, properties, store_timestamp)
        if queue.extended is not None and physical_offset + size > queue.max_physical_offset:
            field = self._extend(queue, queue.extended, code, properties, store_timestamp)
        queue.put(queue_offset, physical_offset, size, field)
        self.store_timestamp = store_timestamp
        return code

    def enter_run(self, queue: ConsumeQueue, batch: PackedBatch, store_timestamp: int) -> Sequence[int]:
        """The same for new messages that follow one another in the log; they become the last of the queue."""
        codes: Sequence[int] = batch.codes()
        entries = batch.entries
        if queue.topic in self._entry_codes:
            codes = [self.code_of(queue, text, store_timestamp) for text in batch.texts()]
            entries = batch.entries_with(codes)
        if (extended := queue.extended) is not None:
            addresses = []
            for code, text in zip(codes, batch.texts(), strict=True):
                addresses.append(self._extend(queue, extended, code, text, store_timestamp))
            entries = batch.entries_with(addresses)
        queue.put_run(entries)
        self.store_timestamp = store_timestamp
        return codes

    def _extend(
        self, queue: ConsumeQueue, extended: ExtendedQueue, code: int, properties: bytes, store_timestamp: int
    ) -> int:
        """The address of a new unit; `code` itself when the disk is full, which every reader takes as well."""
        try:
            return extended.put(code, store_timestamp, self._bitmap_of(queue.topic, properties))
        except OSError as error:
            _log.warning("event=not_extended topic=%s queue=%d error=%s", queue.topic, queue.queue_id, error)
            return code

    def dispatch(self, unit: Unit, need_room: NeedRoom | None = None) -> list[tuple[ConsumeQueue, int, int]]:
        """Make all entries of a message read from the log: queue, offset there, and the code of the entry. Raises what
        `need_room` raises, before any entry is made; without it OSError when the disk is full.
        """
        if not is_queued(unit.sys_flag):
            return []
        properties = unit.properties.encode()
        queue = self._queues.find_or_create(unit.topic, unit.queue_id)
        # RocketMQ stores a message for a topic that is no directory, and fails when it makes it.
        entered = [(queue, unit.queue_offset)]
        entered += [
            (self._queues.find_or_create(topic, queue_id), queue_offset)
            for topic, queue_id, queue_offset in self.multi_dispatch.entries(unit.topic, unit.queue_id, properties)
            if is_storable(topic)
        ]
        if need_room is not None:
            for one, queue_offset in entered:
                one.begin_at(queue_offset)
            need_room([one for one, _ in entered], 1)
        code = self.enter(
            queue, unit.queue_offset, unit.physical_offset, unit.size, properties, unit.store_timestamp
        )  # fmt: skip
        for other, queue_offset in entered[1:]:
            other.put(queue_offset, unit.physical_offset, unit.size, code)
        return [(one, queue_offset, code) for one, queue_offset in entered]
