"""What a broker asks a name server: to be registered, and to be forgotten."""

from __future__ import annotations

from orbitmq.errors import BrokerError
from orbitmq.net.remoting import Remoting
from orbitmq.wire.bodies import BrokerRegistration
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command, request
from orbitmq.wire.headers_namesrv import RegisterBrokerHeader, RegisterBrokerResponseHeader, UnregisterBrokerHeader
from orbitmq.wire.registration import encode_registration, registration_crc


def _registration(header: RegisterBrokerHeader, registration: BrokerRegistration) -> Command:
    body = encode_registration(registration, compressed=header.compressed)
    header.body_crc32 = registration_crc(body)
    return request(RequestCode.REGISTER_BROKER, header, body)


async def register_broker(
    remoting: Remoting,
    name_server: str,
    header: RegisterBrokerHeader,
    registration: BrokerRegistration,
    timeout_ms: float,
) -> RegisterBrokerResponseHeader:
    """Register and wait for the answer. BrokerError when the name server refuses."""
    answer = await remoting.call(name_server, _registration(header, registration), timeout_ms)
    if answer.code != ResponseCode.SUCCESS:
        raise BrokerError(answer.code, answer.remark, name_server)
    return answer.header(RegisterBrokerResponseHeader)


async def announce_topics(
    remoting: Remoting,
    name_server: str,
    header: RegisterBrokerHeader,
    registration: BrokerRegistration,
    timeout_ms: float,
) -> None:
    """Register without waiting: topics that were just created."""
    await remoting.oneway(name_server, _registration(header, registration), timeout_ms)


async def unregister_broker(
    remoting: Remoting, name_server: str, header: UnregisterBrokerHeader, timeout_ms: float
) -> None:
    """Take the broker out of the routes. BrokerError when the name server refuses."""
    answer = await remoting.call(name_server, request(RequestCode.UNREGISTER_BROKER, header), timeout_ms)
    if answer.code != ResponseCode.SUCCESS:
        raise BrokerError(answer.code, answer.remark, name_server)
