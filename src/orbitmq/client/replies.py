"""The replies that callers wait for, by correlation id. Knows nothing of how requests are sent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from orbitmq.client.core.replies import reply_message
from orbitmq.client.in_flight import InFlightLimit
from orbitmq.errors import TooManyRequestsError
from orbitmq.message.model import MessageExt
from orbitmq.message.properties import CORRELATION_ID
from orbitmq.net.connection import Connection
from orbitmq.net.routing import Router
from orbitmq.runtime.clock import Clock
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers_reply import PushReplyMessageHeader
from orbitmq.wire.requests import RequestCode

_log = logging.getLogger(__name__)

WAITING_MAX = 10_000  # requests without reply; as many as a broker has replies in flight


class PendingReplies:
    """The replies that one client waits for, by correlation id."""

    def __init__(self, clock: Clock, limit: int = WAITING_MAX) -> None:
        self._clock = clock
        self._limit = InFlightLimit(limit, 0)
        self._waiting: dict[str, asyncio.Future[MessageExt]] = {}

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self.take)

    @asynccontextmanager
    async def expected(self, correlation_id: str, ends: float) -> AsyncIterator[asyncio.Future[MessageExt]]:
        """The future of a reply, for as long as the caller waits for it. When too many replies are pending, wait until
        `ends` (loop time) for others to arrive; TooManyRequestsError when none does.
        """
        try:
            await self._limit.enter(0, ends)
        except TimeoutError:
            raise TooManyRequestsError(
                f"timed out before there was room in flight, so nothing was sent: {self._limit}; "
                "send fewer requests, or increase the timeout"
            ) from None
        future = self._waiting[correlation_id] = asyncio.get_running_loop().create_future()
        try:
            yield future
        finally:
            self._limit.leave(0)
            del self._waiting[correlation_id]
            future.cancel()

    def take(self, connection: Connection, command: Command) -> Command:
        """Accept a reply, also one without a waiting request: its sender cannot do anything about it."""
        message = reply_message(command.header(PushReplyMessageHeader), bytes(command.body), self._clock.now_ms())
        future = self._waiting.get(message.properties.get(CORRELATION_ID, ""))
        if future is None or future.done():
            _log.warning("event=reply_too_late broker=%s id=%s", connection.address, message.msg_id)
        else:
            future.set_result(message)
        return command.response(ResponseCode.SUCCESS)
