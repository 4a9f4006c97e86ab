"""Random work on a store whose disk loses its power again and again, and what must be true each time it is back.

Everything runs on one thread and follows from one seed: the store's workers do not run, the history takes their steps.
"""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

from orbitmq.broker.schedule import entry_codes
from orbitmq.message.delay import DEFAULT_DELAY_LEVELS, delivery_timestamp, parse_delay_levels
from orbitmq.message.flags import TRANSACTION_PREPARED
from orbitmq.message.java_hash import tags_code
from orbitmq.message.topics import SCHEDULE_TOPIC
from orbitmq.message.unit import Unit, decode_unit
from orbitmq.runtime.clock import ManualClock
from orbitmq.store.checkpoint import FIELDS
from orbitmq.store.engine import MessageStore
from orbitmq.store.multi_dispatch import with_offsets
from orbitmq.store.options import SYNC_FLUSH
from orbitmq.store.queue_room import RoomAwaited
from orbitmq.store.records import PutResult, PutStatus
from orbitmq.store.walk import Walk
from orbitmq.store.worker import Worker
from tests.support.batches import BatchItem, put_batch
from tests.support.power import SECTOR, PowerDisk, PowerLost
from tests.support.stores import record, small_options, units_of

QUEUES = [("T", 0), ("T", 1), ("Other", 0), (SCHEDULE_TOPIC, 2)]
LIGHT_QUEUES = [("%LMQ%one", 0), ("%LMQ%two", 0)]
LIGHT_NAMES = b"\x02INNER_MULTI_DISPATCH\x01%LMQ%one,%LMQ%two"
DELAY_LEVEL = 3
DELAYS = parse_delay_levels(DEFAULT_DELAY_LEVELS)
FAR_FUTURE_MS = 1 << 42
Content: TypeAlias = tuple[int, bytes, bytes]  # queue offset, hash of the body, properties
STEPS_A_LIFE = 60
CALLS_A_LIFE = 30  # of the disk, at most, before the power goes


class StillWorker(Worker):
    """A worker that runs when the history says so."""

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    @property
    def is_woken(self) -> bool:
        return self._woken.is_set()

    def run_once(self) -> None:
        self._woken.clear()
        self._step()


class SimulatedStore(MessageStore):
    """A store without threads."""

    still: dict[str, StillWorker]

    def _worker(self, name: str, step: Callable[[], float | None], interval_ms: int) -> Worker:
        worker = StillWorker(name, step, interval_ms, self._poison)
        self.__dict__.setdefault("still", {})[name] = worker
        return worker


@dataclass
class Stored:
    """A message in the log, in the order of the log. `queue_id` -1: it is in no queue."""

    topic: str
    queue_id: int
    queue_offset: int
    place: int
    end: int
    code: int
    body: bytes
    properties: bytes
    is_promised: bool = False  # no crash may take it: it was acknowledged, flushed, or seen by a reader

    @property
    def is_light(self) -> bool:
        """Whether it is in the light queues, too."""
        return LIGHT_NAMES in self.properties

    @property
    def key(self) -> str:
        return f"key{int(self.body[:6])}"

    @property
    def content(self) -> Content:
        return self.queue_offset, hashlib.sha256(self.body).digest(), self.properties


def _code(topic: str, store_timestamp: int) -> int:
    """What an entry says: when a delayed message is due, for others the hash of their tag."""
    return delivery_timestamp(DELAYS, DELAY_LEVEL, store_timestamp) if topic == SCHEDULE_TOPIC else tags_code("A")


