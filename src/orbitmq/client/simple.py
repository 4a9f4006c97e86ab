"""The simple consumer for asyncio: the broker delivers messages, and again if they are not acknowledged in time."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, Unpack

from orbitmq.client.consumer import Consumer
from orbitmq.client.core.arguments import checks_arguments
from orbitmq.client.core.selectors import Selector
from orbitmq.client.deliveries import ALL_QUEUES, FROM_FIRST, FROM_LAST, WAIT_MAX_MS, Deliveries, Source
from orbitmq.client.instance import Instance
from orbitmq.client.renewals import Renewals
from orbitmq.client.settings import SimpleSettings, complete
from orbitmq.errors import ConfigurationError, InvalidStateError, OrbitMQError
from orbitmq.message.model import MessageExt, MessageQueue
from orbitmq.message.pop import MAX_MESSAGES
from orbitmq.wire.bodies import ConsumeFromWhere, ConsumeType, MessageModel

_log = logging.getLogger(__name__)

DEAD_MAX: Final = 1000  # as many as are in progress at a time; those that are tried no more go first


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
        self._deliveries: Deliveries | None = None
        self._renewals = Renewals(self._change_invisible)
        self._dead: dict[int, MessageExt] = {}
        """Dead letters, by identity, whose acknowledgement has failed: `reject` may be tried again."""
        self._passed_over: set[str] = set()
        """Topics without a route, which is logged."""

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
        return {} if self._deliveries is None else self._deliveries.expired.counts

    # ------------------------------------------------------------------------------------------------------- messages

    @checks_arguments
    async def receive(
        self,
        max_messages: int = 16,
        *,
        invisible: float | None = None,
        timeout: float | None = None,
        renew: bool = False,
    ) -> list[MessageExt]:
        """Up to `max_messages`, 1 to 32, of one topic and broker; empty when there was none within `timeout` seconds
        (default `await_ms`). They are delivered to no other consumer for `invisible` seconds (default `invisible_ms`).

        With `renew` that time is extended in the background, three times within it, until you pass the message to
        `ack`, `change_invisible` or `reject`, or the consumer shuts down. It may be short then, and a task may take
        hours; one that hangs keeps its message.

        A call that is cancelled has received nothing. ConfigurationError for wrong numbers, InvalidStateError without
        a subscription, BrokerError, ClientError, RemotingError when no broker can be asked. A topic that does not exist
        is passed over, unless there is no other.
        """
        deliveries = self._running_deliveries
        invisible_ms = self._settings["invisible_ms"] if invisible is None else round(invisible * 1000)
        if not 1 <= max_messages <= MAX_MESSAGES or invisible_ms < 1:
            wrong = f"max_messages {max_messages} and invisible {invisible} are not allowed"
            raise ConfigurationError(f"{wrong}; use 1 to {MAX_MESSAGES} and more than 0 seconds")
        wait_s = self._settings["await_ms"] / 1000 if timeout is None else timeout
        found, source = await deliveries.receive(self._sources, max_messages, invisible_ms, wait_s)
        if source is not None:
            self._show_hooks(MessageQueue(source.subscription.topic, source.broker_name, ALL_QUEUES), found)
        if renew and found:
            held = self._renewals.hold(found, invisible_ms / 1000)
            self._background.spawn(self._renewals.keep(held, invisible_ms / 1000))
        return found

    @checks_arguments
    async def wait(self, timeout: float | None = None) -> None:
        """Return when there may be messages to receive, at the latest after `timeout` seconds (default `await_ms`).

        For a program that only knows how many it wants once there are some. Errors as of `receive`.
        """
        deliveries = self._running_deliveries
        wait_ms = self._settings["await_ms"] if timeout is None else round(timeout * 1000)
        await deliveries.any_messages(await self._sources(), min(WAIT_MAX_MS, wait_ms))

    async def _sources(self) -> list[Source]:
        """The topics at their brokers; each call begins with another one. One that cannot be looked up is passed over
        and logged; its error is raised if there is no other.
        """
        deliveries = self._running_deliveries
        found: list[Source] = []
        failure: OrbitMQError | None = None
        for subscription in list(self._subscriptions.values()):
            try:
                found += await deliveries.sources(subscription)
                self._passed_over.discard(subscription.topic)
            except OrbitMQError as error:
                failure = failure or error
                if subscription.topic not in self._passed_over:  # once, not at each receive
                    _log.warning("event=topic_passed_over topic=%.300s error=%s", subscription.topic, error)
                self._passed_over.add(subscription.topic)
        if not found:
            raise failure or InvalidStateError(f"{self._name()} has subscribed no topic")
        self._turn = (self._turn + 1) % len(found)
        return found[self._turn :] + found[: self._turn]

    @checks_arguments
    async def ack(self, message: MessageExt) -> None:
        """Acknowledge a message: it is delivered no more. Nothing happens if its time is over. MessageIllegal for
        one that was not received, BrokerError, ClientError, RemotingError.
        """
        deliveries = self._running_deliveries
        async with self._renewals.settling(message):
            await deliveries.ack(message)
        self._dead.pop(id(message), None)

    @checks_arguments
    async def change_invisible(self, message: MessageExt, seconds: float) -> None:
        """Have a message redelivered after so many seconds from now: more of them for a task that takes longer,
        less to give it back. Errors as of `ack`.
        """
        self._check_running()
        async with self._renewals.settling(message):
            await self._change_invisible(message, seconds)

    async def _change_invisible(self, message: MessageExt, seconds: float) -> None:
        await self._running_deliveries.change_invisible(message, round(seconds * 1000))

    def _settling(self, message: MessageExt) -> AbstractAsyncContextManager[None]:
        return self._renewals.settling(message)

    async def _make_dead_letter(self, message: MessageExt, reason: str) -> None:
        if id(message) not in self._dead:
            await super()._make_dead_letter(message, reason)
            self._dead[id(message)] = message
            if len(self._dead) > DEAD_MAX:
                del self._dead[next(iter(self._dead))]

    async def _rejected(self, message: MessageExt) -> None:
        await self.ack(message)

    @property
    def _running_deliveries(self) -> Deliveries:
        self._check_running()
        assert self._deliveries is not None, "start makes them"
        return self._deliveries

    # ------------------------------------------------------------------------------------------------------ lifecycle

    async def _begin(self, instance: Instance) -> None:
        self._deliveries = Deliveries(
            instance,
            self.group,
            begin=FROM_FIRST if self._consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET else FROM_LAST,
            timeout_ms=self._settings["api_timeout_ms"],
            reconsume_times_max=self._settings["max_reconsume_times"],
            namespace=self._namespace,
        )
        await self._begin_consuming(instance)

    async def _rebalance(self, instance: Instance) -> None:
        """No queue belongs to a member."""

    async def _end(self, instance: Instance) -> None:
        if self._deliveries is not None:
            await self._deliveries.finish()
        await self._end_services()
        await self._end_consuming(instance)


def release(consumer: SimpleConsumer, messages: list[MessageExt]) -> None:
    """Renew no more what will not be settled, such as what a call has received that cannot return it."""
    consumer._renewals.release(messages)  # noqa: SLF001 - of this module
