"""Twenty scenes from the life of a client, in the order and with the numbers of orbitmq's client specification.

Those that a live broker can show (`live`) run at the same time, against RocketMQ 4.9.7 and 5.3.3 and against orbitmq;
the others have a scripted broker on a real socket, or one in this process whose clock is turned.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from sqlalchemy import Connection, create_engine

from orbitmq.client import (
    BrokerError,
    ClientError,
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyStatus,
    LitePullConsumer,
    LocalTransactionState,
    Message,
    MessageExt,
    MessageModel,
    MessageQueue,
    OrderlyContext,
    Producer,
    PushConsumer,
    RequestTimeout,
    TransactionProducer,
    sync,
)
from orbitmq.client.core.hooks import SendContext
from orbitmq.client.idempotent import Idempotent
from orbitmq.client.outbox import Loss, LossReason, Outbox, OutboxLimits
from orbitmq.errors import SendRequestError
from orbitmq.message.config import SubscriptionData
from orbitmq.message.properties import KEYS
from orbitmq.net.connection import Connection as Peer
from orbitmq.net.remoting import Remoting
from orbitmq.operations.offsets import query_consumer_offset
from orbitmq.testing import Cluster
from orbitmq.wire.bodies import BrokerData, QueueData, TopicRouteData
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, request
from orbitmq.wire.headers_groups import InvokeBrokerToResetOffsetHeader
from orbitmq.wire.headers_namesrv import GetRouteInfoHeader
from orbitmq.wire.objects import encode_standard
from orbitmq.wire.requests import RequestCode
from tests.interop.conftest import System, is_five
from tests.support.fake_system import BROKER, FakeSystem, Handler, fake_system, refuse, silence
from tests.support.live import Time
from tests.support.live import consumer as member
from tests.support.live import live as broker_of
from tests.support.loops import LoopFactory, until
from tests.support.process import ChildProcess, free_port, wait_until
from tests.support.python_client import AGAIN_S, FIRST, LATER, LINGER_S, SUCCESS, Collector, indexes, message, send
from tests.support.received import received
from tests.support.side_by_side import Outcomes, SideBySide

pytestmark = pytest.mark.with_five

QUEUES = 4
READ, WRITE = 4, 2
MASTER, SLAVE = 0, 1
HOUR_S = 3600.0  # as a timeout: nothing ends because of it
LEVEL_THREE_QUEUE = MessageQueue("SCHEDULE_TOPIC_XXXX", BROKER, 2)  # messages of a delay level wait in the queue before

live = SideBySide()


@pytest.fixture(scope="module")
def outcomes(system: System) -> Outcomes:
    return live.run(lambda name: (system, f"scenario-{name.removeprefix('test_')}"[:100]))


class Attempts:
    """Which brokers each message was tried at."""

    def __init__(self, producer: Producer) -> None:
        self._tried: defaultdict[str, list[str]] = defaultdict(list)
        producer.add_send_hook(self)

    def before(self, context: SendContext) -> None:
        self._tried[context.message.msg_id].append(context.queue.broker_name)

    def after(self, context: SendContext) -> None: ...

    @property
    def paths(self) -> list[list[str]]:
        return list(self._tried.values())


def routing(addresses: dict[str, str], broker_id: int = MASTER) -> Handler:
    """A name server that knows every topic, at these brokers."""
    brokers = [
        BrokerData(addresses={broker_id: address}, broker_name=name, cluster="DefaultCluster")
        for name, address in addresses.items()
    ]

    def answer(_: Peer, command: Command) -> Command:
        count = 1 if command.header(GetRouteInfoHeader).topic.startswith("%RETRY%") else QUEUES
        queues = [
            QueueData(broker_name=name, perm=READ | WRITE, read_queues=count, write_queues=count) for name in addresses
        ]
        return command.response(0, body=encode_standard(TopicRouteData(broker_datas=brokers, queue_datas=queues)))

    return answer


def pushed(
    system: System | FakeSystem, topic: str, listener: object, group: str | None = None, **settings: object
) -> PushConsumer:
    """A push consumer of everything in a topic."""
    namesrv = system.address if isinstance(system, FakeSystem) else system.namesrv_address
    consumer = PushConsumer(group or topic, namesrv, consume_from_where=FIRST, **settings)  # type: ignore[arg-type]
    consumer.subscribe(topic)
    consumer.set_listener(listener)  # type: ignore[arg-type]
    return consumer


def held(consumer: PushConsumer, topic: str) -> set[MessageQueue]:
    return {queue for queue in consumer.assignment() if queue.topic == topic}


# ------------------------------------------------------------------------------------------------------------ sending


@live
async def test_01_a_broker_that_refuses_connections_costs_an_attempt_and_no_send(system: System, label: str) -> None:
    async with fake_system() as names:
        brokers = {"dead": f"127.0.0.1:{free_port()}", BROKER: system.address}
        names.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = routing(brokers)
        async with Producer(label, names.address, send_timeout_ms=20_000) as producer:
            attempts = Attempts(producer)
            for _ in range(2 * QUEUES):
                assert (await producer.send(Message(label, b"x"))).queue.broker_name == BROKER
            assert ["dead", BROKER] in attempts.paths
            assert all(path in ([BROKER], ["dead", BROKER]) for path in attempts.paths)


async def test_02_a_busy_broker_is_not_asked_again() -> None:
    async with fake_system() as system, Producer("g", system.address) as producer:
        system.answers[RequestCode.SEND_MESSAGE_V2] = refuse(ResponseCode.SYSTEM_BUSY)
        with pytest.raises(BrokerError) as raised:
            await producer.send(Message("T", b"x"))
        assert raised.value.code == ResponseCode.SYSTEM_BUSY
        assert system.count(RequestCode.SEND_MESSAGE_V2) == 1


@live
async def test_03_what_one_broker_is_not_ready_for_another_takes(system: System, label: str) -> None:
    async with fake_system() as names:
        names.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = routing({"away": names.address, BROKER: system.address})
        names.answers[RequestCode.SEND_MESSAGE_V2] = refuse(ResponseCode.SERVICE_NOT_AVAILABLE)
        async with Producer(label, names.address, send_timeout_ms=20_000) as producer:
            attempts = Attempts(producer)
            for _ in range(2 * QUEUES):
                assert (await producer.send(Message(label, b"x"))).queue.broker_name == BROKER
            assert ["away", BROKER] in attempts.paths
            assert all(path in ([BROKER], ["away", BROKER]) for path in attempts.paths)


async def test_04_an_only_broker_is_tried_three_times() -> None:
    async with fake_system() as system, Producer("g", system.address) as producer:
        system.answers[RequestCode.SEND_MESSAGE_V2] = refuse(ResponseCode.SYSTEM_ERROR)
        attempts = Attempts(producer)
        with pytest.raises(ClientError, match="not sent in 3 attempts") as raised:
            await producer.send(Message("T", b"x"))
        assert attempts.paths == [[BROKER] * 3]
        assert raised.value.code == ResponseCode.SYSTEM_ERROR


async def test_05_an_asynchronous_send_that_is_refused_is_not_tried_again() -> None:
    async with fake_system() as system, Producer("g", system.address) as producer:
        system.answers[RequestCode.SEND_MESSAGE_V2] = refuse(ResponseCode.SERVICE_NOT_AVAILABLE)
        with pytest.raises(BrokerError) as raised:
            await producer.send_async(Message("T", b"x"))
        assert raised.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert system.count(RequestCode.SEND_MESSAGE_V2) == 1


@live
async def test_06_a_new_topic_is_made_by_its_first_message(system: System, label: str) -> None:
    """With four queues, although both kinds of broker would give eight."""
    async with Producer(label, system.namesrv_address) as producer:
        assert len(await producer.fetch_publish_queues(label)) == QUEUES
        await producer.send(Message(label, b"x"))
    async with LitePullConsumer(label, system.namesrv_address) as consumer:
        assert len(await consumer.fetch_queues(label)) == QUEUES


async def test_07_a_topic_without_master_is_not_looked_for_elsewhere() -> None:
    async with fake_system() as system, Producer("g", system.address) as producer:
        system.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = routing({BROKER: system.address}, SLAVE)
        with pytest.raises(ClientError) as raised:
            await producer.send(Message("T", b"x"))
        assert raised.value.code == 10005
        asked = [one for one in system.asked if one.code == RequestCode.GET_ROUTEINFO_BY_TOPIC]
        assert {one.header(GetRouteInfoHeader).topic for one in asked} == {"T"}


# ---------------------------------------------------------------------------------------------------------- consuming


@live
async def test_08_a_failed_message_comes_again_under_its_name(system: System, label: str) -> None:
    collector = Collector(fails=lambda one: one.reconsume_times == 0)
    await send(system.namesrv_address, label, label, 1)
    async with pushed(system, label, collector), LitePullConsumer(f"{label}-looks", system.namesrv_address) as looking:
        rows = await collector.until(2)
        looking.assign([LEVEL_THREE_QUEUE])
        await looking.seek_to_begin(LEVEL_THREE_QUEUE)
        delayed: list[MessageExt] = []
        while not any(one.properties.get("REAL_TOPIC") == f"%RETRY%{label}" for one in delayed):
            delayed = await looking.poll(20)
            assert delayed, "the message was delayed by level 3"
    assert [(row["topic"], row["reconsumeTimes"]) for row in rows] == [(label, 0), (label, 1)]


def test_08_and_comes_after_ten_seconds() -> None:
    """A message that is sent to be delivered 5 s later shows that time has gone by."""
    with Cluster() as cluster, sync.Producer("p", cluster.namesrv_address) as producer:
        told: list[tuple[bytes, int]] = []

        def listen(messages: Sequence[MessageExt], _: ConcurrentContext) -> ConsumeConcurrentlyStatus:
            told.extend((one.body, one.reconsume_times) for one in messages)
            return LATER if messages[0].body == b"fails" and messages[0].reconsume_times == 0 else SUCCESS

        producer.send(Message("T", b"fails"))
        consumer = sync.PushConsumer("g", cluster.namesrv_address, consume_from_where=FIRST)
        consumer.subscribe("T")
        consumer.set_listener(listen)
        with consumer:
            wait_until(lambda: cluster.message_count(LEVEL_THREE_QUEUE.topic) == 1, 20, "the failed one to be delayed")
            producer.send(Message("T", b"later", delay_level=2))
            cluster.advance(9)
            wait_until(lambda: (b"later", 0) in told, 20, "the other one")
            assert (b"fails", 1) not in told
            cluster.advance(2)
            wait_until(lambda: (b"fails", 1) in told, 20, "the failed one")


@live
async def test_09_messages_behind_the_acknowledged_ones_come_again(system: System, label: str) -> None:
    portions: list[list[tuple[str, int]]] = []

    async def listen(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        portions.append([(one.properties["index"], one.reconsume_times) for one in messages])
        context.ack_index = 0
        return SUCCESS

    async with Producer(label, system.namesrv_address) as producer:
        sent = await producer.send_batch([message(label, label, index) for index in range(3)])
        while await producer.max_offset(sent.queue) < 3:  # noqa: ASYNC110 - RocketMQ shows them later, one by one
            await asyncio.sleep(AGAIN_S)
    async with pushed(system, label, listen, consume_batch_max_size=3):
        await until(lambda: sum(map(len, portions)) >= 5, lambda: f"two deliveries after {portions}")
        await asyncio.sleep(LINGER_S)
    assert portions[0] == [("0", 0), ("1", 0), ("2", 0)]
    again = [one for portion in portions[1:] for one in portion]
    assert sorted(again)[:2] == [("1", 1), ("2", 1)]
    assert "0" not in {index for index, _ in again}


@live
async def test_10_a_broadcasting_consumer_drops_what_fails(system: System, label: str) -> None:
    def broadcasting(collector: Collector) -> PushConsumer:
        own = {"message_model": MessageModel.BROADCASTING, "instance_name": label, "local_offset_dir": directory}
        return pushed(system, label, collector, **own)

    failing, following = Collector(fails=lambda _: True), Collector()
    with TemporaryDirectory() as directory:
        await send(system.namesrv_address, label, label, 8)
        async with broadcasting(failing):
            assert sorted(indexes(await failing.until(8))) == list(range(8))
        await send(system.namesrv_address, label, f"{label}-2", 1)
        async with broadcasting(following):
            assert [row["properties"]["run"] for row in await following.until(1)] == [f"{label}-2"]


@live
async def test_11_a_member_gets_the_queues_of_one_that_was_killed(system: System, label: str) -> None:
    await send(system.namesrv_address, label, label, QUEUES)
    with ExitStack() as stack:
        home = Path(stack.enter_context(TemporaryDirectory()))
        program = [sys.executable, "-m", "tests.support.python_members"]
        root = Path(__file__).parents[2]
        other = stack.enter_context(ChildProcess(program, output=home / "told.jsonl", cwd=root, listens=True))
        where = f"--namesrv {system.namesrv_address} --group {label} --topic {label}"
        other.tell(f"join --member killed {where} --kind push --strategy AVG --instance killed")
        async with pushed(system, label, Collector(), client_ip="127.0.0.1") as consumer:
            await until(lambda: len(held(consumer, label)) == QUEUES // 2, "half of the queues")
            # RocketMQ keeps for two minutes a member whose connection ends while it looks at the member's heartbeat.
            await until(lambda: '"joined"' in other.output(), "the other one's heartbeats to be answered")
            await asyncio.to_thread(other.kill)
            await until(lambda: len(held(consumer, label)) == QUEUES, "all of the queues")


async def test_11_or_of_one_that_fell_silent_after_two_minutes(tmp_path: Path, turned_clock: LoopFactory) -> None:
    """Its connection stays open, as that of a machine without power does."""
    clock = Time()
    async with fake_system() as names, broker_of(tmp_path, clock) as silent:
        names.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = routing({BROKER: silent.address})
        await silent.send("T")
        await silent.heartbeat(member("g", SubscriptionData("T", "*")))
        consumer = PushConsumer("g", names.address, consume_from_where=FIRST)
        consumer.subscribe("T")
        consumer.set_listener(Collector())
        async with consumer:
            await until(lambda: len(held(consumer, "T")) == QUEUES // 2)
            for _ in range(11):
                await clock.pass_by(10)
            assert len(held(consumer, "T")) == QUEUES // 2
            for _ in range(3):
                await clock.pass_by(10)
            await until(lambda: len(held(consumer, "T")) == QUEUES)


@live
async def test_12_a_queue_that_moves_is_consumed_when_its_lock_is_free(system: System, label: str) -> None:
    at_work: dict[MessageQueue, str] = {}
    offsets: defaultdict[str, defaultdict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    go_on, overlaps = asyncio.Event(), []

    def done(queue_id: int) -> set[int]:
        return {*offsets["first"][queue_id], *offsets["second"][queue_id]}

    def ordered(name: str) -> PushConsumer:
        async def listen(messages: Sequence[MessageExt], context: OrderlyContext) -> ConsumeOrderlyStatus:
            queue = context.message_queue
            if queue in at_work:
                overlaps.append((queue, at_work[queue], name))
            at_work[queue] = name
            await go_on.wait()
            offsets[name][queue.queue_id] += [one.queue_offset for one in messages]
            del at_work[queue]
            return ConsumeOrderlyStatus.SUCCESS

        consumer = PushConsumer(label, system.namesrv_address, consume_from_where=FIRST)
        consumer.subscribe(label)
        consumer.set_listener(listen, orderly=True)
        return consumer

    await send(system.namesrv_address, label, label, 10 * QUEUES, "sync")
    async with ordered("first") as first:
        await until(lambda: len(at_work) == QUEUES, "the first one at work everywhere")
        async with ordered("second") as second:
            await until(lambda: len(held(first, label)) == QUEUES // 2, "two queues to move")
            await asyncio.sleep(LINGER_S)
            assert set(at_work.values()) == {"first"}
            go_on.set()
            await until(lambda: all(done(queue_id) == set(range(10)) for queue_id in range(QUEUES)), "all messages")
            assert len(held(second, label)) == QUEUES // 2
    assert not overlaps
    assert any(offsets["second"].values()), "the second one had something to do"
    for parts in offsets.values():
        assert all(part == sorted(part) for part in parts.values()), "each of them kept the order"


async def test_13_a_full_cache_is_not_filled_further() -> None:
    """More than 1000 are too many; a pull brings one here, so that the limit is met exactly."""
    async with fake_system() as system:
        system.topics["T"] = 1
        for number in range(1100):
            system.put("T", 0, b"%d" % number)
        tickets = asyncio.Semaphore(0)

        async def listen(_: Sequence[MessageExt], __: ConcurrentContext) -> ConsumeConcurrentlyStatus:
            await tickets.acquire()
            return SUCCESS

        consumer = pushed(system, "T", listen, "g", pull_batch_size=1, consume_threads=1, await_termination_ms=0)

        def cached() -> int:
            return consumer.running_info(stacks=False).mq_table[MessageQueue("T", BROKER, 0)].cached_msg_count

        async with consumer:
            await until(lambda: consumer.assignment() and cached() == 1001)
            await asyncio.sleep(LINGER_S)
            pulls = system.count(RequestCode.PULL_MESSAGE)
            assert cached() == 1001
            tickets.release()
            await until(lambda: system.count(RequestCode.PULL_MESSAGE) == pulls + 1)
            await until(lambda: cached() == 1001)


@live
async def test_13_whatever_a_pull_brings(system: System, label: str) -> None:
    """Thirty-two at a time: the pull at 992 goes over the limit, and is the last."""
    async with Producer(label, system.namesrv_address) as producer:
        queue = (await producer.fetch_publish_queues(label))[0]
        for first in range(0, 1100, 100):
            await producer.send_batch([message(label, label, first + n) for n in range(100)], queue=queue)
        # RocketMQ has queues know of messages later: a pull would find less than it asks for.
        while await producer.max_offset(queue) < 1100:  # noqa: ASYNC110
            await asyncio.sleep(LINGER_S)
    go_on, collector = asyncio.Event(), Collector()

    async def listen(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus | None:
        await go_on.wait()
        return await collector(messages, context)

    consumer = pushed(system, label, listen)

    def cached() -> int:
        info = consumer.running_info(stacks=False).mq_table.get(queue)
        return info.cached_msg_count if info else 0

    async with consumer:
        await until(lambda: cached() > 1000)
        await asyncio.sleep(LINGER_S)
        assert cached() == 1024
        go_on.set()
        assert sorted(indexes(await collector.until(1100))) == list(range(1100))


@live
async def test_14_an_offset_that_is_reset_counts_and_older_results_do_not(system: System, label: str) -> None:
    told: list[bytes] = []
    go_on = asyncio.Event()

    async def listen(messages: Sequence[MessageExt], _: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        told.append(messages[0].body)
        if messages[0].body == b"hangs" and told.count(b"hangs") == 1:
            await go_on.wait()
        return SUCCESS

    bodies = [b"%d" % number for number in range(5)]

    async def reset(queue: MessageQueue) -> None:
        remoting = Remoting()
        try:
            # RocketMQ resets queues only that have an offset.
            while (await query_consumer_offset(remoting, system.address, label, queue) or 0) < len(bodies):  # noqa: ASYNC110
                await asyncio.sleep(LINGER_S)
            header = InvokeBrokerToResetOffsetHeader(label, label, 0, True)
            command = request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
            answer = await remoting.call(system.address, command, 20_000)
            while "it does not exist" in (answer.remark or ""):  # the consumer has not committed each queue yet
                await asyncio.sleep(LINGER_S)
                answer = await remoting.call(system.address, command, 20_000)
            assert answer.code == ResponseCode.SUCCESS
        finally:
            await remoting.close()

    consumer = pushed(system, label, listen, persist_offset_interval_ms=100)
    async with Producer(label, system.namesrv_address) as producer, consumer:
        queue = (await producer.fetch_publish_queues(label))[1]
        for body in (*bodies, b"hangs"):
            await producer.send(Message(label, body), queue=queue)
        await until(lambda: sorted(told) == sorted([*bodies, b"hangs"]))
        await reset(queue)
        more = []
        if is_five(system):  # it tells of the offset in the answer to the next pull, and holds this one for 15 s
            more.append(b"news")
            await producer.send(Message(label, b"news"), queue=queue)
        await until(lambda: len(told) == 2 * len(bodies) + 2 + len(more), "everything once more")
        go_on.set()
        await asyncio.sleep(LINGER_S)
    assert sorted(told) == sorted([*bodies, b"hangs"] * 2 + more)


@live
async def test_15_nothing_from_before_a_seek_is_polled(system: System, label: str) -> None:
    consumer = LitePullConsumer(label, system.namesrv_address, consume_from_where=FIRST, auto_commit=False)
    async with Producer(label, system.namesrv_address) as producer, consumer:
        queue = (await producer.fetch_publish_queues(label))[0]
        for number in range(10):
            await producer.send(Message(label, b"%d" % number), queue=queue)
        consumer.assign([queue])

        async def polled(count: int) -> list[int]:
            offsets: list[int] = []
            while len(offsets) < count:
                found = await consumer.poll(20)
                assert found
                offsets += [one.queue_offset for one in found]
            return offsets

        assert await polled(10) == list(range(10))
        await asyncio.sleep(LINGER_S)  # the next pull is on its way, and is held
        sending = producer.send_async(Message(label, b"10"), queue=queue)
        await consumer.seek(queue, 2)
        await sending
        assert await polled(9) == list(range(2, 11))


# ----------------------------------------------------------------------------------------- transactions and requests


@live
async def test_16_an_unknown_transaction_is_told_as_such_and_asked_about(system: System, label: str) -> None:
    told: list[tuple[LocalTransactionState, bool]] = []
    asked: list[str] = []

    class Undecided:
        def execute(self, _: Message, __: object) -> LocalTransactionState:
            return LocalTransactionState.UNKNOWN

        def check(self, one: MessageExt) -> LocalTransactionState:
            asked.append(threading.current_thread().name)
            return LocalTransactionState.COMMIT_MESSAGE

    async with TransactionProducer(label, system.namesrv_address, listener=Undecided()) as producer:
        producer.add_end_transaction_hook(lambda context: told.append((context.state, context.from_check)))
        await producer.send_in_transaction(message(label, label, 0))
        assert told == [(LocalTransactionState.UNKNOWN, False)]
        collector = Collector()
        async with pushed(system, label, collector):
            assert indexes(await collector.until(1)) == [0]
    assert told[1:] == [(LocalTransactionState.COMMIT_MESSAGE, True)]
    assert asked != [threading.main_thread().name], "asked on a thread of its own"


@live
async def test_17_a_request_that_nobody_answers_times_out(system: System, label: str) -> None:
    async with Producer(label, system.namesrv_address) as producer:
        await producer.send(Message(label, b"the topic is there"))
        with pytest.raises(RequestTimeout):
            await producer.request(Message(label, b"hello?"), timeout=1)


# --------------------------------------------------------------------------------------- what brokers have no part in


async def test_18_a_full_outbox_tells_what_it_loses(tmp_path: Path) -> None:
    losses: list[Loss] = []
    outbox = Outbox(tmp_path / "outbox", limits=OutboxLimits(messages_max=1), on_loss=losses.append)
    async with fake_system() as system, Producer("g", system.address, outbox=outbox, retry_times=0) as producer:
        await producer.fetch_publish_queues("T")
        system.answers[RequestCode.SEND_MESSAGE_V2] = refuse(ResponseCode.SERVICE_NOT_AVAILABLE)
        for key in ("kept", "lost"):
            with pytest.raises(ClientError):
                await producer.send(Message("T", b"x", keys=key))
        await until(lambda: losses)
    assert [(loss.reason, loss.keys) for loss in losses] == [(LossReason.LIMIT_COUNT, "lost")]


def test_19_a_message_that_was_worked_on_is_not_worked_on_again(tmp_path: Path) -> None:
    once = Idempotent(create_engine(f"sqlite:///{tmp_path}/orders.db"), "g")
    once.create_table()
    worked: list[str | None] = []

    @once
    def work(one: MessageExt, _: Connection) -> None:
        worked.append(one.keys)

    context = ConcurrentContext(MessageQueue("T", BROKER, 0))
    assert [work([received("T", b"x", {KEYS: "order-1"})], context) for _ in range(2)] == [SUCCESS, SUCCESS]
    assert worked == ["order-1"]


def hang_up(peer: Peer, _: Command) -> None:
    peer.close()


async def test_20_a_connection_that_ends_ends_what_waits_on_it() -> None:
    """At once: no time is limited here but by the test."""
    async with fake_system() as system, asyncio.timeout(20):
        async with Producer("g", system.address, retry_times=0) as producer:
            await producer.fetch_publish_queues("T")
            system.answers[RequestCode.SEND_MESSAGE_V2] = hang_up
            with pytest.raises(ClientError, match="closed") as raised:
                await producer.send(Message("T", b"x"), timeout=HOUR_S)
            assert isinstance(raised.value.__cause__, SendRequestError)
        system.answers[RequestCode.HEART_BEAT] = silence()
        remoting = Remoting()
        waiting = asyncio.create_task(remoting.call(system.address, request(RequestCode.HEART_BEAT), HOUR_S * 1000))
        await until(lambda: system.asked[-1].code == RequestCode.HEART_BEAT)
        await remoting.close()
        with pytest.raises(SendRequestError):
            await waiting
