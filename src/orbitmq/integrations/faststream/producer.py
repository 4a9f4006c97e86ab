"""Sends what FastStream publishes."""

from __future__ import annotations

from typing import Any

from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import BatchCodecProto, CodecProto, DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream._internal.types import CustomCallable
from faststream.exceptions import IncorrectState

from orbitmq.client import Message, MessageExt, Producer, RequestTimeout, SendResult, TooManyRequestsError
from orbitmq.client.core.selection import queue_of_key
from orbitmq.integrations.faststream.message import (
    CONTENT_TYPE,
    CORRELATION_ID,
    REPLY_TO,
    decode_one,
    encoded,
    parse_message,
)
from orbitmq.integrations.faststream.response import RocketMQPublishCommand


class RocketMQProducer(ProducerProto[RocketMQPublishCommand]):
    """The broker's producer; its messages and their codec."""

    def __init__(self, parser: CustomCallable | None, decoder: CustomCallable | None) -> None:
        self._parser = ParserComposition(parser, parse_message)
        self._decoder = ParserComposition(decoder, decode_one)
        self.codec: CodecProto = DefaultCodec()
        self._serializer: Any = None
        self._client: Producer | None = None

    def connect(self, client: Producer | None, serializer: Any, codec: CodecProto | None) -> None:
        """Send with this client from now on; it is the caller's to start and shut down."""
        self._client, self._serializer, self.codec = client, serializer, codec or DefaultCodec()

    def __bool__(self) -> bool:
        return self._client is not None

    @property
    def client(self) -> Producer:
        """The client. IncorrectState before the broker is connected."""
        if self._client is None:
            raise IncorrectState("the broker is not connected: call connect() or start() first")
        return self._client

    async def publish(self, cmd: RocketMQPublishCommand) -> SendResult:
        """Send a message. ClientError, BrokerError, RemotingError, MessageIllegal."""
        message = await self.message(cmd)
        return await self.client.send(message, sharding_key=cmd.options.get("sharding_key"))

    async def request(self, cmd: RocketMQPublishCommand) -> MessageExt:
        """Send a request and return its reply. TimeoutError, and the errors of `publish`."""
        message = await self.message(cmd)
        key = cmd.options.get("sharding_key")
        try:
            return await self.client.request(message, timeout=cmd.timeout, sharding_key=key)
        except (RequestTimeout, TooManyRequestsError) as error:
            raise TimeoutError(str(error)) from error

    async def publish_batch(self, cmd: RocketMQPublishCommand) -> SendResult:
        """Send messages together. The errors of `publish`."""
        key = cmd.options.get("sharding_key")
        queue = None if key is None else queue_of_key(await self.client.fetch_publish_queues(cmd.destination), key)
        return await self.client.send_batch(await self.batch(cmd), queue=queue)

    async def message(self, cmd: RocketMQPublishCommand) -> Message:
        """The message for a command."""
        body, content_type = await self.codec.encode(cmd.body, self._serializer)
        return _message(cmd, body, content_type)

    async def batch(self, cmd: RocketMQPublishCommand) -> list[Message]:
        """The messages for a command."""
        bodies = cmd.batch_bodies
        if isinstance(self.codec, BatchCodecProto):
            contents = await self.codec.encode_batch(bodies, self._serializer)
        else:
            contents = [await self.codec.encode(body, self._serializer) for body in bodies]
        return [_message(cmd, body, content_type) for body, content_type in contents]


def _message(cmd: RocketMQPublishCommand, body: bytes, content_type: str | None) -> Message:
    own = {CONTENT_TYPE: content_type, CORRELATION_ID: cmd.correlation_id, REPLY_TO: cmd.reply_to}
    if cmd.request is not None:
        del own[REPLY_TO]
    return encoded(cmd.destination, body, {**own, **cmd.headers}, cmd.options, request=cmd.request)
