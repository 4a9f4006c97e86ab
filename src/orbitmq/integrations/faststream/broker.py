"""The broker of FastStream."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from typing import Any, Unpack, cast

from fast_depends import dependency_provider
from faststream._internal.broker import BrokerUsecase
from faststream._internal.constants import EMPTY
from faststream._internal.context.repository import ContextRepo
from faststream._internal.di import FastDependsConfig
from faststream._internal.logger import make_logger_state
from faststream.message import gen_cor_id
from faststream.response.publish_type import PublishType
from faststream.specification.schema import BrokerSpec

from orbitmq.client import ClientError, Producer, RemotingError, SendResult
from orbitmq.integrations.faststream.config import LoggerStorage, RocketMQBrokerConfig, security_settings
from orbitmq.integrations.faststream.message import Raw, RocketMQMessage
from orbitmq.integrations.faststream.options import BrokerOptions, SendOptions
from orbitmq.integrations.faststream.producer import RocketMQProducer
from orbitmq.integrations.faststream.publisher import REQUEST_S
from orbitmq.integrations.faststream.registrator import RocketMQRegistrator, configured
from orbitmq.integrations.faststream.response import RocketMQPublishCommand

PING_S = 5.0


class RocketMQBroker(RocketMQRegistrator, BrokerUsecase[Raw, Producer, RocketMQBrokerConfig]):
    """Consumes from and sends to brokers of orbitmq and Apache RocketMQ.

        broker = RocketMQBroker("127.0.0.1:9876")
        app = FastStream(broker)

    `name_servers` is `host:port`, several separated by `;` or in a list; the default is the environment variable
    NAMESRV_ADDR. Further keywords are `BrokerOptions`.
    """

    def __init__(
        self,
        name_servers: str | Iterable[str] | None = None,
        *,
        routers: Iterable[RocketMQRegistrator] = (),
        **options: Unpack[BrokerOptions],
    ) -> None:
        addresses = name_servers if name_servers is None or isinstance(name_servers, str) else ";".join(name_servers)
        security = options.get("security")
        settings = {**options.get("settings", {}), **security_settings(security)}
        self._group = options.get("group", "faststream")
        self._producer_settings: dict[str, Any] = {**settings, **options.get("producer_settings", {})}
        config = RocketMQBrokerConfig(
            name_servers=addresses,
            group=self._group,
            settings=cast("Any", settings),
            allow_auto_create_topics=options.get("allow_auto_create_topics", True),
            producer=RocketMQProducer(options.get("parser"), options.get("decoder")),
            logger=make_logger_state(
                logger=options.get("logger", EMPTY),
                log_level=options.get("log_level", logging.INFO),
                default_storage_cls=LoggerStorage,
            ),
            fd_config=FastDependsConfig(
                use_fastdepends=options.get("apply_types", True),
                serializer=options.get("serializer", EMPTY),
                provider=options.get("provider") or dependency_provider,
                context=options.get("context") or ContextRepo(),
            ),
            graceful_timeout=options.get("graceful_timeout", 15.0),
            id_generator=options.get("id_generator", gen_cor_id),
            extra_context={"broker": self},
            **configured(options),
        )
        specification = BrokerSpec(
            url=[options.get("specification_url") or addresses or "NAMESRV_ADDR"],
            protocol="rocketmq",
            protocol_version=None,
            description=options.get("description"),
            tags=options.get("tags", ()),
            security=security,
        )
        super().__init__(config=config, specification=specification, routers=routers)

    async def _connect(self) -> Producer:
        client = Producer(self._group, self.config.name_servers, **self._producer_settings)
        await client.start()
        try:
            await _reach(client)
        except BaseException:
            await client.shutdown()
            raise
        serializer = self.config.fd_config._serializer  # noqa: SLF001 - as FastStream's own brokers take it
        self.config.broker_config.producer.connect(client, serializer, self.config.broker_codec)
        return client

    async def start(self) -> None:
        """Connect and start the subscribers. RemotingError when no name server responds."""
        await self.connect()
        await super().start()

    async def stop(self, exc_type: Any = None, exc_val: Any = None, exc_tb: Any = None) -> None:
        """Stop the subscribers when their handlers have ended (`graceful_timeout`), then the producer."""
        await super().stop(exc_type, exc_val, exc_tb)
        client, self._connection = self._connection, None
        if client is not None:
            self.config.broker_config.producer.connect(None, None, None)
            await client.shutdown()

    async def ping(self, timeout: float | None = None) -> bool:
        """Whether a name server responds within `timeout` seconds (5)."""
        if self._connection is None:
            return False
        try:
            async with asyncio.timeout(PING_S if timeout is None else timeout):
                await _reach(self._connection)
        except (RemotingError, TimeoutError):
            return False
        return True

    async def publish(
        self,
        message: Any = None,
        topic: str = "",
        *,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        **options: Unpack[SendOptions],
    ) -> SendResult:
        """Send a message and return when a broker has stored it.

        Headers become properties: their values are text, and names of RocketMQ's own properties are refused. Raises
        MessageIllegal, BrokerError, ClientError, RemotingError.
        """
        cmd = self._command(
            message, topic=topic, headers=headers, correlation_id=correlation_id, reply_to=reply_to, options=options
        )
        return cast("SendResult", await self._basic_publish(cmd, producer=self.config.producer))

    async def publish_batch(  # type: ignore[override]
        self,
        *messages: Any,
        topic: str = "",
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        **options: Unpack[SendOptions],
    ) -> SendResult:
        """Send messages in one request; all are stored in one queue. Raises as `publish`."""
        cmd = self._command(
            *messages, topic=topic, headers=headers, correlation_id=correlation_id, reply_to=reply_to, options=options
        )
        return cast("SendResult", await self._basic_publish_batch(cmd, producer=self.config.producer))

    async def request(  # type: ignore[override]
        self,
        message: Any = None,
        topic: str = "",
        *,
        timeout: float = REQUEST_S,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        **options: Unpack[SendOptions],
    ) -> RocketMQMessage:
        """Send a message and wait for what its handler returns. Raises TimeoutError after `timeout` seconds, and as
        `publish`.
        """
        cmd = self._command(
            message,
            topic=topic,
            headers=headers,
            correlation_id=correlation_id,
            timeout=timeout,
            options=options,
            _publish_type=PublishType.REQUEST,
        )
        return cast("RocketMQMessage", await self._basic_request(cmd, producer=self.config.producer))

    def _command(
        self,
        *messages: Any,
        correlation_id: str | None,
        _publish_type: PublishType = PublishType.PUBLISH,
        **fields: Any,
    ) -> RocketMQPublishCommand:
        correlation_id = correlation_id or self.config.id_generator()
        return RocketMQPublishCommand(*messages, correlation_id=correlation_id, _publish_type=_publish_type, **fields)


async def _reach(client: Producer) -> None:
    """RemotingError when no name server responds."""
    with contextlib.suppress(ClientError):  # there is no such topic, so its route is requested each time
        await client.fetch_queues("faststream-ping")
