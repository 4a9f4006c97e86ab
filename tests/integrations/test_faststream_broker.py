"""What the FastStream broker does with RocketMQ's own features, at a live broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from faststream import AckPolicy
from faststream.exceptions import IncorrectState, NackMessage, RejectMessage, SetupError, StopConsume
from faststream.security import BaseSecurity, SASLPlaintext, SASLScram256

from orbitmq.client import MessageExt, MessageIllegal, MessageSelector, PushConsumer, RemotingError
from orbitmq.integrations.faststream import RocketMQBroker, RocketMQMessage, RocketMQResponse
from orbitmq.integrations.faststream import subscriber as of_subscribers
from orbitmq.integrations.faststream.config import security_settings
from orbitmq.testing import Cluster
from tests.integrations.faststream_support import live, new_topic, quiet
from tests.support.loops import until

SHORT_DELAYS = " ".join(["1s"] * 18)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(messageDelayLevel=SHORT_DELAYS, timerWheelEnable=True) as running:
        yield running


@pytest.fixture
def broker(cluster: Cluster) -> RocketMQBroker:
    return quiet(cluster.namesrv_address)


@pytest.fixture
def topic() -> str:
    return new_topic()


# --------------------------------------------------------------------------------------------------------- settling


@pytest.mark.parametrize(
    ("policy", "times", "dead"),
    [
        (None, 2, 0),
        (AckPolicy.NACK_ON_ERROR, 2, 0),
        (AckPolicy.REJECT_ON_ERROR, 1, 1),
        (AckPolicy.ACK, 1, 0),
        (AckPolicy.ACK_FIRST, 1, 0),
    ],
)
@pytest.mark.parametrize("ordered", [False, True])
async def test_the_policy_decides_about_a_message_whose_handler_fails(
    cluster: Cluster, broker: RocketMQBroker, topic: str, policy: AckPolicy | None, times: int, dead: int, ordered: bool
) -> None:
    got: list[str] = []
    options: Any = {} if policy is None else {"ack_policy": policy}

    @broker.subscriber(topic, ordered=ordered, **options)
    async def handle(text: str, message: RocketMQMessage) -> None:
        got.append(f"{text} {message.reconsume_times}")
        if text == "bad" and message.reconsume_times == 0:
            raise ValueError(text)

    async with live(broker):
        await broker.publish("bad", topic, sharding_key="k")
        await broker.publish("good", topic, sharding_key="k")
        await until(lambda: len(got) == times + 1)
        await until(lambda: cluster.message_count(f"%DLQ%faststream-{topic}") == dead)
    expected = ["bad 0", "bad 1", "good 0"] if times == 2 else ["bad 0", "good 0"]
    assert (got if ordered else sorted(got)) == expected
    assert cluster.backlog(f"faststream-{topic}", topic) == 0


async def test_a_message_that_cannot_be_read_is_settled_by_the_policy(
    cluster: Cluster, broker: RocketMQBroker, topic: str
) -> None:
    @broker.subscriber(topic, ack_policy=AckPolicy.REJECT_ON_ERROR)
    async def handle(number: int) -> None:
        pytest.fail("handled")

    async with live(broker):
        await broker.publish("no number", topic)
        await until(lambda: cluster.message_count(f"%DLQ%faststream-{topic}") == 1)


async def test_a_handler_settles_its_message_by_hand(cluster: Cluster, broker: RocketMQBroker, topic: str) -> None:
    got: list[str] = []

    @broker.subscriber(topic, ack_policy=AckPolicy.MANUAL)
    async def handle(text: str, message: RocketMQMessage) -> None:
        got.append(f"{text} {message.reconsume_times}")
        if text == "nack" and not message.reconsume_times:
            await message.nack(delay_level=1)
        elif text == "reject":
            await message.reject()
        elif text != "forgotten" or message.reconsume_times:
            await message.ack()

    async with live(broker):
        for text in ("ack", "nack", "reject", "forgotten"):
            await broker.publish(text, topic)
        await until(lambda: len(got) == 6)
        await until(lambda: cluster.message_count(f"%DLQ%faststream-{topic}") == 1)
    assert sorted(got) == ["ack 0", "forgotten 0", "forgotten 1", "nack 0", "nack 1", "reject 0"]


async def test_a_handler_settles_its_message_by_an_exception(
    cluster: Cluster, broker: RocketMQBroker, topic: str
) -> None:
    got: list[str] = []

    @broker.subscriber(topic)
    async def handle(text: str, message: RocketMQMessage) -> None:
        got.append(f"{text} {message.reconsume_times}")
        if text == "reject":
            raise RejectMessage
        if not message.reconsume_times:
            raise NackMessage(delay_level=2)

    async with live(broker):
        await broker.publish("reject", topic)
        await broker.publish("nack", topic)
        await until(lambda: len(got) == 3)
        await until(lambda: cluster.message_count(f"%DLQ%faststream-{topic}") == 1)


async def test_a_message_that_fails_too_often_is_a_dead_letter(
    cluster: Cluster, broker: RocketMQBroker, topic: str
) -> None:
    times: list[int] = []

    @broker.subscriber(topic, settings={"max_reconsume_times": 1})
    async def handle(message: RocketMQMessage) -> None:
        times.append(message.reconsume_times)
        raise ValueError

    async with live(broker):
        await broker.publish("bad", topic)
        await until(lambda: cluster.message_count(f"%DLQ%faststream-{topic}") == 1)
    assert times == [0, 1]


async def test_a_reply_that_a_handler_gets_is_not_what_it_settles(broker: RocketMQBroker, topic: str) -> None:
    got: list[int] = []

    @broker.subscriber(f"{topic}-2")
    async def answers() -> str:
        return "reply"

    @broker.subscriber(topic)
    async def handle(message: RocketMQMessage) -> None:
        got.append(message.reconsume_times)
        reply = await broker.request("x", f"{topic}-2")
        await reply.ack()
        if not message.reconsume_times:
            raise ValueError

    async with live(broker):
        await broker.publish("x", topic)
        await until(lambda: len(got) == 2)


# ----------------------------------------------------------------------------------------------------------- messages


async def test_a_message_has_tag_keys_and_headers(cluster: Cluster, broker: RocketMQBroker, topic: str) -> None:
    got: list[RocketMQMessage] = []

    @broker.subscriber(topic)
    @broker.publisher(f"{topic}-end", tags="usual")
    async def handle() -> RocketMQResponse:
        return RocketMQResponse("x", tags="own", keys=["k1", "k2"], headers={"n": 7, "none": None})

    @broker.subscriber(f"{topic}-end", expression=MessageSelector.tag("own"))
    async def end(message: RocketMQMessage) -> None:
        got.append(message)

    async with live(broker):
        await broker.publish("x", topic)
        await until(lambda: got)
    (message,) = got
    assert (message.topic, message.tags, message.keys) == (f"{topic}-end", "own", ["k1", "k2"])
    assert message.headers["n"] == "7"
    assert "none" not in message.headers
    assert message.message_id == message.raw_message.msg_id  # type: ignore[union-attr]


async def test_each_publisher_of_a_handler_has_a_tag_of_its_own(broker: RocketMQBroker, topic: str) -> None:
    got: dict[str, str | None] = {}

    @broker.subscriber(topic)
    @broker.publisher(f"{topic}-first", tags="first")
    @broker.publisher(f"{topic}-second", tags="second")
    async def handle() -> RocketMQResponse:
        return RocketMQResponse("x", keys="k")

    @broker.subscriber(f"{topic}-first")
    @broker.subscriber(f"{topic}-second")
    async def end(message: RocketMQMessage) -> None:
        got[message.topic] = message.tags

    async with live(broker):
        await broker.publish("x", topic)
        await until(lambda: len(got) == 2)
    assert got == {f"{topic}-first": "first", f"{topic}-second": "second"}


async def test_a_batch_publisher_sends_each_value_of_a_response(broker: RocketMQBroker, topic: str) -> None:
    got: list[tuple[str, str | None]] = []

    @broker.subscriber(topic)
    @broker.publisher(f"{topic}-end", batch=True)
    async def handle() -> RocketMQResponse:
        return RocketMQResponse(["x", "y"], tags="t")

    @broker.subscriber(f"{topic}-end")
    async def end(body: str, message: RocketMQMessage) -> None:
        got.append((body, message.tags))

    async with live(broker):
        await broker.publish("x", topic)
        await until(lambda: len(got) == 2)
    assert sorted(got) == [("x", "t"), ("y", "t")]


@pytest.mark.parametrize("result", [None, []])
async def test_a_batch_publisher_sends_nothing_for_an_empty_result(
    cluster: Cluster, broker: RocketMQBroker, topic: str, result: list[str] | None
) -> None:
    @broker.subscriber(topic, group=topic, settings={"max_reconsume_times": 0})
    @broker.publisher(f"{topic}-end", batch=True)
    async def handle(body: str) -> list[str] | None:
        return result if body == "empty" else ["x"]

    async with live(broker):
        await broker.publish("empty", topic, sharding_key="k")
        await broker.publish("full", topic, sharding_key="k")
        await until(lambda: cluster.message_count(f"{topic}-end"))
    assert cluster.message_count(f"%DLQ%{topic}") == 0


async def test_a_header_with_a_name_of_rocketmq_is_refused(broker: RocketMQBroker, topic: str) -> None:
    async with live(broker):
        with pytest.raises(MessageIllegal, match="'KEYS' is reserved"):
            await broker.publish("x", topic, headers={"KEYS": "k"})


@pytest.mark.parametrize("when", ["level", "after", "at"])
async def test_a_delayed_message_comes_then(broker: RocketMQBroker, topic: str, when: str) -> None:
    got: list[float] = []
    due = datetime.now(UTC) + timedelta(seconds=1)
    options: dict[str, Any] = {"level": {"delay_level": 1}, "after": {"deliver_after": 1.0}, "at": {"deliver_at": due}}

    @broker.subscriber(topic)
    async def handle() -> None:
        got.append(datetime.now(UTC).timestamp())

    async with live(broker):
        await broker.publish("x", topic, **options[when])
        await until(lambda: got)
    assert got[0] >= due.timestamp() - 0.05


async def test_messages_of_a_key_are_handled_in_order_though_workers_are_many(
    broker: RocketMQBroker, topic: str
) -> None:
    got: dict[str, list[int]] = {"a": [], "b": []}

    @broker.subscriber(topic, ordered=True, max_workers=8)
    async def handle(number: int, message: RocketMQMessage) -> None:
        await asyncio.sleep(0.001 * (10 - number))
        got[message.headers["key"]].append(number)

    async with live(broker):
        for number in range(10):
            for key in got:
                await broker.publish(number, topic, sharding_key=key, headers={"key": key})
        await until(lambda: sum(map(len, got.values())) == 20)
    assert got == {"a": list(range(10)), "b": list(range(10))}


async def test_batches_of_a_key_share_the_queue_of_its_messages(broker: RocketMQBroker, topic: str) -> None:
    queues: list[int] = []

    @broker.subscriber(topic)
    @broker.publisher(f"{topic}-end", batch=True)
    async def handle() -> RocketMQResponse:
        return RocketMQResponse(["x", "y"], sharding_key="O-1")

    @broker.subscriber(f"{topic}-end")
    async def end(message: RocketMQMessage) -> None:
        assert isinstance(message.raw_message, MessageExt)
        queues.append(message.raw_message.queue_id)

    async with live(broker):
        sent = [await broker.publish_batch("x", "y", topic=topic, sharding_key="O-1") for _ in range(3)]
        sent.append(await broker.publish("x", topic, sharding_key="O-1"))
        await until(lambda: len(queues) == 14)
    assert len({one.queue for one in sent}) == 1
    assert len(set(queues)) == 1


@pytest.mark.parametrize("workers", [1, 4])
async def test_no_more_handlers_run_than_there_are_workers(broker: RocketMQBroker, topic: str, workers: int) -> None:
    running, most, handled, full = 0, 0, 0, asyncio.Event()

    @broker.subscriber(topic, max_workers=workers)
    async def handle() -> None:
        nonlocal running, most, handled
        running += 1
        most = max(most, running)
        if running == workers:
            full.set()
        await full.wait()
        await asyncio.sleep(0)
        running -= 1
        handled += 1

    async with live(broker):
        for number in range(12):
            await broker.publish(number, topic)
        await until(lambda: handled == 12)
    assert most == workers


async def test_a_batch_is_not_longer_than_allowed(broker: RocketMQBroker, topic: str) -> None:
    got: list[list[int]] = []
    subscriber = broker.subscriber(topic, batch=True, max_records=3)

    @subscriber
    async def handle(numbers: list[int]) -> None:
        got.append(numbers)

    async with live(broker):
        await broker.publish_batch(*range(8), topic=topic)
        await until(lambda: sum(map(len, got)) == 8)
    assert sorted(number for batch in got for number in batch) == list(range(8))
    assert max(map(len, got)) == 3


# ------------------------------------------------------------------------------------------------- without a handler


async def test_messages_are_taken_one_by_one_and_consumed(cluster: Cluster, broker: RocketMQBroker, topic: str) -> None:
    subscriber = broker.subscriber(topic)
    async with live(broker):
        assert await subscriber.get_one(timeout=0.01) is None
        for number in range(3):
            await broker.publish(number, topic, sharding_key="k")
        message = await subscriber.get_one()
        assert message is not None
        assert await message.decode() == 0
        got = []
        async for one in subscriber:
            got.append(await one.decode())
            if len(got) == 2:
                break
    assert got == [1, 2]
    assert cluster.backlog(f"faststream-{topic}", topic) == 0


async def test_messages_end_when_the_subscriber_stops(
    broker: RocketMQBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscriber, got, stopped = broker.subscriber(topic), [], asyncio.Event()

    async def shut_down(consumer: Any) -> None:
        await stopped.wait()
        await consumer.shutdown()

    async def read() -> None:
        async for one in subscriber:
            got.append(await one.decode())  # noqa: PERF401 - the test waits for the first one

    monkeypatch.setattr(of_subscribers, "_shut_down", shut_down)
    async with live(broker):
        reading = asyncio.create_task(read())
        await broker.publish(0, topic)
        await until(lambda: got)
        stopping = asyncio.create_task(subscriber.stop())
        await asyncio.sleep(0)
        await broker.publish(1, topic)
        await reading
        stopped.set()
        await stopping
    assert got[0] == 0


async def test_a_start_that_failed_may_be_tried_again(
    broker: RocketMQBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    got: list[int] = []

    @broker.subscriber(topic)
    async def handle(number: int) -> None:
        got.append(number)

    async def fail(_consumer: PushConsumer) -> None:
        raise RemotingError("the name server does not respond")

    async with broker:
        with monkeypatch.context() as patched:
            patched.setattr(PushConsumer, "start", fail)
            with pytest.raises(RemotingError):
                await broker.start()
        await broker.start()
        await broker.publish(1, topic)
        await until(lambda: got)


async def test_a_subscriber_with_a_handler_gives_out_no_messages(broker: RocketMQBroker, topic: str) -> None:
    subscriber = broker.subscriber(topic)

    @subscriber
    async def handle() -> None: ...

    async with live(broker):
        with pytest.raises(AssertionError):
            await subscriber.get_one(timeout=0.01)


# ---------------------------------------------------------------------------------------------------------- lifecycle


async def test_stopping_waits_for_handlers_and_keeps_what_they_did(
    cluster: Cluster, broker: RocketMQBroker, topic: str
) -> None:
    begun, may_end, ended = asyncio.Event(), asyncio.Event(), []

    @broker.subscriber(topic)
    async def handle(number: int) -> None:
        begun.set()
        await may_end.wait()
        ended.append(number)

    async with live(broker):
        for number in range(3):
            await broker.publish(number, topic, sharding_key="k")
        await begun.wait()
        (subscriber,) = broker.subscribers
        consumer = subscriber._consumer  # type: ignore[attr-defined]
        stopping = asyncio.create_task(broker.stop())
        await until(lambda: not consumer.is_running)
        may_end.set()
        await stopping
    assert ended == [0]
    assert cluster.backlog(f"faststream-{topic}", topic) == 2


async def test_a_handler_that_does_not_end_in_time_is_cancelled_and_its_message_comes_again(
    cluster: Cluster, topic: str
) -> None:
    broker, begun = quiet(cluster.namesrv_address, graceful_timeout=0.1), asyncio.Event()

    @broker.subscriber(topic)
    async def handle() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with live(broker):
        await broker.publish("x", topic)
        await begun.wait()
    assert cluster.backlog(f"faststream-{topic}", topic) == 1


async def test_a_handler_may_stop_its_subscriber(cluster: Cluster, broker: RocketMQBroker, topic: str) -> None:
    got: list[int] = []

    @broker.subscriber(topic, ack_policy=AckPolicy.ACK)
    async def handle(number: int) -> None:
        got.append(number)
        raise StopConsume

    async with live(broker):
        for number in range(5):
            await broker.publish(number, topic, sharding_key="k")
        await until(lambda: got)
    assert got == [0]
    assert cluster.backlog(f"faststream-{topic}", topic) == 4


async def test_a_broker_starts_again(broker: RocketMQBroker, topic: str) -> None:
    got: list[int] = []

    @broker.subscriber(topic)
    async def handle(number: int) -> None:
        got.append(number)

    for number in range(2):
        async with live(broker):
            await broker.start()  # it has been: nothing happens
            await broker.publish(number, topic)
            await until(lambda: len(got) == number + 1)  # noqa: B023
    assert got == [0, 1]


async def test_subscribers_of_a_group_that_differ_are_refused(broker: RocketMQBroker, topic: str) -> None:
    for place in ("", "-2"):
        broker.subscriber(f"{topic}{place}", group="shared")
    with pytest.raises(SetupError, match="subscribers of group shared differ"):
        async with live(broker):
            pytest.fail("started")


async def test_groups_each_get_a_message_and_members_of_one_share_it(broker: RocketMQBroker, topic: str) -> None:
    got: list[str] = []
    for group in ("a", "b", "b"):

        @broker.subscriber(topic, group=f"{topic}-{group}")
        async def handle(group: str = group) -> None:
            got.append(group)

    async with live(broker):
        await broker.publish("x", topic)
        await until(lambda: len(got) >= 2)
        await asyncio.sleep(0)
    assert len(got) == 2


async def test_topics_are_created_unless_that_is_off(cluster: Cluster, topic: str) -> None:
    broker = quiet(cluster.namesrv_address, allow_auto_create_topics=False)
    broker.subscriber(topic)
    async with live(broker):
        assert broker._connection is not None
        with pytest.raises(Exception, match=topic):
            await broker._connection.fetch_queues(topic)
    other = quiet(cluster.namesrv_address)
    other.subscriber(topic)
    async with live(other):
        assert other._connection is not None
        assert len(await other._connection.fetch_queues(topic)) == 4


async def test_a_broker_that_is_not_connected_says_so(broker: RocketMQBroker) -> None:
    assert not await broker.ping()
    with pytest.raises(IncorrectState, match="not connected"):
        await broker.publish("x", "t")


async def test_an_address_where_nothing_listens_fails(topic: str) -> None:
    with pytest.raises(RemotingError):
        await quiet("127.0.0.1:1").start()


async def test_ping_notices_that_the_name_server_is_gone() -> None:
    with Cluster() as cluster:
        broker = quiet(cluster.namesrv_address)
        await broker.connect()
        assert await broker.ping()
    assert not await broker.ping()
    await broker.stop()


async def test_log_lines_have_topic_and_group(cluster: Cluster, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    broker = RocketMQBroker([cluster.namesrv_address])

    @broker.subscriber(topic, group="logged")
    async def handle() -> None: ...

    async with live(broker):
        pass
    assert f"{topic} | logged" in capsys.readouterr().out


# ----------------------------------------------------------------------------------------------------------- security


def test_security_becomes_an_account_and_encryption() -> None:
    assert security_settings(None) == {}
    assert security_settings(BaseSecurity(use_ssl=True)) == {"tls": True}
    account = {"access_key": "shop", "secret_key": "secret"}
    assert security_settings(SASLPlaintext("shop", "secret")) == account
    with pytest.raises(SetupError, match="SASLScram256 is not known"):
        security_settings(SASLScram256("shop", "secret"))
