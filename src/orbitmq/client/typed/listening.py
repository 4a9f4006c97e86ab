"""Typed consumption: values for listeners and for programs that poll; wrong bodies become dead letters."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, TypeVar, cast

from orbitmq.client.base import Client
from orbitmq.client.consumer import Consumer
from orbitmq.client.core.consume import first_failed
from orbitmq.client.core.model import (
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyStatus,
    OrderlyContext,
)
from orbitmq.client.push import PushConsumer
from orbitmq.client.typed.registry import RegistryTopic
from orbitmq.client.typed.topic import Received, Topic
from orbitmq.client.workers import Context, Listener, OrderlyListener, Status, is_coroutine
from orbitmq.errors import ConfigurationError, RemotingError, SchemasAway, WrongBody
from orbitmq.message.model import MessageExt
from orbitmq.operations.schemas import TopicSchemas
from orbitmq.schemas.model import Compatibility, SchemaVersion

_log = logging.getLogger(__name__)

T = TypeVar("T")

ConcurrentResult: TypeAlias = ConsumeConcurrentlyStatus | Awaitable[ConsumeConcurrentlyStatus | None] | None
"""What a function returns, and what a coroutine function."""
OrderlyResult: TypeAlias = ConsumeOrderlyStatus | Awaitable[ConsumeOrderlyStatus | None] | None
"""The same in order."""
TypedListener: TypeAlias = Callable[[Sequence[Received[T]], ConcurrentContext], ConcurrentResult]
"""A `Listener` for values."""
TypedOrderlyListener: TypeAlias = Callable[[Sequence[Received[T]], OrderlyContext], OrderlyResult]
"""An `OrderlyListener` for values."""

PATIENCE_S = 30.0  # of a listener for schemas: messages rather wait here than go round, and not as long as they may
AGAIN_S = 2.0  # between two look-ups meanwhile
LOOK_UP_TIMEOUT_S = 120.0  # of a listener's thread: the last look-up may begin when its patience ends


def typed(consumer: PushConsumer, topic: Topic[T], listener: TypedListener[T]) -> Listener:
    """The listener for `consumer.set_listener` that calls `listener` with the values of `topic`.

    A message with a wrong body is rejected: it becomes a dead letter with the reason, and the listener is not called
    with it. `context.ack_index` counts the values. A schema that is not known is looked up at the name servers, or at
    the registry. While none responds, the listener waits, and raises SchemasAway after half a minute: the messages are
    delivered again, as often as it takes. It raises what your listener raises as well. ConfigurationError for a
    `RegistryTopic` and a consumer without a registry, or the other way round.
    """
    return cast("Listener", _wrapped(consumer, topic, listener, ConsumeConcurrentlyStatus.CONSUME_SUCCESS))


def typed_orderly(consumer: PushConsumer, topic: Topic[T], listener: TypedOrderlyListener[T]) -> OrderlyListener:
    """As `typed`, for `consumer.set_listener(..., orderly=True)`. The queue continues after a wrong body. It raises
    what your listener raises, SchemasAway, ConfigurationError.
    """
    return cast("OrderlyListener", _wrapped(consumer, topic, listener, ConsumeOrderlyStatus.SUCCESS))


async def register(client: Client, topic: Topic[T], *, compatibility: Compatibility | None = None) -> SchemaVersion:
    """Make the schema of `topic` the next version, as `client.register_schema` does, with what that raises. A
    `RegistryTopic` knows the id of its schema from here on. ConfigurationError as of `typed`.
    """
    _check_source(client, topic)
    version = await client.register_schema(topic.name, topic.schema, compatibility=compatibility)
    topic.learn(TopicSchemas(compatibility or Compatibility.BACKWARD, [version]))
    return version


async def values(consumer: Consumer, topic: Topic[T], messages: Sequence[MessageExt]) -> list[Received[T]]:
    """The values of messages that `consumer` has received or polled. Those with a wrong body are rejected, with the
    reason, and left out. BrokerError, ClientError, RemotingError if a dead letter cannot be stored, or a schema not be
    looked up; ConfigurationError for a message of another topic, and as of `typed`.
    """
    _check_source(consumer, topic)
    await _look_up(consumer, topic, messages)
    good = []
    for message in messages:
        try:
            good.append(Received(topic.read(message), message))
        except WrongBody as error:
            await consumer.reject(message, str(error))
    return good


def _wrapped(
    consumer: PushConsumer, topic: Topic[T], listener: TypedListener[T] | TypedOrderlyListener[T], done: Status
) -> Callable[..., Status | None] | Callable[..., Awaitable[Status | None]]:
    _check_source(consumer, topic)

    async def coroutine(messages: Sequence[MessageExt], context: Context) -> Status | None:
        if topic.lacks(messages):
            await _patient_look_up(consumer, topic, messages)
        good = _split(topic, messages, context)
        if not good:
            return done
        call = cast("Callable[[Sequence[Received[T]], Context], Awaitable[Status | None]]", listener)
        status = await call(good, context)
        _count_messages(messages, good, status, context)
        return status

    def function(messages: Sequence[MessageExt], context: Context) -> Status | None:
        if topic.lacks(messages):
            looked_up = asyncio.run_coroutine_threadsafe(_patient_look_up(consumer, topic, messages), consumer.loop)
            try:
                looked_up.result(LOOK_UP_TIMEOUT_S)
            except TimeoutError:
                looked_up.cancel()
                raise SchemasAway(f"schemas were not looked up within {LOOK_UP_TIMEOUT_S:g} s") from None
        good = _split(topic, messages, context)
        if not good:
            return done
        call = cast("Callable[[Sequence[Received[T]], Context], Status | None]", listener)
        status = call(good, context)
        _count_messages(messages, good, status, context)
        return status

    return coroutine if is_coroutine(listener) else function


def _check_source(client: Client, topic: Topic[T]) -> None:
    if isinstance(topic, RegistryTopic) and client.registry is None:
        raise ConfigurationError(f"topic {topic.name} has its schemas at a registry; set schema_registry of the client")
    if not isinstance(topic, RegistryTopic) and client.registry is not None:
        raise ConfigurationError(
            f"the client has its schemas at a registry, and topic {topic.name} at the name servers; use RegistryTopic"
        )


async def _look_up(client: Client, topic: Topic[T], messages: Sequence[MessageExt]) -> None:
    """Have the topic know the schemas that these messages need. RemotingError, and what `client.schemas` raises."""
    if isinstance(topic, RegistryTopic):
        assert client.registry is not None, "has been checked"
        topic.learn_ids(await client.registry.by_ids(topic.lacking(messages)))
    elif topic.lacks(messages):
        topic.learn(await client.schemas(topic.name))


async def _patient_look_up(client: Client, topic: Topic[T], messages: Sequence[MessageExt]) -> None:
    """The same, again and again while nothing responds; then SchemasAway, after which no failure is counted."""
    clock = asyncio.get_running_loop().time
    ends_s = clock() + PATIENCE_S
    while True:
        try:
            return await _look_up(client, topic, messages)
        except RemotingError as error:
            if clock() >= ends_s:
                raise SchemasAway(str(error)) from error
            _log.warning("event=schemas_away group=%s topic=%s error=%s", client.group, topic.name, error)
        await asyncio.sleep(AGAIN_S)


def _split(topic: Topic[T], messages: Sequence[MessageExt], context: Context) -> list[Received[T]]:
    """The values; the other messages are rejected."""
    good = []
    for message in messages:
        try:
            good.append(Received(topic.read(message), message))
        except WrongBody as error:
            context.reject(message, str(error))
    return good


def _count_messages(
    messages: Sequence[MessageExt], good: Sequence[Received[T]], status: Status | None, context: Context
) -> None:
    """`ack_index` counts values for the listener, and messages for its consumer."""
    if len(good) == len(messages) or not isinstance(context, ConcurrentContext):
        return
    status = status if isinstance(status, ConsumeConcurrentlyStatus) else None
    failed = first_failed(status, context, len(good))
    places = [number for number, one in enumerate(messages) if failed < len(good) and one is good[failed].message]
    context.ack_index = (places[0] if places else len(messages)) - 1
