"""Builds a request, sends it and checks the response code. Every operation uses it."""

from __future__ import annotations

from collections.abc import Collection

from orbitmq.errors import BrokerError, NotNameServer
from orbitmq.net.connection import Waiter
from orbitmq.net.remoting import Remoting, RequestInFlight
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, request
from orbitmq.wire.header import Header
from orbitmq.wire.requests import RequestCode

LANGUAGE = "PYTHON"
SUCCESS = (ResponseCode.SUCCESS,)


async def call(
    remoting: Remoting,
    address: str,
    code: RequestCode,
    header: Header | None = None,
    body: bytes = b"",
    *,
    timeout_ms: float,
    accept: Collection[int] = SUCCESS,
) -> Command:
    """Send a request, return the response. BrokerError unless its code is in `accept`; RemotingError."""
    return checked(await remoting.call(address, _command(code, header, body), timeout_ms), address, accept)


async def call_name_server(
    remoting: Remoting,
    address: str,
    code: RequestCode,
    header: Header | None = None,
    body: bytes = b"",
    *,
    timeout_ms: float,
    accept: Collection[int] = SUCCESS,
) -> Command:
    """`call` for a request that every name server knows. NotNameServer if the peer does not."""
    try:
        return await call(remoting, address, code, header, body, timeout_ms=timeout_ms, accept=accept)
    except BrokerError as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        text = f"{address} is no name server, it may be a broker: it does not support {code.name}"
        raise NotNameServer(text) from error


def start_call(
    remoting: Remoting, address: str, code: RequestCode, header: Header, body: bytes = b"", *, timeout_ms: float,
    waiter: Waiter,
) -> RequestInFlight | None:  # fmt: skip
    """`call` if that needs no wait, None otherwise. `waiter` gets the response, for `checked`."""
    return remoting.start_call(address, _command(code, header, body), timeout_ms, waiter)


def checked(response: Command, address: str, accept: Collection[int] = SUCCESS) -> Command:
    """The response; BrokerError unless its code is in `accept`."""
    if response.code not in accept:
        raise BrokerError(response.code, response.remark, address)
    return response


async def oneway(
    remoting: Remoting, address: str, code: RequestCode, header: Header | None = None, body: bytes = b""
) -> None:
    """Send a request without a response. ConnectError when there is no connection."""
    await remoting.oneway(address, _command(code, header, body, oneway=True))


def _command(code: RequestCode, header: Header | None, body: bytes, *, oneway: bool = False) -> Command:
    assert header is None or type(header) is code.header, f"{code.name} has a {code.header.__name__}"
    return request(code, header, body, oneway=oneway, language=LANGUAGE)
