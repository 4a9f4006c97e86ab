"""POP consumption through power cuts and kills at any moment, in the middle of a flush, a revival or a start.

What is promised: a message that was acknowledged with SYNC_FLUSH is delivered until a consumer's acknowledgement is on
disk, and not again after that. Only one that a power cut caught between its copy for the retry topic and the record of
it may come twice; these are counted. The table of offsets is saved now and then, and is as old as chance will have it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest import mock

import pytest

from orbitmq.broker.groups import Groups
from orbitmq.broker.message_writer import MessageWriter
from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.broker.options import BrokerOptions
from orbitmq.broker.pop import journal as journal_module
from orbitmq.broker.pop.in_flight import Checkpoint, Key
from orbitmq.broker.pop.journal import Journal
from orbitmq.broker.pop.ordering import Orders
from orbitmq.broker.pop.pop_handler import PopHandler
from orbitmq.broker.pop.records import MarkBody
from orbitmq.broker.pop.revival import Revival
from orbitmq.broker.schedule import entry_codes
from orbitmq.broker.statistics import Statistics
from orbitmq.broker.topics import Topics
from orbitmq.message.config import TopicConfig
from orbitmq.message.unit import decode_units
from orbitmq.runtime.clock import ManualClock
from orbitmq.runtime.refusals import Refusals
from orbitmq.store.options import SYNC_FLUSH
from orbitmq.store.pull_batch import EVERYTHING
from orbitmq.store.queue_room import RoomAwaited
from orbitmq.store.records import PutResult, PutStatus
from orbitmq.wire.headers_pop import PopMessageHeader
from tests.support.crashes import SimulatedStore, counts_of
from tests.support.power import PowerDisk, PowerLost
from tests.support.stores import record, small_options

LIVES = 6
STEPS_A_LIFE = 100
CALLS_A_LIFE = 60
SAVED_AFTER_MS = 10_000  # of offsets, at the latest
TOPIC, GROUP, QUEUES = "T", "G", 2
NO_ROOM: Any = None


class Delivery(NamedTuple):
    """What a consumer has in its hands."""

    body: bytes
    key: Key
    offset: int


class PopHistory:
    """One store, its power and one group. `counts` holds how often each event happened."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.random, self.counts = Random(seed), Counter[str]()
        (directory / "disk").mkdir()
        self._disk = PowerDisk(directory / "disk", self.random)
        self._config = directory / "config"  # each write of it is on disk, or is not
        self._options = small_options(directory / "disk" / "store", flush_disk_type=SYNC_FLUSH)
        self._clock = ManualClock()
        self._clock.advance(1 << 40)
        self._sent = 0
        self._is_waiting = False  # for the flush without which offsets are not saved
        self._promised: set[bytes] = set()
        self._acknowledged: set[bytes] = set()
        self._tried: set[bytes] = set()  # to acknowledge; a kill leaves what a power cut would take
        self._held: list[Delivery] = []
        self._seen: Counter[bytes] = Counter()
        self._revived: list[tuple[int, bytes]] = []  # the end of the log behind a copy, and its message
        self._may_come_twice: set[bytes] = set()
        self._works: list[tuple[int, Callable[[], Awaitable[None] | None]]] = [
            (16, self._send), (16, self._pop), (12, self._acknowledge), (5, self._hide), (10, self._revive),
            (30, self._run_worker), (4, self._save), (4, self._disk.write_back), (4, self._mark), (4, self._tidy),
        ]  # fmt: skip

    async def run(self, lives: int) -> None:
        with self._disk.watching():
            await self._open()
            for _ in range(lives):
                await self._live()
                if self.random.random() < 0.3:
                    self._disk.kill()
                    self.counts["kills"] += 1
                else:
                    flushed = self.store.flushed_offset
                    self._may_come_twice |= {body for end, body in self._revived if end > flushed}
                    self._disk.lose_power()
                    self.counts["power cuts"] += 1
                await self._open()
            self._disk.calls_left = None
            await self._finish()
            self.store.close()
        missing = {body[:6] for body in self._promised - self._seen.keys()}
        assert not missing, f"{len(missing)} of {len(self._promised)} messages were never delivered: {missing}"
        left = {body[:6] for body in self._promised - self._tried}
        assert not left, f"not acknowledged, and not redelivered: {left}"

    async def _live(self) -> None:
        self._disk.calls_left = self.random.choice((self.random.randint(0, CALLS_A_LIFE), None))
        weights, works = zip(*self._works, strict=True)
        try:
            for work in self.random.choices(works, weights, k=self.random.randint(1, STEPS_A_LIFE)):
                self._clock.advance(self.random.randint(0, 200))
                if (saving := work()) is not None:
                    await saving
                if self._clock.now_ms() - self._saved_ms > SAVED_AFTER_MS:
                    await self._save()
        except PowerLost:
            self.counts["in the middle of a call"] += 1

    async def _open(self) -> None:
        clock, options = self._clock, BrokerOptions()
        self.store = store = SimulatedStore(
            self._options, clock=clock, files=self._disk, entry_codes=entry_codes((1000,))
        )
        store.open()
        topics = Topics(self._config, options, clock, lambda _: None)
        groups = Groups(self._config, options, clock)
        self._offsets = ConsumerOffsets(self._config, options=options)
        self._offsets.load()
        self._offsets.correct(store.max_offset)
        writing = MessageWriter(store, 18, NO_ROOM, Statistics(store, "c", clock), NO_ROOM)
        self._journal = Journal(store, writing, topics, self._offsets, clock, "b", "c")
        self._popping = PopHandler(
            self._journal, Orders(self._config, clock), store, writing, topics, groups, self._offsets, NO_ROOM, options,
            clock, Statistics(store, "c", clock), NO_ROOM, Refusals(), self.random,
        )  # fmt: skip
        self._revival = Revival(self._journal, store, writing, topics, groups, clock, lambda _pages, _then: None)
        self._journal.host = bytes(8)
        self._offsets.file.needs, self._offsets.file.saved = self._records_flushed, self._journal.offsets_saved
        self._held, self._revived, self._is_waiting = [], [], False
        self._saved_ms = clock.now_ms()

        topics.load()
        topics.put(TopicConfig(TOPIC, QUEUES, QUEUES))
        groups.require(GROUP)
        await self._journal.correct_offsets()
        await self._journal.restore()

    def _with_room(self, act: Callable[[], Any]) -> Any:
        while True:
            try:
                return act()
            except RoomAwaited as awaited:
                self.store.when_room(awaited, lambda _: None)
                self.store.still["room"].run_once()

    def _send(self) -> None:
        body = b"%06d" % self._sent + self.random.randbytes(self.random.randint(0, 300))
        self._sent += 1
        result = self._with_room(partial(self.store.put, record(body, TOPIC, self.random.randrange(QUEUES)), True))
        assert result.status is PutStatus.PUT_OK
        self.counts["sent"] += 1
        self.store.when_flushed(result.end_offset, lambda done: done and self._promised.add(body))

    def _pop(self) -> None:
        most, invisible_ms = self.random.randint(1, 8), self.random.choice((100, 1000, 5000))
        header = PopMessageHeader(GROUP, TOPIC, -1, most, invisible_ms, 0, 0, 0)
        found = self._with_room(partial(self._popping._collect, header, EVERYTHING, may_fetch=False))
        if not found.count:
            return
        retry = f"%RETRY%{GROUP}_{TOPIC}"
        starts = {tuple(one.split(" ")[:2]): int(one.split(" ")[2]) for one in found.starts}
        handed: list[Delivery] = []
        for buffer in found.buffers:
            for unit in decode_units(buffer):
                is_retry = "POP_CK" in unit.properties
                topic, queue_id = (retry, 0) if is_retry else (TOPIC, unit.queue_id)
                start = starts[("1" if is_retry else "0", str(queue_id))]
                key = next(
                    one.key
                    for one in self._journal.in_flight
                    if one.key[:4] == (topic, GROUP, queue_id, start) and unit.queue_offset in one.offsets
                )
                handed.append(Delivery(unit.body, key, unit.queue_offset))
        self.store.when_flushed(found.last.end_offset, lambda done: done and self._took(handed))

    def _took(self, handed: list[Delivery]) -> None:
        for one in handed:
            if one.body in self._acknowledged:
                assert one.body in self._may_come_twice, f"{one.body[:6]!r} was acknowledged, and was redelivered"
                self.counts["came twice"] += 1
            self._seen[one.body] += 1
        self._held += handed

    def _acknowledge(self) -> None:
        for _ in range(min(len(self._held), self.random.randint(1, 6))):
            one = self._held.pop(self.random.randrange(len(self._held)))
            result: PutResult | None = self._with_room(partial(self._journal.acknowledge, one.key, [one.offset]))
            if result is not None:
                self._tried.add(one.body)
                self.counts["acknowledged"] += 1
                self.store.when_flushed(result.end_offset, partial(self._is_safe, one.body))

    def _is_safe(self, body: bytes, done: bool) -> None:
        if done:
            self._acknowledged.add(body)

    def _hide(self) -> None:
        if not self._held:
            return
        one = self._held.pop(self.random.randrange(len(self._held)))
        known = self._journal.in_flight.find(one.key)
        if known is None or known.due_ms <= self._clock.now_ms() or one.offset not in known.left():
            return
        key = self._journal.in_flight.free(one.key._replace(start=one.offset, pop_ms=self._clock.now_ms()))
        checkpoint = Checkpoint(key, self.random.choice((0, 1000)), (one.offset,))
        self._with_room(partial(self._journal.add, checkpoint, leaves=one.key))
        self._held.append(one._replace(key=key))
        self.counts["hidden"] += 1

    def _revive(self) -> None:
        before = self._revival.revived

        due = self._journal.in_flight.due(self._clock.now_ms())
        bodies = [] if due is None else [self._revival._unit(due, offset).body for offset in due.left()]  # type: ignore[union-attr]
        with mock.patch("orbitmq.broker.pop.revival.TURN_MAX", 1):
            self._revival._is_awaiting = False
            try:
                self._revival.turn()
            finally:
                self._revived += [(self.store.commit_log_max_offset, body) for body in bodies]
        self._run_worker("room")
        self.counts["revived"] += self._revival.revived - before

    def _run_worker(self, name: str = "") -> None:
        self.store.still[name or self.random.choice(("flush-log", "flush-log", "flush-queues", "room"))].run_once()

    async def _save(self) -> None:
        self._offsets.file.mark()
        saving = asyncio.ensure_future(self._offsets.file.flush())
        try:
            while not saving.done():
                await asyncio.sleep(0)
                if self._is_waiting:
                    self._run_worker("flush-log")
        except PowerLost:
            self._offsets.file._writing.cancel()  # type: ignore[union-attr]
            await asyncio.wait([saving])
            raise
        self._saved_ms = self._clock.now_ms()
        self.counts["saved"] += 1

    async def _records_flushed(self) -> None:
        self._is_waiting = True
        await self._journal.flushed()
        self._is_waiting = False

    def _mark(self) -> None:
        self._journal.mark()

    def _tidy(self) -> None:
        """Checkpoints in files that have expired are written again."""
        self._journal.tidy()  # which looks where the oldest lies
        self._journal.clear_below(self.store.flushed_offset)
        before = self.store.commit_log_max_offset
        self._journal.tidy()
        self.counts["written again"] += self.store.commit_log_max_offset > before

    async def _finish(self) -> None:
        """Everything is delivered and acknowledged."""
        for _ in range(400):
            self._clock.advance(1000)
            await asyncio.sleep(0)
            for work in (self._revive, self._pop):
                work()
            for name in ("room", "flush-log", "flush-queues"):
                self._run_worker(name)
            while self._held:
                self._acknowledge()
        self._run_worker("flush-log")


