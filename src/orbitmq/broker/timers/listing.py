"""The timer messages that come next, for tools; how far they are delivered and how many wait, for RocketMQ's slaves."""

from __future__ import annotations

from heapq import nsmallest
from typing import Final

from orbitmq.broker.timers.delivery import TimerDelivery
from orbitmq.broker.timers.pending import DUE_SHIFT, due_of, is_recall, place_of
from orbitmq.net.connection import Connection
from orbitmq.net.routing import Router
from orbitmq.wire.bodies import PendingTimer, PendingTimers
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers_timer import PendingTimersHeader
from orbitmq.wire.objects import encode
from orbitmq.wire.requests import RequestCode
from orbitmq.wire.timer_check import encode_timer_check

PAGE_MAX: Final = 1000


class TimerListing:
    """The handlers."""

    def __init__(self, timers: TimerDelivery) -> None:
        self._timers = timers

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.GET_PENDING_TIMERS, self.pending)
        router.add(RequestCode.GET_TIMER_CHECK_POINT, self.check_point)
        router.add(RequestCode.GET_TIMER_METRICS, self.metrics)

    def check_point(self, _connection: Connection, command: Command) -> Command:
        """As in RocketMQ's file config/timercheck."""
        return command.response(ResponseCode.SUCCESS, body=encode_timer_check(*self._timers.check_point()))

    async def metrics(self, _connection: Connection, command: Command) -> Command:
        """As in RocketMQ's file config/timermetrics."""
        await self._timers.count()
        return command.response(ResponseCode.SUCCESS, body=encode(self._timers.counts.metrics()))

    async def pending(self, _connection: Connection, command: Command) -> Command:
        """A page of those that wait, in the order in which they are due."""
        header = command.header(PendingTimersHeader)
        limit = min(max(header.limit, 1), PAGE_MAX)
        begin = header.due_ms << DUE_SHIFT
        found: list[int] = []
        async for chunk in self._timers.pending.chunks():
            later = [key for key in chunk if key >= begin and not is_recall(key)]
            found = nsmallest(limit, [*found, *later])
        shown = [PendingTimer(due_of(key), place_of(key)) for key in found]
        body = encode(PendingTimers(len(self._timers.pending), self._timers.is_ready, shown))
        return command.response(ResponseCode.SUCCESS, body=body)
