"""The fence: refuses requests while there is a reason to, and after a pause until other brokers have been asked.

A process that was stopped (SIGSTOP, a frozen machine) continues as if no time had passed, though its name may have
another master by now. Requests in its socket buffers are read before any timer runs, so each request checks the clock.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from orbitmq.net.connection import Connection
from orbitmq.net.routing import Answer, Handler, Router
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import FLAG_ONEWAY, Command
from orbitmq.wire.request import Fenced, Request

_log = logging.getLogger(__name__)

BEAT_SECONDS = 0.2
PAUSE_SECONDS = 1.0  # A forced promotion waits longer than this for the master's response (`promotion.ASK_MS`).


class Fence:
    """`reason` says why nothing is served, "" if all is, and `refusal` why no change is accepted, for a master that may
    still be read from. `confirm` is awaited after a pause, before any request; None
    if there is no other broker to ask.
    """

    def __init__(
        self,
        reason: Callable[[], str],
        refuse_send: Callable[[Command, int, str], Command],
        confirm: Callable[[], Awaitable[None]] | None,
        refusal: Callable[[], str] = lambda: "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._refusal = refusal
        self._reason = reason
        self._refuse_send = refuse_send
        self._confirm = confirm
        self._clock = clock
        self._beat = clock()
        self._confirming: asyncio.Task[None] | None = None
        self._must_confirm = False

    def put_around(self, router: Router, *, is_master: bool) -> None:
        """Wrap the handlers whose rows declare the fence. Reading a single message by its physical offset stays
        allowed: the result is right for this log.
        """
        places = {Fenced.EVERYWHERE, Fenced.AT_MASTER} if is_master else {Fenced.EVERYWHERE}
        router.wrap(lambda request, handler: self._fenced(handler, request) if request.fenced in places else handler)

    def beat(self) -> None:
        """The event loop runs; call this every BEAT_SECONDS from the start on."""
        self._check_pause()

    def begin(self) -> None:
        """The time before this does not count as a pause."""
        self._beat = self._clock()

    @property
    def is_open(self) -> bool:
        """Whether a message is accepted, and at once."""
        if self._clock() - self._beat > PAUSE_SECONDS:
            self._check_pause()
        return self._confirming is None and not self._reason_for(Fenced.AT_MASTER)

    def _reason_for(self, place: Fenced) -> str:
        return self._reason() or (self._refusal() if place is Fenced.AT_MASTER else "")

    def _check_pause(self) -> None:
        now = self._clock()
        paused, self._beat = now - self._beat, now
        if paused > PAUSE_SECONDS and self._confirm is not None:
            _log.warning("event=paused seconds=%.1f", paused)
            self._must_confirm = True
            if self._confirming is None:
                self._confirming = asyncio.get_running_loop().create_task(self._reconfirm(self._confirm))

    async def _reconfirm(self, confirm: Callable[[], Awaitable[None]]) -> None:
        """Repeat after a pause in between: responses from before it prove nothing."""
        try:
            while self._must_confirm:
                self._must_confirm = False
                await confirm()
        finally:
            self._confirming = None

    def _fenced(self, handler: Handler, request: Request) -> Handler:
        def fenced(connection: Connection, command: Command) -> Answer | Awaitable[Answer]:
            if self._clock() - self._beat > PAUSE_SECONDS:
                self._check_pause()
            if self._confirming is not None:
                return self._later(self._confirming, handler, request, connection, command)
            if reason := self._reason_for(request.fenced):
                return self._refused(request, command, reason)
            return handler(connection, command)

        return fenced

    async def _later(
        self,
        confirming: asyncio.Task[None],
        handler: Handler,
        request: Request,
        connection: Connection,
        command: Command,
    ) -> Answer:
        await asyncio.wait((confirming,))
        if reason := self._reason_for(request.fenced):
            return self._refused(request, command, reason)
        answer = handler(connection, command)
        return await answer if isinstance(answer, Awaitable) else answer

    def _refused(self, request: Request, command: Command, reason: str) -> Answer:
        if command.flag & FLAG_ONEWAY:
            return None
        if request.is_send:
            return self._refuse_send(command, ResponseCode.SERVICE_NOT_AVAILABLE, reason)
        answer = command.response(ResponseCode.SERVICE_NOT_AVAILABLE, reason)
        answer.ext = {}
        return answer
