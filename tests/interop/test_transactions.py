"""Transactions: what a Java producer decides, when it is asked, what is stored meanwhile, and pending transactions that
go from one system to the other.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from orbitmq.client import LocalTransactionState, Message, MessageExt, TransactionProducer
from orbitmq.client import sync as threads
from orbitmq.message.flags import TRANSACTION_COMMIT, TRANSACTION_PREPARED
from orbitmq.message.ids import offset_message_id
from orbitmq.message.model import MessageQueue
from orbitmq.message.properties import decode_properties
from orbitmq.message.topics import HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_CHECK_MAX_TOPIC, TRANSACTION_GROUP
from orbitmq.message.unit import Unit, decode_units, message_of
from orbitmq.net.remoting import Remoting
from orbitmq.operations.offsets import max_offset, query_consumer_offset
from orbitmq.operations.pulls import pull
from orbitmq.operations.transactions import resume_check
from orbitmq.runtime.clock import ManualClock
from orbitmq.store.engine import MessageStore
from orbitmq.store.options import StoreOptions
from tests.interop.conftest import DECISIONS_AT_ONCE, System, is_five
from tests.support.delivery import assert_each_once, messages, results
from tests.support.java_rocketmq import ROCKETMQ_4, ROCKETMQ_5, Driver, JavaSystem, run_driver
from tests.support.live import pull_header
from tests.support.messages import index_of
from tests.support.orbit_process import OrbitUp
from tests.support.python_client import message
from tests.support.stores import CODES
from tests.support.transactions import (
    COMMIT,
    HOUR_MS,
    ROLLBACK,
    RawProducer,
    ask_from,
    asked_from,
    left_alone,
    raw_producer,
)

# Producers are asked every 1.5 s, three times: a test sees a transaction through to its end.
QUICK = {"transactionCheckInterval": 1500, "transactionTimeOut": 500, "transactionCheckMax": 3}
PATIENCE_S = 60
BODY = b"the body"

T = TypeVar("T")

Start = Callable[..., System]
_STARTS: dict[str, Start] = {
    "java": lambda store=None, **config: JavaSystem(ROCKETMQ_4, store_dir=store, **config),
    "orbitmq": lambda store=None, **config: OrbitUp(store_dir=store, **config),
    "java-5": lambda store=None, **config: JavaSystem(ROCKETMQ_5, store_dir=store, **DECISIONS_AT_ONCE, **config),
}


@pytest.fixture(scope="module", params=["java", "orbitmq"])
def system(request: pytest.FixtureRequest) -> Iterator[System]:
    with _STARTS[request.param](**QUICK) as running:
        yield running


def create(system: System, topic: str) -> None:
    client = ("--namesrv", system.namesrv_address, "--topic", topic)
    run_driver("admin", "--do", "create", *client, "--queues", 4, "--broker", system.address)


def produce(system: System, topic: str, *more: object) -> tuple[object, ...]:
    client = ("--namesrv", system.namesrv_address, "--topic", topic, "--group", f"{topic}-producers")
    return ("transactions", *client, "--run", topic, *more)


def consume(system: System, topic: str, count: int) -> list[Any]:
    client = ("--namesrv", system.namesrv_address, "--topic", topic, "--group", f"{topic}-readers")
    return messages(run_driver("consume", *client, "--expect", count, "--linger-ms", 500))


@asynccontextmanager
async def asked_producer(system: System, group: str) -> AsyncIterator[RawProducer]:
    async with raw_producer(system.address, group) as producer:
        yield producer


async def once(ask: Callable[[], Awaitable[T]], holds: Callable[[T], bool]) -> T:
    """The first answer that holds."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            answer = await ask()
            if holds(answer):
                return answer
            await asyncio.sleep(0.05)


async def units_from(producer: RawProducer, log_offset: int, count: int) -> list[Unit]:
    """So many messages of this producer in the log, once they are there."""
    return await once(lambda: own_units(producer, log_offset), lambda units: len(units) >= count)


