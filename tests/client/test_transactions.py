"""A transaction producer does its work between the halves, tells how it ended, and answers when it is asked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from orbitmq.client import (
    LocalTransactionState,
    Message,
    MessageExt,
    Producer,
    SendStatus,
    TransactionProducer,
    sync,
)
from orbitmq.client import producer as producer_module
from orbitmq.client.core.trace import TransactionEnded, decode_trace
from orbitmq.client.core.transaction_end import EndContext
from orbitmq.client.sync_wrapper import run as run_on_the_loop
from orbitmq.errors import ClientError
from orbitmq.message.flags import TRANSACTION_COMMIT, TRANSACTION_NOT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from orbitmq.message.properties import decode_properties, encode_properties
from orbitmq.message.unit import encode_unit
from orbitmq.net.connection import Connection
from orbitmq.testing import Cluster
from orbitmq.wire.bodies import BrokerData, ClusterInfo
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, request
from orbitmq.wire.headers import SendMessageResponseHeader, SendMessageV2Header
from orbitmq.wire.headers_transaction import CheckTransactionStateHeader, EndTransactionHeader
from orbitmq.wire.objects import encode_standard
from orbitmq.wire.requests import RequestCode
from tests.support.fake_system import BROKER, FakeSystem, fake_system, refuse
from tests.support.loops import TurnedLoop, run, settle, turned_loop, until
from tests.support.process import wait_until

COMMIT, ROLLBACK = LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.ROLLBACK_MESSAGE
UNKNOWN = LocalTransactionState.UNKNOWN


class Script:
    """A listener that says what it is told to."""

    def __init__(self, execute: object = COMMIT, check: object = COMMIT) -> None:
        self.says = {"execute": execute, "check": check}
        self.executed: list[tuple[Message, Any]] = []
        self.checked: list[MessageExt] = []
        self.threads: list[threading.Thread] = []

    def execute(self, message: Message, argument: Any) -> Any:
        self.executed.append((message, argument))
        return self._say("execute")

    def check(self, message: MessageExt) -> Any:
        self.checked.append(message)
        return self._say("check")

    def _say(self, what: str) -> object:
        self.threads.append(threading.current_thread())
        said = self.says[what]
        if isinstance(said, BaseException):
            raise said
        return said


class CoroutineScript(Script):
    """The same in coroutines."""

    async def execute(self, message: Message, argument: Any) -> Any:
        await asyncio.sleep(0)
        return super().execute(message, argument)

    async def check(self, message: MessageExt) -> Any:
        await asyncio.sleep(0)
        return super().check(message)


def ends(system: FakeSystem) -> list[EndTransactionHeader]:
    return [one.header(EndTransactionHeader) for one in system.asked if one.code == RequestCode.END_TRANSACTION]


def remarks(system: FakeSystem) -> list[str | None]:
    return [one.remark for one in system.asked if one.code == RequestCode.END_TRANSACTION]


def ask(system: FakeSystem, group: str = "payers", topic: str = "Orders", **properties: str) -> None:
    """As a broker does that did not hear how a transaction ended."""
    text = encode_properties({"PGROUP": group, "UNIQ_KEY": "u1", "TRAN_MSG": "true", **properties})
    unit = system.put(topic, 2, b"in doubt", text)
    header = CheckTransactionStateHeader(7, 700, "u1", "u1", "offset-id")
    system.connections[-1].send(request(RequestCode.CHECK_TRANSACTION_STATE, header, encode_unit(unit), oneway=True))


@pytest.mark.parametrize("kind", [Script, CoroutineScript])
@pytest.mark.parametrize(
    ("said", "state", "decision"),
    [
        (COMMIT, COMMIT, TRANSACTION_COMMIT),
        (ROLLBACK, ROLLBACK, TRANSACTION_ROLLBACK),
        (UNKNOWN, UNKNOWN, TRANSACTION_NOT),
        (None, UNKNOWN, TRANSACTION_NOT),
        (True, UNKNOWN, TRANSACTION_NOT),
        (ValueError("no money"), UNKNOWN, TRANSACTION_NOT),
    ],
)
def test_what_the_listener_says_is_told(
    kind: type[Script], said: object, state: LocalTransactionState, decision: int
) -> None:
    async def scenario() -> None:
        listener = kind(said)
        async with (
            fake_system() as system,
            TransactionProducer("payers", system.address, listener=listener) as producer,
        ):
            message = Message("Orders", b"x", tags="T", keys="k", delay_level=3, flag=4)
            result = await producer.send_in_transaction(message, "argument")
            assert (result.status, result.local_state) == (SendStatus.SEND_OK, state)
            await until(lambda: ends(system))
            (end,) = ends(system)
            assert end == EndTransactionHeader(
                "payers", result.queue_offset, result.queue_offset * 1000, decision, False, result.msg_id, None, BROKER
            )
            assert message.properties == Message("Orders", b"x", tags="T", keys="k", delay_level=3, flag=4).properties
            (sent,) = [one for one in system.asked if one.code == RequestCode.SEND_MESSAGE_V2]
            header = sent.header(SendMessageV2Header)
            properties = decode_properties(header.properties or "")
            assert (header.flag, header.sys_flag, "DELAY" in properties) == (4, TRANSACTION_PREPARED, False)
            assert (properties["TRAN_MSG"], properties["PGROUP"]) == ("true", "payers")
            ((executed, argument),) = listener.executed
            assert (executed.transaction_id, executed.body, argument) == (result.msg_id, b"x", "argument")

    run(scenario())


def test_the_brokers_log_hears_why_a_state_is_unknown() -> None:
    async def scenario() -> None:
        listener = Script(ValueError("no money"))
        async with (
            fake_system() as system,
            TransactionProducer("payers", system.address, listener=listener) as producer,
        ):
            await producer.send_in_transaction(Message("Orders", b"x"))
            await until(lambda: ends(system))
            assert remarks(system) == ["the listener failed: ValueError: no money"]

    run(scenario())


def test_no_work_is_done_for_a_message_that_is_not_there() -> None:
    async def scenario() -> None:
        listener = Script()
        async with (
            fake_system() as system,
            TransactionProducer("payers", system.address, listener=listener) as producer,
        ):
            system.answers[RequestCode.SEND_MESSAGE_V2] = refuse(ResponseCode.SERVICE_NOT_AVAILABLE)
            with pytest.raises(ClientError):
                await producer.send_in_transaction(Message("Orders", b"x"))
            await settle()
            assert (listener.executed, ends(system)) == ([], [])

    run(scenario())


def test_a_message_that_is_not_stored_safely_is_rolled_back() -> None:
    async def scenario() -> None:
        listener = Script()
        async with (
            fake_system() as system,
            TransactionProducer("payers", system.address, listener=listener) as producer,
        ):
            stored = SendMessageResponseHeader("7F00000100000001" + "0" * 16, 0, 5)
            system.answers[RequestCode.SEND_MESSAGE_V2] = lambda _, command: command.response(
                ResponseCode.FLUSH_DISK_TIMEOUT, header=stored
            )
            result = await producer.send_in_transaction(Message("Orders", b"x"))
            assert (result.status, result.local_state) == (SendStatus.FLUSH_DISK_TIMEOUT, ROLLBACK)
            await until(lambda: ends(system))
            assert [end.commit_or_rollback for end in ends(system)] == [TRANSACTION_ROLLBACK]
            assert listener.executed == []

    run(scenario())


def test_the_two_halves_can_be_taken_apart() -> None:
    async def scenario() -> None:
        async with (
            fake_system() as system,
            TransactionProducer("payers", system.address, listener=Script()) as producer,
        ):
            half = await producer.prepare(Message("Orders", b"x"))
            assert half.is_safe
            assert half.message.transaction_id == half.result.msg_id
            assert ends(system) == []
            await producer.finish(half, COMMIT)
            await until(lambda: ends(system))

    run(scenario())


class Gated(Script):
    """Its local transaction takes until the gate opens."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.gate = asyncio.Event(), asyncio.Event()

    async def execute(self, message: Message, argument: Any) -> Any:
        self.begun.set()
        await self.gate.wait()
        return COMMIT


