"""Which broker of a name is the master: exchange it between brokers, and promote a slave."""

from __future__ import annotations

from orbitmq.errors import OrbitMQError
from orbitmq.net.remoting import Remoting
from orbitmq.operations.call import SUCCESS, call
from orbitmq.operations.settings import broker_settings
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.mastership import (
    BrokerMastershipHeader,
    PromoteSlaveHeader,
    PromotionReport,
    SetMaintenanceHeader,
    SwitchMasterHeader,
)
from orbitmq.wire.objects import decode
from orbitmq.wire.requests import RequestCode

SLAVE = "SLAVE"


async def exchange_mastership(
    remoting: Remoting, address: str, own: BrokerMastershipHeader, *, timeout_ms: float
) -> BrokerMastershipHeader | None:
    """EXCHANGE_MASTERSHIP: send `own` to the broker at `address` and return that of the other. None when it does not
    know the request, like those of RocketMQ. BrokerError when it refuses, for example because it has another name.
    """
    accept = (*SUCCESS, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    response = await call(remoting, address, RequestCode.EXCHANGE_MASTERSHIP, own, timeout_ms=timeout_ms, accept=accept)
    if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return None
    return response.header(BrokerMastershipHeader)


async def broker_role(remoting: Remoting, address: str, *, timeout_ms: float) -> str:
    """The `brokerRole` in the settings of a broker; "" when it is not among them."""
    return (await broker_settings(remoting, address, timeout_ms=timeout_ms)).values.get("brokerRole", "")


async def has_other_name(remoting: Remoting, address: str, name: str, *, timeout_ms: float) -> bool:
    """Whether the broker at `address` has another name: the address was reused. False when it does not respond."""
    try:
        return (await broker_settings(remoting, address, timeout_ms=timeout_ms)).values.get("brokerName", name) != name
    except OrbitMQError:
        return False


async def switch_master(
    remoting: Remoting, address: str, member: str, *, unclean: bool = False, timeout_ms: float = 10_000
) -> None:
    """SWITCH_MASTER: have the elected master at `address` hand over to `member`, or that member take over `unclean`.
    BrokerError with the reason if it does not.
    """
    header = SwitchMasterHeader(member, unclean)
    await call(remoting, address, RequestCode.SWITCH_MASTER, header, timeout_ms=timeout_ms)


async def set_maintenance(remoting: Remoting, address: str, is_on: bool, *, timeout_ms: float = 10_000) -> None:
    """SET_MAINTENANCE: have no replica but the last master be elected, or any in sync again. BrokerError with the
    reason if the broker does not do it.
    """
    header = SetMaintenanceHeader(is_on)
    await call(remoting, address, RequestCode.SET_MAINTENANCE, header, timeout_ms=timeout_ms)


async def promote_slave(
    remoting: Remoting,
    address: str,
    *,
    dry_run: bool = False,
    force: bool = False,
    role: str = "",
    timeout_ms: float = 30_000,
) -> PromotionReport:
    """PROMOTE_SLAVE: promote a slave, or with `dry_run` report whether it could be. BrokerError when the broker is not
    a slave of orbitmq.
    """
    header = PromoteSlaveHeader(dry_run=dry_run, force=force, role=role)
    response = await call(remoting, address, RequestCode.PROMOTE_SLAVE, header, timeout_ms=timeout_ms)
    return decode(PromotionReport, response.body)