async def own_units(producer: RawProducer, log_offset: int) -> list[Unit]:
    """What the log holds of this producer's transactions. What other tests have left open is asked about, and given up,
    at any time.
    """
    units = await producer.units_from(log_offset)
    group_of = [decode_properties(unit.properties).get("PGROUP") for unit in units]
    mine = [unit for unit, group in zip(units, group_of, strict=True) if group == producer.group]
    ended = {str(unit.queue_offset).encode() for unit in mine if unit.topic == HALF_TOPIC}
    return [
        unit
        for unit, group in zip(units, group_of, strict=True)
        if group == producer.group or (unit.topic == OP_HALF_TOPIC and unit.body in ended)
    ]


def facts(unit: Unit) -> dict[str, object]:
    """All of a unit but place, hosts and times."""
    names = ("topic", "queue_id", "body", "flag", "sys_flag", "reconsume_times", "prepared_transaction_offset")
    return {name: getattr(unit, name) for name in names} | {"properties": decode_properties(unit.properties)}


def half_facts(group: str, unique_id: str, real_topic: str, **changes: object) -> dict[str, object]:
    """What a half message holds that was sent to queue 3 of `real_topic`; `changes` make it another one."""
    properties = {
        "TRAN_MSG": "true", "PGROUP": group, "UNIQ_KEY": unique_id, "REAL_TOPIC": real_topic, "REAL_QID": "3",
        "CLUSTER": "DefaultCluster", "WAIT": "true", "TAGS": "TagA", "KEYS": "k1 k2", "city": "東京",
    }  # fmt: skip
    known = {
        "topic": HALF_TOPIC, "queue_id": 0, "body": BODY, "flag": 7, "sys_flag": 0, "reconsume_times": 0,
        "prepared_transaction_offset": 0, "properties": properties | dict(changes.pop("properties", {})),  # type: ignore[call-overload]
    }  # fmt: skip
    return known | changes


def op_facts(offset: int) -> dict[str, object]:
    return {
        "topic": OP_HALF_TOPIC, "queue_id": 0, "body": str(offset).encode(), "flag": 0, "sys_flag": 0,
        "reconsume_times": 0, "prepared_transaction_offset": 0, "properties": {"TAGS": "d", "WAIT": "true"},
    }  # fmt: skip


SENT: dict[str, Any] = {
    "queue_id": 3,
    "flag": 7,
    "sys_flag": TRANSACTION_PREPARED,
    "properties": {"TAGS": "TagA", "KEYS": "k1 k2", "WAIT": "true", "city": "東京"},
}


def test_what_is_stored_of_a_transaction(system: System, label: str) -> None:
    with left_alone(system.address, QUICK["transactionTimeOut"]):
        asyncio.run(_stored(system, label))


async def _stored(system: System, label: str) -> None:
    async with asked_producer(system, label) as producer:
        first = await producer.prepare(label, BODY, "u1", born_ms=_now_ms(), **SENT)
        await producer.end(first, COMMIT)
        half, committed, op = await units_from(producer, first.log_offset, 3)
        assert facts(half) == half_facts(label, "u1", label)
        delivered = {"topic": label, "queue_id": 3, "sys_flag": TRANSACTION_COMMIT}
        prepared_at = {"prepared_transaction_offset": first.log_offset}
        assert facts(committed) == half_facts(label, "u1", label, **delivered, **prepared_at)
        assert committed.properties == half.properties
        assert facts(op) == op_facts(first.queue_offset)
        assert (half.queue_offset, committed.queue_offset) == (first.queue_offset, 0)
        assert (committed.born_timestamp, committed.born_host) == (half.born_timestamp, half.born_host)
        assert committed.store_host == half.store_host == op.store_host == op.born_host
        assert op.store_timestamp >= op.born_timestamp >= committed.store_timestamp

        second = await producer.prepare(label, BODY, "u2", born_ms=_now_ms(), **SENT)
        assert second.queue_offset == first.queue_offset + 1
        await producer.end(second, ROLLBACK)
        half, op = await units_from(producer, second.log_offset, 2)
        assert facts(half) == half_facts(label, "u2", label)
        assert facts(op) == op_facts(second.queue_offset)


def test_what_a_decision_must_say(system: System, label: str) -> None:
    with left_alone(system.address, QUICK["transactionTimeOut"]):
        asyncio.run(_refused(system, label))


