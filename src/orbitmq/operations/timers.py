"""Messages that wait for their time, as brokers of orbitmq list them."""

from __future__ import annotations

from orbitmq.net.remoting import Remoting
from orbitmq.operations.call import call
from orbitmq.wire.bodies import PendingTimers
from orbitmq.wire.headers_timer import PendingTimersHeader
from orbitmq.wire.objects import decode
from orbitmq.wire.requests import RequestCode


async def pending_timers(
    remoting: Remoting, address: str, *, due_ms: int = 0, limit: int = 100, timeout_ms: float = 5000
) -> PendingTimers:
    """GET_PENDING_TIMERS: those due at `due_ms` or later. Only orbitmq has it."""
    header = PendingTimersHeader(due_ms, limit)
    response = await call(remoting, address, RequestCode.GET_PENDING_TIMERS, header, timeout_ms=timeout_ms)
    return decode(PendingTimers, response.body)
