"""Routes requests to handlers by their code and turns what a handler does into an answer.

A handler returns the response, or None when it answers later (or never), or an awaitable of either. Knows neither
sockets nor what any request means.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from orbitmq.errors import OrbitMQError, RequestRejected
from orbitmq.runtime.finishing import Finishing
from orbitmq.runtime.refusals import Limit, Refusals
from orbitmq.wire.codes import ANSWERED_WITH_FIELDS, RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.frame import FRAME_SIZE_MAX

if TYPE_CHECKING:
    from orbitmq.net.connection import Connection

_log = logging.getLogger(__name__)

Answer = Command | None
Handler = Callable[["Connection", Command], Answer | Awaitable[Answer]]
Check = Callable[["Connection", Command], Awaitable[Answer] | None]
"""Sees a request before its handler and raises to refuse it; what it returns refuses it later."""


class Router:
    """Request code -> handler. A code without handler is answered REQUEST_CODE_NOT_SUPPORTED."""

    def __init__(self, name: str = "node") -> None:
        self.name = name
        self.handlers: dict[int, Handler] = {}
        self.finishing = Finishing()
        """What goes on when the connection it was asked for on is lost."""
        self.unsupported: Handler = self._unsupported
        """What answers a code nobody handles."""
        self._check: Check | None = None
        self._patience: dict[int, float] = {}
        self.patience_ms = math.inf
        """The shortest time after which a request may be refused because it has waited."""

    def add(self, codes: int | Iterable[int], handler: Handler) -> None:
        """Let `handler` answer these codes. What it awaits is cancelled when the connection is lost."""
        for code in (codes,) if isinstance(codes, int) else codes:
            self.handlers[int(code)] = handler if self._check is None else _checked(self._check, handler)

    def add_change(self, code: int, handler: Callable[[Connection, Command], Coroutine[Any, Any, Answer]]) -> None:
        """`add` for a handler that changes several things one after another: once begun it goes on to its end, though
        its connection is lost.
        """

        def change(connection: Connection, command: Command) -> Awaitable[Answer]:
            return self.finishing.run(handler(connection, command))

        self.add(code, change)

    def limit_wait(self, codes: Iterable[int], limit_ms: float) -> None:
        """Refuse requests of these codes that have waited longer: whoever asked should try elsewhere, or later."""
        for code in codes:
            self._patience[int(code)] = limit_ms
        self.patience_ms = min(self._patience.values(), default=math.inf)

    def overdue(self, command: Command, waited_ms: float) -> Command | None:
        """The refusal of a request that has waited too long, None when it may still be served."""
        if waited_ms <= self._patience.get(command.code, math.inf):
            return None
        remark = f"[TIMEOUT_CLEAN_QUEUE] the {self.name} is busy: the request has waited {waited_ms:.0f} ms at least"
        return command.response(ResponseCode.SYSTEM_BUSY, remark)

    def limit_bodies(self, limits: Mapping[RequestCode, int], size_max: int, refusals: Refusals) -> None:
        """Refuse requests with larger bodies than `limits` says, `size_max` for other codes: whoever reads one holds
        all others up. To be called when all handlers are added.
        """
        sizes = {int(code): size for code, size in limits.items()}
        for code, handler in self.handlers.items():
            limit = sizes.get(code, size_max)
            if limit < FRAME_SIZE_MAX:
                self.handlers[code] = _limited(handler, limit, refusals)

    def guard(self, check: Check) -> None:
        """Have `check` see every request from now on, also one of a code nobody handles or that is added later."""
        self._check = check
        for code, handler in self.handlers.items():
            self.handlers[code] = _checked(check, handler)
        self.unsupported = _checked(check, self.unsupported)

    def _unsupported(self, _connection: Connection, command: Command) -> Answer:
        remark = f" request type {command.code} not supported"
        return command.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)

    def failed(self, command: Command, error: BaseException) -> Command:
        """The response an error becomes. An error outside orbitmq's tree is our own bug: logged with its trace."""
        if isinstance(error, RequestRejected):
            answer = command.response(error.code, error.remark)
            if command.code in ANSWERED_WITH_FIELDS:
                answer.ext = {}
            return answer
        if isinstance(error, OrbitMQError):
            return command.response(error.response_code, str(error))
        _log.error("event=handler_failed node=%s code=%d", self.name, command.code, exc_info=error)
        return command.response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")


def _limited(handler: Handler, limit: int, refusals: Refusals) -> Handler:
    def limited(connection: Connection, command: Command) -> Answer | Awaitable[Answer]:
        size = len(command.body)
        if size <= limit:
            return handler(connection, command)
        text = "event=body_refused peer=%s code=%d bytes=%d limit=%d"
        refusals.note(Limit.BODIES, _log, text, connection.address, command.code, size, limit)
        remark = f"the body of such a request may have {limit} bytes, not {size}"
        return command.response(ResponseCode.SYSTEM_ERROR, remark)

    return limited


def _checked(check: Check, handler: Handler) -> Handler:
    def checked(connection: Connection, command: Command) -> Answer | Awaitable[Answer]:
        refused = check(connection, command)
        return handler(connection, command) if refused is None else refused

    return checked