async def _refused(system: System, label: str) -> None:
    async with asked_producer(system, label) as producer:
        one = await producer.prepare(label, BODY, "u1", born_ms=_now_ms(), **SENT)
        for decision in (COMMIT, ROLLBACK):
            refused = [
                await producer.refusal(one, decision, producer_group="others"),
                await producer.refusal(one, decision, tran_state_table_offset=one.queue_offset + 1),
                await producer.refusal(one, decision, commit_log_offset=1 << 40),
            ]
            assert refused == [
                (1, "The producer group wrong"),
                (1, "The transaction state table offset wrong"),
                (1, "Find prepared transaction message failed"),
            ]
        await producer.end(one, ROLLBACK)
        assert [unit.topic for unit in await units_from(producer, one.log_offset, 2)] == [HALF_TOPIC, OP_HALF_TOPIC]


def test_how_a_producer_is_asked(system: System, label: str) -> None:
    try:
        asyncio.run(_asked(system, label))
    finally:
        asyncio.run(ask_from(system.address, QUICK["transactionTimeOut"]))


async def _asked(system: System, label: str) -> None:
    async with asked_producer(system, label) as producer, asyncio.timeout(PATIENCE_S):
        first = await producer.prepare(label, BODY, "u1", born_ms=_now_ms(), **SENT)
        questions = [await producer.asked.get()]
        await ask_from(system.address, HOUR_MS)  # once is enough; a slow machine may have come to the next round
        half, *copies = await units_from(producer, first.log_offset, 2)
        while len(questions) < len(copies):
            questions.append(await producer.asked.get())
        looked_at = half
        for number, (copy, question) in enumerate(zip(copies, questions, strict=True), 1):
            asked_so_often = {"TRANSACTION_CHECK_TIMES": str(number)}
            assert facts(copy) == half_facts(label, "u1", label, flag=0, properties=asked_so_often)
            assert (copy.born_timestamp, copy.born_host, copy.store_host) == (
                half.born_timestamp, half.born_host, half.store_host,
            )  # fmt: skip

            header, unit = question.header, question.unit
            assert header.tran_state_table_offset == copy.queue_offset
            assert header.commit_log_offset == copy.physical_offset
            assert (header.msg_id, header.transaction_id) == ("u1", "u1")
            assert header.offset_msg_id == offset_message_id(copy.store_host, copy.physical_offset)
            assert facts(unit) == half_facts(
                label, "u1", label, topic=label, queue_id=3, flag=looked_at.flag,
                properties={**asked_so_often, "WAIT": "false"},
            )  # fmt: skip
            assert (unit.queue_offset, unit.physical_offset) == (copy.queue_offset, copy.physical_offset)
            assert (unit.born_timestamp, unit.born_host) == (half.born_timestamp, half.born_host)
            assert unit.store_timestamp == looked_at.store_timestamp
            looked_at = copy

        await producer.end(question.prepared, COMMIT, from_transaction_check=True)
        units = await units_from(producer, first.log_offset, 1 + len(copies) + 2)
        committed = next(unit for unit in units if unit.topic == label)
        assert facts(committed) == half_facts(
            label, "u1", label, topic=label, queue_id=3, flag=0, sys_flag=TRANSACTION_COMMIT,
            prepared_transaction_offset=copy.physical_offset, properties=asked_so_often,
        )  # fmt: skip
        assert facts(units[-1]) == op_facts(copy.queue_offset)


def test_what_becomes_of_those_that_never_know_or_want_time(system: System, label: str) -> None:
    async def both() -> None:
        await asyncio.gather(_never(system, f"{label}-never"), _spared(system, f"{label}-spared"))

    asyncio.run(both())


