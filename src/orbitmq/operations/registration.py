"""Register a broker at a name server, and unregister it."""

from __future__ import annotations

from typing import NamedTuple

from orbitmq.message.config import DataVersion
from orbitmq.net.remoting import Remoting
from orbitmq.operations.call import call, call_name_server
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


class RegistrationReply(NamedTuple):
    """The broker's master, and the order settings by topic, None when the name server has none."""

    master: RegisterBrokerResponseHeader
    order_settings: dict[str, str] | None


async def register_broker(
    remoting: Remoting,
    name_server: str,
    header: RegisterBrokerHeader,
    body: bytes,
    *,
    timeout_ms: float,
) -> RegistrationReply:
    """REGISTER_BROKER; `body` is an encoded registration. BrokerError when the name server refuses."""
    header.body_crc32 = registration_crc(body)
    response = await call_name_server(
        remoting, name_server, RequestCode.REGISTER_BROKER, header, body, timeout_ms=timeout_ms
    )
    settings = decode(KVTable, response.body).table if response.body else None
    return RegistrationReply(response.header(RegisterBrokerResponseHeader), settings)


async def register_broker_oneway(
    remoting: Remoting,
    name_server: str,
    header: RegisterBrokerHeader,
    body: bytes,
    *,
    timeout_ms: float,
) -> None:
    """REGISTER_BROKER without a response, for topics that were just created."""
    header.body_crc32 = registration_crc(body)
    await remoting.oneway(name_server, request(RequestCode.REGISTER_BROKER, header, body, oneway=True), timeout_ms)


async def topics_changed(
    remoting: Remoting, name_server: str, header: QueryDataVersionHeader, version: DataVersion, *, timeout_ms: float
) -> bool:
    """QUERY_DATA_VERSION: whether the name server has another version of the broker's topics. If not, the request
    counts as a heartbeat. BrokerError when it refuses.
    """
    body = encode(version)
    response = await call(remoting, name_server, RequestCode.QUERY_DATA_VERSION, header, body, timeout_ms=timeout_ms)
    return response.header(QueryDataVersionResponseHeader).changed


async def unregister_broker(
    remoting: Remoting, name_server: str, header: UnregisterBrokerHeader, *, timeout_ms: float
) -> None:
    """UNREGISTER_BROKER: remove the broker from the routes. BrokerError when the name server refuses."""
    await call(remoting, name_server, RequestCode.UNREGISTER_BROKER, header, timeout_ms=timeout_ms)
