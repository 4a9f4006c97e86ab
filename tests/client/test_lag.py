"""A lag that cannot be known is told with its problem."""

from __future__ import annotations

from orbitmq.client import LitePullConsumer, Message, MessageQueue, Producer
from orbitmq.client.lag import QueueLag, total_lag
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers import GetMinOffsetResponseHeader
from orbitmq.wire.requests import RequestCode
from tests.support.fake_system import BROKER, answer_with, fake_system, refuse
from tests.support.loops import run

QUEUE = MessageQueue("T", "b", 0)


def test_the_sum_of_what_is_not_known_is_not_known() -> None:
    assert total_lag([]) == 0
    assert total_lag([QueueLag(QUEUE, messages=1), QueueLag(QUEUE, messages=2)]) == 3
    assert total_lag([QueueLag(QUEUE, messages=1), QueueLag(QUEUE, problem="away")]) is None


def test_a_broker_that_refuses_is_a_problem_and_no_zero() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("p", system.address) as producer:
            await producer.send(Message("T", b"x"))
            async with LitePullConsumer("g", system.address) as consumer:
                system.answers[RequestCode.GET_MAX_OFFSET] = refuse(ResponseCode.SYSTEM_ERROR, "broken")
                lags = await consumer.lag("T")
                assert {lag.messages for lag in lags} == {None}
                assert all("broken" in lag.problem for lag in lags)

    run(scenario())


def test_messages_that_expired_are_told_apart() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("p", system.address) as producer:
            for _ in range(8):
                await producer.send(Message("T", b"x"), queue=MessageQueue("T", BROKER, 0))
            async with LitePullConsumer("g", system.address) as consumer:
                system.offsets["g", "T", 0] = 2
                (lag,) = [one for one in await consumer.lag("T") if one.queue.queue_id == 0]
                assert (lag.consumer_offset, lag.max_offset, lag.messages, lag.expired) == (2, 8, 6, 0)
                system.answers[RequestCode.GET_MIN_OFFSET] = answer_with(GetMinOffsetResponseHeader(offset=5))
                (lag,) = [one for one in await consumer.lag("T") if one.queue.queue_id == 0]
                assert (lag.messages, lag.expired) == (3, 3)

    run(scenario())
