"""The simple consumer for asyncio: the broker delivers messages, and again if they are not acknowledged in time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Unpack

from orbitmq.client.consumer import Consumer
from orbitmq.client.core.arguments import checks_arguments
from orbitmq.client.core.selectors import Selector
from orbitmq.client.expired import ExpiredMessages
from orbitmq.client.instance import Instance
from orbitmq.client.retry_sender import RetrySender
from orbitmq.client.settings import SimpleSettings, complete
from orbitmq.errors import BrokerError, ClientError, ConfigurationError, InvalidStateError, MessageIllegal, OrbitMQError
from orbitmq.message.config import SubscriptionData
from orbitmq.message.expiry import split_expired
from orbitmq.message.model import MessageExt, MessageQueue
from orbitmq.message.pop import MAX_MESSAGES, POP_CK, RETRY, Receipt, pop_retry_topic
from orbitmq.operations import pops
from orbitmq.wire.bodies import ConsumeFromWhere, ConsumeType, MessageModel
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers_pop import AckMessageHeader, ChangeInvisibleTimeHeader, NotificationHeader, PopMessageHeader

_log = logging.getLogger(__name__)

ALL_QUEUES: Final = -1
NETWORK_MS: Final = 5000  # beyond what a broker may wait
WAIT_MAX_MS: Final = 4000  # of one request: RocketMQ does not wake one that waits when a message is redelivered
_FROM: Final = {ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET: 0}


class Source(NamedTuple):
    """All queues of a topic at one broker."""

    subscription: SubscriptionData
    broker_name: str


class SimpleConsumer(Consumer):
    """Receives messages, each of which is invisible to other members for some time.

        async with SimpleConsumer("group", "127.0.0.1:9876") as consumer:
            consumer.subscribe("topic")
            while True:
                for message in await consumer.receive(16, invisible=30.0):
                    ...
                    await consumer.ack(message)

    No queue belongs to a member: any member gets any message, so there may be more members than queues, and one that is
    slow or hangs holds up nothing but what it has received. A message that is not acknowledged in time is redelivered;
    after `max_reconsume_times` redeliveries it goes to the dead letter topic. Messages come in no order.

    It needs brokers of orbitmq, or of RocketMQ 5. Further keywords are `SimpleSettings`.
    """

    _consume_type = ConsumeType.CONSUME_POP
    _settings_kind = SimpleSettings
    _stream = True

    @checks_arguments
    def __init__(
        self,
        group: str,
        namesrv_addr: str | Iterable[str] | None = None,
        *,
        consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        **settings: Unpack[SimpleSettings],
    ) -> None:
        self._settings = complete(SimpleSettings, settings)
        super().__init__(
            group,
            namesrv_addr,
            self._settings,
            message_model=MessageModel.CLUSTERING,
            consume_from_where=consume_from_where,
            allocate_strategy=None,
            offset_store=None,
        )
        self._turn = 0
        self._expired = ExpiredMessages(self.group, self._clock)
        self._sends_back: RetrySender | None = None

    @checks_arguments
    def subscribe(self, topic: str, expression: Selector = "*") -> None:
        """Receive messages of `topic` that match `expression`, as for a push consumer. Before or after start."""
        self._subscribe(topic, expression)

    @checks_arguments
    def unsubscribe(self, topic: str) -> None:
        """Receive no more messages of `topic`."""
        self._unsubscribe(topic)

    @property
    def expired(self) -> Mapping[str, int]:
        """Topic -> messages that had expired and so were not delivered by this consumer."""
        return self._expired.counts

    # ------------------------------------------------------------------------------------------------------- messages

    @checks_arguments
    async def receive(
        self, max_messages: int = 16, *, invisible: float | None = None, timeout: float | None = None
    ) -> list[MessageExt]:
        """Up to `max_messages`, 1 to 32, of one topic and broker; empty when there was none within `timeout` seconds
        (default `await_ms`). They are delivered to nobody else for `invisible` seconds (default `invisible_ms`).

        A call that is cancelled while it waits has received nothing. ConfigurationError for wrong numbers,
        InvalidStateError without a subscription, BrokerError, ClientError, RemotingError when no broker can be asked.
        """
        instance = self._check_running()
        invisible_ms = self._settings["invisible_ms"] if invisible is None else round(invisible * 1000)
        if not 1 <= max_messages <= MAX_MESSAGES or invisible_ms < 1:
            wrong = f"max_messages {max_messages} and invisible {invisible} are not allowed"
            raise ConfigurationError(f"{wrong}; use 1 to {MAX_MESSAGES} and more than 0 seconds")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (self._settings["await_ms"] / 1000 if timeout is None else timeout)
        while True:
            sources = await self._sources(instance)
            for source in sources:
                if found := await self._pop(instance, source, max_messages, invisible_ms):
                    return found
            left_ms = min(WAIT_MAX_MS, round((deadline - loop.time()) * 1000))
            if left_ms <= 0:
                return []
            await self._any_messages(instance, sources, left_ms)

    async def _sources(self, instance: Instance) -> list[Source]:
        """The topics at their brokers; each call begins with another one."""
        found = []
        for topic, subscription in self._subscriptions.items():
            queues = instance.routes.subscribed(topic) or await instance.routes.find_subscribed(topic)
            found += [Source(subscription, name) for name in sorted({queue.broker_name for queue in queues})]
        if not found:
            raise InvalidStateError(f"{self._name()} has subscribed no topic")
        self._turn = (self._turn + 1) % len(found)
        return found[self._turn :] + found[: self._turn]

    async def _pop(self, instance: Instance, source: Source, most: int, invisible_ms: int) -> list[MessageExt]:
        subscription, broker_name = source
        header = PopMessageHeader(
            consumer_group=self.group,
            topic=subscription.topic,
            queue_id=ALL_QUEUES,
            max_msg_nums=most,
            invisible_time=invisible_ms,
            poll_time=0,
            born_time=self._clock.now_ms(),
            init_mode=_FROM.get(self._consume_from_where, 1),
            expression_type=subscription.expression_type,
            expression=subscription.expression,
            order=False,
            broker_name=broker_name,
        )
        address = await instance.routes.master(MessageQueue(subscription.topic, broker_name, 0))
        try:
            messages = await pops.pop(instance.remoting, address, header, broker_name)
        except BrokerError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise ClientError(
                    error.code, f"broker {broker_name} does not deliver by POP: it is older than RocketMQ 5"
                ) from error
            raise
        for message in messages:
            message.topic = self._namespace.unwrap(message.topic)
        fresh, expired = split_expired(messages, self._clock.now_ms())
        if expired:
            self._expired.skipped(expired)
            for message in expired:
                await self.ack(message)
        kept = []
        for message in fresh:
            if message.reconsume_times > self._settings["max_reconsume_times"]:
                await self._bury(message)
            else:
                kept.append(message)
        if kept:
            self._show_hooks(MessageQueue(subscription.topic, broker_name, ALL_QUEUES), kept)
        return kept

    async def _bury(self, message: MessageExt) -> None:
        """Make a dead letter of a message that nobody could consume; it is redelivered if that fails."""
        assert self._sends_back is not None, "start makes it"
        try:
            await self._sends_back.send_back(message, -1)
            await self.ack(message)
        except OrbitMQError as error:
            _log.warning("event=dead_letter_failed group=%s message=%s error=%s", self.group, message.msg_id, error)

    async def _any_messages(self, instance: Instance, sources: list[Source], wait_ms: int) -> None:
        """Return when a broker has messages, or the time is up. The last error if no broker can be asked."""
        asked = [asyncio.ensure_future(self._wait_at(instance, source, wait_ms)) for source in sources]
        left = set(asked)
        failure: BaseException | None = None
        try:
            while left:
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    failure = one.exception() or failure
                if any(one.exception() is None and one.result() for one in done):
                    return
            if failure is not None and all(one.exception() is not None for one in asked):
                raise failure
        finally:
            for one in asked:
                one.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    async def _wait_at(self, instance: Instance, source: Source, wait_ms: int) -> bool:
        topic = source.subscription.topic
        header = NotificationHeader(
            self.group, topic, ALL_QUEUES, wait_ms, self._clock.now_ms(), broker_name=source.broker_name
        )
        address = await instance.routes.master(MessageQueue(topic, source.broker_name, 0))
        return await pops.wait_for_messages(instance.remoting, address, header, timeout_ms=wait_ms + NETWORK_MS)

    @checks_arguments
    async def ack(self, message: MessageExt) -> None:
        """Acknowledge a message: it is delivered no more. Nothing happens if its time is over. MessageIllegal for
        one that was not received, BrokerError, ClientError, RemotingError.
        """
        instance = self._check_running()
        topic, receipt, address = await self._place(instance, message)
        header = AckMessageHeader(
            self.group, topic, receipt.queue_id, receipt.encode(), receipt.offset, broker_name=receipt.broker_name
        )
        await pops.acknowledge(instance.remoting, address, header, timeout_ms=self._settings["api_timeout_ms"])

    @checks_arguments
    async def change_invisible(self, message: MessageExt, seconds: float) -> None:
        """Have a message redelivered after so many seconds from now: more of them for a task that takes longer,
        less to give it back. Errors as of `ack`.
        """
        instance = self._check_running()
        topic, receipt, address = await self._place(instance, message)
        header = ChangeInvisibleTimeHeader(
            self.group, topic, receipt.queue_id, receipt.encode(), receipt.offset, round(seconds * 1000),
            broker_name=receipt.broker_name,
        )  # fmt: skip
        timeout_ms = self._settings["api_timeout_ms"]
        answer = await pops.change_invisible_time(instance.remoting, address, header, timeout_ms=timeout_ms)
        renewed = receipt._replace(
            start=receipt.offset,
            pop_ms=answer.pop_time,
            invisible_ms=answer.invisible_time,
            revive_queue=answer.revive_qid,
        )
        message.properties[POP_CK] = renewed.encode()

    async def _place(self, instance: Instance, message: MessageExt) -> tuple[str, Receipt, str]:
        """Topic, receipt and broker of a message that was received."""
        try:
            receipt = Receipt.decode(message.properties.get(POP_CK, ""))
        except MessageIllegal as error:
            raise MessageIllegal(f"message {message.msg_id} was not received by a SimpleConsumer: {error}") from error
        topic = self._namespace.wrap(message.topic)
        address = await instance.routes.master(MessageQueue(topic, receipt.broker_name, 0))
        return pop_retry_topic(topic, self.group) if receipt.kind == RETRY else topic, receipt, address

    # ------------------------------------------------------------------------------------------------------ lifecycle

    async def _begin(self, instance: Instance) -> None:
        times_max = self._settings["max_reconsume_times"]
        self._sends_back = RetrySender(instance, self.group, times_max, namespace=self._namespace)
        await self._begin_consuming(instance)

    async def _rebalance(self, instance: Instance) -> None:
        """No queue belongs to a member."""

    async def _end(self, instance: Instance) -> None:
        await self._end_services()
        await self._end_consuming(instance)
