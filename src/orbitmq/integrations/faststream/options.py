"""Keyword arguments that several methods share. Those of a router's declarations are those of the broker's methods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypedDict

from fast_depends import Provider
from fast_depends.dependencies import Dependant
from fast_depends.library.serializer import SerializerProto
from faststream._internal.basic_types import LoggerProto
from faststream._internal.context.repository import ContextRepo
from faststream._internal.parser import CodecProto
from faststream._internal.types import BrokerMiddleware, CustomCallable, IdGenerator
from faststream.middlewares import AckPolicy
from faststream.security import BaseSecurity
from faststream.specification.schema.extra import Tag, TagDict

from orbitmq.client import ConsumeFromWhere, PushSettings, Selector
from orbitmq.client.settings import ClientSettings, ProducerSettings


class SendOptions(TypedDict, total=False):
    """What a message has besides body and headers, as `orbitmq.client.Message` and `Producer.send` describe it."""

    tags: str | None
    """Its tag."""
    keys: str | Iterable[str] | None
    """By which it is found."""
    sharding_key: str | int | bytes | None
    """Messages with equal keys share a queue: they keep their order."""
    delay_level: int
    """1 to 18, which any broker knows."""
    deliver_at: datetime | None
    """With a time zone; needs a broker of orbitmq or RocketMQ 5, as does `deliver_after`."""
    deliver_after: timedelta | float | None
    """Seconds, or a timedelta."""
    expires_at: datetime | None
    """With a time zone; consumers of orbitmq skip a message that has expired."""
    expires_after: timedelta | float | None
    """Seconds, or a timedelta."""


class EndpointOptions(TypedDict, total=False):
    """What is common to subscribers and publishers."""

    persistent: bool
    """Whether the broker keeps it alive (True)."""
    title: str | None
    """Name in the AsyncAPI document."""
    description: str | None
    """Text in the AsyncAPI document."""
    include_in_schema: bool
    """Whether that document has it (True)."""


class SubscriberOptions(EndpointOptions, total=False):
    """Of `subscriber`."""

    group: str
    """Consumer group; by default that of the broker, `-` and the topic."""
    expression: Selector
    """Tags such as `TagA || TagB`, or a `MessageSelector.sql`; by default all messages."""
    ordered: bool
    """Handle the messages of each queue in order, and none after one that failed (False)."""
    batch: bool
    """Call the handler with lists of messages (False)."""
    max_records: int
    """Messages of a batch at most (32)."""
    max_workers: int
    """Concurrent calls of the handler (1)."""
    consume_from_where: ConsumeFromWhere
    """Where a group without offsets starts (CONSUME_FROM_LAST_OFFSET); in a topic that it creates, at the beginning."""
    settings: PushSettings
    """Further settings of its `PushConsumer`, such as `{"max_reconsume_times": 3}`."""
    ack_policy: AckPolicy
    """What becomes of a message when its handler has ended; by default that of the router or broker."""
    no_reply: bool
    """Send no replies (False)."""
    dependencies: Sequence[Dependant]
    parser: CustomCallable | None
    decoder: CustomCallable | None
    codec: CodecProto | None


class PublisherOptions(EndpointOptions, total=False):
    """Of `publisher`."""

    batch: bool
    """Send what is published, or what the handler returns, as a batch of messages (False)."""
    tags: str | None
    """Tag of messages that have none."""
    headers: dict[str, str] | None
    """Headers of every message."""
    reply_to: str
    """Topic for replies."""
    schema: Any
    """Type of the messages in the AsyncAPI document."""


class RouterOptions(TypedDict, total=False):
    """What is common to routers and brokers."""

    dependencies: Sequence[Dependant]
    middlewares: Sequence[BrokerMiddleware[Any, Any]]
    parser: CustomCallable | None
    decoder: CustomCallable | None
    codec: CodecProto | None
    ack_policy: AckPolicy
    """Of subscribers that set none. By default NACK_ON_ERROR, as consumers of RocketMQ do it."""


class BrokerOptions(RouterOptions, total=False):
    """Of `RocketMQBroker`."""

    group: str
    """Producer group, and the beginning of consumer groups that are not set (`faststream`)."""
    settings: ClientSettings
    """Settings of every client, such as `{"namespace": "prod"}`."""
    producer_settings: ProducerSettings
    """Further settings of the producer."""
    allow_auto_create_topics: bool
    """Create the topics of subscribers, with four queues at each broker, if they are missing (True)."""
    graceful_timeout: float | None
    """Seconds in which handlers may end when the broker is stopped (15); None waits for ever."""
    id_generator: IdGenerator
    """Makes correlation ids."""
    apply_types: bool
    """Whether arguments are injected and converted (True)."""
    serializer: SerializerProto | None
    provider: Provider | None
    context: ContextRepo | None
    logger: LoggerProto | None
    log_level: int
    """Level of the lines about each message (INFO)."""
    specification_url: str | None
    """Address in the AsyncAPI document; by default that of the name servers."""
    description: str | None
    tags: Iterable[Tag | TagDict]
    security: BaseSecurity | None
    """Account and encryption: a `SASLPlaintext` or `BaseSecurity`."""