async def _never(system: System, label: str) -> None:
    """One transaction is resumed by an administrator, one decided late, one never."""
    async with asked_producer(system, label) as producer, asyncio.timeout(PATIENCE_S):
        made = [await producer.prepare(label, BODY, f"u{n}", born_ms=_now_ms(), **SENT) for n in range(3)]
        questions = [await producer.asked.get() for _ in range(3 * 3)]
        assert Counter(question.prepared.unique_id for question in questions) == {"u0": 3, "u1": 3, "u2": 3}

        def given_up_of(units: list[Unit]) -> list[Unit]:
            return [unit for unit in units if unit.topic == TRANSACTION_CHECK_MAX_TOPIC]

        units = await once(
            lambda: own_units(producer, made[0].log_offset), lambda units: len(given_up_of(units)) >= len(made)
        )
        given_up = given_up_of(units)
        assert len(given_up) == len(made)
        for number, unit in enumerate(given_up):
            times = {"TRANSACTION_CHECK_TIMES": "3"}
            expected = half_facts(label, f"u{number}", label, topic=unit.topic, flag=0, properties=times)
            assert facts(unit) == expected
        assert not [unit for unit in units if unit.topic == label], "nothing was delivered"

        message_id = offset_message_id(given_up[0].store_host, given_up[0].physical_offset)
        await resume_check(producer.remoting, system.address, message_id)
        question = await producer.asked.get()
        assert question.prepared.unique_id == "u0"
        assert decode_properties(question.unit.properties)["TRANSACTION_CHECK_TIMES"] == "1"
        await producer.end(question.prepared, COMMIT)
        await producer.end(made[1], COMMIT)
        units = await own_units(producer, given_up[-1].physical_offset)
        delivered = [decode_properties(unit.properties)["UNIQ_KEY"] for unit in units if unit.topic == label]
        assert delivered == ["u0", "u1"]


async def _spared(system: System, label: str) -> None:
    async with asked_producer(system, label) as producer, asyncio.timeout(PATIENCE_S):
        sent = {**SENT, "properties": {**SENT["properties"], "CHECK_IMMUNITY_TIME_IN_SECONDS": "2"}}
        born_ms = _now_ms()
        first = await producer.prepare(label, BODY, "u1", born_ms=born_ms, **sent)
        question = await producer.asked.get()
        assert _now_ms() - born_ms >= 2000
        halves = [unit for unit in await own_units(producer, first.log_offset) if unit.topic == HALF_TOPIC]
        copies = [unit for unit in halves if decode_properties(unit.properties)["REAL_TOPIC"] == label][1:]
        assert len(copies) > 1
        origins = {decode_properties(copy.properties)["TRAN_PREPARED_QUEUE_OFFSET"] for copy in copies}
        assert origins == {str(first.queue_offset)}
        await producer.end(question.prepared, ROLLBACK)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.with_five
def test_producers_decide_at_once_or_when_they_are_asked(system: System, label: str) -> None:
    """Both faces of orbitmq's and Java's, side by side; how Java's fare with a broker of 5.x is not our concern.

    A message is asked about after five seconds only: a busy machine may decide it later than the half second of the
    other tests, and RocketMQ delivers twice what is decided by the sender and by an answer.
    """
    with asked_from(system.address, 5000, QUICK["transactionTimeOut"]), ThreadPoolExecutor(4) as beside:
        all_of_them = [
            beside.submit(_decide_in_threads, system, f"{label}-threads"),
            beside.submit(lambda: asyncio.run(_decide_in_tasks(system, f"{label}-tasks"))),
        ]
        if not is_five(system):
            all_of_them += [
                beside.submit(_decide_in_java, system, f"{label}-java"),
                beside.submit(_decide_in_java, system, f"{label}-java5", ROCKETMQ_5),
            ]
        for one in all_of_them:
            one.result()


def _decide_in_java(system: System, label: str, version: str = ROCKETMQ_4) -> None:
    plans = ["commit", "rollback", "check-commit", "check-rollback", "unknown"]
    create(system, label)
    with Driver(*produce(system, label, "--plans", ",".join(plans), "--count", 60), version=version) as producer:
        producer.wait_for_event("sent")
        sent = results(producer.rows())
        assert {row["status"] for row in sent} == {"SEND_OK"}
        received = consume(system, label, 24)
        producer.process.wait_for(
            lambda: len([row for row in producer.rows() if row.get("plan") == "unknown"]) >= 12 * 3,
            PATIENCE_S,
            "three questions about each transaction without outcome",
        )
        checked = [row for row in producer.rows() if row.get("event") == "checked"]
    for row in received:
        if "TRANSACTION_CHECK_TIMES" in row["properties"]:
            assert row["flag"] == 0, "the copy of a message that is asked about has lost its flag"
            row["flag"] = index_of(row) % 7
    assert_each_once(received, label, [index for index in range(60) if index % 5 in (0, 2)])
    assert {row["sysFlag"] & ~1 & ~0x700 for row in received} == {TRANSACTION_COMMIT}
    ids = {row["index"]: row["msgId"] for row in sent}
    assert {row["index"]: row["transactionId"] for row in checked} == {
        row["index"]: ids[row["index"]] for row in checked
    }
    asked = Counter(row["index"] for row in checked)
    assert asked == {index: 3 if index % 5 == 4 else 1 for index in range(60) if index % 5 > 1}


