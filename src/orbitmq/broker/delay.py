"""Delayed messages: put aside in one queue a level, delivered to their real topic when due.

The queue entry of the schedule topic holds the time a message is due instead of a tag hash, so a look at the head
of each queue tells what to do. Progress is saved in config/delayOffset.json, and only that of deliveries that are on
disk: after a crash some messages may be delivered again, none is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from pathlib import Path

from orbitmq.errors import StoreError, UnitError
from orbitmq.message.delay import delivery_timestamp
from orbitmq.message.javajson import dumps_pretty
from orbitmq.message.properties import REAL_QID, REAL_TOPIC, decode_properties
from orbitmq.message.topics import HALF_TOPIC, SCHEDULE_TOPIC
from orbitmq.message.unit import decode_unit
from orbitmq.runtime.clock import Clock
from orbitmq.runtime.files import load_with_backup
from orbitmq.runtime.saved import SavedFile
from orbitmq.store.engine import MessageStore
from orbitmq.store.records import PutRecord, PutStatus
from orbitmq.wire.bodies import DelayOffsetTable
from orbitmq.wire.objects import decode, plain

_log = logging.getLogger(__name__)

TICK_SECONDS = 0.1  # RocketMQ's pause between looks at a level
BATCH_MAX = 500  # deliveries of one level before other work gets its turn of the event loop


class DelayedDelivery:
    """Delivers what is due. `levels` are milliseconds, level 1 first."""

    def __init__(self, store: MessageStore, levels: tuple[int, ...], directory: Path, clock: Clock) -> None:
        self._store = store
        self._levels = levels
        self._clock = clock
        self.offsets: dict[int, int] = {}
        self.file = SavedFile(directory / "delayOffset.json", self._text)
        self._task: asyncio.Task[None] | None = None
        self._changed = False
        self._safe: dict[int, int] = {}  # the progress that may be saved
        self._noted: deque[tuple[int, dict[int, int]]] = deque()  # log end -> progress that is safe when it is flushed

    def load(self) -> None:
        """Read the progress and move it into what the queues hold."""
        saved = load_with_backup(self.file.path, lambda text: decode(DelayOffsetTable, text))
        for level, offset in (saved.offset_table if saved else {}).items():
            low = self._store.min_offset(SCHEDULE_TOPIC, level - 1)
            high = self._store.max_offset(SCHEDULE_TOPIC, level - 1)
            self.offsets[level] = min(max(offset, low), high)
        self._safe = dict(self.offsets)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def save_soon(self) -> None:
        if self._changed or self._noted:
            self.file.mark()

    async def _run(self) -> None:
        while True:
            try:
                more = [self.deliver_due(level) for level in range(1, len(self._levels) + 1)]
            except StoreError as error:
                _log.error("event=delivery_paused error=%s", error)
                more = []
            await asyncio.sleep(0 if any(more) else TICK_SECONDS)

    def deliver_due(self, level: int) -> bool:
        """Deliver what is due of one level, up to a batch; True when more is waiting."""
        offset = self._position(level)
        now_ms = self._clock.now_ms()
        entries = self._store.entries(SCHEDULE_TOPIC, level - 1, offset, BATCH_MAX)
        for physical_offset, _size, due_ms in entries:
            # A due time further away than the level's whole delay comes from a longer table: deliver now.
            if now_ms < due_ms <= delivery_timestamp(self._levels, level, now_ms):
                return False
            if not self._deliver(physical_offset):
                return False
            offset += 1
            self.offsets[level] = offset
            self._changed = True
        return len(entries) == BATCH_MAX

    def _position(self, level: int) -> int:
        offset = self.offsets.get(level, 0)
        low = self._store.min_offset(SCHEDULE_TOPIC, level - 1)
        high = self._store.max_offset(SCHEDULE_TOPIC, level - 1)
        return min(max(offset, low), high)

    def _deliver(self, physical_offset: int) -> bool:
        """Store the message under its real topic. True when done with it, also when it cannot be read."""
        stored = self._store.unit_at(physical_offset)
        if stored is None:
            return True
        try:
            unit = decode_unit(stored)
        except UnitError as error:
            _log.error("event=delayed_message_skipped offset=%d error=%s", physical_offset, error)
            return True
        properties = decode_properties(unit.properties)
        topic, queue_id = properties.get(REAL_TOPIC), properties.get(REAL_QID, "")
        if topic is None or topic == HALF_TOPIC or not queue_id.isdecimal():
            _log.warning("event=delayed_message_dropped offset=%d topic=%s", physical_offset, topic)
            return True
        record = PutRecord(
            topic=topic,
            queue_id=int(queue_id),
            body=unit.body,
            properties=unit.properties.encode(),
            flag=unit.flag,
            sys_flag=unit.sys_flag,
            born_timestamp=unit.born_timestamp,
            born_host=unit.born_host,
            store_host=unit.store_host,
            reconsume_times=unit.reconsume_times,
        )
        return self._store.put(record).status is PutStatus.PUT_OK

    def _text(self) -> str:
        if self._changed:
            self._changed = False
            self._noted.append((self._store.commit_log_max_offset, dict(self.offsets)))
        while self._noted and self._noted[0][0] <= self._store.flushed_offset:
            self._safe = self._noted.popleft()[1]
        return dumps_pretty(plain(DelayOffsetTable(offset_table=self._safe)))
