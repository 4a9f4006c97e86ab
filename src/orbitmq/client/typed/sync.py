"""Typed consumption with the consumers of `orbitmq.client.sync`; see `orbitmq.client.typed`, which has the topics and
the codecs.

    consumer.set_listener(typed(consumer, orders, handle))
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeVar

from orbitmq.client import base, sync
from orbitmq.client import consumer as core
from orbitmq.client.sync_wrapper import wait
from orbitmq.client.typed import listening
from orbitmq.client.typed.listening import TypedListener, TypedOrderlyListener
from orbitmq.client.typed.topic import Received, Topic
from orbitmq.client.workers import Listener, OrderlyListener
from orbitmq.message.model import MessageExt
from orbitmq.schemas.model import Compatibility, SchemaVersion

__all__ = ["register", "typed", "typed_orderly", "values"]

T = TypeVar("T")
C = TypeVar("C", bound=core.Consumer)
AnyClient = TypeVar("AnyClient", bound=base.Client)


def register(
    client: sync.Client[AnyClient], topic: Topic[T], *, compatibility: Compatibility | None = None
) -> SchemaVersion:
    """As `orbitmq.client.typed.register`: SchemaIncompatible, SchemaIllegal, ClientError, ConnectError,
    ConfigurationError.
    """
    return wait(partial(listening.register, client.core, topic, compatibility=compatibility))


def typed(consumer: sync.PushConsumer, topic: Topic[T], listener: TypedListener[T]) -> Listener:
    """As `orbitmq.client.typed.typed`. It raises what your listener raises."""
    return listening.typed(consumer.core, topic, listener)


def typed_orderly(consumer: sync.PushConsumer, topic: Topic[T], listener: TypedOrderlyListener[T]) -> OrderlyListener:
    """As `orbitmq.client.typed.typed_orderly`. It raises what your listener raises."""
    return listening.typed_orderly(consumer.core, topic, listener)


def values(consumer: sync.Consumer[C], topic: Topic[T], messages: Sequence[MessageExt]) -> list[Received[T]]:
    """As `orbitmq.client.typed.values`: BrokerError, ClientError, RemotingError, ConfigurationError."""
    return wait(partial(listening.values, consumer.core, topic, messages))
