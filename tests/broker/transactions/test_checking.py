"""Rounds of checks over a real store: bounded steps, progress that no crash makes a lie of, what a start restores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from orbitmq.broker.clients import ConnectedClient, Producers
from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.broker.options import BrokerOptions
from orbitmq.broker.topics import Topics
from orbitmq.broker.transactions import checking as module
from orbitmq.broker.transactions.checking import Checking
from orbitmq.broker.transactions.half import Half, Identity, committed, make_half, op_record, read_half
from orbitmq.broker.transactions.ledger import Ledger, State
from orbitmq.message.hosts import encode_host
from orbitmq.message.properties import encode_properties
from orbitmq.message.topics import HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_GROUP
from orbitmq.message.unit import unit_size
from orbitmq.net.connection import Connection
from orbitmq.runtime.clock import ManualClock
from orbitmq.runtime.options import change
from orbitmq.store.engine import MessageStore
from orbitmq.store.options import StoreOptions
from orbitmq.store.records import PutRecord, PutResult, PutStatus
from orbitmq.wire.command import Command
from tests.support.golden import manifest, unpack
from tests.support.loops import until
from tests.support.stores import CODES

HOST = encode_host("127.0.0.1", 10911)


class Peer:
    """A producer's connection, as far as checks look at it."""

    def __init__(self) -> None:
        self.takes_more = True
        self.asked: list[str] = []

    def send(self, command: Command) -> None:
        self.asked.append((command.ext or {})["msgId"])


class Bench:
    """Checks without their timer."""

    def __init__(self, directory: Path, **pairs: str) -> None:
        self.directory = directory
        self.clock = ManualClock()
        self.pairs = {"storePathRootDir": str(directory), "mappedFileSizeCommitLog": "65536", **pairs}
        self.loop: asyncio.AbstractEventLoop | None = None  # of a round
        self.store = MessageStore(
            StoreOptions.parse(self.pairs), clock=self.clock, entry_codes=CODES, deliver=self._deliver
        )
        self.store.open()
        self.offsets = ConsumerOffsets(directory / "config")
        self.peer = Peer()
        self.made = 0
        self.begin()

    def begin(self) -> None:
        """A broker that has just started."""
        self.options = options = BrokerOptions.parse({"brokerName": "b", **self.pairs})
        self.ledger = Ledger()
        self.producers = Producers()
        self.register(self.peer)
        topics = Topics(self.directory / "config", options, self.clock)
        self.checking = Checking(self.store, self.ledger, topics, self.offsets, self.producers, options, self.clock)
        self.checking.store_host = HOST

    def _deliver(self, job: Callable[[], object]) -> None:
        if self.loop is None or self.loop.is_closed():
            job()
        else:
            self.loop.call_soon_threadsafe(job)

    def register(self, peer: Peer) -> None:
        connection = cast("Connection", peer)
        self.producers.register("g", ConnectedClient(connection, "c", "JAVA", 407, self.clock.now_ms()))

    def prepare(self, **properties: str) -> int:
        """A half message; its offset."""
        self.made += 1
        known = {"UNIQ_KEY": f"u{self.made}", "PGROUP": "g", "TRAN_MSG": "true"}
        record = PutRecord("Orders", 0, b"%d" % self.made, b"", self.clock.now_ms(), HOST, HOST)
        make_half(record, encode_properties(known | properties))
        return self.store.put(record).queue_offset

    def decide(self, offset: int) -> None:
        """As the handler of END_TRANSACTION does."""
        self.store.put(op_record(offset, self.clock.now_ms(), HOST))
        self.ledger.decide(offset, self.identity(offset))

    def half(self, offset: int) -> Half:
        ((place, _, _),) = self.store.entries(HALF_TOPIC, 0, offset, 1)
        half = read_half(self.store.unit_at(place))
        assert half is not None
        return half

    def identity(self, offset: int) -> Identity | None:
        return self.half(offset).identity

    async def round(self, after_ms: int = 60_000) -> list[str]:
        """Who is asked in a round."""
        self.clock.advance(after_ms)
        self.peer.asked.clear()
        self.loop = asyncio.get_running_loop()
        await self.checking.round()
        return list(self.peer.asked)

    def flush(self) -> None:
        self.store._log_flusher.flush()

    def saved(self) -> tuple[int | None, int | None]:
        half, op = (self.offsets.query(TRANSACTION_GROUP, topic, 0) for topic in (HALF_TOPIC, OP_HALF_TOPIC))
        return half, op


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.store.close()


async def test_only_open_messages_are_asked_about(bench: Bench) -> None:
    offsets = [bench.prepare() for _ in range(5)]
    for offset in (offsets[1], offsets[3]):
        bench.decide(offset)
    assert await bench.round() == ["u1", "u3", "u5"]
    assert bench.ledger.position == 5
    assert bench.store.max_offset(HALF_TOPIC, 0) == 8


