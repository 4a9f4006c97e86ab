"""Messages that wait for their time: which, and until when they were delivered."""

from __future__ import annotations

from orbitmq.errors import BodyError
from orbitmq.net.remoting import Remoting
from orbitmq.operations.call import call
from orbitmq.wire.bodies import PendingTimers
from orbitmq.wire.headers_timer import PendingTimersHeader
from orbitmq.wire.objects import decode
from orbitmq.wire.requests import RequestCode
from orbitmq.wire.timer_check import decode_timer_check


async def pending_timers(
    remoting: Remoting, address: str, *, due_ms: int = 0, limit: int = 100, timeout_ms: float = 5000
) -> PendingTimers:
    """GET_PENDING_TIMERS: those due at `due_ms` or later. Only orbitmq has it."""
    header = PendingTimersHeader(due_ms, limit)
    response = await call(remoting, address, RequestCode.GET_PENDING_TIMERS, header, timeout_ms=timeout_ms)
    return decode(PendingTimers, response.body)


async def timer_check_point(remoting: Remoting, address: str, *, timeout_ms: float = 5000) -> tuple[int, int]:
    """GET_TIMER_CHECK_POINT of RocketMQ 5: all that is due at a time is delivered, of the messages before an offset of
    the timer topic's queue. BrokerError without `timerWheelEnable`, BodyError.
    """
    response = await call(remoting, address, RequestCode.GET_TIMER_CHECK_POINT, timeout_ms=timeout_ms)
    if (found := decode_timer_check(response.body)) is None:
        raise BodyError("a timer check point ends early")
    return found