@asynccontextmanager
async def gated() -> AsyncIterator[tuple[FakeSystem, TransactionProducer[Any], Gated, asyncio.Task[Any]]]:
    """A producer whose transaction is in progress."""
    async with fake_system() as system:
        listener = Gated()
        producer = TransactionProducer("payers", system.address, listener=listener)
        await producer.start()
        sending = asyncio.create_task(producer.send_in_transaction(Message("Orders", b"x")))
        await listener.begun.wait()
        yield system, producer, listener, sending


async def test_shutdown_waits_for_transactions_in_progress() -> None:
    async with gated() as (system, producer, listener, sending):
        closing = asyncio.create_task(producer.shutdown())
        await settle()
        assert not closing.done()
        listener.gate.set()
        await closing
        assert (await sending).local_state is COMMIT
        assert [end.commit_or_rollback for end in ends(system)] == [TRANSACTION_COMMIT]


async def test_a_transaction_that_outlives_its_producer_has_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_module, "CLOSE_S", 0.01)
    async with gated() as (system, producer, listener, sending):
        await producer.shutdown()
        listener.gate.set()
        assert (await sending).local_state is COMMIT
        assert ends(system) == []


async def test_a_transaction_may_shut_its_producer_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_module, "CLOSE_S", 3600)  # it waits for no end of its own

    class Last(Script):
        async def execute(self, message: Message, argument: Any) -> Any:
            await producer.shutdown()
            return COMMIT

    async with fake_system() as system, asyncio.timeout(60):
        producer = TransactionProducer("payers", system.address, listener=Last())
        await producer.start()
        assert (await producer.send_in_transaction(Message("Orders", b"x"))).local_state is COMMIT


