"""Publishers: what handlers return goes to a topic."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Unpack, cast

from faststream._internal.configs import PublisherSpecificationConfig, PublisherUsecaseConfig
from faststream._internal.endpoint.publisher import PublisherSpecification, PublisherUsecase
from faststream._internal.types import PublisherMiddleware
from faststream.response.publish_type import PublishType
from faststream.response.response import PublishCommand
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message, Operation, PublisherSpec

from orbitmq.client import SendResult
from orbitmq.integrations.faststream.config import RocketMQBrokerConfig
from orbitmq.integrations.faststream.message import RocketMQMessage
from orbitmq.integrations.faststream.options import SendOptions
from orbitmq.integrations.faststream.response import RocketMQPublishCommand

REQUEST_S = 3.0  # as long as a send may take


@dataclass(kw_only=True)
class RocketMQPublisherConfig(PublisherUsecaseConfig):
    """Of a publisher; its fields are described by `PublisherOptions`."""

    _outer_config: RocketMQBrokerConfig
    topic: str
    batch: bool = False
    tags: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    reply_to: str = ""


@dataclass(kw_only=True)
class TopicSpecificationConfig(PublisherSpecificationConfig):
    """What the AsyncAPI document has of a publisher."""

    topic: str


class RocketMQPublisherSpecification(PublisherSpecification[RocketMQBrokerConfig, TopicSpecificationConfig]):
    """A publisher in the AsyncAPI document, which knows no bindings of RocketMQ."""

    @property
    def topic(self) -> str:
        """The topic with the prefix of the router."""
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def name(self) -> str:
        """The name of the channel."""
        return self.config.title_ or f"{self.topic}:Publisher"

    def get_schema(self) -> dict[str, PublisherSpec]:
        """The channel."""
        payload = resolve_payloads(self.get_payloads(), "Publisher")
        operation = Operation(message=Message(title=f"{self.name}:Message", payload=payload), bindings=None)
        channel = PublisherSpec(
            address=self.topic, description=self.config.description_, operation=operation, bindings=None
        )
        return {self.name: channel}


class RocketMQPublisher(PublisherUsecase):
    """Sends to a topic. As a decorator, it sends what a handler returns."""

    _outer_config: RocketMQBrokerConfig

    def __init__(self, config: RocketMQPublisherConfig, specification: PublisherSpecification[Any, Any]) -> None:
        super().__init__(config, specification)
        self.config = config

    @property
    def topic(self) -> str:
        """The topic with the prefix of the router."""
        return f"{self._outer_config.prefix}{self.config.topic}"

    async def publish(
        self,
        *messages: Any,
        topic: str = "",
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        **options: Unpack[SendOptions],
    ) -> SendResult:
        """Send a message, several if this is a `batch` publisher; as `RocketMQBroker.publish`."""
        cmd = RocketMQPublishCommand(
            *(messages or (None,)),
            topic=topic or self.topic,
            headers=headers,
            correlation_id=correlation_id or self._outer_config.id_generator(),
            reply_to=reply_to,
            options=options,
            _publish_type=PublishType.PUBLISH,
        )
        return await self._send(cmd, ())

    async def _publish(self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]) -> None:
        """Send what a handler has returned; an empty batch is nothing to send."""
        own = RocketMQPublishCommand.from_cmd(cmd, batch=self.config.batch)
        if self.config.batch and not own.batch_bodies:
            return
        own.destination = self.topic
        await self._send(own, _extra_middlewares)

    async def request(
        self,
        message: Any,
        topic: str = "",
        *,
        timeout: float = REQUEST_S,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        **options: Unpack[SendOptions],
    ) -> RocketMQMessage:
        """Send a message and wait for the reply; as `RocketMQBroker.request`."""
        cmd = RocketMQPublishCommand(
            message,
            topic=topic or self.topic,
            headers=headers,
            correlation_id=correlation_id or self._outer_config.id_generator(),
            timeout=timeout,
            options=options,
            _publish_type=PublishType.REQUEST,
        )
        found = await self._basic_request(self._completed(cmd), producer=self._outer_config.producer)
        return cast("RocketMQMessage", found)

    def _completed(self, cmd: RocketMQPublishCommand) -> RocketMQPublishCommand:
        cmd.add_headers(self.config.headers, override=False)
        cmd.reply_to = cmd.reply_to or self.config.reply_to
        cmd.options["tags"] = cmd.options.get("tags") or self.config.tags
        return cmd

    async def _send(self, cmd: RocketMQPublishCommand, middlewares: Iterable[PublisherMiddleware]) -> SendResult:
        send = self._basic_publish_batch if self.config.batch else self._basic_publish
        producer = self._outer_config.producer
        sent = await send(self._completed(cmd), producer=producer, _extra_middlewares=middlewares)
        return cast("SendResult", sent)
