"""What a broker asks a name server: to be registered, and to be forgotten. Knows no topic table and no schedule."""

from __future__ import annotations

from orbitmq.net.remoting import Remoting
from orbitmq.operations.asking import ask
from orbitmq.wire.bodies import BrokerRegistration
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import request
from orbitmq.wire.headers_namesrv import RegisterBrokerHeader, RegisterBrokerResponseHeader, UnregisterBrokerHeader
from orbitmq.wire.registration import encode_registration, registration_crc


def _body(header: RegisterBrokerHeader, registration: BrokerRegistration) -> bytes:
    """The body, and its check sum into the header."""
    body = encode_registration(registration, compressed=header.compressed)
    header.body_crc32 = registration_crc(body)
    return body


async def register_broker(
    remoting: Remoting,
    name_server: str,
    header: RegisterBrokerHeader,
    registration: BrokerRegistration,
    *,
    timeout_ms: float,
) -> RegisterBrokerResponseHeader:
    """Register and wait for the answer. BrokerError when the name server refuses."""
    body = _body(header, registration)
    answer = await ask(remoting, name_server, RequestCode.REGISTER_BROKER, header, body, timeout_ms=timeout_ms)
    return answer.header(RegisterBrokerResponseHeader)


async def announce_topics(
    remoting: Remoting,
    name_server: str,
    header: RegisterBrokerHeader,
    registration: BrokerRegistration,
    *,
    timeout_ms: float,
) -> None:
    """Register without waiting: topics that were just created."""
    body = _body(header, registration)
    await remoting.oneway(name_server, request(RequestCode.REGISTER_BROKER, header, body, oneway=True), timeout_ms)


async def unregister_broker(
    remoting: Remoting, name_server: str, header: UnregisterBrokerHeader, *, timeout_ms: float
) -> None:
    """Take the broker out of the routes. BrokerError when the name server refuses."""
    await ask(remoting, name_server, RequestCode.UNREGISTER_BROKER, header, timeout_ms=timeout_ms)
