"""Settings of orbitmq's client that brokers and others see: namespaces, the VIP channel, units, streams, retries."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
import uvloop

from orbitmq.client import (
    BrokerError,
    ClientError,
    LitePullConsumer,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    SendStatus,
    hash_selector,
)
from orbitmq.client import sync as threads
from orbitmq.operations import membership, routes, topics
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from tests.interop.conftest import System, is_five
from tests.support.delivery import assert_each_once, messages
from tests.support.java_rocketmq import JavaSystem, run_driver
from tests.support.loops import until
from tests.support.peers import remoting
from tests.support.process import wait_until
from tests.support.python_client import FIRST, Collector, indexes, message, send, until_indexed

pytestmark = pytest.mark.with_five
COUNT = 60
# What a large one may bring to light, it does in the client; a broker of RocketMQ must get its turn beside two other
# tests.
BURST, BURST_AT_JAVA = 12_500, 500
BURST_TIMEOUT_MS = 60_000  # the last message of a burst waits for all others
T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


async def broker_of(producer: Producer, topic: str) -> str:
    """The address of the first broker with the topic. RocketMQ registers a new topic with a oneway request, so the name
    server may know it only after the send that created it.
    """
    namesrv = producer._instance.name_servers.addresses[0]
    async with asyncio.timeout(60):
        while (found := await routes.route(producer._instance.remoting, namesrv, topic)) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return found.broker_datas[0].addresses[0]


# ------------------------------------------------------------------------------------------------------------ namespace


def test_java_consumes_what_python_sent_in_a_namespace(system: System, label: str) -> None:
    async def scenario() -> None:
        async with Producer("producers", system.namesrv_address, namespace="NS") as producer:
            results = [await producer.send(message(label, label, i)) for i in range(COUNT)]
            results += [await producer.send_batch([message(label, label, COUNT), message(label, label, COUNT + 1)])]
            assert {result.queue.topic for result in results} == {label}
            await asyncio.to_thread(until_indexed, system.namesrv_address, f"NS%{label}", "order-7")
            assert [one.topic for one in await producer.query_message(label, "order-7")] == [label]

    run(scenario())
    client = ("--namesrv", system.namesrv_address, "--topic", label, "--group", label, "--namespace", "NS")
    rows = messages(run_driver("consume", *client, "--expect", COUNT + 2 + 2, "--fail-every", 50))
    assert {row["topic"] for row in rows} == {label}
    assert {row["properties"]["INSTANCE_ID"] for row in rows} == {"NS"}
    assert_each_once([row for row in rows if not row["failed"]], label, range(COUNT + 2))


def test_python_consumes_what_java_sent_in_a_namespace(system: System, label: str) -> None:
    run_driver(
        "send", "--namesrv", system.namesrv_address, "--topic", label, "--run", label, "--count", COUNT,
        "--namespace", "NS",
    )  # fmt: skip

    async def scenario() -> None:
        collector = Collector(fails=lambda one: one.properties["index"] == "7" and one.reconsume_times == 0)
        push = PushConsumer(label, system.namesrv_address, namespace="NS", consume_from_where=FIRST)
        push.subscribe(label)
        push.set_listener(collector)
        async with push:
            rows = await collector.until(COUNT + 1)
            assert {row["topic"] for row in rows} == {label}
            assert sorted(indexes(rows)) == sorted([*range(COUNT), 7])
            assert {queue.topic for queue in push.assignment()} == {label, f"%RETRY%{label}"}
        lite = LitePullConsumer(f"{label}-l", system.namesrv_address, namespace="NS", consume_from_where=FIRST)
        async with lite:
            lite.subscribe(label)
            polled: list[MessageExt] = []
            async with asyncio.timeout(60):
                while len(polled) < COUNT:
                    polled += await lite.poll()
            assert {one.topic for one in polled} == {label}
        async with Producer("outsiders", system.namesrv_address) as outsider:
            inside = await outsider.fetch_publish_queues(f"NS%{label}")
            assert sum([await outsider.max_offset(queue) for queue in inside]) == COUNT

    run(scenario())


# ----------------------------------------------------------------------------------------------- VIP, units and streams


class Addresses:
    """Notes where requests go."""

    def __init__(self) -> None:
        self.seen: set[tuple[int, str]] = set()

    def before(self, address: str, request: Command) -> None:
        self.seen.add((request.code, address))

    def after(self, _address: str, _request: Command, _response: Command) -> None: ...


def test_everything_works_over_the_vip_channel(system: System, label: str) -> None:
    async def scenario() -> None:
        where = Addresses()
        producer = Producer("producers", system.namesrv_address, vip_channel=True, enable_trace=True)
        producer.add_rpc_hook(where)
        collector = Collector(fails=lambda one: one.properties["index"] == "7" and one.reconsume_times == 0)
        consumer = PushConsumer(label, system.namesrv_address, vip_channel=True, consume_from_where=FIRST)
        consumer.add_rpc_hook(where)
        consumer.subscribe(label)
        consumer.set_listener(collector)
        async with producer, consumer:
            sent = [await producer.send(message(label, label, i)) for i in range(COUNT)]
            assert {result.status for result in sent} == {SendStatus.SEND_OK}
            assert sorted(indexes(await collector.until(COUNT + 1))) == sorted([*range(COUNT), 7])
            broker = await broker_of(producer, label)
        host, _, port = broker.rpartition(":")
        vip = f"{host}:{int(port) - 2}"
        assert {code for code, address in where.seen if address == vip} >= {310, 14, 36, 38}
        assert {code for code, address in where.seen if address == broker} >= {11, 34, 35}
        assert {code for code, address in where.seen if address == broker}.isdisjoint({310, 14, 15, 36, 38})

    run(scenario())


def test_a_unit_marks_the_topics_it_creates(system: System, label: str) -> None:
    async def scenario() -> None:
        async with Producer("producers", system.namesrv_address, unit_mode=True) as producer:
            await producer.send(message(label, label, 0))

            async def is_marked() -> bool:
                namesrv = producer._instance.name_servers.addresses[0]
                found = await routes.route(producer._instance.remoting, namesrv, label)
                return found is not None and found.queue_datas[0].topic_sys_flag == 1

            async with asyncio.timeout(60):
                while not await is_marked():  # noqa: ASYNC110 - another process marks it
                    await asyncio.sleep(0.05)

    run(scenario())


@pytest.mark.parametrize("kind", [LitePullConsumer, PullConsumer])
def test_consumers_that_pull_are_known_as_clients_of_streams(
    system: System, label: str, kind: type[LitePullConsumer | PullConsumer]
) -> None:
    async def scenario() -> None:
        await send(system.namesrv_address, label, label, 10, "sync")
        async with Producer("producers", system.namesrv_address) as producer:
            broker = await broker_of(producer, label)
        async with kind(label, system.namesrv_address) as consumer, remoting() as asking:
            if isinstance(consumer, LitePullConsumer):
                consumer.subscribe(label)
                await until(lambda: bool(consumer.assignment()))
            else:
                for queue in await consumer.fetch_queues(label):
                    await consumer.pull(queue, "*", 0, 10)
            members: list[str] = []
            async with asyncio.timeout(60):
                while not members:
                    try:
                        members = await membership.consumer_ids(asking, broker, label)
                    except BrokerError:
                        await asyncio.sleep(0.05)
            assert members == [consumer.client_id]
            assert consumer.client_id.endswith("@STREAM")

    run(scenario())


# ------------------------------------------------------------------------------------------------- retries and bursts


def test_answers_that_are_tried_again_are_chosen_and_asynchronous_sends_take_the_first(
    system: System, label: str
) -> None:
    async def scenario() -> None:
        namesrv = system.namesrv_address
        async with (
            Producer("a", namesrv, create_topic_key="NoTemplate") as usual,
            Producer("b", namesrv, create_topic_key="NoTemplate", retry_response_codes=set()) as strict,
            remoting() as asking,
        ):
            await usual.create_topic(label, template="TBW102")
            for producer in (usual, strict):
                await until_queues(producer, label, 4)
                await producer.send(message(label, label, 0))
            broker = await broker_of(usual, label)
            # The producers do not know it yet. The 5.3.3 broker runs without its timer wheel: it deletes the topic, and
            # fails when it wants to clean the wheel.
            with contextlib.suppress(BrokerError) if is_five(system) else contextlib.nullcontext():
                await topics.delete_topic(asking, broker, label)
            with pytest.raises(ClientError, match="3 attempts") as tried:
                await usual.send(message(label, label, 1))
            assert tried.value.code == ResponseCode.TOPIC_NOT_EXIST
            for refused in (strict.send(message(label, label, 1)), usual.send_async(message(label, label, 1))):
                with pytest.raises(BrokerError, match=r"1 attempts .*create the topic") as final:
                    await refused
                assert final.value.code == ResponseCode.TOPIC_NOT_EXIST

    run(scenario())


def test_a_selector_by_hash_chooses_what_java_would(system: System, label: str) -> None:
    async def scenario() -> None:
        async with Producer("producers", system.namesrv_address) as producer:
            await producer.create_topic(label, queues=8)
            await until_queues(producer, label, 8)
            chosen = [
                (await producer.send(Message(label, b"x"), selector=hash_selector, arg=key)).queue.queue_id
                for key in ("TagA", "TagB", "order-10001", "polygenelubricants", "")
            ]
            assert chosen == [7, 0, 3, 0, 0]

    run(scenario())


async def until_queues(producer: Producer, topic: str, count: int) -> list[MessageQueue]:
    """The queues of a new topic, once the name server knows all of them."""
    async with asyncio.timeout(60):
        while True:
            try:
                found = await producer.fetch_publish_queues(topic)
            except ClientError:
                found = []
            if len(found) == count:
                return found
            await producer._instance.routes.refresh(topic)
            await asyncio.sleep(0.05)


def test_a_burst_of_threads_is_sent_whatever_its_size(system: System, label: str) -> None:
    count = BURST_AT_JAVA if isinstance(system, JavaSystem) else BURST
    with threads.Producer("producers", system.namesrv_address, send_timeout_ms=BURST_TIMEOUT_MS) as producer:
        futures = [producer.send_async(Message(label, b"%d" % i)) for i in range(count)]
        assert {future.result().status for future in futures} == {SendStatus.SEND_OK}
        queues = producer.fetch_publish_queues(label)

        def stored() -> int:
            return sum(producer.max_offset(queue) for queue in queues)

        wait_until(lambda: stored() >= count, 30, "all to be seen")  # RocketMQ shows a moment later what it has taken
        assert stored() == count
