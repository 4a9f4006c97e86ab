"""Transactions at a live broker: what a producer sends, hears and is refused, and what consumers see of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.broker.transactions import deciding
from orbitmq.errors import BrokerError
from orbitmq.message.flags import TRANSACTION_COMMIT, TRANSACTION_PREPARED
from orbitmq.message.ids import offset_message_id
from orbitmq.message.topics import HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_CHECK_MAX_TOPIC, TRANSACTION_GROUP
from orbitmq.operations.transactions import end_transaction_oneway, pending_transactions, resume_check
from orbitmq.runtime.options import change
from orbitmq.store.records import PutResult, PutStatus
from orbitmq.wire.bodies_transaction import PendingTransaction
from tests.support.live import Client, Time, client_of, live, made_broker, running
from tests.support.loops import LoopFactory, settle, until
from tests.support.transactions import COMMIT, ROLLBACK, Prepared, Question, RawProducer, raw_producer

INTERVAL, TIMEOUT = 60, 6  # seconds, the defaults


class Scene:
    """A broker whose time the test turns, one producer, one reader."""

    def __init__(self, broker: Broker, time: Time, producer: RawProducer, reader: Client) -> None:
        self.broker = broker
        self.time = time
        self.producer = producer
        self.reader = reader

    async def prepare(self, body: bytes = b"body", unique_id: str = "u1", **fields: object) -> Prepared:
        born_ms = self.time.clock.now_ms()
        return await self.producer.prepare("Orders", body, unique_id, **{"born_ms": born_ms, **fields})  # type: ignore[arg-type]

    async def delivered(self) -> list[bytes]:
        return [message.body for message in await self.reader.read("Orders")]

    async def round(self, seconds: float = INTERVAL) -> None:
        """Let so much time pass that producers are asked again; the producer's heartbeats go on."""
        await self.producer.register()
        await self.pass_by(seconds)

    async def pass_by(self, seconds: float) -> None:
        checking = self.broker.transactions.checking
        due_ms = checking.next_round_ms
        await self.time.pass_by(seconds)
        if self.time.clock.now_ms() >= due_ms:
            await until(lambda: checking.next_round_ms > due_ms, "the end of the round")
        await settle()

    async def question(self) -> Question:
        async with asyncio.timeout(10):
            return await self.producer.asked.get()

    async def pending(self) -> list[PendingTransaction]:
        page = await pending_transactions(self.producer.remoting, self.broker.address)
        assert page.next_offset == -1
        return page.transactions

    def stored(self, topic: str) -> int:
        return self.broker.store.max_offset(topic, 0)


@asynccontextmanager
async def scene(directory: Path, time: Time | None = None, **pairs: str) -> AsyncIterator[Scene]:
    time = time or Time()
    broker = made_broker(directory, time.clock, **pairs)
    async with running(broker), client_of(broker) as reader, raw_producer(broker.address, "payers") as producer:
        yield Scene(broker, time, producer, reader)


# ------------------------------------------------------------------------------------------------------- the decision


async def test_a_half_message_is_not_delivered(tmp_path: Path, turned_clock: LoopFactory) -> None:
    async with scene(tmp_path) as it:
        prepared = await it.prepare()
        assert (prepared.queue_offset, prepared.log_offset) == (0, 0)
        assert await it.delivered() == []
        assert it.stored(HALF_TOPIC) == 1


async def test_a_producer_gets_the_id_of_its_transaction(tmp_path: Path) -> None:
    """Brokers of 5.x tell it, and without it their proxy can commit nothing."""
    async with live(tmp_path) as client:
        half = {"TRAN_MSG": "true", "PGROUP": "payers", "UNIQ_KEY": "u1"}
        told = await client.send("Orders", properties=half, sys_flag=TRANSACTION_PREPARED)
        assert (told.ext or {}).get("transactionId") == "u1"
        told = await client.send("Orders", properties={"UNIQ_KEY": "u2"})
        assert "transactionId" not in (told.ext or {})


