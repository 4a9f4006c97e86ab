"""A message that its listener rejects is a dead letter with the reason, and is not delivered again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from orbitmq.admin.dead_letters import reasons
from orbitmq.admin.session import Session
from orbitmq.client import (
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    ConsumeOrderlyStatus,
    LitePullConsumer,
    Message,
    MessageExt,
    MessageModel,
    MessageQueue,
    OrderlyContext,
    Producer,
    PushConsumer,
    SimpleConsumer,
)
from orbitmq.message.properties import DEAD_LETTER_REASON
from orbitmq.message.topics import dlq_topic, retry_topic
from orbitmq.net.remoting import Remoting
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers import SendMessageV2Header
from orbitmq.wire.requests import RequestCode
from tests.support.fake_system import fake_system, refuse
from tests.support.loops import TurnedLoop, run, turned_loop, until
from tests.support.orbit_process import OrbitUp

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
SUCCESS, LATER = ConsumeConcurrentlyStatus.CONSUME_SUCCESS, ConsumeConcurrentlyStatus.RECONSUME_LATER
REASON = "field amount: expected a number\x1b"


@pytest.fixture(scope="module")
def up() -> Iterator[OrbitUp]:
    with OrbitUp(messageDelayLevel=" ".join(["1s"] * 18)) as running:
        yield running


async def filled(up: OrbitUp, topic: str, *bodies: bytes, group: str) -> None:
    """A broker that makes the topics of a group later waits for its disk, and a client that waits less sends twice."""
    async with Producer("p", up.namesrv_address) as producer:
        for name in (topic, retry_topic(group), dlq_topic(group)):
            await producer.create_topic(name, queues=1)
        for body in bodies:
            await producer.send(Message(topic, body, keys="k"))


async def dead(up: OrbitUp, group: str, count: int = 1) -> list[MessageExt]:
    """The dead letters of a group, once there are so many."""
    found: list[MessageExt] = []
    async with LitePullConsumer(f"{group}-reader", up.namesrv_address, consume_from_where=FIRST) as reader:
        reader.subscribe(dlq_topic(group))
        async with asyncio.timeout(30):
            while len(found) < count:
                found += await reader.poll(1)
        found += await reader.poll(0.2)
    return found


def committed(consumer: PushConsumer, queue: MessageQueue) -> int:
    return consumer._offsets.table.read(queue)


class Rejecting:
    """Rejects bodies that are `wrong`, and then ends as told."""

    def __init__(self, ends: Any) -> None:
        self.ends = ends
        self.seen: list[bytes] = []

    def __call__(self, messages: Sequence[MessageExt], context: ConcurrentContext | OrderlyContext) -> Any:
        for message in messages:
            self.seen.append(message.body)
            if message.body == b"wrong":
                context.reject(message, REASON)
        if isinstance(self.ends, Exception):
            raise self.ends
        return self.ends


@pytest.mark.parametrize(
    ("group", "ends", "again"),
    [("succeeds", SUCCESS, []), ("later", LATER, [b"good"]), ("raises", RuntimeError("a bug"), [b"good"])],
)
async def test_a_rejected_message_is_a_dead_letter_whatever_the_listener_returns(
    up: OrbitUp, group: str, ends: Any, again: list[bytes]
) -> None:
    topic = f"Rejected-{group}"
    await filled(up, topic, b"good", b"wrong", group=group)
    listener = Rejecting(ends)
    consumer = PushConsumer(
        group, up.namesrv_address, consume_from_where=FIRST, consume_batch_max_size=2, persist_offset_interval_ms=100
    )
    consumer.subscribe(topic)
    consumer.set_listener(listener)
    async with consumer:
        await until(lambda: len(listener.seen) >= 2 + len(again))
        (letter,) = await dead(up, group)
        (queue,) = await consumer.fetch_queues(topic)
        await until(lambda: committed(consumer, queue) == 2)
    assert sorted(listener.seen[: 2 + len(again)]) == sorted([b"good", b"wrong", *again])
    assert b"wrong" not in listener.seen[2:]
    assert (letter.body, letter.keys, letter.properties["RETRY_TOPIC"]) == (b"wrong", "k", topic)
    assert letter.properties[DEAD_LETTER_REASON] == "field amount: expected a number␛"


@pytest.mark.parametrize("ends", [ConsumeOrderlyStatus.SUCCESS, ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT])
async def test_an_orderly_queue_continues_after_a_rejected_message(up: OrbitUp, ends: ConsumeOrderlyStatus) -> None:
    group = f"orderly-{ends.name[:7]}"
    await filled(up, group, b"1", b"wrong", b"3", group=group)
    listener = Rejecting(ends)
    consumer = PushConsumer(group, up.namesrv_address, consume_from_where=FIRST, suspend_current_queue_ms=10)
    consumer.subscribe(group)

    def listen(messages: Sequence[MessageExt], context: OrderlyContext) -> ConsumeOrderlyStatus:
        status: ConsumeOrderlyStatus = listener(messages, context)
        return status if messages[0].body == b"wrong" else ConsumeOrderlyStatus.SUCCESS

    consumer.set_listener(listen, orderly=True)
    async with consumer:
        await until(lambda: len(listener.seen) == 3)
        (letter,) = await dead(up, group)
    assert listener.seen == [b"1", b"wrong", b"3"]
    assert letter.body == b"wrong"


async def test_an_administrator_sees_the_reason(up: OrbitUp) -> None:
    await filled(up, "Explained", b"wrong", group="explained")
    async with SimpleConsumer("explained", up.namesrv_address) as consumer:
        consumer.subscribe("Explained")
        (message,) = await consumer.receive(timeout=5)
        await consumer.reject(message, "no order")
        assert await consumer.receive(invisible=0.001, timeout=0.5) == []
    letters = await dead(up, "explained")
    remoting = Remoting()
    try:
        found = await reasons(Session(remoting, [up.namesrv_address]), "explained", letters)
    finally:
        await remoting.close()
    assert [one.text for one in found.items] == ["no order"]
    assert "POP_CK" not in letters[0].properties


async def test_a_consumer_that_polls_can_make_dead_letters(up: OrbitUp) -> None:
    await filled(up, "Polled", b"wrong", group="polled")
    async with LitePullConsumer("polled", up.namesrv_address, consume_from_where=FIRST) as consumer:
        consumer.subscribe("Polled")
        (message,) = await consumer.poll(10)
        await consumer.reject(message, "no order")
    (letter,) = await dead(up, "polled")
    assert (letter.body, letter.properties[DEAD_LETTER_REASON]) == (b"wrong", "no order")


@pytest.mark.parametrize("orderly", [False, True])
def test_a_broadcasting_consumer_drops_what_is_rejected(tmp_path: Path, *, orderly: bool) -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["T"] = 1
            for body in (b"wrong", b"good"):
                system.put("T", 0, body)
            listener = Rejecting(ConsumeOrderlyStatus.SUCCESS if orderly else SUCCESS)
            consumer = PushConsumer(
                "g", system.address, message_model=MessageModel.BROADCASTING, consume_from_where=FIRST,
                local_offset_dir=str(tmp_path),
            )  # fmt: skip
            consumer.subscribe("T")
            consumer.set_listener(listener, orderly=orderly)
            async with consumer:
                await until(lambda: sorted(listener.seen) == [b"good", b"wrong"])
                (queue,) = await consumer.fetch_queues("T")
                await until(lambda: committed(consumer, queue) == 2)
            assert not any(command.code == RequestCode.SEND_MESSAGE_V2 for command in system.asked)
            assert not system.sent_back

    run(scenario())


@pytest.mark.parametrize("orderly", [False, True])
def test_a_message_that_no_broker_makes_a_dead_letter_of_is_delivered_again(*, orderly: bool) -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["T"] = 1
            system.put("T", 0, b"wrong")
            system.answers[RequestCode.SEND_MESSAGE_V2] = refuse(ResponseCode.SYSTEM_BUSY, times=1)
            listener = Rejecting(ConsumeOrderlyStatus.SUCCESS if orderly else SUCCESS)
            consumer = PushConsumer("g", system.address, consume_from_where=FIRST, persist_offset_interval_ms=10)
            consumer.subscribe("T")
            consumer.set_listener(listener, orderly=orderly)
            async with consumer:
                await until(lambda: any(c.code == RequestCode.SEND_MESSAGE_V2 for c in system.asked))
                assert system.offsets.get(("g", "T", 0), 0) == 0
                await turned_loop().turn(10)
                await until(lambda: system.offsets.get(("g", "T", 0)) == 1)
            sends = [c.header(SendMessageV2Header) for c in system.asked if c.code == RequestCode.SEND_MESSAGE_V2]
            assert [header.topic for header in sends[:2]] == ["%RETRY%g", "%RETRY%g"]
            assert sends[1].reconsume_times > (sends[1].max_reconsume_times or 0), "brokers make a dead letter of it"

    run(scenario(), TurnedLoop)
