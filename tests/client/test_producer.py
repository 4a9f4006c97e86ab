"""A producer stores a message, or says what failed, where, and after how many attempts."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from orbitmq.client import Message, MessageQueue, Producer, SendStatus
from orbitmq.errors import BrokerError, ClientError, InvalidStateError, MessageIllegal, TooManyRequestsError
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.headers import SendMessageResponseHeader, SendMessageV2Header
from tests.support.fake_system import BROKER, fake_system, refuse, silence
from tests.support.loops import run, until


def test_messages_take_turns_over_all_queues() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address) as producer:
            results = [await producer.send(Message("T", b"%d" % i)) for i in range(12)]
            assert Counter(result.queue.queue_id for result in results) == {0: 3, 1: 3, 2: 3, 3: 3}
            assert {result.status for result in results} == {SendStatus.SEND_OK}
            assert len({result.msg_id for result in results}) == 12
            assert sorted(result.queue_offset for result in results) == [0] * 4 + [1] * 4 + [2] * 4

    run(scenario())


def test_a_refused_attempt_is_made_again_and_counted() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address, retry_times=2) as producer:
            system.answers[RequestCode.SEND_MESSAGE_V2] = refuse(ResponseCode.SERVICE_NOT_AVAILABLE, times=2)
            assert (await producer.send(Message("T", b"x"))).status is SendStatus.SEND_OK
            system.answers[RequestCode.SEND_MESSAGE_V2] = refuse(ResponseCode.SERVICE_NOT_AVAILABLE, "full")
            with pytest.raises(ClientError, match=r"not sent in 3 attempts .*CODE: 14 DESC: full") as raised:
                await producer.send(Message("T", b"x"))
            assert raised.value.code == ResponseCode.SERVICE_NOT_AVAILABLE

    run(scenario())


def test_a_busy_broker_is_left_in_peace() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address) as producer:
            system.answers[RequestCode.SEND_MESSAGE_V2] = refuse(ResponseCode.SYSTEM_BUSY)
            with pytest.raises(BrokerError) as raised:
                await producer.send(Message("T", b"x"))
            assert raised.value.code == ResponseCode.SYSTEM_BUSY
            assert system.count(RequestCode.SEND_MESSAGE_V2) == 1

    run(scenario())


def test_the_time_of_all_attempts_is_limited() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address) as producer:
            await producer.send(Message("T", b"x"))
            system.answers[RequestCode.SEND_MESSAGE_V2] = silence()
            with pytest.raises(TooManyRequestsError, match=r"not sent in 1 attempts and 50 ms .*no answer from"):
                await producer.send(Message("T", b"x"), timeout=0.05)

    run(scenario())


def test_a_chosen_queue_is_tried_once() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address) as producer:
            queue = (await producer.fetch_publish_queues("T"))[2]
            assert (await producer.send(Message("T", b"x"), queue=queue)).queue == queue
            by_key = {(await producer.send(Message("T", b"x"), sharding_key="k")).queue for _ in range(5)}
            assert len(by_key) == 1
            system.answers[RequestCode.SEND_MESSAGE_V2] = refuse(ResponseCode.SERVICE_NOT_AVAILABLE)
            before = system.count(RequestCode.SEND_MESSAGE_V2)
            for where in ({"queue": queue}, {"sharding_key": 7}):
                with pytest.raises(ClientError, match="1 attempts"):
                    await producer.send(Message("T", b"x"), **where)  # type: ignore[arg-type]
            assert system.count(RequestCode.SEND_MESSAGE_V2) == before + 2
            with pytest.raises(ClientError, match="message of topic T, queue of U"):
                await producer.send(Message("T", b"x"), queue=MessageQueue("U", BROKER, 0))

    run(scenario())


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE),
    ],
)
def test_stored_with_less_safety_is_told_and_not_repeated(code: int, status: SendStatus) -> None:
    stored = SendMessageResponseHeader(msg_id="ID", queue_id=0, queue_offset=5)

    async def scenario() -> None:
        async with fake_system() as system:
            system.answers[RequestCode.SEND_MESSAGE_V2] = lambda _, c: c.response(code, header=stored)
            async with Producer("g", system.address) as producer:
                assert (await producer.send(Message("T", b"x"))).status is status
                assert system.count(RequestCode.SEND_MESSAGE_V2) == 1
            async with Producer("g", system.address, retry_when_not_store_ok=True, retry_times=1) as producer:
                assert (await producer.send(Message("T", b"x"))).status is status
                assert system.count(RequestCode.SEND_MESSAGE_V2) == 3

    run(scenario())


def test_a_batch_is_stored_in_order_in_one_queue() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address) as producer:
            result = await producer.send_batch([Message("T", b"%d" % i) for i in range(5)])
            units = system.messages["T", result.queue.queue_id]
            assert [unit.body for unit in units] == [b"0", b"1", b"2", b"3", b"4"]
            assert len(result.msg_id.split(",")) == len(result.offset_msg_id.split(",")) == 5

    run(scenario())


def test_oneway_messages_wait_for_nothing() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address) as producer:
            system.answers[RequestCode.SEND_MESSAGE_V2] = None  # type: ignore[assignment]
            await producer.send_oneway(Message("T", b"x"))
            await until(lambda: any(system.messages.values()))
            (asked,) = [c for c in system.asked if c.code == RequestCode.SEND_MESSAGE_V2]
            assert asked.is_oneway

    run(scenario())


def test_the_header_says_how_a_missing_topic_is_made() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["Template"] = 8
            async with Producer(
                "g", system.address, create_topic_key="Template", default_topic_queue_nums=6
            ) as producer:
                await producer.send(Message("T", b"x", flag=3))
            (asked,) = [c for c in system.asked if c.code == RequestCode.SEND_MESSAGE_V2]
            header = asked.header(SendMessageV2Header)
            assert (header.default_topic, header.default_topic_queue_nums, header.flag) == ("Template", 6, 3)
            assert system.topics["T"] == 6

    run(scenario())


def test_asynchronous_sends_are_limited_and_awaited_at_shutdown() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            async with Producer("g", system.address, async_sends_max=2) as producer:
                with pytest.raises(MessageIllegal):
                    producer.send_async(Message("T", b""))
                tasks = [producer.send_async(Message("T", b"x")) for _ in range(2)]
                with pytest.raises(TooManyRequestsError, match="2 sends are under way"):
                    producer.send_async(Message("T", b"x"))
            assert {task.result().status for task in tasks} == {SendStatus.SEND_OK}

    run(scenario())


def test_a_producer_that_is_not_running_sends_nothing() -> None:
    async def scenario() -> None:
        producer = Producer("g", "h:1")
        for send in (producer.send(Message("T", b"x")), producer.send_batch([Message("T", b"x")])):
            with pytest.raises(InvalidStateError):
                await send
        with pytest.raises(InvalidStateError):
            producer.send_async(Message("T", b"x"))

    run(scenario())


def test_a_canceled_send_leaves_the_others_alone() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address) as producer:
            system.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = silence()
            first, second = (producer.send_async(Message("T", b"x")) for _ in range(2))
            await until(lambda: system.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) > 0)
            first.cancel()
            await asyncio.sleep(0)
            assert first.cancelled()
            assert not second.done()
            second.cancel()

    run(scenario())


def test_a_broker_that_failed_is_known_and_left_out_when_asked_for() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address, latency_fault=True) as producer:
            await producer.send(Message("T", b"x"))
            assert producer.faults[BROKER].latency_ms < 3000
            system.answers[RequestCode.SEND_MESSAGE_V2] = refuse(ResponseCode.SYSTEM_BUSY, times=1)
            with pytest.raises(BrokerError):
                await producer.send(Message("T", b"x"))
            left_out_until = producer.faults[BROKER].available_from_ms
            await producer.send(Message("T", b"x"))  # the only broker there is
            assert producer.faults[BROKER].available_from_ms < left_out_until
        async with Producer("g", system.address) as producer:
            assert producer.faults == {}

    run(scenario())