def test_a_broker_that_cannot_be_told_is_no_failure() -> None:
    async def scenario() -> None:
        async with (
            fake_system() as system,
            TransactionProducer("payers", system.address, listener=Script()) as producer,
        ):
            half = await producer.prepare(Message("Orders", b"x"))
            producer._instance.routes._brokers.clear()
            system.topics.clear()
            assert (await producer.finish(half, COMMIT)).local_state is COMMIT

    run(scenario())


@pytest.mark.parametrize("kind", [Script, CoroutineScript])
@pytest.mark.parametrize(
    ("said", "decision"),
    [
        (COMMIT, TRANSACTION_COMMIT),
        (ROLLBACK, TRANSACTION_ROLLBACK),
        (None, TRANSACTION_NOT),
        (OSError("no database"), TRANSACTION_NOT),
    ],
)
def test_a_question_is_answered(kind: type[Script], said: object, decision: int) -> None:
    async def scenario() -> None:
        listener = kind(check=said)
        async with (
            fake_system() as system,
            TransactionProducer("payers", system.address, listener=listener) as producer,
        ):
            await producer.fetch_publish_queues("TBW102")
            await until(lambda: any(one.producer_data_set for one in system.heartbeats))
            ask(system)
            await until(lambda: ends(system))
            assert ends(system) == [EndTransactionHeader("payers", 7, 700, decision, True, "u1", "u1")]
            (message,) = listener.checked
            assert (message.topic, message.queue_id, message.body) == ("Orders", 2, b"in doubt")
            assert message.transaction_id == "u1"

    run(scenario())


