"""A client of RocketMQ 5 as far as tests need one: calls of the service over gRPC, with a Telemetry stream."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from orbitmq.wire.v2 import messages as v2
from orbitmq.wire.v2.enums import ClientType, FilterType
from orbitmq.wire.v2.methods import METHODS, Kind

_ids = itertools.count()
_METHODS = {method.name: method for method in METHODS.values()}


class Five:
    """One client. `stream` is its Telemetry stream once `settle` was called."""

    def __init__(self, channel: grpc.aio.Channel, client_id: str | None = None, **metadata: str) -> None:
        self.client_id = client_id or f"client-{next(_ids)}"
        self.metadata = [
            ("x-mq-client-id", self.client_id), ("x-mq-language", "PYTHON"), ("x-mq-client-version", "5.1.2"),
            *((name.replace("_", "-"), value) for name, value in metadata.items()),
        ]  # fmt: skip
        self._channel = channel
        self.stream: Any = None

    async def call(self, method: str, request: Any, **options: Any) -> Any:
        """The response, or all of them."""
        found = _METHODS[method]
        make = self._channel.unary_unary if found.kind is Kind.UNARY else self._channel.unary_stream
        stub = make(
            found.path,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=v2.message_class(found.response).FromString,
        )
        answer = stub(request, metadata=self.metadata, **options)
        return await answer if found.kind is Kind.UNARY else [one async for one in answer]

    def open(self) -> Any:
        """A Telemetry stream, with `write` and `read`."""
        stub = self._channel.stream_stream(
            _METHODS["Telemetry"].path,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=v2.TelemetryCommand.FromString,
        )
        return stub(metadata=self.metadata)

    async def settle(self, settings: Any) -> Any:
        """Send settings; those that the server sends back."""
        if self.stream is None:
            self.stream = self.open()
        await self.stream.write(v2.TelemetryCommand(settings=settings))
        answer = await self.stream.read()
        assert answer is not grpc.aio.EOF, "the server has ended the stream"
        return answer.settings

    async def produce(self, *topics: str) -> Any:
        settings = v2.Settings(client_type=ClientType.PRODUCER)
        for topic in topics:
            settings.publishing.topics.add(name=topic)
        return await self.settle(settings)

    async def consume(
        self, group: str, topic: str, expression: str = "*", kind: int = ClientType.SIMPLE_CONSUMER
    ) -> Any:
        settings = v2.Settings(client_type=kind)
        settings.subscription.group.name = group
        entry = settings.subscription.subscriptions.add()
        entry.topic.name = topic
        entry.expression.type, entry.expression.expression = FilterType.TAG, "*"
        return await self.settle(settings)

    async def send(self, topic: str, *bodies: bytes, **system: Any) -> Any:
        request = v2.SendMessageRequest(messages=[message(topic, body, **system) for body in bodies])
        return await self.call("SendMessage", request)

    async def receive(
        self, group: str, topic: str, most: int = 32, *, timeout: float | None = None, **fields: Any
    ) -> list[Any]:
        """The messages; AssertionError for a status that is neither OK nor that there are none. `fields` as of
        `to_receive`.
        """
        request = self.to_receive(group, topic, most, **fields)
        answers = await self.call("ReceiveMessage", request, timeout=timeout)
        assert answers[0].status.code in (20000, 40401), answers[0].status
        return [one.message for one in answers if one.WhichOneof("content") == "message"]

    @staticmethod
    def to_receive(
        group: str,
        topic: str,
        most: int = 32,
        *,
        invisible_s: float = 30,
        poll_s: float = 5,
        renew: bool = False,
        queue: int = -1,
        broker: str = "",
    ) -> Any:
        """The request of a receive."""
        request = v2.ReceiveMessageRequest(batch_size=most, auto_renew=renew)
        request.group.name, request.message_queue.topic.name, request.message_queue.id = group, topic, queue
        request.message_queue.broker.name = broker
        request.filter_expression.type, request.filter_expression.expression = FilterType.TAG, "*"
        v2.set_time(request.invisible_duration, round(invisible_s * 1000))
        v2.set_time(request.long_polling_timeout, round(poll_s * 1000))
        return request

    async def ack(self, group: str, topic: str, *messages: Any) -> Any:
        request = v2.AckMessageRequest()
        request.group.name, request.topic.name = group, topic
        for one in messages:
            system = one.system_properties
            request.entries.add(message_id=system.message_id, receipt_handle=system.receipt_handle)
        return await self.call("AckMessage", request)

    async def change(self, group: str, topic: str, handle: str, seconds: float) -> Any:
        request = v2.ChangeInvisibleDurationRequest(receipt_handle=handle)
        request.group.name, request.topic.name = group, topic
        v2.set_time(request.invisible_duration, round(seconds * 1000))
        return await self.call("ChangeInvisibleDuration", request)


def message(topic: str, body: bytes, **system: Any) -> Any:
    """A message with an id of its own. A tag, keys and so on are fields of the system properties."""
    made = v2.Message(body=body)
    made.topic.name = topic
    made.system_properties.message_id = f"ID{next(_ids):030d}"
    delivery_ms = system.pop("delivery_ms", None)
    for name, value in system.items():
        if isinstance(value, list):
            getattr(made.system_properties, name).extend(value)
        else:
            setattr(made.system_properties, name, value)
    if delivery_ms is not None:
        v2.set_time(made.system_properties.delivery_timestamp, delivery_ms)
    return made


@asynccontextmanager
async def channel(port: int, host: str = "127.0.0.1") -> AsyncIterator[grpc.aio.Channel]:
    """With a connection of its own, which is tried again soon."""
    soon = ("grpc.initial_reconnect_backoff_ms", "grpc.min_reconnect_backoff_ms", "grpc.max_reconnect_backoff_ms")
    options = [("grpc.use_local_subchannel_pool", 1), *((name, 1000) for name in soon)]
    async with grpc.aio.insecure_channel(f"{host}:{port}", options=options) as made:
        yield made
    await asyncio.sleep(0)
