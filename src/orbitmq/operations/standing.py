"""How brokers of one name tell each other who is the master."""

from __future__ import annotations

from orbitmq.errors import OrbitMQError
from orbitmq.net.remoting import Remoting
from orbitmq.operations.asking import SUCCESS, ask
from orbitmq.operations.settings import broker_settings
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.requests import RequestCode
from orbitmq.wire.standing import BrokerStandingHeader

SLAVE = "SLAVE"


async def exchange_standing(
    remoting: Remoting, address: str, own: BrokerStandingHeader, *, timeout_ms: float
) -> BrokerStandingHeader | None:
    """Tell the broker at `address`, and learn the same of it. None of one that does not know the request, as those of
    RocketMQ. BrokerError when it does not want to, as one of another name.
    """
    accept = (*SUCCESS, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    answer = await ask(remoting, address, RequestCode.BROKER_STANDING, own, timeout_ms=timeout_ms, accept=accept)
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return None
    return answer.header(BrokerStandingHeader)


async def broker_role(remoting: Remoting, address: str, *, timeout_ms: float) -> str:
    """Its `brokerRole`, as every broker tells it among its settings; "" where it does not."""
    return (await broker_settings(remoting, address, timeout_ms=timeout_ms)).values.get("brokerRole", "")


async def has_other_name(remoting: Remoting, address: str, name: str, *, timeout_ms: float) -> bool:
    """Whether the broker at `address` says that it is not of this name: the address has gone to another one. False
    where it does not say.
    """
    try:
        return (await broker_settings(remoting, address, timeout_ms=timeout_ms)).values.get("brokerName", name) != name
    except OrbitMQError:
        return False