def test_hooks_see_every_decision_and_do_no_harm() -> None:
    async def scenario() -> None:
        seen: list[EndContext] = []
        async with (
            fake_system() as system,
            TransactionProducer("payers", system.address, listener=Script(ROLLBACK)) as producer,
        ):
            producer.add_end_transaction_hook(lambda _: 1 // 0)
            producer.add_end_transaction_hook(seen.append)
            result = await producer.send_in_transaction(Message("Orders", b"x"))
            ask(system)
            await until(lambda: len(ends(system)) == 2)
            assert [(one.msg_id, one.state, one.from_check) for one in seen] == [
                (result.msg_id, ROLLBACK, False),
                ("u1", COMMIT, True),
            ]
            assert {one.broker_address for one in seen} == {system.address}

    run(scenario())


def test_decisions_are_traced_as_rocketmq_does() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["RMQ_SYS_TRACE_TOPIC"] = 1
            made = {"listener": Script(UNKNOWN), "enable_trace": True}
            async with TransactionProducer("payers", system.address, **made) as producer:  # type: ignore[arg-type]
                result = await producer.send_in_transaction(Message("Orders", b"x", tags="T", keys="k1 k2"))
            (trace,) = system.messages["RMQ_SYS_TRACE_TOPIC", 0]
            records = {record.name: record for record in decode_trace(trace.body)}
            ended = records["EndTransaction"]
            assert isinstance(ended, TransactionEnded)
            assert (ended.group, ended.topic, ended.msg_id) == ("payers", "Orders", result.msg_id)
            assert (ended.tags, ended.keys, ended.kind, ended.state) == ("T", "k1 k2", 2, "UNKNOW")
            assert (ended.broker_address, ended.from_check) == (system.address, False)
            assert decode_properties(trace.properties)["KEYS"].split() == [result.msg_id, "k1", "k2"]

    run(scenario())


def test_what_a_producer_tells_is_signed() -> None:
    """The answer to a question, too: it is a request of the producer's own."""

    async def scenario() -> None:
        account = {"access_key": "orders-app", "secret_key": "a secret of twelve"}
        made = {"listener": Script(), **account}
        async with fake_system() as system, TransactionProducer("payers", system.address, **made) as producer:  # type: ignore[arg-type]
            await producer.send_in_transaction(Message("Orders", b"x"))
            ask(system)
            await until(lambda: len(ends(system)) == 2)
            told = [one.ext or {} for one in system.asked if one.code == RequestCode.END_TRANSACTION]
            assert [one["AccessKey"] for one in told] == ["orders-app"] * 2
            assert all(one["Signature"] for one in told)
            assert told[0]["Signature"] != told[1]["Signature"]

    run(scenario())


def test_questions_about_others_and_nonsense_are_passed_over() -> None:
    async def scenario() -> None:
        listener = Script()
        async with (
            fake_system() as system,
            TransactionProducer("payers", system.address, listener=listener) as producer,
        ):
            await producer.fetch_publish_queues("TBW102")
            await until(lambda: system.heartbeats)
            header = CheckTransactionStateHeader(7, 700)
            nonsense = request(RequestCode.CHECK_TRANSACTION_STATE, header, b"no unit", oneway=True)
            system.connections[-1].send(nonsense)
            ask(system, "others")
            ask(system)
            await until(lambda: ends(system))
            assert len(listener.checked) == 1

    run(scenario())


def test_a_hook_that_stops_one_answer_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    class Once:
        refused = False

        def before(self, _address: str, asked: Command) -> None:
            if asked.code == RequestCode.END_TRANSACTION and not self.refused:
                self.refused = True
                raise ValueError("not now")

        def after(self, _address: str, _asked: Command, _response: Command) -> None:
            """Nothing to see."""

    async def scenario() -> None:
        async with fake_system() as system:
            producer = TransactionProducer("payers", system.address, listener=Script())
            producer.add_rpc_hook(Once())
            async with producer:
                await producer.fetch_publish_queues("TBW102")
                await until(lambda: system.heartbeats)
                ask(system)
                await until(lambda: "event=transaction_check_failed" in caplog.text)
                ask(system)
                await until(lambda: ends(system))

    run(scenario())


def test_no_more_questions_wait_than_allowed() -> None:
    async def scenario() -> None:
        free = asyncio.Event()

        class Slow(CoroutineScript):
            async def check(self, message: MessageExt) -> Any:
                await free.wait()
                return await super().check(message)

        listener = Slow()
        made = {"listener": listener, "check_queue": 2}
        async with fake_system() as system, TransactionProducer("payers", system.address, **made) as producer:  # type: ignore[arg-type]
            await producer.fetch_publish_queues("TBW102")
            await until(lambda: system.heartbeats)
            ask(system)
            await until(lambda: producer._checks.empty() and system.heartbeats)
            await settle()
            for _ in range(5):
                ask(system)
            await until(lambda: producer._checks.full())
            await settle()
            free.set()
            await until(lambda: len(ends(system)) == 3)
            await settle()
            assert len(listener.checked) == 3

    run(scenario())


def test_nobody_answers_after_shutdown() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            listener = Script()
            async with TransactionProducer("payers", system.address, listener=listener) as producer:
                await producer.fetch_publish_queues("TBW102")
                instance = producer._instance
            assert instance.transaction_checks.producers == {}

    run(scenario())


# ------------------------------------------------------------------------------------------------- who may be asked


def knows(system: FakeSystem, group: str = "payers") -> bool:
    """Whether the broker's last heartbeat named the group."""
    return bool(system.heartbeats) and [one.group_name for one in system.heartbeats[-1].producer_data_set] == [group]


def test_every_master_knows_a_started_producer_that_has_sent_nothing() -> None:
    async def scenario() -> None:
        async with fake_system() as system, fake_system() as other, fake_system() as slave:
            system.topics.clear()  # there is no route to anything

            def with_slave(_: Connection, command: Command) -> Command:
                brokers = {
                    BROKER: BrokerData(addresses={0: system.address, 1: slave.address}, broker_name=BROKER),
                    "b": BrokerData(addresses={0: other.address}, broker_name="b"),
                    "without-master": BrokerData(addresses={1: slave.address}, broker_name="without-master"),
                }
                return command.response(0, body=encode_standard(ClusterInfo(brokers)))

            system.answers[RequestCode.GET_BROKER_CLUSTER_INFO] = with_slave
            patient = {"api_timeout_ms": 30_000}  # a busy machine may take its time
            async with TransactionProducer("payers", system.address, listener=Script(), **patient):  # type: ignore[arg-type]
                assert knows(system)
                assert knows(other)
            assert not slave.asked
            assert other.count(RequestCode.UNREGISTER_CLIENT) == 1

    run(scenario())


def test_a_master_that_joins_hears_of_the_producer_with_the_next_look_at_the_name_server() -> None:
    async def scenario() -> None:
        async with (
            fake_system() as system,
            fake_system() as other,
            TransactionProducer("payers", system.address, listener=Script()),
        ):
            system.masters["b"] = other.address
            await turned_loop().turn(30.1)
            await until(lambda: knows(other))

    run(scenario(), TurnedLoop)


def test_a_master_that_comes_back_hears_of_the_producer_within_seconds() -> None:
    async def scenario() -> None:
        async with fake_system() as system, fake_system() as other:
            system.masters["b"] = other.address
            async with TransactionProducer("payers", system.address, listener=Script()):
                (connection,) = other.connections
                other.heartbeats.clear()
                other.answers[RequestCode.HEART_BEAT] = refuse(1, times=1)  # it is not quite there yet
                connection.abort()
                for _ in range(2):
                    beats = other.count(RequestCode.HEART_BEAT)
                    await turned_loop().turn(2.1)
                    await until(lambda beats=beats: other.count(RequestCode.HEART_BEAT) > beats)  # type: ignore[misc]
                assert knows(other)

    run(scenario(), TurnedLoop)


def test_a_master_that_stays_away_is_tried_ever_more_seldom_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with fake_system() as system, fake_system() as other:
            system.masters["b"] = other.address
            other.answers[RequestCode.HEART_BEAT] = refuse(1)
            async with TransactionProducer("payers", system.address, listener=Script(), heartbeat_interval_ms=600_000):
                for _ in range(60):
                    await turned_loop().turn(1.1)
            tries = other.count(RequestCode.HEART_BEAT)
            assert 4 <= tries <= 8, "at its start, after 1, 3, 7, 15, 31 and 61 s"
            assert caplog.text.count("event=heartbeat_failed") == 1

    run(scenario(), TurnedLoop)


def test_a_producer_that_starts_without_a_name_server_is_known_once_one_answers() -> None:
    async def scenario() -> None:
        code = RequestCode.GET_BROKER_CLUSTER_INFO
        async with fake_system() as system:
            system.answers[code] = refuse(1, times=2)
            async with TransactionProducer("payers", system.address, listener=Script()):
                assert not system.heartbeats
                for asked in (2, 3):
                    await turned_loop().turn(5.1)
                    await until(lambda asked=asked: system.count(code) >= asked)  # type: ignore[misc]
                await until(lambda: knows(system))

    run(scenario(), TurnedLoop)


def test_masters_are_looked_for_only_while_somebody_decides_transactions() -> None:
    async def scenario() -> None:
        async with fake_system() as system, fake_system() as other:
            system.masters["b"] = other.address
            async with Producer("p", system.address):
                assert not system.count(RequestCode.GET_BROKER_CLUSTER_INFO)
                async with TransactionProducer("payers", system.address, listener=Script()):
                    assert [one.group_name for one in other.heartbeats[-1].producer_data_set] == ["p", "payers"]
                beats, looks = len(other.heartbeats), system.count(RequestCode.GET_BROKER_CLUSTER_INFO)
                await turned_loop().turn(31)
                await turned_loop().turn(31)
                assert (len(other.heartbeats), system.count(RequestCode.GET_BROKER_CLUSTER_INFO)) == (beats, looks)

    run(scenario(), TurnedLoop)


def test_a_fresh_producer_is_asked_at_once_for_one_that_died() -> None:
    """At two brokers, one of which is killed meanwhile: no question is due without somebody to put it to."""
    often = {"transactionCheckInterval": 100, "transactionTimeOut": 600_000}
    with Cluster(brokers=2, options=often) as cluster:
        cluster.create_topic("Orders", 1)
        with sync.TransactionProducer("payers", cluster.namesrv_address, listener=Script()) as dying:
            halves = [dying.prepare(Message("Orders", b"undecided")) for _ in range(2)]
        assert {half.result.queue.broker_name for half in halves} == {"broker-a", "broker-b"}
        listener = Script(check=COMMIT)
        with sync.TransactionProducer("payers", cluster.namesrv_address, listener=listener):
            cluster.kill("broker-b")
            cluster.restart("broker-b")
            wait_until(lambda: all("payers" in one.producers.groups for one in cluster._all_running()), 20, "both know")
            cluster.advance(600)
            wait_until(lambda: len(listener.checked) == 2, 20, "the questions")
            wait_until(lambda: cluster.message_count("Orders") == 2, 20, "what was committed")
    assert {one.properties["TRANSACTION_CHECK_TIMES"] for one in listener.checked} == {"1"}


# ------------------------------------------------------------------------------------------------------------- threads


@pytest.fixture
def system() -> Iterator[FakeSystem]:
    """A fake on the clients' own loop."""
    context = fake_system()
    yield run_on_the_loop(context.__aenter__())
    run_on_the_loop(context.__aexit__(None, None, None))


def test_the_work_is_done_in_the_thread_that_sends(system: FakeSystem) -> None:
    listener = Script()
    with sync.TransactionProducer("payers", system.address, listener=listener) as producer:
        result = producer.send_in_transaction(Message("Orders", b"x"), 5)
        assert (result.local_state, listener.executed[0][1]) == (COMMIT, 5)
        assert listener.threads == [threading.current_thread()]
        wait_until(lambda: len(ends(system)) == 1, 20, "the end")
        listener.says["execute"] = ValueError("no money")
        assert producer.send_in_transaction(Message("Orders", b"x")).local_state is UNKNOWN
        wait_until(lambda: len(ends(system)) == 2, 20, "the end")
        assert remarks(system)[1] == "the listener failed: ValueError: no money"
        assert producer.listener is listener


def test_shutdown_waits_for_transactions_of_threads(system: FakeSystem) -> None:
    class Closing(Script):
        """Another thread shuts the producer down while the local transaction runs."""

        def execute(self, message: Message, argument: Any) -> Any:
            closing.start()
            wait_until(lambda: not producer.core.is_running, 20, "the shutdown")
            return COMMIT

    producer = sync.TransactionProducer("payers", system.address, listener=Closing())
    closing = threading.Thread(target=producer.shutdown)
    producer.start()
    assert producer.send_in_transaction(Message("Orders", b"x")).local_state is COMMIT
    closing.join(20)
    wait_until(lambda: [end.commit_or_rollback for end in ends(system)] == [TRANSACTION_COMMIT], 20, "the end")


def test_a_transaction_of_a_thread_may_shut_its_producer_down(
    system: FakeSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the handler of a signal does that interrupts it."""
    monkeypatch.setattr(producer_module, "CLOSE_S", 3600)  # it waits for no end of its own

    class Last(Script):
        def execute(self, message: Message, argument: Any) -> Any:
            producer.shutdown()
            return COMMIT

    producer = sync.TransactionProducer("payers", system.address, listener=Last())
    producer.start()
    assert producer.send_in_transaction(Message("Orders", b"x")).local_state is COMMIT


def test_the_example_of_the_documentation_works(system: FakeSystem) -> None:
    page = (Path(__file__).parents[2] / "docs" / "transactions.md").read_text(encoding="utf-8")
    example = page.split("```python\n")[1].split("```")[0].replace("127.0.0.1:9876", system.address)
    saved: dict[str, object] = {}
    names = {
        "order": "an order",
        "save": lambda order, transaction: saved.update({transaction: order}),
        "is_saved": lambda transaction: transaction in saved,
    }
    exec(compile(example, "docs/transactions.md", "exec"), names)
    wait_until(lambda: len(ends(system)) == 1, 20, "the end")
    (end,) = ends(system)
    assert (end.commit_or_rollback, list(saved)) == (TRANSACTION_COMMIT, [end.msg_id])


def test_a_coroutine_listener_works_with_threads_too(system: FakeSystem) -> None:
    with sync.TransactionProducer("payers", system.address, listener=CoroutineScript(ROLLBACK)) as producer:
        assert producer.send_in_transaction(Message("Orders", b"x")).local_state is ROLLBACK
        half = producer.prepare(Message("Orders", b"y"))
        assert producer.finish(half, COMMIT).local_state is COMMIT
        wait_until(lambda: len(ends(system)) == 2, 20, "the ends")


def test_both_halves_and_the_question_live_in_the_namespace() -> None:
    async def scenario() -> None:
        listener = CoroutineScript(COMMIT)
        async with (
            fake_system() as system,
            TransactionProducer("g", system.address, listener=listener, namespace="NS") as producer,
        ):
            result = await producer.send_in_transaction(Message("Orders", b"x"), 1)
            assert result.queue.topic == "Orders"
            ((half, _),) = listener.executed
            assert half.topic == "Orders"
            (asked,) = [command for command in system.asked if command.code == RequestCode.SEND_MESSAGE_V2]
            header = asked.header(SendMessageV2Header)
            assert (header.topic, header.producer_group) == ("NS%Orders", "NS%g")
            assert decode_properties(header.properties or "")["PGROUP"] == "NS%g"
            await until(lambda: ends(system))
            assert ends(system)[0].producer_group == "NS%g"
            ask(system, group="NS%g", topic="NS%Orders")
            await until(lambda: listener.checked)
            assert listener.checked[0].topic == "Orders"

    run(scenario())
