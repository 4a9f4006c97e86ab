"""orbitmq's own client does with RocketMQ 4.9.7 and 5.3.3 what it does with orbitmq, and what Java's client does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvloop

from orbitmq.client import (
    ClientError,
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    LitePullConsumer,
    MessageExt,
    MessageModel,
    MessageQueue,
    Producer,
    PushConsumer,
)
from orbitmq.client import sync as threads
from orbitmq.errors import OrbitMQError
from tests.interop.conftest import FIVE_TOO, SYSTEMS, System, is_five
from tests.support.delivery import (
    assert_as_acknowledged,
    assert_each_once,
    assert_queues_without_gaps,
    by_queue,
    messages,
    results,
)
from tests.support.java_rocketmq import Driver, JavaSystem, run_driver
from tests.support.loops import until
from tests.support.messages import index_of
from tests.support.process import free_port, wait_until
from tests.support.python_client import (
    FIRST,
    SUCCESS,
    Collector,
    Row,
    consume,
    indexes,
    message,
    received_row,
    send,
    send_from_threads,
)

pytestmark = pytest.mark.with_five
# What many messages may bring to light, they do at one Java broker; many are more than a consumer holds, a thousand of
# each of four queues.
COUNT, COUNT_AT_FIVE = 5000, 1000
LINGER_S = 0.3  # surplus deliveries must have a chance to show
T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def volume(system: System) -> int:
    return COUNT_AT_FIVE if is_five(system) else COUNT


def assert_exactly_as_sent(received: list[Row], sent: list[Row], system: System, label: str, mode: str) -> None:
    assert_each_once(received, label, range(volume(system)))
    assert_queues_without_gaps(received, queue_count=4)
    assert {row["topic"] for row in received} == {label}
    assert {row["storeHost"] for row in received} == {system.address}
    assert {row["bornHost"] for row in received} == {"127.0.0.1"}
    assert len({row["bornPort"] for row in received}) == 1, "one producer has one connection to a broker"
    assert all(row["bornTimestamp"] <= row["storeTimestamp"] for row in received)
    assert {row["reconsumeTimes"] for row in received} == {0}
    if mode != "oneway":
        assert len(sent) == volume(system)
        assert_as_acknowledged(received, sent)
    if mode in {"sync", "batch"}:  # the next is sent when the last is acknowledged, so queues hold them in this order
        for rows in by_queue(received).values():
            rows.sort(key=lambda row: row["queueOffset"])
            assert [index_of(row) for row in rows] == sorted(map(index_of, rows))
    if mode != "batch":
        assert all(bool(row["sysFlag"] & 1) == (row["bodySize"] > 4096) for row in received)


@pytest.mark.parametrize("mode", ["sync", "async", "oneway", "batch", "linger"])
def test_every_message_arrives_exactly_as_sent(system: System, label: str, mode: str) -> None:
    sent = run(send(system.namesrv_address, label, label, volume(system), mode))
    received = run(consume(system.namesrv_address, label, label, volume(system)))
    assert_exactly_as_sent(received, sent, system, label, mode)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_threads_send_and_consume_the_same(system: System, label: str, mode: str) -> None:
    sent = send_from_threads(system.namesrv_address, label, label, volume(system), mode)
    collector = Collector()
    consumer = threads.PushConsumer(label, system.namesrv_address, consume_from_where=FIRST)
    consumer.subscribe(label)

    @consumer.on_message
    def handle(messages: Any, context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        return collector.take(messages)

    with consumer:
        wait_until(lambda: len(collector.rows) >= volume(system), 60, "all messages")
    assert_exactly_as_sent(collector.rows, sent, system, label, mode)


@pytest.mark.parametrize("mode", ["async", "linger"])
def test_java_consumes_what_python_sent(system: System, label: str, mode: str) -> None:
    sent = run(send(system.namesrv_address, label, label, volume(system), mode))
    client = ("--namesrv", system.namesrv_address, "--topic", label)
    received = messages(run_driver("consume", *client, "--group", label, "--expect", volume(system)))
    assert_each_once(received, label, range(volume(system)))
    assert_as_acknowledged(received, sent)


def test_python_consumes_what_java_sent(system: System, label: str) -> None:
    client = ("--namesrv", system.namesrv_address, "--topic", label)
    sent = results(run_driver("send", *client, "--mode", "async", "--count", volume(system), "--run", label))
    received = run(consume(system.namesrv_address, label, label, volume(system)))
    assert_each_once(received, label, range(volume(system)))
    assert_as_acknowledged(received, sent)


def test_tag_expression_selects(system: System, label: str) -> None:
    run(send(system.namesrv_address, label, label, 900, "batch"))
    received = run(consume(system.namesrv_address, label, label, 600, "TagA || TagC"))
    assert_each_once(received, label, [i for i in range(900) if i % 3 != 1])


def test_two_members_share_the_queues(system: System, label: str) -> None:
    async def scenario() -> tuple[Collector, Collector]:
        await send(system.namesrv_address, label, label, 400, "batch")
        collectors = Collector(), Collector()
        first, second = (push_consumer(system, label, collector) for collector in collectors)
        async with first, second:
            assert first.client_id != second.client_id
            await until(lambda: len(held(first, label)) == 2 and not held(first, label) & held(second, label))
            await send(system.namesrv_address, label, f"{label}-2", 2000)
            await until(lambda: sum(len(of_run(collector, f"{label}-2")) for collector in collectors) >= 2000)
            await asyncio.sleep(LINGER_S)
        return collectors

    both = run(scenario())
    later = [of_run(collector, f"{label}-2") for collector in both]
    assert_each_once(later[0] + later[1], f"{label}-2", range(2000))
    queues = [{row["queueId"] for row in rows} for rows in later]
    assert len(queues[0]) == len(queues[1]) == 2
    assert not queues[0] & queues[1]


def test_a_member_takes_over_what_another_leaves(system: System, label: str) -> None:
    async def scenario() -> list[Row]:
        collector = Collector()
        staying, leaving = (push_consumer(system, label, collector) for _ in range(2))
        await send(system.namesrv_address, label, label, 100)
        async with staying:
            async with leaving:
                await until(lambda: len(held(staying, label)) == len(held(leaving, label)) == 2)
                await collector.until(100)
            await until(lambda: len(held(staying, label)) == 4)
            await send(system.namesrv_address, label, f"{label}-2", 1000)
            await until(lambda: len(of_run(collector, f"{label}-2")) >= 1000)
            await asyncio.sleep(LINGER_S)
        return of_run(collector, f"{label}-2")

    assert_each_once(run(scenario()), f"{label}-2", range(1000))


def of_run(collector: Collector, run_label: str) -> list[Row]:
    return [row for row in collector.rows if row["properties"]["run"] == run_label]


def push_consumer(system: System, label: str, collector: Collector, **settings: Any) -> PushConsumer:
    consumer = PushConsumer(label, system.namesrv_address, consume_from_where=FIRST, **settings)
    consumer.subscribe(label)
    consumer.set_listener(collector)
    return consumer


def held(consumer: PushConsumer, topic: str) -> set[MessageQueue]:
    return {queue for queue in consumer.assignment() if queue.topic == topic}


def has_two_queues(row: Row) -> bool:
    return row.get("event") == "assigned" and len(row["queues"]) == 2


def test_java_and_python_members_share_one_group(system: System, label: str) -> None:
    async def scenario() -> list[Row]:
        collector = Collector()
        client = ("--namesrv", system.namesrv_address, "--topic", label)
        await send(system.namesrv_address, label, "before", 40)
        async with push_consumer(system, label, collector) as python:
            with Driver("consume", *client, "--group", label, "--idle-ms", 5000) as java:
                await asyncio.to_thread(java.wait_for_row, has_two_queues, 60, "Java to have two queues")
                await until(lambda: len(held(python, label)) == 2)
                await send(system.namesrv_address, label, label, 1000)
                rows = await asyncio.to_thread(java.finish)
        return [row for row in messages(rows) + collector.rows if row["properties"]["run"] == label]

    rows = run(scenario())
    assert_each_once(rows, label, range(1000))
    assert len({row["bornPort"] for row in rows}) == 1


def test_broadcasting_gives_everything_to_everyone_and_goes_on_after_a_restart(
    system: System, label: str, tmp_path: Path
) -> None:
    async def round_of(run_label: str, count: int) -> list[list[Row]]:
        collectors = Collector(), Collector()
        consumers = [
            push_consumer(
                system,
                label,
                collector,
                message_model=MessageModel.BROADCASTING,
                instance_name=f"b{number}",
                local_offset_dir=str(tmp_path),
            )
            for number, collector in enumerate(collectors)
        ]
        async with consumers[0], consumers[1]:
            await send(system.namesrv_address, label, run_label, count)
            return [await collector.until(count) for collector in collectors]

    for run_label, count in ((f"{label}-1", 1000), (f"{label}-2", 500)):
        for rows in run(round_of(run_label, count)):
            assert_each_once(rows, run_label, range(count))
    assert len(list(tmp_path.glob(f"*/{label}/offsets.json"))) == 2


def test_a_failed_message_comes_again_with_its_original_topic(system: System, label: str) -> None:
    async def scenario() -> list[Row]:
        await send(system.namesrv_address, label, label, 300)
        collector = Collector(fails=lambda m: m.reconsume_times == 0 and int(m.properties["index"]) % 10 == 0)
        async with push_consumer(system, label, collector):
            return await collector.until(330)

    rows = run(scenario())
    first, again = [[row for row in rows if (row["reconsumeTimes"] > 0) is later] for later in (False, True)]
    assert_each_once(first, label, range(300))
    assert_each_once(again, label, range(0, 300, 10))
    assert {row["topic"] for row in again} == {label}
    assert {row["reconsumeTimes"] for row in again} == {1}
    origins = {index_of(row): row["msgId"] for row in first}
    assert all(origins[index_of(row)] == row["msgId"] for row in again), "the producer's id stays"


def test_a_message_that_always_fails_ends_in_the_dead_letter_topic(system: System, label: str) -> None:
    async def scenario() -> tuple[list[Row], list[MessageExt]]:
        sent.update({row["index"]: row for row in await send(system.namesrv_address, label, label, 20)})
        collector = Collector(fails=lambda m: m.properties["index"] == "7")
        async with push_consumer(system, label, collector, max_reconsume_times=2):
            rows = list(await collector.until(22))
        async with LitePullConsumer(f"{label}-dlq", system.namesrv_address, consume_from_where=FIRST) as dead:
            dead.subscribe(f"%DLQ%{label}")
            return rows, await dead.poll(30)

    sent: dict[int, Row] = {}
    rows, (letter,) = run(scenario())
    assert sorted(row["reconsumeTimes"] for row in rows if index_of(row) == 7) == [0, 1, 2]
    assert (letter.properties["index"], letter.reconsume_times, letter.properties["RETRY_TOPIC"]) == ("7", 3, label)
    assert letter.properties["ORIGIN_MESSAGE_ID"] == sent[7]["offsetMsgId"]


@pytest.mark.parametrize("where", ["LAST_OFFSET", "FIRST_OFFSET", "TIMESTAMP"])
def test_a_new_group_gets_all_of_a_young_topic(system: System, label: str, where: str) -> None:
    """A broker whose queue still holds its first message in memory tells a group without offset to begin there."""

    async def scenario() -> list[Row]:
        await send(system.namesrv_address, label, label, 100)
        collector = Collector()
        consumer = PushConsumer(
            label, system.namesrv_address, consume_from_where=ConsumeFromWhere[f"CONSUME_FROM_{where}"]
        )
        consumer.subscribe(label)
        consumer.set_listener(collector)
        async with consumer:
            return await collector.until(100)

    assert_each_once(run(scenario()), label, range(100))


def test_pulled_messages_follow_every_seek(system: System, label: str) -> None:
    async def scenario() -> None:
        sent = await send(system.namesrv_address, label, label, 1000, "sync")
        async with lite(system, label) as consumer:
            consumer.subscribe(label)
            assert sorted(indexes(await poll_all(consumer, 1000))) == list(range(1000))
            queues = await consumer.fetch_queues(label)
            assert consumer.assignment() == set(queues)
            for queue in queues:
                await consumer.seek(queue, 200)
            again = await poll_all(consumer, 200)
            assert sorted(row["queueOffset"] for row in again) == sorted([*range(200, 250)] * 4)
            for queue in queues:
                await consumer.seek_to_end(queue)
            assert await consumer.poll(0.2) == []
            for queue in queues:
                await consumer.seek_to_begin(queue)
            everything = await poll_all(consumer, 1000)
            assert_each_once(everything, label, range(1000))
            assert_as_acknowledged(everything, sent)
            with pytest.raises(ClientError, match="has offsets 0 to 250, not 251"):
                await consumer.seek(queues[0], 251)
            times = {row["queueOffset"]: row["storeTimestamp"] for row in everything if row["queueId"] == 0}
            found = await consumer.offset_for_timestamp(queues[0], times[100])
            assert times[found] == times[100]

    run(scenario())


def test_a_confirmed_commit_is_where_the_next_member_begins(system: System, label: str) -> None:
    async def scenario() -> None:
        await send(system.namesrv_address, label, label, 400, "batch")
        async with lite(system, label) as first:
            first.subscribe(label)
            early = await poll_all(first, 200, exactly=False)
            await first.commit(wait=True)
            for queue in first.assignment():
                done = sum(row["queueId"] == queue.queue_id for row in early)
                assert await first.committed(queue) == (done or 0)
            uncommitted = await first.poll(5)
            assert uncommitted
        async with lite(system, label) as second:
            second.subscribe(label)
            late = await poll_all(second, 400 - len(early))
            assert_each_once(early + late, label, range(400))

    run(scenario())


def test_assigned_queues_are_read_alone_and_paused(system: System, label: str) -> None:
    async def scenario() -> None:
        await send(system.namesrv_address, label, label, 400, "sync")
        async with lite(system, label) as consumer:
            queues = await consumer.fetch_queues(label)
            consumer.assign(queues[:2])
            assert {row["queueId"] for row in await poll_all(consumer, 200)} == {0, 1}
            consumer.pause(queues[:1])
            await consumer.seek_to_begin(queues[0])
            await consumer.seek_to_begin(queues[1])
            assert {row["queueId"] for row in await poll_all(consumer, 100)} == {1}
            consumer.resume(queues[:1])
            assert {row["queueId"] for row in await poll_all(consumer, 100)} == {0}

    run(scenario())


def lite(system: System, group: str, **settings: Any) -> LitePullConsumer:
    return LitePullConsumer(
        group, system.namesrv_address, consume_from_where=FIRST, auto_commit=False, pull_batch_size=32, **settings
    )


async def poll_all(consumer: LitePullConsumer, count: int, *, exactly: bool = True) -> list[Row]:
    """Poll until there are `count` messages; no more may follow when it shall be exactly these."""
    rows: list[Row] = []
    while len(rows) < count:
        found = await consumer.poll(20)
        assert found, f"{len(rows)} of {count} messages came"
        rows += map(received_row, found)
    if exactly:
        assert await consumer.poll(0.2) == []
        assert len(rows) == count
    return rows


def test_messages_of_one_key_keep_their_order(system: System, label: str) -> None:
    async def scenario() -> list[Row]:
        async with Producer("producers", system.namesrv_address) as producer:
            for i in range(400):
                await producer.send(message(label, label, i), sharding_key=f"order-{i % 10}")
            queue = (await producer.fetch_publish_queues(label))[2]
            result = await producer.send(message(label, label, 400), queue=queue)
            assert result.queue == queue
        return await consume(system.namesrv_address, label, label, 401)

    rows = run(scenario())
    for key in range(10):
        mine = sorted((row for row in rows if index_of(row) % 10 == key and index_of(row) < 400), key=index_of)
        assert len({row["queueId"] for row in mine}) == 1
        offsets = [row["queueOffset"] for row in mine]
        assert offsets == sorted(offsets)


def test_another_name_server_takes_over(system: System, label: str) -> None:
    both = f"127.0.0.1:{free_port()};{system.namesrv_address}"
    sent = run(send(both, label, label, 100))
    assert_as_acknowledged(run(consume(both, label, label, 100)), sent)


def test_a_topic_that_cannot_be_created_says_why(system: System, label: str) -> None:
    async def scenario() -> None:
        async with Producer("producers", system.namesrv_address, create_topic_key="NoSuchTemplate") as producer:
            with pytest.raises(ClientError, match="does not exist, and no broker offers the template") as raised:
                await producer.send(message(label, label, 0))
            assert raised.value.code == 10005
            await producer.create_topic(label, queues=2, template="TBW102")
            assert len(await producer.fetch_publish_queues(label)) == 2

    run(scenario())


def test_shutdown_ends_although_a_listener_hangs(system: System, label: str) -> None:
    async def scenario() -> None:
        await send(system.namesrv_address, label, label, 1)
        called = asyncio.Event()
        consumer = PushConsumer(label, system.namesrv_address, consume_from_where=FIRST, await_termination_ms=100)
        consumer.subscribe(label)

        @consumer.on_message
        async def hang(messages: Any, context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
            called.set()
            await asyncio.Event().wait()
            return SUCCESS

        async with asyncio.timeout(30):
            async with consumer:
                await called.wait()

    run(scenario())
    received = run(consume(system.namesrv_address, label, label, 1))
    assert_each_once(received, label, [0])


@pytest.fixture(scope="module", params=FIVE_TOO)
def own_system(request: pytest.FixtureRequest) -> Iterator[System]:
    """A system whose broker a test may kill; the last of the tests leaves it dead."""
    with SYSTEMS[request.param]() as running:
        yield running


def restart_killed(system: System) -> None:
    broker = system.broker if isinstance(system, JavaSystem) else system
    broker.kill()
    broker.start()


def test_clients_outlive_a_broker_that_is_killed_and_started_again(own_system: System, label: str) -> None:
    async def send_all(producer: Producer, those: range, restarting: asyncio.Task[None] | None = None) -> None:
        for index in those:
            while True:
                with contextlib.suppress(OrbitMQError):
                    await producer.send(message(label, label, index))
                    break
                if restarting is not None and restarting.done():
                    restarting.result()

    async def scenario() -> list[Row]:
        collector = Collector()
        async with (
            Producer("producers", own_system.namesrv_address) as producer,
            push_consumer(own_system, label, collector),
        ):
            await send_all(producer, range(100))
            await until(lambda: len(collector.rows) >= 50)
            restarting = asyncio.create_task(asyncio.to_thread(restart_killed, own_system))
            await send_all(producer, range(100, 300), restarting)
            await restarting
            await until(lambda: set(indexes(collector.rows)) == set(range(300)))
        return collector.rows

    rows = run(scenario())
    assert len(rows) < 600, "far more deliveries than a restart explains"


def test_shutdown_ends_although_the_broker_is_gone(own_system: System, label: str) -> None:
    async def scenario() -> None:
        collector = Collector()
        async with Producer("producers", own_system.namesrv_address) as producer:
            await producer.send(message(label, label, 0))
            async with push_consumer(own_system, label, collector), lite(own_system, f"{label}-lite") as pulling:
                pulling.subscribe(label)
                await collector.until(1)
                await asyncio.to_thread(own_system.__exit__)
                async with asyncio.timeout(25):
                    await pulling.shutdown()
            await asyncio.wait_for(producer.shutdown(), 25)

    run(scenario())