def live(place: Path, seed: int) -> Counter[str]:
    history = PopHistory(place, seed)
    asyncio.run(history.run(LIVES))
    return history.counts


def test_no_power_cut_takes_a_message_or_an_acknowledgement(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seeds = range(40)
    counts = counts_of(directory, seeds, live)
    with capsys.disabled():
        print(f"\npop: {dict(counts)}")
    for event in ("power cuts", "kills", "in the middle of a call", "revived", "hidden", "written again"):
        assert counts[event] >= len(seeds) / 2, f"{event}: a history that never gets there proves little"


def _mark_of_the_end(self: Journal) -> None:
    end = self._store.max_offset(self.topic, 0)
    with suppress(RoomAwaited):
        self._put(journal_module.MARK, b'{"first":%d}' % end)


def _as_if_stopped(self: Journal, high: int) -> tuple[MarkBody, int]:
    low = self._store.min_offset(self.topic, 0)
    return MarkBody(low, low, is_last=True), high


def _forgotten(self: Journal, key: Key, offsets: list[int]) -> PutResult:
    self.in_flight.acknowledge(key, offsets)
    return PutResult(PutStatus.PUT_OK, self._store.commit_log_max_offset)


async def _at_once(_self: Journal) -> None: ...


BROKEN = {
    "offsets that are saved before the records": mock.patch.object(Journal, "flushed", _at_once),
    "a mark that leaves out what is in flight": mock.patch.object(Journal, "mark", _mark_of_the_end),
    "offsets that are not corrected": mock.patch.object(Journal, "_last_mark", _as_if_stopped),
    "acknowledgements that are not written down": mock.patch.object(Journal, "acknowledge", _forgotten),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_promise_is_found(directory: Path, fault: str) -> None:
    with BROKEN[fault], pytest.raises(AssertionError, match=r"was redelivered|delivered"):
        counts_of(directory, range(40), live)
