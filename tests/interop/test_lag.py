"""The lag a consumer tells is the one there is, with either broker; and what it cannot know it does not make up."""

from __future__ import annotations

import time

import pytest

from orbitmq.client import ClientError, ConsumeFromWhere, Message
from orbitmq.client.lag import QueueLag, total_lag
from orbitmq.client.sync import LitePullConsumer, Producer
from tests.interop.conftest import System
from tests.support.process import wait_until

pytestmark = pytest.mark.with_five
PATIENCE_SECONDS = 30
QUEUES = 4


def consumer_of(system: System, label: str) -> LitePullConsumer:
    consumer = LitePullConsumer(
        label, system.namesrv_address, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, auto_commit=False
    )
    consumer.subscribe(label)
    return consumer


def of_topic(lags: list[QueueLag], topic: str) -> list[QueueLag]:
    return [lag for lag in lags if lag.queue.topic == topic]


def until_entered(consumer: LitePullConsumer, topic: str, messages: int) -> None:
    """RocketMQ enters a message into its queue, whose end counts, after it has acknowledged it."""
    wait_until(lambda: total_lag(consumer.lag(topic)) == messages, PATIENCE_SECONDS, f"{messages} in their queues")


def test_the_lag_grows_and_shrinks_with_what_is_left(system: System, label: str) -> None:
    began = time.time()
    with Producer(f"p-{label}", system.namesrv_address) as producer:
        for number in range(3 * QUEUES):
            producer.send(Message(label, b"%d" % number))
        with consumer_of(system, label) as consumer:
            until_entered(consumer, label, 3 * QUEUES)
            before = of_topic(consumer.lag(), label)
            assert [lag.messages for lag in before] == [3] * QUEUES
            assert all("no offset" in lag.problem or lag.consumer_offset == 0 for lag in before)
            assert all(lag.seconds is not None and 0 <= lag.seconds <= time.time() - began + 1 for lag in before)
            taken = 0
            while taken < 3 * QUEUES:
                taken += len(consumer.poll(timeout=PATIENCE_SECONDS))
            assert total_lag(of_topic(consumer.lag(), label)) == 3 * QUEUES, (
                "taken and not acknowledged is still behind"
            )
            consumer.commit(wait=True)
            wait_until(lambda: total_lag(consumer.lag(label)) == 0, PATIENCE_SECONDS, "the commit is known")
            assert {lag.seconds for lag in consumer.lag(label)} == {0.0}
            producer.send(Message(label, b"one more"))
            until_entered(consumer, label, 1)
            after = consumer.lag(label)
            assert sorted(lag.messages or 0 for lag in after) == [0, 0, 0, 1]
            assert {lag.problem for lag in after} == {""}


def test_a_topic_that_is_not_there_is_an_error_and_no_zero(system: System, label: str) -> None:
    with consumer_of(system, label) as consumer, pytest.raises(ClientError, match="no route"):
        consumer.lag("there-is-no-such-topic")