async def test_a_step_looks_at_so_many_messages(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STEP_MESSAGES", 4)
    for _ in range(10):
        bench.prepare()
    bench.clock.advance(60_000)
    counts = []
    while bench.checking._step(bench.clock.now_ms()):
        counts.append(len(bench.peer.asked))
    assert counts == [4, 8], "and the step after that ends the round, at the first copy it meets"
    assert len(bench.peer.asked) == 10


async def test_a_step_ends_behind_a_large_message(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STEP_BYTES", 300)
    for _ in range(4):
        bench.prepare()
    bench.clock.advance(60_000)
    counts = []
    while bench.checking._step(bench.clock.now_ms()):
        counts.append(len(bench.peer.asked))
    assert counts == [2, 4]


async def test_a_producer_that_takes_nothing_is_left_out(bench: Bench) -> None:
    deaf = Peer()
    deaf.takes_more = False
    bench.register(deaf)
    for _ in range(4):
        bench.prepare()
    assert await bench.round() == ["u1", "u2", "u3", "u4"]
    assert deaf.asked == []
    bench.peer.takes_more = False
    assert await bench.round() == []
    bench.peer.takes_more = True
    assert await bench.round() == ["u1", "u2", "u3", "u4"]


async def test_a_full_disk_ends_the_round_and_the_next_goes_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        bench.prepare()
    put, room = bench.store.put, iter([True, False])

    def sometimes(record: PutRecord, at_once: bool) -> PutResult:
        return put(record, at_once) if next(room, True) else PutResult(PutStatus.SERVICE_NOT_AVAILABLE)

    monkeypatch.setattr(bench.store, "put", sometimes)
    assert await bench.round() == ["u1"]
    assert bench.ledger.position == 1
    assert await bench.round() == ["u2", "u3", "u1"]


async def test_messages_whose_files_are_gone_are_passed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(4):
        bench.prepare()
    monkeypatch.setattr(bench.store, "min_offset", lambda topic, _queue: 2 if topic == HALF_TOPIC else 0)
    assert await bench.round() == ["u3", "u4"]


async def test_what_cannot_be_read_is_passed(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.store.put(PutRecord(HALF_TOPIC, 0, b"no half message", b"", 1, HOST, HOST))
    bench.prepare()
    assert await bench.round() == ["u1"]
    assert "event=transactions_checked check=1 skipped=1" in caplog.text


# ------------------------------------------------------------------------------------------------------------ progress


async def test_no_progress_is_saved_before_it_is_on_disk(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a power failure could take a copy or a decision and leave the progress: nobody would ask any more."""
    flush = bench.flush
    monkeypatch.setattr(bench.store._log, "flush", lambda: bench.store.flushed_offset)
    for _ in range(3):
        bench.decide(bench.prepare())
        await bench.checking._keep_progress()
    assert (bench.ledger.position, bench.ledger.op_position) == (3, 3)
    assert bench.saved() == (None, None)
    monkeypatch.undo()
    flush()
    bench.checking.note_progress()
    assert bench.saved() == (3, 3)


async def test_progress_that_waits_is_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.store._log, "flush", lambda: bench.store.flushed_offset)
    monkeypatch.setattr(module, "NOTED_MAX", 3)
    for _ in range(10):
        bench.decide(bench.prepare())
        bench.checking.note_progress()
    assert len(bench.checking._noted) <= 3
    monkeypatch.undo()
    bench.flush()
    bench.checking.note_progress()
    assert bench.saved()[0] == 10


async def test_op_messages_stay_while_they_speak_of_a_later_message(bench: Bench) -> None:
    offsets = [bench.prepare() for _ in range(4)]
    for offset in (offsets[1], offsets[0], offsets[3]):
        bench.decide(offset)
        await bench.checking._keep_progress()
    assert (bench.ledger.position, bench.ledger.op_position) == (2, 2)
    bench.decide(offsets[2])
    await bench.checking._keep_progress()
    assert (bench.ledger.position, bench.ledger.op_position) == (4, 4)


# ------------------------------------------------------------------------------------------------------------- a start


async def test_a_start_restores_what_is_decided(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STEP_MESSAGES", 4)
    offsets = [bench.prepare() for _ in range(20)]
    for offset in offsets[::2]:
        bench.decide(offset)
    bench.begin()
    await bench.checking.restore()
    assert await bench.round() == [f"u{number}" for number in range(2, 21, 2)]


async def test_a_start_knows_the_newest_copies(bench: Bench) -> None:
    """The saved progress is older than the last round: RocketMQ would ask twice, about both copies."""
    first = [bench.prepare() for _ in range(3)]
    await bench.round()
    bench.decide(4)  # the copy of the second
    bench.begin()
    await bench.checking.restore()
    assert bench.ledger.position == 0
    states = [bench.ledger.state(offset, bench.identity(offset)) for offset in first]
    assert states == [(State.OPEN, 3), (State.DECIDED, 1), (State.OPEN, 5)]
    assert await bench.round() == ["u1", "u3"]


@pytest.mark.parametrize("topic", [HALF_TOPIC, OP_HALF_TOPIC])
async def test_saved_progress_beyond_the_queue_is_not_believed(bench: Bench, topic: str) -> None:
    """A crash may have cost the last entries of a queue whose progress was saved, or it is that of an older queue."""
    bench.decide(bench.prepare())
    bench.prepare()
    bench.offsets.commit(TRANSACTION_GROUP, HALF_TOPIC, 0, 2)
    bench.offsets.commit(TRANSACTION_GROUP, OP_HALF_TOPIC, 0, 1)
    bench.offsets.commit(TRANSACTION_GROUP, topic, 0, 99)
    bench.begin()
    await bench.checking.restore()
    assert (bench.ledger.position, bench.ledger.op_position) == (1, 0)
    assert await bench.round() == ["u2"]


@pytest.mark.parametrize("filled", [False, True])
async def test_a_missing_op_message_is_that_of_the_newest_copy(bench: Bench, filled: bool) -> None:
    """The log ends with a committed message, or with what fills up its file, where the op message had no room."""
    bench.prepare()
    await bench.round()
    if filled:
        half = bench.half(1)
        left = 65536 - bench.store.commit_log_max_offset - unit_size(8, b"1", b"Orders", committed(half).properties)
        filling = unit_size(0, b"", b"Filling", b"")
        bench.store.put(PutRecord("Filling", 0, bytes(left - filling - 20), b"", 1, HOST, HOST))
    bench.store.put(committed(bench.half(1)))
    if filled:
        bench.store._log.make_room(1000)
        bench.store._log.readable = bench.store.commit_log_max_offset  # as after a start
        assert bench.store.commit_log_max_offset == 65536
    for _ in range(2):
        bench.begin()
        await bench.checking.restore()
        assert bench.store.max_offset(OP_HALF_TOPIC, 0) == 1
    assert await bench.round() == []


async def test_op_messages_of_an_older_queue_end_nothing(bench: Bench) -> None:
    """The half queue was removed and began anew; the broker was killed before the new progress was saved."""
    for _ in range(3):
        bench.decide(bench.prepare())
    bench.offsets.commit(TRANSACTION_GROUP, HALF_TOPIC, 0, 3)
    list(bench.store.remove_topic(HALF_TOPIC))
    bench.prepare()
    bench.begin()
    await bench.checking.restore()
    assert await bench.round() == ["u4"]


async def test_op_messages_of_rocketmq_5_are_understood(bench: Bench) -> None:
    offsets = [bench.prepare() for _ in range(4)]
    record = op_record(0, 1, HOST)
    record.body = ",".join(map(str, offsets[:3])).encode()
    bench.store.put(record)
    bench.begin()
    await bench.checking.restore()
    assert await bench.round() == ["u4"]


async def test_a_store_of_rocketmq_is_taken_over(tmp_path: Path) -> None:
    """What was pending there is pending here, no more and no less."""
    known = manifest("transaction")
    root = unpack("transaction", tmp_path)
    bench = Bench(root, **{key: str(value) for key, value in known["store_config"].items()})
    try:
        bench.offsets.load()
        await bench.checking.restore()
        progress = known["config"]["consumerOffset"]
        position = progress[f"{HALF_TOPIC}@{TRANSACTION_GROUP}"]["0"]
        halves = known["transactionState"]["half"]
        pending = [one["queueOffset"] for one in halves if one["queueOffset"] >= position and not one["done"]]
        assert pending
        found = [
            offset
            for offset in range(bench.store.max_offset(HALF_TOPIC, 0))
            if offset >= position and bench.ledger.state(offset, bench.identity(offset))[0] is State.OPEN
        ]
        assert found == pending
        assert (bench.ledger.position, bench.ledger.op_position) == (pending[0], 21)
        bench.clock.advance(known["messages"][-1]["storeTimestamp"] - bench.clock.now_ms())
        bench.producers.groups["genTx_105"] = bench.producers.groups.pop("g")
        asked = await bench.round()
        assert asked == [one["uniqKey"] for one in halves if one["queueOffset"] in pending]
    finally:
        bench.store.close()


async def test_the_rounds_go_by_themselves(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """And survive what goes wrong in one."""
    change(bench.options, {"transactionCheckInterval": "100"})
    wrong = iter([True])
    step = bench.checking._step

    def once_wrong(started_ms: int) -> bool:
        if next(wrong, False):
            raise ValueError("a bug")
        return step(started_ms)

    monkeypatch.setattr(bench.checking, "_step", once_wrong)
    bench.prepare()
    bench.clock.advance(60_000)
    bench.checking.start()
    await until(lambda: bench.peer.asked)
    await bench.checking.stop()
    assert bench.peer.asked[0] == "u1"
