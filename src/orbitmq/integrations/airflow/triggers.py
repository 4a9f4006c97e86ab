"""Waits for messages in the event loop of Airflow's triggerer, where other triggers run as well: nothing here blocks.

A watcher of an asset shares one consumer with those that read the same, and Airflow reports when it has stored their
events: only then a message is acknowledged. A task acknowledges the message of its event itself, when it goes on.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pkgutil import resolve_name
from typing import Any, Final

from airflow.triggers.base import BaseEventTrigger, TriggerEvent
from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer, reject_shared_stream_event

from orbitmq.client import simple
from orbitmq.client.settling import settle
from orbitmq.errors import BrokerError, ClientError, OrbitMQError, RemotingError
from orbitmq.integrations.airflow.hooks import RocketMQHook
from orbitmq.integrations.airflow.messages import payload_of, receipt_of, selector_of
from orbitmq.integrations.airflow.settling import SETTLE_S, Settler
from orbitmq.message.config import TAG
from orbitmq.message.model import MessageExt
from orbitmq.wire.codes import ResponseCode

_log = logging.getLogger(__name__)

PAUSE_S: Final = 1.0  # after a request for messages that failed
AT_ONCE_S: Final = 0.001  # 0 is not allowed by brokers of RocketMQ
RETRY_S: Final = 10.0  # until a message is delivered again on which a function has failed
OUTSTANDING_MAX: Final = 256  # messages that are not settled: Airflow fails a watcher for which 1024 wait


@dataclass(frozen=True)
class Source:
    """What a trigger reads. Equal ones share a consumer."""

    rocketmq_conn_id: str
    group: str
    topics: tuple[str, ...]
    expression: str
    expression_type: str
    visibility_timeout: float

    async def consumer(self) -> simple.SimpleConsumer:
        """A consumer that is not started. ConfigurationError, MessageIllegal."""
        consumer = await RocketMQHook(self.rocketmq_conn_id).async_simple_consumer(self.group)
        for topic in self.topics:
            consumer.subscribe(topic, selector_of(self.expression, self.expression_type))
        return consumer

    async def next(self, consumer: simple.SimpleConsumer) -> MessageExt:
        """The next message, whose time is prolonged until it is settled. A broker that is away is logged, and queried
        again. ClientError if it is older than RocketMQ 5.
        """
        is_failing = False
        while True:
            try:
                found = await consumer.receive(1, invisible=self.visibility_timeout, renew=True)
            except (BrokerError, ClientError, RemotingError) as error:
                if isinstance(error, ClientError) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    raise
                if not is_failing:
                    _log.warning("event=receive_failed group=%s error=%s", self.group, error)
                is_failing = True
                await asyncio.sleep(PAUSE_S)
                continue
            is_failing = False
            if found:
                return found[0]


async def _is_settled(work: Callable[[MessageExt], Awaitable[None]], message: MessageExt) -> bool:
    """Whether `work` has succeeded in time."""
    try:
        await settle(work, message, SETTLE_S)
    except OrbitMQError as error:
        _log.warning("event=not_settled message=%s error=%s; it is delivered again", message.msg_id, error)
        return False
    return True


async def _redeliver(consumer: simple.SimpleConsumer, message: MessageExt, seconds: float) -> None:
    try:
        await consumer.change_invisible(message, seconds)
    except OrbitMQError as error:
        _log.warning("event=not_given_back message=%s error=%s; it is delivered again later", message.msg_id, error)


@dataclass(eq=False)
class Delivery:
    """A message for all watchers that share a consumer."""

    message: MessageExt
    seen: int = 0
    """Watchers that are done with it. Airflow counts one that ends before that as one that has acknowledged it."""


class MessageStream(SharedStreamProducer):  # type: ignore[misc]
    """The messages for watchers, each acknowledged when Airflow has stored every event of it."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._settler: Settler | None = None
        self._room = asyncio.Semaphore(OUTSTANDING_MAX)
        self._outstanding: set[Delivery] = set()

    async def open_stream(self) -> AsyncIterator[tuple[Delivery, Delivery]]:
        """Messages for ever. ConfigurationError, ClientError, RemotingError."""
        consumer = await self._source.consumer()
        await consumer.start()
        self._settler = Settler(consumer, self._source.visibility_timeout, self._room.release)
        while True:
            await self._room.acquire()
            delivery = Delivery(await self._source.next(consumer))
            self._outstanding.add(delivery)
            yield delivery, delivery

    def get_advance_lane(self, delivery: Delivery) -> Hashable:
        """No message waits for another one."""
        return id(delivery)

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Acknowledge what every watcher has seen, and have the rest delivered again; both later."""
        assert self._settler is not None, "its consumer has received the messages"
        for delivery, outcome in batch:
            self._outstanding.discard(delivery)
            if outcome.is_clean and 0 < outcome.acked == delivery.seen:
                self._settler.ack(delivery.message)
            else:
                was_given_up = outcome.is_clean and outcome.acked
                self._settler.redeliver(delivery.message, AT_ONCE_S if was_given_up else RETRY_S)

    async def aclose(self) -> None:
        """Give back what is outstanding. Every wait has a limit; errors are logged."""
        settler, self._settler = self._settler, None
        if settler is not None:
            for one in self._outstanding:
                settler.redeliver(one.message, AT_ONCE_S)
            await settler.close()


class AwaitMessageTrigger(BaseEventTrigger):  # type: ignore[misc]
    """Waits for messages of `topics` that `group` has not consumed. It needs brokers of orbitmq, or of RocketMQ 5.

    For a task it ends with the first one, for a watcher of an asset it has an event for each. `expression` is a tag
    expression, or with the `expression_type` `SQL92` one of properties. `apply_function`, the path of a function or
    coroutine function, is called with each message (a `MessageExt`), `apply_function_args` and
    `apply_function_kwargs`; what it returns, a value that JSON can have, is the event. None means that a message is of
    no interest: it is acknowledged. Without a function the event is the message itself (`payload_of`).

    Delivery is at least once. A message is delivered again `visibility_timeout` seconds after its triggerer has died.
    """

    def __init__(
        self,
        *,
        topics: str | Sequence[str],
        group: str,
        expression: str = "*",
        expression_type: str = TAG,
        apply_function: str | None = None,
        apply_function_args: Sequence[Any] = (),
        apply_function_kwargs: Mapping[str, Any] | None = None,
        visibility_timeout: float = 60.0,
        rocketmq_conn_id: str = RocketMQHook.default_conn_name,
    ) -> None:
        super().__init__()
        self.topics = [topics] if isinstance(topics, str) else sorted(topics)
        self.group = group
        self.expression = expression
        self.expression_type = expression_type
        self.apply_function = apply_function
        self.apply_function_args = list(apply_function_args)
        self.apply_function_kwargs = dict(apply_function_kwargs or {})
        self.visibility_timeout = visibility_timeout
        self.rocketmq_conn_id = rocketmq_conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Path and arguments. The account is not among them: the connection has it."""
        return f"{__name__}.{type(self).__qualname__}", {name: getattr(self, name) for name in _ARGUMENTS}

    # ----------------------------------------------------------------------------------------------------- for a task

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """One event: its value, and a receipt with which the task acknowledges the message."""
        source = _source(self.serialize()[1])
        async with await source.consumer() as consumer:
            while True:
                message = await source.next(consumer)
                try:
                    value = await self._value(message)
                    # From the event on the task has all the time, and this consumer prolongs it no more.
                    keep = partial(consumer.change_invisible, seconds=self.visibility_timeout)
                    is_settled = await _is_settled(consumer.ack if value is None else keep, message)
                except BaseException:
                    await _redeliver(consumer, message, AT_ONCE_S)
                    raise
                if value is not None and is_settled:
                    yield TriggerEvent({"value": value, "receipt": receipt_of(message)})
                    return

    # ------------------------------------------------------------------------------------------------- for watchers

    def shared_stream_key(self) -> Hashable | None:
        """Triggers with the same key share a consumer, and each gets all of its messages. None for that of a task,
        whose message no other one may have.
        """
        return None if self.task_instance is not None else _source(self.serialize()[1])

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> MessageStream:
        """The consumer of all triggers with one key, of the arguments of any of them."""
        return MessageStream(_source(kwargs))

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Delivery]) -> AsyncIterator[TriggerEvent]:
        """An event for each message of interest. One on which the function fails is logged, and delivered again."""
        async for delivery in shared_stream:
            try:
                value = await self._value(delivery.message)
            except Exception:  # the application's code: other messages are not affected
                _log.exception("event=function_failed message=%s", delivery.message.msg_id)
                reject_shared_stream_event()
                continue
            if value is not None:
                yield TriggerEvent(value)
            delivery.seen += 1

    async def _value(self, message: MessageExt) -> Any:
        """What the event has of a message; None if that is of no interest."""
        if self.apply_function is None:
            return payload_of(message)
        function = await asyncio.to_thread(resolve_name, self.apply_function)
        call = partial(function, message, *self.apply_function_args, **self.apply_function_kwargs)
        return await (call() if inspect.iscoroutinefunction(function) else asyncio.to_thread(call))


_ARGUMENTS: Final = tuple(inspect.signature(AwaitMessageTrigger.__init__).parameters)[1:]


def _source(arguments: Mapping[str, Any]) -> Source:
    own = {name: arguments[name] for name in Source.__dataclass_fields__}
    return Source(**{**own, "topics": tuple(arguments["topics"])})
