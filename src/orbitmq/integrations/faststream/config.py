"""What a broker and its subscribers share: clients, accounts, groups."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from faststream._internal.basic_types import LoggerProto
from faststream._internal.configs import BrokerConfig
from faststream._internal.context import ContextRepo
from faststream._internal.logger import DefaultLoggerStorage
from faststream._internal.logger.logging import get_broker_logger
from faststream.exceptions import SetupError
from faststream.security import BaseSecurity, SASLPlaintext

from orbitmq.client import ClientError, LitePullConsumer, Producer, PushConsumer
from orbitmq.client.settings import DAY_MS, ClientSettings
from orbitmq.integrations.faststream.producer import RocketMQProducer

QUEUES: Final = 4  # of a topic that is created, as RocketMQ's brokers create them
# Brokers of RocketMQ 5 register a new topic after they have responded. After 5 s its consumers look for it themselves.
ROUTE_LOOKS: Final = 250
ROUTE_LOOK_S: Final = 0.02


@dataclass(frozen=True)
class Membership:
    """What all members of a group must have in common: a broker knows one subscription of a group."""

    topic: str
    expression: object
    ordered: bool


@dataclass(kw_only=True)
class RocketMQBrokerConfig(BrokerConfig):
    """Of a broker, or of a router, which has no clients."""

    producer: RocketMQProducer = field(default_factory=lambda: RocketMQProducer(None, None))
    name_servers: str | None = None
    group: str = "faststream"
    settings: ClientSettings = field(default_factory=ClientSettings)
    allow_auto_create_topics: bool = True
    memberships: Counter[tuple[str, Membership]] = field(default_factory=Counter)
    """Running subscribers of each group."""

    def push_consumer(self, group: str, **settings: Any) -> PushConsumer:
        """A consumer of the broker; what is not set here, `settings` of the broker may."""
        grace_ms = DAY_MS if self.graceful_timeout is None else round(self.graceful_timeout * 1000)
        usual = {"await_termination_ms": grace_ms, **self.settings}
        return PushConsumer(group, self.name_servers, **{**usual, **settings})

    def lite_pull_consumer(self, group: str, **settings: Any) -> LitePullConsumer:
        """The same for a subscriber without a handler."""
        return LitePullConsumer(group, self.name_servers, **{**self.settings, **settings})

    async def provide(self, topic: str) -> bool:
        """Create a topic if it is missing and may be created; whether it was. Raises ClientError, BrokerError,
        RemotingError.
        """
        client: Producer = self.producer.client
        if not self.allow_auto_create_topics or await _is_known(client, topic):
            return False
        await client.create_topic(topic, queues=QUEUES)
        for _ in range(ROUTE_LOOKS):
            if await _is_known(client, topic):
                break
            await asyncio.sleep(ROUTE_LOOK_S)
        return True

    def join(self, group: str, membership: Membership) -> None:
        """Note a running subscriber. SetupError if its group has another subscription."""
        for (name, other), count in self.memberships.items():
            if name == group and count and other != membership:
                raise SetupError(
                    f"subscribers of group {group} differ: {membership} and {other}. A broker knows one subscription "
                    "of a group, and would keep messages from some of them; set another group for each"
                )
        self.memberships[group, membership] += 1

    def leave(self, group: str, membership: Membership) -> None:
        """Note that a subscriber has stopped."""
        self.memberships[group, membership] -= 1


async def _is_known(client: Producer, topic: str) -> bool:
    """Whether the name server knows a topic. RemotingError."""
    try:
        await client.fetch_queues(topic)
    except ClientError:
        return False
    return True


def security_settings(security: BaseSecurity | None) -> ClientSettings:
    """The settings for an account. SetupError for what clients of RocketMQ do not know."""
    if security is None:
        return {}
    if security.ssl_context is not None:
        raise SetupError("an ssl_context cannot be used: set use_ssl, and tls_ca_file in settings")
    settings: ClientSettings = {"tls": True} if security.use_ssl else {}
    if isinstance(security, SASLPlaintext):
        settings |= {"access_key": security.username, "secret_key": security.password}
    elif type(security) is not BaseSecurity:
        raise SetupError(f"{type(security).__name__} is not known to RocketMQ: use SASLPlaintext or BaseSecurity")
    return settings


class LoggerStorage(DefaultLoggerStorage):
    """Makes the log of a broker, whose lines have topic and group."""

    def __init__(self) -> None:
        super().__init__()
        self._widths = {"topic": 5, "group": 5}
        self.logger_log_level = logging.INFO

    def register_subscriber(self, params: dict[str, Any]) -> None:
        """Make room for the names of a subscriber."""
        for name, width in self._widths.items():
            self._widths[name] = max(width, len(params.get(name, "")))

    def get_logger(self, *, context: ContextRepo) -> LoggerProto:
        """The log; it is made once."""
        logger = self._get_logger_ref()
        if logger is None:
            names = "".join(f"%({name})-{width}s | " for name, width in self._widths.items())
            logger = get_broker_logger(
                name="rocketmq",
                default_context=dict.fromkeys(self._widths, ""),
                message_id_ln=10,
                fmt=f"%(asctime)s %(levelname)-8s - {names}%(message_id)-10s - %(message)s",
                context=context,
                log_level=self.logger_log_level,
            )
            self._logger_ref.add(logger)
        return logger