DECISIONS = {
    "commit": LocalTransactionState.COMMIT_MESSAGE,
    "rollback": LocalTransactionState.ROLLBACK_MESSAGE,
    "unknown": LocalTransactionState.UNKNOWN,
}


class Planned:
    """A listener that does as the message's property `plan` says, now and when it is asked."""

    def __init__(self) -> None:
        self.checked: Counter[int] = Counter()

    def execute(self, message: Message, _argument: object) -> LocalTransactionState:
        return DECISIONS.get(message.properties["plan"], LocalTransactionState.UNKNOWN)

    def check(self, message: MessageExt) -> LocalTransactionState:
        self.checked[int(message.properties["index"])] += 1
        return DECISIONS[message.properties["plan"].removeprefix("check-")]


class PlannedCoroutines(Planned):
    """The same in coroutines."""

    async def execute(self, message: Message, argument: object) -> LocalTransactionState:  # type: ignore[override]
        return super().execute(message, argument)

    async def check(self, message: MessageExt) -> LocalTransactionState:  # type: ignore[override]
        return super().check(message)


# A send that times out is sent again, and the half message that had come after all is decided like any other: twice is
# allowed then, and not what is asked here.
PATIENT = {"send_timeout_ms": 30_000}

PLANNED = ("commit", "rollback", "check-commit", "check-rollback", "unknown")


def planned(topic: str, index: int) -> Message:
    made = message(topic, topic, index)
    made.set_property("plan", PLANNED[index % len(PLANNED)])
    return made


async def _decide_in_tasks(system: System, topic: str) -> None:
    listener = PlannedCoroutines()
    async with TransactionProducer(topic, system.namesrv_address, listener=listener, **PATIENT) as producer:
        for index in range(20):
            await producer.send_in_transaction(planned(topic, index))
        await once(partial(_seen, system, topic, listener), bool)
    assert_as_planned(topic, listener, await _read(system, topic))


def _decide_in_threads(system: System, topic: str) -> None:
    listener = Planned()
    with threads.TransactionProducer(topic, system.namesrv_address, listener=listener, **PATIENT) as producer:
        for index in range(20):
            producer.send_in_transaction(planned(topic, index))
        asyncio.run(once(partial(_seen, system, topic, listener), bool))
    assert_as_planned(topic, listener, asyncio.run(_read(system, topic)))


async def _seen(system: System, topic: str, listener: Planned) -> bool:
    """Whether everything has come that must come."""
    unknown = [listener.checked[index] for index in range(4, 20, 5)]
    return min(unknown) == 3 and len(await _read(system, topic)) >= 8


async def _read(system: System, topic: str) -> list[MessageExt]:
    remoting = Remoting()
    try:
        return [one for queue_id in range(4) for one in await _messages(remoting, system.address, topic, queue_id)]
    finally:
        await remoting.close()


async def _messages(remoting: Remoting, address: str, topic: str, queue_id: int) -> list[MessageExt]:
    """Everything in one queue."""
    found: list[MessageExt] = []
    while len(found) < await max_offset(remoting, address, MessageQueue(topic, "", queue_id)):
        reply = await pull(remoting, address, pull_header(topic, queue_id, len(found)))
        found += [message_of(unit) for unit in decode_units(reply.body)]
    return found


def assert_as_planned(topic: str, listener: Planned, delivered: list[MessageExt]) -> None:
    indexes = sorted(int(one.properties["index"]) for one in delivered)
    assert indexes == [index for index in range(20) if index % 5 in (0, 2)]
    assert all(one.body == planned(topic, int(one.properties["index"])).body for one in delivered)
    assert listener.checked == {index: 3 if index % 5 == 4 else 1 for index in range(20) if index % 5 > 1}


@pytest.mark.with_five
def test_a_started_producer_is_asked_though_it_has_sent_nothing(system: System, label: str) -> None:
    try:
        asyncio.run(_asked_instead(system, label))
    finally:
        asyncio.run(ask_from(system.address, QUICK["transactionTimeOut"]))


