"""Turns a slave of orbitmq into the master of its broker name, or tells what would happen."""

from __future__ import annotations

from orbitmq.net.remoting import Remoting
from orbitmq.operations.asking import ask
from orbitmq.wire.objects import decode
from orbitmq.wire.promotion import PromoteSlaveHeader, PromotionReport
from orbitmq.wire.requests import RequestCode


async def promote_slave(
    remoting: Remoting,
    address: str,
    *,
    dry_run: bool = False,
    force: bool = False,
    role: str = "",
    timeout_ms: float = 30_000,
) -> PromotionReport:
    """PROMOTE_SLAVE: what was found, and whether it is done. BrokerError when the broker is no slave of orbitmq."""
    header = PromoteSlaveHeader(dry_run=dry_run, force=force, role=role)
    answer = await ask(remoting, address, RequestCode.PROMOTE_SLAVE, header, timeout_ms=timeout_ms)
    return decode(PromotionReport, answer.body)
