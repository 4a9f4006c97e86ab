"""What handlers return and publishers send."""

from __future__ import annotations

from typing import Any, Unpack

from faststream._internal.endpoint.publisher.fake import FakePublisher
from faststream._internal.producer import ProducerProto
from faststream.response.publish_type import PublishType
from faststream.response.response import BatchPublishCommand, PublishCommand, Response

from orbitmq.client import MessageExt
from orbitmq.integrations.faststream.options import SendOptions


class RocketMQPublishCommand(BatchPublishCommand):
    """A message to send, or several. Middlewares may change it."""

    def __init__(
        self,
        body: Any,
        /,
        *bodies: Any,
        topic: str = "",
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        timeout: float = 0.0,
        request: MessageExt | None = None,
        options: SendOptions | None = None,
        _publish_type: PublishType,
    ) -> None:
        super().__init__(
            body,
            *bodies,
            destination=topic,
            headers=headers,
            correlation_id=correlation_id,
            reply_to=reply_to,
            _publish_type=_publish_type,
        )
        self.timeout = timeout
        """Seconds until the reply must be there, of a request."""
        self.request = request
        """What this is the reply to."""
        self.options: SendOptions = options.copy() if options else {}  # a publisher adds to it, and others follow

    @classmethod
    def from_cmd(cls, cmd: PublishCommand, *, batch: bool = False) -> RocketMQPublishCommand:
        """The command of any handler's result."""
        body, others = cls._parse_bodies(cmd.body, batch=batch)
        if isinstance(cmd, RocketMQPublishCommand):
            cmd.batch_bodies = (body, *others, *cmd.extra_bodies)
            return cmd
        return cls(
            body,
            *others,
            topic=cmd.destination,
            headers=cmd.headers,
            correlation_id=cmd.correlation_id,
            reply_to=cmd.reply_to,
            _publish_type=cmd.publish_type,
        )


class RocketMQResponse(Response):
    """A handler's result with what its message is to have: `RocketMQResponse(body, tags="paid", keys="O-1")`."""

    def __init__(
        self,
        body: Any,
        *,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        **options: Unpack[SendOptions],
    ) -> None:
        super().__init__(body, headers=headers, correlation_id=correlation_id)
        self.options = options

    def as_publish_command(self) -> RocketMQPublishCommand:
        """The command that sends it."""
        return RocketMQPublishCommand(
            self.body,
            headers=self.headers,
            correlation_id=self.correlation_id,
            options=self.options,
            _publish_type=PublishType.PUBLISH,
        )


class ReplyPublisher(FakePublisher):
    """Sends a handler's result to the topic for replies, or to the client that waits for it."""

    def __init__(self, producer: ProducerProto[Any], topic: str, request: MessageExt | None) -> None:
        super().__init__(producer=producer)
        self._topic = topic
        self._request = request

    def patch_command(self, cmd: PublishCommand) -> RocketMQPublishCommand:
        """The command that sends the result there."""
        reply = RocketMQPublishCommand.from_cmd(super().patch_command(cmd))
        reply.destination, reply.request = self._topic, self._request
        return reply