async def test_a_committed_message_is_delivered_once(tmp_path: Path, turned_clock: LoopFactory) -> None:
    async with scene(tmp_path) as it:
        prepared = await it.prepare(b"paid", flag=5, properties={"TAGS": "T", "color": "red", "WAIT": "false"})
        await it.producer.end(prepared, COMMIT)
        (message,) = await it.reader.read("Orders")
        assert (message.body, message.flag, message.tags) == (b"paid", 5, "T")
        assert message.sys_flag & TRANSACTION_COMMIT
        assert message.prepared_transaction_offset == prepared.log_offset
        for _ in range(2):
            await it.producer.end(prepared, COMMIT)
        assert len(await it.delivered()) == 1
        assert it.stored(OP_HALF_TOPIC) == 1


async def test_a_message_that_was_rolled_back_is_never_delivered(tmp_path: Path, turned_clock: LoopFactory) -> None:
    async with scene(tmp_path) as it:
        prepared = await it.prepare()
        await it.producer.end(prepared, ROLLBACK)
        await it.producer.end(prepared, COMMIT)  # the first decision stands
        assert await it.delivered() == []
        for _ in range(3):
            await it.round()
        assert it.producer.asked.empty()
        assert it.stored(HALF_TOPIC) == 1


async def test_a_producer_that_does_not_know_gets_no_answer(tmp_path: Path, turned_clock: LoopFactory) -> None:
    async with scene(tmp_path) as it:
        prepared = await it.prepare()
        await end_transaction_oneway(it.producer.remoting, it.broker.address, it.producer.end_header(prepared, 0))
        assert len(await it.pending()) == 1
        assert it.stored(OP_HALF_TOPIC) == 0