class History:
    """`counts` tells what happened. With `damages` a file of a queue or of the index is damaged at each crash as well,
    and the checkpoint may speak of queues that are not on disk: whatever is in the log must be made good from it.
    """

    def __init__(
        self,
        directory: Path,
        seed: int,
        *,
        flush: str = SYNC_FLUSH,
        store: type[SimulatedStore] = SimulatedStore,
        disk: type[PowerDisk] = PowerDisk,
        damages: bool = False,
        **changes: Any,
    ) -> None:
        self.random = Random(seed)
        self._damages = damages
        self.counts: Counter[str] = Counter()
        self._is_sync = flush == SYNC_FLUSH
        self._disk = disk(directory, self.random)
        self._make = store
        options: dict[str, Any] = {
            "flush_disk_type": flush,
            "message_index_enable": True,
            "max_hash_slot_num": 50,
            "max_index_num": 120,
            "file_reserved_time_hours": 0,
            "flush_consume_queue_thorough_interval_ms": 10_000,
            "flush_consume_queue_least_pages": 0,
        }
        self._options = small_options(directory / "store", **{**options, **changes})
        self._clock = ManualClock()
        self._clock.advance(1 << 40)  # files have real times: all of them are old
        self._stored: list[Stored] = []
        self._removed_below = 0
        self._number = 0
        self._under_way: list[tuple[str, int, bytes, bytes]] = []  # a put that has not returned
        self._progress: Counter[tuple[str, int]] = Counter()  # queue -> how far a consumer has come
        self._works: list[tuple[int, Callable[[], None]]] = [
            (40, self._put),
            (6, self._put_batch),
            (2, self._put_prepared),
            (8 if self._options.enable_lmq else 0, self._put_light),
            (8, self._put_delayed),
            (12, self._run_woken),
            (6, self._disk.write_back),
            (8, self._read),
            (3, self._query),
            (16, self._run_one),
            (2, self._clean),
            (1, self._restart),
        ]

    def run(self, lives: int) -> None:
        """Live until the power goes, so many times; AssertionError when a promise was broken."""
        with self._disk.watching():
            self._open()
            for _ in range(lives):
                self._live()
                if self.random.random() < 0.1:
                    self._kill()
                    continue
                self._disk.lose_power()
                self.counts["crashes"] += 1
                if self._damages:
                    self._damage()
                self._reopen()
                self._check()
            self.store.close()

    def _kill(self) -> None:
        """The process alone dies: what was in its files is there, on disk or not, and is on disk after the start."""
        self._disk.kill()
        self.counts["kills"] += 1
        if not self._options.uses_transient_pool:
            self._promise(FAR_FUTURE_MS)
        self._open()
        self._check()

    def _damage(self) -> None:
        """As file systems, restored copies and operators do it. A start after a clean exit does not look for that, and
        light queues cannot be made good from every damage.
        """
        store = self._options.root
        if not (store / "abort").exists():
            return
        queues = [path for path in (store / "consumequeue").rglob("0*") if path.is_file() and "%LMQ%" not in str(path)]
        kinds = [sorted(files) for files in (queues, (store / "index").glob("2*"))]
        chosen = {self.random.choice(files) for files in kinds if files and self.random.random() < 0.6}
        for path in sorted(chosen):
            self.counts["files damaged"] += 1
            data = path.read_bytes()
            start = SECTOR * self.random.randrange(max(1, -(-len(data) // SECTOR)))
            part = self.random.choice((slice(0, len(data)), slice(start, min(start + SECTOR, len(data)))))
            if self.random.random() < 0.4:
                self._disk.remove(path)
                self._disk.sync_directory(path.parent)
            else:
                self._disk.write(path, data[: part.start] + bytes(part.stop - part.start) + data[part.stop :])
        path = store / "checkpoint"
        if path.is_file() and path.stat().st_size >= FIELDS.size and self.random.random() < 0.3:
            log_ms, queue_ms, index_ms = FIELDS.unpack_from(path.read_bytes())
            self._disk.write(path, FIELDS.pack(log_ms, queue_ms + 60_000, index_ms))

    # --------------------------------------------------------------------------------------------------------- living

    def _live(self) -> None:
        self._disk.calls_left = self.random.choice((self.random.randint(0, CALLS_A_LIFE), None))
        weights, works = zip(*self._works, strict=True)
        try:
            for work in self.random.choices(works, weights, k=self.random.randint(1, STEPS_A_LIFE)):
                self._clock.advance(self.random.randint(0, 1500))
                work()
                self._note()
        except PowerLost:
            self._note()
            self.counts["crashes in the middle of a call"] += 1

    def _note(self) -> None:
        """What is flushed cannot be lost, and what is removed may be."""
        if not self._is_sync:
            self._promise(self.store.flushed_offset)
        start = max(self._removed_below, self.store.commit_log_min_offset)
        self.counts["log files removed"] += (start - self._removed_below) // self._options.mapped_file_size_commit_log
        self._removed_below = start

    def _open(self) -> None:
        self.store = self._make(self._options, clock=self._clock, files=self._disk, entry_codes=entry_codes(DELAYS))
        self.store.open()

    def _reopen(self) -> None:
        """The machine may die while the store recovers, too."""
        while self.random.random() < 0.2:
            self._disk.calls_left = self.random.randint(0, 20)
            try:
                self._open()
            except PowerLost:
                self.counts["crashes during recovery"] += 1
            self._disk.lose_power()
        self._open()

    def _put(self) -> None:
        topic, queue_id = self.random.choice(QUEUES[:3])
        body, properties = self._message(self.random.randint(0, 1200))
        self._keep(
            topic,
            queue_id,
            [(body, properties)],
            lambda: self.store.put(record(body, topic, queue_id, properties), at_once=True),
        )

    def _put_batch(self) -> None:
        topic, queue_id = self.random.choice(QUEUES[:3])
        made = [self._message(self.random.randint(0, 200)) for _ in range(self.random.randint(1, 8))]
        items = [BatchItem(0, body, properties) for body, properties in made]
        self._keep(topic, queue_id, made, lambda: put_batch(self.store, record(b"", topic, queue_id), items))

    def _put_prepared(self) -> None:
        body, properties = self._message(10)
        message = record(body, "T", 0, properties, sys_flag=TRANSACTION_PREPARED)
        self._keep("T", -1, [(body, properties)], lambda: self.store.put(message, at_once=True))

    def _put_delayed(self) -> None:
        topic, queue_id = QUEUES[3]
        body, properties = self._message(100)
        properties += b"\x02DELAY\x01%d" % DELAY_LEVEL
        self._keep(
            topic,
            queue_id,
            [(body, properties)],
            lambda: self.store.put(record(body, topic, queue_id, properties), at_once=True),
        )

    def _put_light(self) -> None:
        body, properties = self._message(self.random.randint(0, 300))
        properties += LIGHT_NAMES
        number = sum(message.is_light for message in self._stored)
        stored = with_offsets(properties, [number, number])
        self._keep("T", 0, [(body, stored)], lambda: self.store.put(record(body, "T", 0, properties), at_once=True))

    def _message(self, size: int) -> tuple[bytes, bytes]:
        """Body and properties of a new message; its key is its number."""
        self._number += 1
        return b"%06d" % self._number + self.random.randbytes(size), b"KEYS\x01key%d\x02TAGS\x01A" % self._number

    def _keep(self, topic: str, queue_id: int, made: list[tuple[bytes, bytes]], put: Callable[[], PutResult]) -> None:
        self._under_way = [(topic, queue_id, body, properties) for body, properties in made]
        result = self._when_room(put)
        assert result.status is PutStatus.PUT_OK
        self._under_way = []
        starts = [*(result.places or (result.physical_offset,)), result.end_offset]
        code = _code(topic, result.store_timestamp)
        new = [
            Stored(topic, queue_id, result.queue_offset + n, starts[n], starts[n + 1], code, body, properties)
            for n, (body, properties) in enumerate(made)
        ]
        self._stored += new
        self.counts["messages"] += len(new)
        if self._is_sync and self.random.random() < 0.7:
            self.store.when_flushed(result.end_offset, lambda done: self._acknowledge(new, done))

    def _when_room(self, put: Callable[[], PutResult]) -> PutResult:
        """Put when the worker has made the room that is missing."""
        while True:
            try:
                return put()
            except RoomAwaited as awaited:
                refusals: list[PutResult | None] = []
                self.store.when_room(awaited, refusals.append)
                self.store.still["room"].run_once()
                assert refusals == [None]

    def _acknowledge(self, messages: list[Stored], done: bool) -> None:
        assert done
        self.counts["acknowledged"] += len(messages)
        for message in messages:
            message.is_promised = True

    def _promise(self, end: int) -> None:
        for message in self._stored:
            message.is_promised = message.is_promised or message.end <= end

    def _run_woken(self) -> None:
        for worker in self.store.still.values():
            if worker.is_woken:
                worker.run_once()

    def _run_one(self) -> None:
        self.random.choice(list(self.store.still.values())).run_once()

    def _read(self) -> None:
        """What a consumer has seen must not vanish when each message is flushed: its offset would point beyond."""
        topic, queue_id = self.random.choice(QUEUES)
        end = self.store.max_offset(topic, queue_id)
        self._progress[topic, queue_id] = max(end, self._progress[topic, queue_id])
        found = self._units(topic, queue_id, max(int(self.store.min_offset(topic, queue_id)), end - 5))
        for message in self._stored:
            if self._is_sync and message.place in found:
                message.is_promised = True

    def _query(self) -> None:
        """A message that was found by its key must not vanish, either."""
        if self._stored:
            message = self.random.choice(self._stored[-20:])
            units = self.store.query(message.topic, message.key, 1, 0, FAR_FUTURE_MS).buffers
            found = [decode_unit(unit).physical_offset for unit in units]
            message.is_promised = message.is_promised or (self._is_sync and message.place in found)

    def _clean(self) -> None:
        """One file of the log may go, and what leads there."""
        self.store.remove_expired_files()
        for _ in range(self.random.randint(1, 4)):
            self.store.still["clean"].run_once()

    def _restart(self) -> None:
        self.store.close()
        self._promise(self.store.commit_log_max_offset)
        self._open()
        self.counts["restarts"] += 1

    # -------------------------------------------------------------------------------------------------------- checking

    def _check(self) -> None:
        """The log is a beginning of what was stored, whole, with every promised message; the queues and the index hold
        everything of it and nothing else.
        """
        store, end = self.store, self.store.commit_log_max_offset
        self._find_what_was_under_way(end)
        kept = [message for message in self._stored if message.end <= end]
        lost = self._stored[len(kept) :]
        assert not [message for message in lost if message.is_promised], "a promised message is gone"
        self.counts["lost, not promised"] += len(lost)
        self.counts["kept"] += len(kept)
        assert not kept or end - kept[-1].end < store.options.mapped_file_size_commit_log, "the log has grown"
        self._stored = kept
        start = max(0, store.commit_log_min_offset)
        assert start <= self._removed_below, "files are gone that nobody removed"
        for topic, queue_id in QUEUES:
            self._check_queue(topic, queue_id, start)
        if self._options.enable_lmq:
            self._check_light(start)
        # A removed file may come back, when that was not on disk yet; nobody asks for its messages.
        self._check_index([message for message in kept if message.place >= max(start, self._removed_below)])

    def _find_what_was_under_way(self, end: int) -> None:
        """Nobody was told about these messages; some of them may be there."""
        under_way, self._under_way = self._under_way, []
        place = self._stored[-1].end if self._stored else 0
        for (topic, queue_id, body, properties), unit in zip(under_way, self._log_units(place, end), strict=False):
            stored_to = unit.physical_offset + unit.size
            code = _code(topic, unit.store_timestamp)
            self._stored.append(
                Stored(topic, queue_id, unit.queue_offset, unit.physical_offset, stored_to, code, body, properties)
            )

    def _log_units(self, place: int, end: int) -> Iterator[Unit]:
        files = self.store._log.files
        for start in range(files.start_of(place), end, files.file_size):
            file = files.find(start)
            if file is not None:
                yield from Walk(file.view, start, max(0, place - start))

    def _check_queue(self, topic: str, queue_id: int, start: int) -> None:
        store = self.store
        expected = [message for message in self._stored if (message.topic, message.queue_id) == (topic, queue_id)]
        first = int(store.min_offset(topic, queue_id))
        found = self._units(topic, queue_id, first)
        entries = store.entries(topic, queue_id, first, 1 << 20)
        assert len(found) == len(entries), "an entry leads nowhere"
        there = expected[len(expected) - len(found) :]
        missing = expected[: len(expected) - len(found)]
        assert all(message.place < max(start, self._removed_below) for message in missing), "a queue has a gap"
        assert [entry[0] for entry in entries] == [message.place for message in there], "a queue leads astray"
        assert [entry[2] for entry in entries] == [message.code for message in there], "an entry has another code"
        for message in there:
            assert found[message.place] == message.content, "a message is damaged"
        if not there and self._damages:  # where a lost queue ended, nothing can tell without a message of it
            del self._progress[topic, queue_id]
        if self._is_sync:
            assert store.max_offset(topic, queue_id) >= self._progress[topic, queue_id], "progress beyond the queue"

    def _check_light(self, start: int) -> None:
        expected = [message.place for message in self._stored if message.is_light]
        for topic, queue_id in LIGHT_QUEUES:
            first = int(self.store.min_offset(topic, queue_id))
            found = [entry[0] for entry in self.store.entries(topic, queue_id, first, 1 << 20)]
            missing = expected[: len(expected) - len(found)]
            assert found == expected[len(missing) :], "a light queue leads astray"
            assert all(place < max(start, self._removed_below) for place in missing), "a light queue has a gap"
        self.counts["in light queues"] += len(expected)

    def _check_index(self, kept: list[Stored]) -> None:
        asked = {*self.random.sample(range(len(kept)), min(8, len(kept))), *range(max(0, len(kept) - 4), len(kept))}
        for message in [kept[number] for number in asked]:
            units = self.store.query(message.topic, message.key, 64, 0, FAR_FUTURE_MS).buffers
            found = [decode_unit(unit).physical_offset for unit in units]
            assert message.place in found, "a message is missing in the index"

    def _units(self, topic: str, queue_id: int, offset: int) -> dict[int, Content]:
        """Place -> message, from a queue offset on, as a consumer gets them."""
        found: dict[int, Content] = {}
        while (result := self.store.get(topic, queue_id, offset, 32)).buffers:
            for buffer in units_of(result):
                unit = decode_unit(buffer)
                assert (unit.topic, unit.queue_id) == (topic, queue_id), "an entry leads to another queue's message"
                content = unit.queue_offset, hashlib.sha256(unit.body).digest(), unit.properties.encode()
                found[unit.physical_offset] = content
            offset = result.next_offset
        return found


def counts_of(directory: Path, seeds: range, live: Callable[[Path, int], Counter[str]]) -> Counter[str]:
    """What happened in histories, `live(place, seed)` each; an error tells the seed that brings it back."""
    found: Counter[str] = Counter()
    for seed in seeds:
        place = directory / str(seed)
        place.mkdir()
        try:
            found += live(place, seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        shutil.rmtree(place)
    return found
