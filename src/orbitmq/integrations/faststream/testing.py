"""A broker in memory, for tests of handlers."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any, cast
from unittest import mock

import anyio
from faststream._internal.testing.broker import EnterType, TestBroker, change_producer
from faststream.exceptions import SubscriberNotFound

from orbitmq.client import (
    LitePullConsumer,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PushConsumer,
    SendResult,
    SendStatus,
)
from orbitmq.client.core.replies import request_message
from orbitmq.client.core.selectors import subscription_of
from orbitmq.filter.sql92 import compile_sql92
from orbitmq.filter.tags import wants
from orbitmq.integrations.faststream.broker import RocketMQBroker
from orbitmq.integrations.faststream.producer import RocketMQProducer
from orbitmq.integrations.faststream.publisher import RocketMQPublisher
from orbitmq.integrations.faststream.response import RocketMQPublishCommand
from orbitmq.integrations.faststream.subscriber import RocketMQSubscriber
from orbitmq.message.config import SQL92
from orbitmq.message.properties import CLUSTER, CORRELATION_ID


class TestRocketMQBroker(TestBroker[RocketMQBroker, EnterType], broker=RocketMQBroker):
    """Runs handlers without a broker, as the test clients of FastStream's own brokers do.

        async with TestRocketMQBroker(broker) as running:
            await running.publish("hello", "orders")
            handle.mock.assert_called_once_with("hello")

    A message goes to the subscribers of its topic whose expression matches, one of each group, before `publish`
    returns, and an error of a handler is raised there. Delays, order, retries and dead letters need a broker: with
    `with_real` the test uses one.
    """

    def create_publisher_fake_subscriber(
        self, broker: RocketMQBroker, publisher: RocketMQPublisher
    ) -> tuple[RocketMQSubscriber, bool]:
        """The subscriber that has what the publisher sends, and whether it is the application's."""
        for one in _subscribers(self.brokers):
            if one.topic == publisher.topic:
                return one, True
        fake = broker.subscriber(publisher.topic, batch=publisher.config.batch, persistent=False)
        return fake, False

    @contextmanager
    def _patch_producer(self, broker: RocketMQBroker) -> Generator[None, None, None]:
        config = broker.config.broker_config
        with (
            change_producer(config, MemoryProducer(broker, self.brokers)),
            mock.patch.object(config, "provide", mock.AsyncMock(return_value=False)),
            mock.patch.object(config, "push_consumer", return_value=mock.MagicMock(spec=PushConsumer)),
            mock.patch.object(config, "lite_pull_consumer", return_value=mock.MagicMock(spec=LitePullConsumer)),
        ):
            yield

    async def _fake_connect(  # type: ignore[override]
        self, _broker: RocketMQBroker, *_args: Any, **_kwargs: Any
    ) -> Producer:
        return mock.AsyncMock(spec=Producer)


class MemoryProducer(RocketMQProducer):
    """Calls handlers with what is sent."""

    def __init__(self, broker: RocketMQBroker, brokers: Sequence[RocketMQBroker]) -> None:
        super().__init__(broker._parser, broker._decoder)  # noqa: SLF001 - as the broker's own producer has them
        serializer = broker.config.fd_config._serializer  # noqa: SLF001
        self.connect(None, serializer, broker.config.broker_codec)
        self._brokers = brokers
        self._replies: dict[str, MessageExt] = {}
        self._new_id = broker.config.id_generator

    def __bool__(self) -> bool:
        return True

    async def publish(self, cmd: RocketMQPublishCommand) -> SendResult:
        """Handle a message, or keep it for the request whose reply it is."""
        message = await self.message(cmd)
        if cmd.request is not None:
            self._replies[message.properties[CORRELATION_ID]] = reply = self._received(message)
            return _sent([reply])
        return await self._deliver([message])

    async def publish_batch(self, cmd: RocketMQPublishCommand) -> SendResult:
        """Handle messages that were sent together."""
        return await self._deliver(await self.batch(cmd))

    async def request(self, cmd: RocketMQPublishCommand) -> MessageExt:
        """Handle a message and return the reply. SubscriberNotFound, TimeoutError."""
        number = self._new_id()
        request = request_message(await self.message(cmd), number, "memory", round(cmd.timeout * 1000))
        request.properties[CLUSTER] = "memory"
        received = self._received(request)
        subscriber = next(iter(self._subscribers(received)), None)
        if subscriber is None:
            raise SubscriberNotFound(f"no subscriber of {cmd.destination}")
        with anyio.fail_after(cmd.timeout):
            await subscriber.process_message((received,) if subscriber.config.batch else received)
        if number not in self._replies:
            raise TimeoutError(f"the subscriber of {cmd.destination} does not reply")
        return self._replies.pop(number)

    async def _deliver(self, messages: list[Message]) -> SendResult:
        received = [self._received(message) for message in messages]
        for subscriber in self._subscribers(*received):
            matching = [copy(one) for one in received if _matches(subscriber, one)]
            if subscriber.config.batch:
                await subscriber.process_message(tuple(matching))
            else:
                for one in matching:
                    await subscriber.process_message(one)
        return _sent(received)

    def _received(self, message: Message) -> MessageExt:
        new_id = self._new_id()
        return MessageExt(
            message.topic, message.body, properties=message.properties, broker_name="memory", msg_id=new_id
        )

    def _subscribers(self, *messages: MessageExt) -> Iterable[RocketMQSubscriber]:
        groups: set[str] = set()
        for subscriber in _subscribers(self._brokers):
            if subscriber.group not in groups and any(_matches(subscriber, one) for one in messages):
                groups.add(subscriber.group)
                yield subscriber


def _sent(messages: Sequence[MessageExt]) -> SendResult:
    ids = ",".join(one.msg_id for one in messages)
    return SendResult(SendStatus.SEND_OK, ids, ids, MessageQueue(messages[0].topic, "memory", 0), 0)


def _subscribers(brokers: Iterable[RocketMQBroker]) -> Iterable[RocketMQSubscriber]:
    return (cast("RocketMQSubscriber", one) for broker in brokers for one in broker.subscribers)


def _matches(subscriber: RocketMQSubscriber, message: MessageExt) -> bool:
    if subscriber.topic != message.topic:
        return False
    subscription = subscription_of(message.topic, subscriber.config.expression)
    if subscription.expression_type == SQL92:
        return compile_sql92(subscription.expression).matches(message.properties)
    return wants(subscription, message.tags)