REFUSALS: dict[str, tuple[dict[str, object], str]] = {
    "another group": ({"producer_group": "thieves"}, deciding.WRONG_GROUP),
    "another queue offset": ({"tran_state_table_offset": 1}, deciding.WRONG_QUEUE_OFFSET),
    "no message there": ({"commit_log_offset": 77_777_777}, deciding.NOT_FOUND),
    "inside a message": ({"commit_log_offset": 1}, deciding.NOT_FOUND),
    "before the log": ({"commit_log_offset": -1}, deciding.NOT_FOUND),
    "a decision that is none": ({"commit_or_rollback": 4}, "commitOrRollback field wrong"),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_a_decision_that_names_another_message_is_refused(
    tmp_path: Path, name: str, turned_clock: LoopFactory
) -> None:
    changes, remark = REFUSALS[name]
    async with scene(tmp_path) as it:
        prepared = await it.prepare()
        for decision in (COMMIT, ROLLBACK):
            assert await it.producer.refusal(prepared, **{"decision": decision, **_decision(changes)}) == (1, remark)  # type: ignore[arg-type]
        assert await it.delivered() == []
        assert it.stored(OP_HALF_TOPIC) == 0
        await it.producer.end(prepared, COMMIT)
        assert await it.delivered() == [b"body"]


def _decision(changes: dict[str, object]) -> dict[str, object]:
    """`commit_or_rollback` is the producer's second argument."""
    return {"decision" if name == "commit_or_rollback" else name: value for name, value in changes.items()}


async def test_only_half_messages_can_be_ended(tmp_path: Path, turned_clock: LoopFactory) -> None:
    """An op message for a message of another topic would end the half message of that offset."""
    async with scene(tmp_path) as it:
        properties = {"PGROUP": "payers", "REAL_TOPIC": "Orders", "REAL_QID": "0", "UNIQ_KEY": "u"}
        assert (await it.reader.send("Orders", b"plain", properties)).code == 0
        plain = Prepared("u", 0, 0)
        for decision in (COMMIT, ROLLBACK):
            assert await it.producer.refusal(plain, decision) == (1, deciding.NOT_FOUND)
        assert it.stored(OP_HALF_TOPIC) == 0


async def test_a_delayed_message_is_delivered_late(tmp_path: Path, turned_clock: LoopFactory) -> None:
    async with scene(tmp_path, messageDelayLevel="10s") as it:
        prepared = await it.prepare(b"later", properties={"DELAY": "1"})
        await it.producer.end(prepared, COMMIT)
        assert await it.delivered() == []
        await it.round(10.5)
        assert await it.delivered() == [b"later"]


async def test_transactions_can_be_refused(tmp_path: Path, turned_clock: LoopFactory) -> None:
    async with scene(tmp_path, rejectTransactionMessage="true") as it:
        with pytest.raises(BrokerError, match=r"CODE: 16 DESC: the broker\[127.0.0.1\] sending transaction message"):
            await it.prepare()
        assert (await it.reader.send("Orders")).code == 0


async def test_too_long_a_window_takes_no_more(
    tmp_path: Path, turned_clock: LoopFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deciding, "WINDOW_MAX", 2)
    async with scene(tmp_path) as it:
        first = await it.prepare(unique_id="u1")
        await it.prepare(unique_id="u2")
        with pytest.raises(BrokerError, match="CODE: 2 DESC: 2 transactions arrived"):
            await it.prepare(unique_id="u3")
        await it.producer.end(first, COMMIT)
        await it.prepare(unique_id="u3")


async def test_what_the_store_refuses_stays_undecided(
    tmp_path: Path, turned_clock: LoopFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene(tmp_path) as it:
        prepared = await it.prepare()
        monkeypatch.setattr(it.broker.store, "put", lambda *_: PutResult(PutStatus.SERVICE_NOT_AVAILABLE))
        for decision in (COMMIT, ROLLBACK):
            code, remark = await it.producer.refusal(prepared, decision)
            assert (code, "CL:" in remark) == (14, True)
        monkeypatch.undo()
        assert len(await it.pending()) == 1
        await it.producer.end(prepared, COMMIT)
        assert await it.delivered() == [b"body"]


async def test_with_synchronous_flush_the_answer_waits_for_the_disk(tmp_path: Path) -> None:
    broker = made_broker(tmp_path, flushDiskType="SYNC_FLUSH")
    async with running(broker), client_of(broker) as reader, raw_producer(broker.address, "payers") as producer:
        for wait in ("true", "false"):
            prepared = await producer.prepare("Orders", wait.encode(), "u" + wait, {"WAIT": wait})
            await producer.end(prepared, COMMIT)
            if wait == "true":
                assert broker.store.flushed_offset == broker.store.commit_log_max_offset
        await until(lambda: broker.store.max_offset("Orders", 0) == 2)
        assert [message.body for message in await reader.read("Orders")] == [b"true", b"false"]


async def test_a_decision_counts_though_its_producer_leaves_before_the_disk_has_the_half_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = made_broker(tmp_path, flushDiskType="SYNC_FLUSH")
    async with running(broker), client_of(broker) as reader:
        with monkeypatch.context() as still:
            still.setattr(broker.store._log, "flush", lambda: broker.store.flushed_offset)
            async with raw_producer(broker.address, "payers") as producer:
                prepared = await producer.prepare("Orders", b"paid", "u", {"WAIT": "false"})
                await end_transaction_oneway(producer.remoting, broker.address, producer.end_header(prepared, COMMIT))
                await until(lambda: len(broker.store.flush_waits) == 1)
            await until(lambda: len(broker._server.connections) == 0)
        broker.store._request_flush()
        await until(lambda: broker.store.max_offset("Orders", 0) == 1)
        assert [message.body for message in await reader.read("Orders")] == [b"paid"]


async def test_a_decision_counts_that_comes_between_the_flush_and_the_turn_that_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = made_broker(tmp_path, flushDiskType="SYNC_FLUSH")
    async with running(broker), client_of(broker) as reader, raw_producer(broker.address, "payers") as producer:
        told: list[Callable[[], object]] = []
        with monkeypatch.context() as late:
            late.setattr(broker.store, "_deliver", told.append)
            prepared = await producer.prepare("Orders", b"paid", "u", {"WAIT": "false"})
            await until(lambda: len(told) > 0 and broker.store.flushed_offset == broker.store.commit_log_max_offset)
            end = asyncio.ensure_future(producer.end(prepared, COMMIT))
            await until(lambda: len(broker.store.flush_waits) == 1)
        for tell in told:
            tell()
        await end
        await until(lambda: broker.store.max_offset("Orders", 0) == 1)
        assert [message.body for message in await reader.read("Orders")] == [b"paid"]


# ------------------------------------------------------------------------------------------------------- the question


async def test_a_silent_producer_is_asked_and_its_answer_counts(tmp_path: Path, turned_clock: LoopFactory) -> None:
    async with scene(tmp_path) as it:
        prepared = await it.prepare(b"asked", queue_id=2)
        await it.round()
        question = await it.question()
        assert question.prepared.unique_id == "u1"
        assert question.prepared.queue_offset == prepared.queue_offset + 1
        assert question.prepared.log_offset > prepared.log_offset
        assert question.header.transaction_id == "u1"
        assert question.header.offset_msg_id == offset_message_id(
            question.unit.store_host, question.prepared.log_offset
        )
        assert (question.unit.topic, question.unit.queue_id, question.unit.body) == ("Orders", 2, b"asked")
        await it.producer.end(question.prepared, COMMIT, from_transaction_check=True)
        assert [message.body for message in await it.reader.read("Orders", 2)] == [b"asked"]
        await it.round()
        assert it.producer.asked.empty()


async def test_nobody_is_asked_before_the_timeout(tmp_path: Path, turned_clock: LoopFactory) -> None:
    async with scene(tmp_path, transactionCheckInterval="1000") as it:
        await it.prepare()
        for _ in range(TIMEOUT - 1):
            await it.round(1)
        assert it.producer.asked.empty()
        await it.round(1)
        await it.question()


async def test_the_first_decision_counts_whichever_copy_it_names(tmp_path: Path, turned_clock: LoopFactory) -> None:
    """The answer to a question and the decision the producer was about to make come one after the other."""
    async with scene(tmp_path) as it:
        for number, (first, second) in enumerate([("old", "new"), ("new", "old")]):
            prepared = await it.prepare(b"%d" % number, f"u{number}")
            await it.round()
            copies = {"old": prepared, "new": (await it.question()).prepared}
            await it.producer.end(copies[first], COMMIT)
            await it.producer.end(copies[second], COMMIT)
            await it.producer.end(copies[second], ROLLBACK)
        assert await it.delivered() == [b"0", b"1"]
        assert await it.pending() == []
        await it.round()
        assert it.producer.asked.empty()


async def test_a_producer_is_asked_only_so_often(tmp_path: Path, turned_clock: LoopFactory) -> None:
    async with scene(tmp_path, transactionCheckMax="3") as it:
        prepared = await it.prepare(b"dead")
        for _ in range(3):
            await it.round()
            question = await it.question()
        assert it.stored(TRANSACTION_CHECK_MAX_TOPIC) == 0
        await it.round()
        assert it.producer.asked.empty()
        assert it.stored(TRANSACTION_CHECK_MAX_TOPIC) == 1
        assert it.broker.topics.get(TRANSACTION_CHECK_MAX_TOPIC) is not None
        assert await it.pending() == []
        (given_up,) = await it.reader.read(TRANSACTION_CHECK_MAX_TOPIC)
        assert (given_up.body, given_up.properties["TRANSACTION_CHECK_TIMES"]) == (b"dead", "3")
        await it.producer.end(question.prepared, COMMIT)  # late, and still the producer's word
        await it.producer.end(prepared, COMMIT)
        assert await it.delivered() == [b"dead"]


async def test_the_options_can_be_changed_while_it_runs(tmp_path: Path, turned_clock: LoopFactory) -> None:
    async with scene(tmp_path) as it:
        await it.prepare()
        change(it.broker.options, {"transactionCheckInterval": "1000", "transactionTimeOut": "500"})
        await it.pass_by(1)
        await it.question()
        await until(lambda: it.broker.transactions.checking.next_round_ms == it.time.clock.now_ms() + 1000)
        change(it.broker.options, {"transactionCheckMax": "1", "rejectTransactionMessage": "true"})
        await it.pass_by(1)
        assert it.stored(TRANSACTION_CHECK_MAX_TOPIC) == 1
        with pytest.raises(BrokerError, match="CODE: 16 "):
            await it.prepare(unique_id="u2")


async def test_an_old_transaction_is_given_up(tmp_path: Path, turned_clock: LoopFactory) -> None:
    async with scene(tmp_path, transactionCheckMax="1000000") as it:
        await it.prepare(born_ms=it.time.clock.now_ms() - 72 * 3_600_000)
        await it.prepare(unique_id="u2", born_ms=it.time.clock.now_ms() - 71 * 3_600_000)
        await it.round()
        assert (await it.question()).prepared.unique_id == "u2"
        assert it.stored(TRANSACTION_CHECK_MAX_TOPIC) == 1


async def test_a_resumed_transaction_is_asked_about_again(tmp_path: Path, turned_clock: LoopFactory) -> None:
    async with scene(tmp_path, transactionCheckMax="1") as it:
        await it.prepare(b"again")
        await it.round()
        await it.question()
        await it.round()
        (given_up,) = await it.reader.read(TRANSACTION_CHECK_MAX_TOPIC)
        await resume_check(it.producer.remoting, it.broker.address, given_up.offset_msg_id)
        assert [one.checks for one in await it.pending()] == [0]
        await it.round()
        question = await it.question()
        await it.producer.end(question.prepared, COMMIT)
        assert await it.delivered() == [b"again"]
        with pytest.raises(BrokerError, match="CODE: 1 "):
            await resume_check(it.producer.remoting, it.broker.address, given_up.offset_msg_id)


async def test_a_pending_transaction_starts_anew_when_it_is_resumed(tmp_path: Path, turned_clock: LoopFactory) -> None:
    async with scene(tmp_path, transactionCheckMax="2") as it:
        await it.prepare()
        await it.round()
        (before,) = await it.pending()
        await resume_check(it.producer.remoting, it.broker.address, before.offset_message_id)
        assert [one.checks for one in await it.pending()] == [0]
        await it.question()
        for _ in range(2):
            await it.round()
            question = await it.question()
        await it.producer.end(question.prepared, ROLLBACK)
        assert await it.pending() == []


@pytest.mark.parametrize(
    "message_id", ["", "x", "7F00000100002A9F0000000000000000", "7F00000100002A9F00000000FFFFFFFF"]
)
async def test_only_undecided_half_messages_can_be_resumed(
    tmp_path: Path, message_id: str, turned_clock: LoopFactory
) -> None:
    async with scene(tmp_path) as it:
        prepared = await it.prepare()
        await it.producer.end(prepared, ROLLBACK)
        with pytest.raises(BrokerError, match="CODE: 1 "):
            await resume_check(it.producer.remoting, it.broker.address, message_id)
        assert it.stored(HALF_TOPIC) == 1


async def test_a_spared_message_is_asked_about_when_its_time_is_up(tmp_path: Path, turned_clock: LoopFactory) -> None:
    """RocketMQ counts the rounds in which it was spared as questions; here only questions count."""
    async with scene(tmp_path, transactionCheckMax="2") as it:
        first = await it.prepare(b"first", "u1", properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "290"})
        await it.prepare(b"second", "u2")
        await it.round()
        assert (await it.question()).prepared.unique_id == "u2"
        for _ in range(3):
            await it.round()
        assert {(await it.question()).prepared.unique_id} == {"u2"}
        assert it.producer.asked.empty()
        assert [(one.unique_id, one.checks) for one in await it.pending()] == [("u1", 0)]
        await it.round()
        assert (await it.question()).prepared.unique_id == "u1"
        await it.producer.end(first, COMMIT)
        assert await it.delivered() == [b"first"]
        await it.round()
        assert it.producer.asked.empty()


async def test_the_members_of_a_group_are_asked_in_turn(tmp_path: Path, turned_clock: LoopFactory) -> None:
    async with scene(tmp_path) as it:
        others = [RawProducer(it.broker.address, "payers", f"other-{number}") for number in range(2)]
        for other in others:
            await other.register()
        for number in range(30):
            await it.prepare(unique_id=f"u{number}")
        await it.round()
        everyone = [it.producer, *others]
        await until(lambda: sum(one.asked.qsize() for one in everyone) == 30)
        assert [one.asked.qsize() for one in everyone] == [10, 10, 10]
        for other in others:
            await other.remoting.close()
        await until(lambda: len(it.broker.producers.groups["payers"]) == 1)
        await it.round()
        await until(lambda: it.producer.asked.qsize() == 10 + 30)


async def test_without_a_producer_the_next_round_asks_again(tmp_path: Path, turned_clock: LoopFactory) -> None:
    async with scene(tmp_path) as it:
        prepared = await it.prepare()
        it.broker.producers.groups.clear()
        await it.pass_by(INTERVAL)
        assert it.stored(HALF_TOPIC) == 2
        await it.round()
        question = await it.question()
        assert question.prepared.queue_offset == prepared.queue_offset + 2
        await it.producer.end(question.prepared, COMMIT)
        assert await it.delivered() == [b"body"]


# ---------------------------------------------------------------------------------------------------------- a restart


async def test_pending_transactions_survive_a_restart(tmp_path: Path, turned_clock: LoopFactory) -> None:
    time = Time()
    async with scene(tmp_path, time) as it:
        done = await it.prepare(b"done", "u0")
        old = await it.prepare(b"pending", "u1")
        late = await it.prepare(b"late", "u2")
        await it.producer.end(late, ROLLBACK)
        await it.producer.end(done, COMMIT)
        await it.round()
        await it.question()
    async with scene(tmp_path, time) as it:
        assert [one.unique_id for one in await it.pending()] == ["u1"]
        await it.round()
        question = await it.question()
        assert question.prepared.unique_id == "u1"
        for _ in range(2):
            await it.producer.end(old, COMMIT)
            await it.producer.end(question.prepared, COMMIT)
        assert sorted(await it.delivered()) == [b"done", b"pending"]
        with suppress(BrokerError):  # whether that is still known, or only that it is over
            await it.producer.end(late, COMMIT)
        assert len(await it.delivered()) == 2
        await it.round()
        assert it.producer.asked.empty()


async def test_a_kill_between_message_and_op_message_delivers_nothing_twice(
    tmp_path: Path, turned_clock: LoopFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log ends with a committed message for which there is no op message."""
    time = Time()
    for number, copied in enumerate((False, True)):
        async with scene(tmp_path, time) as it:
            prepared = await it.prepare(b"%d" % number, f"u{number}")
            if copied:
                await it.round()
            put, refused = it.broker.store.put, PutResult(PutStatus.SERVICE_NOT_AVAILABLE)
            with monkeypatch.context() as patched:
                store = it.broker.store
                patched.setattr(store, "put", lambda one, *_: refused if one.topic == OP_HALF_TOPIC else put(one))  # noqa: B023
                await it.producer.end(prepared, COMMIT)
        for progress in (tmp_path / "config").glob("consumerOffset.json*"):
            progress.unlink()  # a killed broker has not saved it
        async with scene(tmp_path, time) as it:
            assert it.stored(OP_HALF_TOPIC) == number + 1
            assert await it.pending() == []
            await it.round()
            assert it.producer.asked.empty()
            assert await it.delivered() == [b"0", b"1"][: number + 1]


@pytest.mark.parametrize("removed", [(HALF_TOPIC,), (HALF_TOPIC, OP_HALF_TOPIC)], ids=len)
async def test_a_queue_that_begins_anew_is_that_of_new_transactions(
    tmp_path: Path, removed: tuple[str, ...], turned_clock: LoopFactory
) -> None:
    """An administrator had queues removed of which no message was left; the op queue may stay, with offsets of old."""
    async with scene(tmp_path) as it:
        for number in range(3):
            await it.producer.end(await it.prepare(unique_id=f"u{number}"), ROLLBACK)
        await it.round(2)
        for topic in removed:
            list(it.broker.store.remove_topic(topic))
        first = await it.prepare(b"anew", "u3")
        assert first.queue_offset == 0
        await it.prepare(b"asked", "u4")
        await it.producer.end(first, COMMIT)
        await it.round()
        await it.producer.end((await it.question()).prepared, COMMIT)
        assert await it.delivered() == [b"anew", b"asked"]
        await it.round(2)
        await until(lambda: it.broker.offsets.query(TRANSACTION_GROUP, HALF_TOPIC, 0) == 3)
        assert it.broker.offsets.query(TRANSACTION_GROUP, OP_HALF_TOPIC, 0) == it.stored(OP_HALF_TOPIC)


async def test_progress_is_saved_as_the_offsets_of_rocketmqs_group(tmp_path: Path, turned_clock: LoopFactory) -> None:
    async with scene(tmp_path) as it:
        for number in range(5):
            prepared = await it.prepare(unique_id=f"u{number}")
            if number != 3:
                await it.producer.end(prepared, COMMIT)
    text = (tmp_path / "config" / "consumerOffset.json").read_text()
    assert f'"{HALF_TOPIC}@{TRANSACTION_GROUP}":{{0:3' in text
    async with scene(tmp_path) as it:
        assert it.broker.offsets.query(TRANSACTION_GROUP, HALF_TOPIC, 0) == 3
        await it.round()
        await it.producer.end((await it.question()).prepared, COMMIT)
        await it.round(2)
    text = (tmp_path / "config" / "consumerOffset.json").read_text()
    assert f'"{HALF_TOPIC}@{TRANSACTION_GROUP}":{{0:6' in text
    assert f'"{OP_HALF_TOPIC}@{TRANSACTION_GROUP}":{{0:5' in text


# -------------------------------------------------------------------------------------------------------------- tools


async def test_a_tool_sees_what_is_pending(tmp_path: Path, turned_clock: LoopFactory) -> None:
    async with scene(tmp_path) as it:
        prepared = await it.prepare(b"x", "u1", queue_id=3, properties={"KEYS": "order-1 customer-2"})
        await it.time.pass_by(5)
        (one,) = await it.pending()
        assert (one.topic, one.queue_id, one.keys, one.unique_id) == ("Orders", 3, "order-1 customer-2", "u1")
        assert (one.producer_group, one.queue_offset, one.age_ms, one.checks) == ("payers", 0, 5000, 0)
        assert one.offset_message_id.endswith(f"{prepared.log_offset:016X}")
        assert one.next_check == one.born_timestamp + 60_000
        await it.round(55)
        (one,) = await it.pending()
        assert (one.checks, one.queue_offset) == (1, 1)
        assert one.next_check == one.born_timestamp + 120_000


async def test_the_next_question_comes_after_the_timeout(tmp_path: Path, turned_clock: LoopFactory) -> None:
    async with scene(tmp_path, transactionCheckInterval="4000") as it:
        await it.prepare()
        await it.prepare(unique_id="u2", properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "60"})
        assert [one.next_check - one.born_timestamp for one in await it.pending()] == [8000, 60_000]


async def test_pending_transactions_come_page_by_page(tmp_path: Path, turned_clock: LoopFactory) -> None:
    async with scene(tmp_path) as it:
        for number in range(300):
            prepared = await it.prepare(unique_id=f"u{number}")
            if number % 3:
                await it.producer.end(prepared, ROLLBACK)
        seen, offset = [], 0
        while offset >= 0:
            page = await pending_transactions(it.producer.remoting, it.broker.address, offset=offset, limit=30)
            assert len(page.transactions) <= 30
            seen += [one.unique_id for one in page.transactions]
            offset = page.next_offset
        assert seen == [f"u{number}" for number in range(0, 300, 3)]
        asked = it.producer.remoting, it.broker.address
        assert (await pending_transactions(*asked, topic="Others")).transactions == []
        assert (await pending_transactions(*asked, producer_group="others")).transactions == []
        chosen = await pending_transactions(*asked, topic="Orders", producer_group="payers", limit=1_000_000)
        assert len(chosen.transactions) == 100
