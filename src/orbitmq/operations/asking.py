"""The one way a request is asked: build, send, check the response code. Knows no particular request."""

from __future__ import annotations

from collections.abc import Collection

from orbitmq.errors import BrokerError
from orbitmq.net.remoting import Remoting
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, request
from orbitmq.wire.header import Header
from orbitmq.wire.requests import RequestCode

LANGUAGE = "PYTHON"
SUCCESS = (ResponseCode.SUCCESS,)


async def ask(
    remoting: Remoting,
    address: str,
    code: RequestCode,
    header: Header | None = None,
    body: bytes = b"",
    *,
    timeout_ms: float,
    accept: Collection[int] = SUCCESS,
) -> Command:
    """The response of `address`; BrokerError unless its code is in `accept`, RemotingError as `Remoting.call`."""
    answer = await remoting.call(address, _command(code, header, body), timeout_ms)
    if answer.code not in accept:
        raise BrokerError(answer.code, answer.remark, address)
    return answer


async def tell(
    remoting: Remoting, address: str, code: RequestCode, header: Header | None = None, body: bytes = b""
) -> None:
    """A oneway request: nothing is known of its fate. ConnectError when there is no connection."""
    await remoting.oneway(address, _command(code, header, body, oneway=True))


def _command(code: RequestCode, header: Header | None, body: bytes, *, oneway: bool = False) -> Command:
    assert header is None or type(header) is code.header, f"{code.name} has a {code.header.__name__}"
    return request(code, header, body, oneway=oneway, language=LANGUAGE)
