"""What a broker asks a name server: to be registered, and to be forgotten. Knows no topic table and no schedule."""

from __future__ import annotations

from typing import NamedTuple

from orbitmq.message.config import DataVersion
from orbitmq.net.remoting import Remoting
from orbitmq.operations.asking import ask
from orbitmq.wire.bodies import KVTable
from orbitmq.wire.command import request
from orbitmq.wire.headers_namesrv import (
    QueryDataVersionHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerHeader,
    RegisterBrokerResponseHeader,
    UnregisterBrokerHeader,
)
from orbitmq.wire.objects import decode, encode
from orbitmq.wire.registration import registration_crc
from orbitmq.wire.requests import RequestCode


class Registered(NamedTuple):
    """What a name server answers: the broker's master, and the order settings by topic, None when it has none."""

    master: RegisterBrokerResponseHeader
    order_settings: dict[str, str] | None


async def register_broker(
    remoting: Remoting,
    name_server: str,
    header: RegisterBrokerHeader,
    body: bytes,
    *,
    timeout_ms: float,
) -> Registered:
    """Register and wait for the answer; `body` is an encoded registration. BrokerError when the name server refuses."""
    header.body_crc32 = registration_crc(body)
    answer = await ask(remoting, name_server, RequestCode.REGISTER_BROKER, header, body, timeout_ms=timeout_ms)
    settings = decode(KVTable, answer.body).table if answer.body else None
    return Registered(answer.header(RegisterBrokerResponseHeader), settings)


async def announce_topics(
    remoting: Remoting,
    name_server: str,
    header: RegisterBrokerHeader,
    body: bytes,
    *,
    timeout_ms: float,
) -> None:
    """Register without waiting: topics that were just created."""
    header.body_crc32 = registration_crc(body)
    await remoting.oneway(name_server, request(RequestCode.REGISTER_BROKER, header, body, oneway=True), timeout_ms)


async def has_news(
    remoting: Remoting, name_server: str, header: QueryDataVersionHeader, version: DataVersion, *, timeout_ms: float
) -> bool:
    """Whether the name server knows other topics of the broker than those of this version; if not, it has noted that
    the broker is alive. BrokerError when it refuses.
    """
    body = encode(version)
    answer = await ask(remoting, name_server, RequestCode.QUERY_DATA_VERSION, header, body, timeout_ms=timeout_ms)
    return answer.header(QueryDataVersionResponseHeader).changed


async def unregister_broker(
    remoting: Remoting, name_server: str, header: UnregisterBrokerHeader, *, timeout_ms: float
) -> None:
    """Take the broker out of the routes. BrokerError when the name server refuses."""
    await ask(remoting, name_server, RequestCode.UNREGISTER_BROKER, header, timeout_ms=timeout_ms)