async def _asked_instead(system: System, label: str) -> None:
    checked: list[MessageExt] = []

    class Fresh(PlannedCoroutines):
        async def check(self, message: MessageExt) -> LocalTransactionState:
            checked.append(message)
            return LocalTransactionState.COMMIT_MESSAGE

    await ask_from(system.address, HOUR_MS)
    async with asked_producer(system, label) as dying:
        await dying.prepare(label, BODY, "u1", born_ms=_now_ms(), **SENT)
    async with TransactionProducer(label, system.namesrv_address, listener=Fresh(), **PATIENT):
        await ask_from(system.address, QUICK["transactionTimeOut"])
        delivered = await once(partial(_read, system, label), bool)
    assert [one.body for one in delivered] == [BODY]
    assert checked[0].properties["TRANSACTION_CHECK_TIMES"] == "1"


# ------------------------------------------------------------------------------------------------------ the handover

COUNT = 100
PLANS = (COMMIT, ROLLBACK, None, None)  # of each message; of those that stay pending every other one is committed


@pytest.mark.parametrize(("first", "second"), [("orbitmq", "java"), ("java", "orbitmq")])
def test_pending_transactions_go_from_one_system_to_the_other(tmp_path: Path, first: str, second: str) -> None:
    """Killed with pending transactions; the other system asks about those and about no others."""
    store = tmp_path / "store"
    with _STARTS[first](store) as system:
        asyncio.run(_leave_pending(system))
        system.kill()
    with _STARTS[second](store, **QUICK) as system:
        asyncio.run(_take_over(system))
        system.stop()
    assert_all_is_done(store)


async def _leave_pending(system: System) -> None:
    async with raw_producer(system.address, "payers") as producer:
        for index in range(COUNT):
            prepared = await producer.prepare("handed", b"%d" % index, f"u{index}", born_ms=_now_ms())
            decision = PLANS[index % len(PLANS)]
            if decision is not None:
                await producer.end(prepared, decision)


async def _take_over(system: System) -> None:
    async with raw_producer(system.address, "payers") as producer, asyncio.timeout(PATIENCE_S):
        asked = set()
        while len(asked) < COUNT // 2:
            question = await producer.asked.get()
            index = int(question.prepared.unique_id[1:])
            asked.add(index)
            await producer.end(question.prepared, COMMIT if index % 4 == 2 else ROLLBACK)
        assert asked == {index for index in range(COUNT) if PLANS[index % 4] is None}
        bodies = await once(lambda: _bodies(producer, "handed"), lambda bodies: len(bodies) >= COUNT // 2)
        assert sorted(bodies) == sorted(b"%d" % index for index in range(0, COUNT, 2)), "each once"
        await _until_over(producer)


async def _bodies(producer: RawProducer, topic: str) -> list[bytes]:
    return [one.body for one in await _messages(producer.remoting, producer.address, topic, 0)]


async def _until_over(producer: RawProducer) -> None:
    """Until the broker's own group has seen everything; it looks every now and then."""
    for topic in (HALF_TOPIC, OP_HALF_TOPIC):
        queue = MessageQueue(topic, "", 0)
        end = await max_offset(producer.remoting, producer.address, queue)

        async def progress(queue: MessageQueue = queue) -> int | None:
            return await query_consumer_offset(producer.remoting, producer.address, TRANSACTION_GROUP, queue)

        await once(progress, lambda offset, end=end: offset == end)  # type: ignore[misc]


def assert_all_is_done(store_dir: Path) -> None:
    """The saved progress of both queues says that nothing is pending."""
    text = (store_dir / "config" / "consumerOffset.json").read_text()
    table = json.loads(re.sub(r"([{,]\s*)(\d+):", r'\1"\2":', text))["offsetTable"]
    store = MessageStore(
        StoreOptions.parse({"storePathRootDir": str(store_dir)}), clock=ManualClock(), entry_codes=CODES
    )
    store.open()
    for topic in (HALF_TOPIC, OP_HALF_TOPIC):
        assert table[f"{topic}@CID_RMQ_SYS_TRANS"] == {"0": store.max_offset(topic, 0)}, topic
    store.close()
