"""Subscribers: handlers of the messages of a topic."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from faststream._internal.configs import SubscriberSpecificationConfig, SubscriberUsecaseConfig
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.publisher import PublisherProto
from faststream._internal.endpoint.subscriber import SubscriberSpecification, SubscriberUsecase
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.endpoint.utils import process_msg
from faststream.message import AckStatus, StreamMessage
from faststream.middlewares import AckPolicy
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message, Operation, SubscriberSpec

from orbitmq.client import (
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    ConsumeOrderlyStatus,
    LitePullConsumer,
    MessageExt,
    OrderlyContext,
    PushConsumer,
    PushSettings,
    Selector,
    reply_to_client,
)
from orbitmq.integrations.faststream.config import Membership, RocketMQBrokerConfig
from orbitmq.integrations.faststream.message import (
    Raw,
    RocketMQMessage,
    Settlement,
    decode_batch,
    decode_one,
    first_of,
    handled,
    parse_batch,
    parse_message,
)
from orbitmq.integrations.faststream.response import ReplyPublisher

if TYPE_CHECKING:
    from collections.abc import Iterator

NEVER_AGAIN = -1
"""The delay level that makes a dead letter."""
LOOK_S = 5.0  # between two looks whether the subscriber has stopped
Calls: TypeAlias = CallsCollection[Raw]


@dataclass(kw_only=True)
class RocketMQSubscriberConfig(SubscriberUsecaseConfig):
    """Of a subscriber; its fields are described by `SubscriberOptions`."""

    _outer_config: RocketMQBrokerConfig
    topic: str
    group: str = ""
    expression: Selector = "*"
    ordered: bool = False
    batch: bool = False
    max_records: int = 32
    max_workers: int = 1
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    settings: PushSettings = field(default_factory=PushSettings)

    @property
    def ack_policy(self) -> AckPolicy:
        """Its own, that of the router or broker, or what consumers of RocketMQ do."""
        chosen = self._outer_config.ack_policy if self._ack_policy is EMPTY else self._ack_policy
        return AckPolicy.NACK_ON_ERROR if chosen is EMPTY else chosen


@dataclass(kw_only=True)
class TopicSpecificationConfig(SubscriberSpecificationConfig):
    """What the AsyncAPI document has of a subscriber."""

    topic: str


class RocketMQSubscriberSpecification(SubscriberSpecification[RocketMQBrokerConfig, TopicSpecificationConfig]):
    """A subscriber in the AsyncAPI document, which knows no bindings of RocketMQ."""

    @property
    def topic(self) -> str:
        """The topic with the prefix of the router."""
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def channel_labels(self) -> list[str]:
        """One channel: the topic."""
        return [self.topic]

    def get_schema(self) -> dict[str, SubscriberSpec]:
        """The channel."""
        message = Message(title=f"{self.name}:Message", payload=resolve_payloads(self.get_payloads()))
        operation = Operation(message=message, bindings=None)
        channel = SubscriberSpec(address=self.topic, description=self.description, operation=operation, bindings=None)
        return {self.name: channel}


# A push consumer, although a simple one acknowledges each message by itself: brokers of RocketMQ 4 have no POP. Its
# listener is called for one message, and what it returns settles that one: consumed, again after a delay, dead letter.
class RocketMQSubscriber(SubscriberUsecase[Raw]):
    """Handles the messages of a topic, by a consumer of its own."""

    _outer_config: RocketMQBrokerConfig

    def __init__(
        self,
        config: RocketMQSubscriberConfig,
        specification: SubscriberSpecification[Any, Any],
        calls: Calls,
    ) -> None:
        config.parser = parse_batch if config.batch else parse_message
        config.decoder = decode_batch if config.batch else decode_one
        super().__init__(config, specification, calls)
        self.config = config
        self._consumer: PushConsumer | LitePullConsumer | None = None
        self._handling: set[asyncio.Task[Any] | None] = set()
        """Tasks that are in a handler."""
        self._shutting_down: asyncio.Task[None] | None = None

    @property
    def topic(self) -> str:
        """The topic with the prefix of the router."""
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def group(self) -> str:
        """The consumer group."""
        return self.config.group or f"{self._outer_config.group}-{self.topic}"

    @property
    def _membership(self) -> Membership:
        return Membership(self.topic, self.config.expression, self.config.ordered)

    # ------------------------------------------------------------------------------------------------------ lifecycle

    async def start(self) -> None:
        """Consume from now on. SetupError, and the errors of the client."""
        if self._consumer is not None:
            return
        await super().start()
        # What comes to a new topic is for its first subscriber, also what comes before the group has queues.
        is_new = await self._outer_config.provide(self.topic)
        start = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET if is_new else self.config.consume_from_where
        self._outer_config.join(self.group, self._membership)
        self._consumer = consumer = self._push_consumer(start) if self.calls else self._lite_pull_consumer(start)
        try:
            consumer.subscribe(self.topic, self.config.expression)
            self._post_start()
            await consumer.start()
        except BaseException:
            await self.stop()  # the next start is to begin anew
            raise

    def _push_consumer(self, start: ConsumeFromWhere) -> PushConsumer:
        config = self.config
        batch_size = config.max_records if config.batch else 1
        settings: PushSettings = {"consume_threads": config.max_workers, "consume_batch_max_size": batch_size}
        if batch_size > 1:
            settings["pull_batch_size"] = batch_size
        consumer = self._outer_config.push_consumer(
            self.group, consume_from_where=start, **{**settings, **config.settings}
        )
        if config.ordered:
            consumer.set_listener(partial(self._listen_in_order, consumer), orderly=True)
        else:
            consumer.set_listener(self._listen)
        return consumer

    def _lite_pull_consumer(self, start: ConsumeFromWhere) -> LitePullConsumer:
        return self._outer_config.lite_pull_consumer(self.group, consume_from_where=start)

    async def stop(self) -> None:
        """Receive nothing more, wait for handlers (`graceful_timeout` of the broker), and leave the group."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            self._outer_config.leave(self.group, self._membership)
            self._shutting_down = asyncio.create_task(_shut_down(consumer))
        if asyncio.current_task() in self._handling:  # a handler stops its own subscriber: it has to end first
            self.running = False
            await asyncio.sleep(0)  # the consumer calls no other one from here on
            return
        if self._shutting_down is not None:
            await self._shutting_down  # while `running`, as the handlers that it waits for settle their messages
            self._shutting_down = None
        await super().stop()

    # ------------------------------------------------------------------------------------------------------- handling

    async def _listen(self, messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        settlement = await self._settled(messages)
        if settlement.status is AckStatus.ACKED:
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS
        rejected = settlement.status is AckStatus.REJECTED
        context.delay_level_when_next_consume = NEVER_AGAIN if rejected else settlement.delay_level
        return ConsumeConcurrentlyStatus.RECONSUME_LATER

    async def _listen_in_order(
        self, consumer: PushConsumer, messages: Sequence[MessageExt], _context: OrderlyContext
    ) -> ConsumeOrderlyStatus:
        settlement = await self._settled(messages)
        if settlement.status is AckStatus.REJECTED:
            for message in messages:
                await consumer.send_message_back(message, NEVER_AGAIN)
        elif settlement.status is not AckStatus.ACKED:
            return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        return ConsumeOrderlyStatus.SUCCESS

    async def _settled(self, messages: Sequence[MessageExt]) -> Settlement:
        """Have messages handled. What is not settled then is not consumed."""
        raw = tuple(messages) if self.config.batch else messages[0]
        with self._handled(Settlement(raw)) as settlement:
            await self.consume(raw)
        return settlement

    @contextmanager
    def _handled(self, settlement: Settlement) -> Iterator[Settlement]:
        task = asyncio.current_task()
        token = handled.set(settlement)
        self._handling.add(task)
        try:
            yield settlement
        finally:
            self._handling.discard(task)
            handled.reset(token)

    def _make_response_publisher(self, message: StreamMessage[Any]) -> Sequence[PublisherProto[Any]]:
        raw = message.raw_message
        request = raw if isinstance(raw, MessageExt) and reply_to_client(raw) else None
        return (ReplyPublisher(self._outer_config.producer, message.reply_to, request),)

    # ------------------------------------------------------------------------------------------------ without a handler

    async def get_one(self, *, timeout: float = LOOK_S) -> RocketMQMessage | None:
        """The next message; None when there is none within `timeout` seconds. It is consumed when you get the next one,
        or when the subscriber stops.
        """
        messages = await self._polling.poll(timeout, max_messages=1)
        return await self._received(messages[0]) if messages else None

    async def __aiter__(self) -> AsyncIterator[RocketMQMessage]:
        """The messages, until the subscriber stops; each is consumed when you get the next one."""
        consumer = self._polling
        while self._consumer is consumer:
            if messages := await consumer.poll(LOOK_S, max_messages=1):
                yield await self._received(messages[0])

    @property
    def _polling(self) -> LitePullConsumer:
        assert not self.calls, "a subscriber with a handler gives out no messages"
        assert isinstance(self._consumer, LitePullConsumer), "start the subscriber first"
        return self._consumer

    async def _received(self, message: MessageExt) -> RocketMQMessage:
        raw: Raw = (message,) if self.config.batch else message
        context = self._outer_config.context
        parser, decoder = self._get_parser_and_decoder()
        found = await process_msg(
            msg=raw,
            middlewares=(middleware(raw, context=context) for middleware in self._broker_middlewares),
            parser=parser,
            decoder=decoder,
        )
        return cast("RocketMQMessage", found)

    def get_log_context(self, message: StreamMessage[Raw] | None) -> dict[str, str]:
        """What lines of the log say besides their text."""
        topic = self.topic if message is None else first_of(message.raw_message).topic
        return {"topic": topic, "group": self.group, "message_id": getattr(message, "message_id", "")}


async def _shut_down(consumer: PushConsumer | LitePullConsumer) -> None:
    if isinstance(consumer, LitePullConsumer) and consumer.is_running:
        await consumer.commit(wait=True)
    await consumer.shutdown()
