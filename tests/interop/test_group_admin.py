"""What tools ask about a consumer group, and what they do to it, while a Java consumer of the group is at work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from orbitmq.client import ConcurrentContext, ConsumeConcurrentlyStatus, Message, MessageExt, Producer, PushConsumer
from orbitmq.message.model import MessageQueue
from orbitmq.wire.bodies import (
    ConsumeDirectlyResult,
    ConsumeFromWhere,
    ConsumerConnection,
    ConsumeResult,
    ConsumerRunningInfo,
    ConsumerStatus,
    ConsumeStats,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerConnection,
    ProducerData,
    QueueOffsets,
)
from orbitmq.wire.command import Command
from orbitmq.wire.headers import UpdateConsumerOffsetHeader
from orbitmq.wire.headers_admin import (
    GetConsumerConnectionListHeader,
    GetConsumeStatsHeader,
    GetProducerConnectionListHeader,
)
from orbitmq.wire.headers_groups import (
    CloneGroupOffsetHeader,
    ConsumeMessageDirectlyHeader,
    GetConsumerRunningInfoHeader,
    InvokeBrokerToGetConsumerStatusHeader,
    InvokeBrokerToResetOffsetHeader,
)
from orbitmq.wire.objects import decode, encode
from orbitmq.wire.requests import RequestCode
from tests.interop.conftest import System
from tests.support.asking import Asker, asking
from tests.support.delivery import messages, results
from tests.support.java_rocketmq import Driver, run_driver
from tests.support.loops import until
from tests.support.messages import index_of

COUNT = 40
QUEUES = 4
BROKER = "broker-a"
PATIENCE_S = 60
GROUP = "group-admin"  # topic and group at once
QUEUES_OF_TOPIC = {MessageQueue(GROUP, BROKER, number) for number in range(QUEUES)}


@dataclass
class Watched:
    """A system with a consumer at work that has consumed everything."""

    system: System
    consumer: Driver
    sent: list[Any]
    client_id: str

    def do(self, work: Callable[[Asker], Awaitable[None]]) -> None:
        asking(self.system.address, work)


async def _members(asker: Asker, group: str = GROUP) -> Command:
    return await asker.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, GetConsumerConnectionListHeader(group))


async def _client_id(asker: Asker) -> str:
    return decode(ConsumerConnection, (await _members(asker)).body).connection_set[0].client_id or ""


@pytest.fixture(scope="module")
def watched(system: System) -> Iterator[Watched]:
    client = ("--namesrv", system.namesrv_address, "--topic", GROUP)
    sent = results(run_driver("send", *client, "--count", COUNT, "--run", GROUP))
    with Driver("consume", *client, "--group", GROUP, "--expression", "TagA || TagB || TagC") as consumer:
        consumer.process.wait_for(lambda: len(messages(consumer.rows())) >= COUNT, PATIENCE_S, "all messages")
        yield Watched(system, consumer, sent, asking(system.address, _client_id))


def test_members_and_subscriptions_are_told(watched: Watched) -> None:
    async def scenario(asker: Asker) -> None:
        answer = await _members(asker)
        assert answer.code == 0
        found = decode(ConsumerConnection, answer.body)
        (member,) = found.connection_set
        assert (member.language, member.version) == ("JAVA", 407)
        assert (member.client_addr or "").startswith("127.0.0.1:")
        assert {topic: one.expression for topic, one in found.subscription_table.items()} == {
            GROUP: "TagA || TagB || TagC",
            f"%RETRY%{GROUP}": "*",
        }
        assert found.consume_type is ConsumeType.CONSUME_PASSIVELY
        assert found.message_model is MessageModel.CLUSTERING
        assert found.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        assert found.differing is None
        assert (await _members(asker, "nobody")).code == 206

    watched.do(scenario)


def test_members_of_a_producer_group_are_told(watched: Watched) -> None:
    async def scenario(asker: Asker) -> None:
        heartbeat = HeartbeatData("tester@1", producer_data_set=[ProducerData("group-admin-producers")])
        assert (await asker.ask(RequestCode.HEART_BEAT, body=encode(heartbeat))).code == 0
        code = RequestCode.GET_PRODUCER_CONNECTION_LIST
        answer = await asker.ask(code, GetProducerConnectionListHeader("group-admin-producers"))
        (member,) = decode(ProducerConnection, answer.body).connection_set
        assert (member.client_id, member.language, member.version) == ("tester@1", "JAVA", 407)
        assert (await asker.ask(code, GetProducerConnectionListHeader("nobody"))).code == 1

    watched.do(scenario)


def test_the_state_of_a_consumer_is_asked_of_it(watched: Watched) -> None:
    async def scenario(asker: Asker) -> None:
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        answer = await asker.ask(code, GetConsumerRunningInfoHeader(GROUP, watched.client_id, False))
        assert answer.code == 0, answer.remark
        found = decode(ConsumerRunningInfo, answer.body)
        assert found.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert {queue for queue in found.mq_table if queue.topic == GROUP} == QUEUES_OF_TOPIC
        assert (await asker.ask(code, GetConsumerRunningInfoHeader(GROUP, "nobody", False))).code == 1
        code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
        answer = await asker.ask(code, InvokeBrokerToGetConsumerStatusHeader(GROUP, GROUP))
        assert answer.code == 0
        tables = decode(ConsumerStatus, answer.body).consumer_table
        assert list(tables) == [watched.client_id]
        assert tables[watched.client_id] == dict.fromkeys(QUEUES_OF_TOPIC, COUNT // QUEUES)
        assert (await asker.ask(code, InvokeBrokerToGetConsumerStatusHeader(GROUP, "nobody"))).code == 1

    watched.do(scenario)


def test_a_message_is_consumed_directly(watched: Watched) -> None:
    before = len(messages(watched.consumer.rows()))
    chosen = watched.sent[7]

    async def scenario(asker: Asker) -> None:
        header = ConsumeMessageDirectlyHeader(GROUP, watched.client_id, chosen["offsetMsgId"])
        answer = await asker.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
        assert answer.code == 0, answer.remark
        result = decode(ConsumeDirectlyResult, answer.body)
        assert (result.consume_result, result.order, result.auto_commit) == (ConsumeResult.CR_SUCCESS, False, True)

    watched.do(scenario)
    rows = watched.consumer.process.wait_for(
        lambda: messages(watched.consumer.rows())[before:], PATIENCE_S, "the message taken directly"
    )
    assert [(index_of(row), row["commitLogOffset"]) for row in rows] == [(7, int(chosen["offsetMsgId"][16:], 16))]


async def _progress(asker: Asker, group: str, topic: str | None = None) -> dict[int, tuple[int, int, int]]:
    answer = await asker.ask(RequestCode.GET_CONSUME_STATS, GetConsumeStatsHeader(group, topic))
    assert answer.code == 0
    table = decode(ConsumeStats, answer.body).offset_table
    assert {queue.broker_name for queue in table} <= {BROKER}
    return {
        queue.queue_id: (one.broker_offset, one.consumer_offset, one.last_timestamp)
        for queue, one in table.items()
        if queue.topic == GROUP
    }


def test_progress_is_told_and_cloned_and_reset(watched: Watched) -> None:
    """One story, for the consumer waits for ten seconds when it is reset."""
    each = COUNT // QUEUES

    async def reset(asker: Asker, group: str, timestamp: int, *, force: bool) -> Command:
        header = InvokeBrokerToResetOffsetHeader(GROUP, group, timestamp, force)
        return await asker.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)

    async def told(asker: Asker) -> None:
        for queue in QUEUES_OF_TOPIC:  # the consumer itself may do so seconds later
            commit = UpdateConsumerOffsetHeader(GROUP, GROUP, queue.queue_id, each)
            assert (await asker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit)).code == 0
        found = await _progress(asker, GROUP)
        assert found == await _progress(asker, GROUP, GROUP)
        assert set(found) == set(range(QUEUES))
        assert {(end, at) for end, at, _ in found.values()} == {(each, each)}
        assert all(last > 1_700_000_000_000 for _, _, last in found.values())

        clone = CloneGroupOffsetHeader(GROUP, f"{GROUP}-copy", GROUP)
        assert (await asker.ask(RequestCode.CLONE_GROUP_OFFSET, clone)).code == 0
        copied = await _progress(asker, f"{GROUP}-copy", GROUP)
        assert {at for _, at, _ in copied.values()} == {each}

        assert (await reset(asker, f"{GROUP}-copy", 0, force=True)).code == 206, "nobody is online"
        assert (await reset(asker, f"{GROUP}-nobody", 0, force=True)).code == 1, "it has no offset"
        answer = await reset(asker, GROUP, 0, force=True)
        assert answer.code == 0
        assert decode(QueueOffsets, answer.body).offset_table == dict.fromkeys(QUEUES_OF_TOPIC, 0)

    before = len(messages(watched.consumer.rows()))
    watched.do(told)
    again = watched.consumer.process.wait_for(
        lambda: len(rows := messages(watched.consumer.rows())[before:]) >= COUNT and rows,
        PATIENCE_S,
        "all messages once more",
    )
    assert sorted(map(index_of, again)) == list(range(COUNT))


@pytest.mark.with_five
def test_a_consumer_of_orbitmqs_client_answers_as_javas_does(system: System, label: str) -> None:
    """How it obeys when its offsets are reset is shown with the other scenes of `test_client_scenarios`."""
    got: list[bytes] = []

    async def listen(received: Sequence[MessageExt], _context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        got.extend(message.body for message in received)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    async def scenario(asker: Asker) -> None:
        consumer = PushConsumer(
            label,
            system.namesrv_address,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            consume_threads=3,
            persist_offset_interval_ms=100,
        )
        consumer.subscribe(label)
        consumer.set_listener(listen)
        async with Producer("testers", system.namesrv_address) as producer:
            place = (await producer.send(Message(label, b"0"))).offset_msg_id
            for number in range(1, 5):
                await producer.send(Message(label, b"%d" % number))
        bodies = [b"%d" % number for number in range(5)]
        async with consumer:
            await until(lambda: sorted(got) == bodies)
            info = GetConsumerRunningInfoHeader(label, consumer.client_id, True)
            running = await asker.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, info)
            found = decode(ConsumerRunningInfo, running.body)
            assert found.properties["PROP_THREADPOOL_CORE_SIZE"] == "3"
            assert "thread MainThread" in (found.jstack or "")
            direct = ConsumeMessageDirectlyHeader(label, consumer.client_id, place)
            answer = await asker.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, direct)
            assert decode(ConsumeDirectlyResult, answer.body).consume_result is ConsumeResult.CR_SUCCESS
            assert sorted(got) == [b"0", *bodies]
            asked = InvokeBrokerToGetConsumerStatusHeader(label, label)
            status = await asker.ask(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, asked)
            table = decode(ConsumerStatus, status.body).consumer_table[consumer.client_id]
            assert sum(table.values()) == 5

    asking(system.address, scenario)
