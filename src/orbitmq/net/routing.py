"""Routes requests to handlers by their code and turns a handler's result into a response.

A handler is added by the request's row in `wire.requests`, which declares what else applies to the request.

A handler returns the response, or None if it responds later (or never), or an awaitable of either. Knows neither
sockets nor what any request means.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import reduce
from typing import Any, Protocol

from orbitmq.errors import OrbitMQError, RequestRejected
from orbitmq.net.connection import Answer as Answer
from orbitmq.net.connection import Connection, SendTaker
from orbitmq.net.connection import Handler as Handler
from orbitmq.runtime.refusals import Limit, Refusals
from orbitmq.runtime.shielded import ShieldedTasks
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.request import Request
from orbitmq.wire.requests import ALWAYS_WITH_FIELDS

_log = logging.getLogger(__name__)

Check = Callable[[Connection, Command], Awaitable[Answer] | None]
"""Sees a request before its handler and raises to refuse it; if it returns an awaitable, that refuses it later."""

Wrapper = Callable[[Request, Handler], Handler]
"""Wraps or replaces the handler of a request, by the request's row."""


class HasHandlers(Protocol):
    """A part of a node that handles requests."""

    def add_to(self, router: Router) -> None:
        """Add its handlers."""


class Router:
    """Request code -> handler. The response to a code without handler is REQUEST_CODE_NOT_SUPPORTED."""

    def __init__(self, name: str = "node") -> None:
        self.name = name
        self.handlers: dict[int, Handler] = {}
        self.requests: dict[int, Request] = {}
        """The rows of the requests that are handled."""
        self.shielded = ShieldedTasks()
        """Work that continues when the connection of its request is lost."""
        self.unsupported: Handler = self._unsupported
        """The handler of codes without one."""
        self._wrappers: list[Wrapper] = []
        self._patience: dict[int, float] = {}
        self.send_taker: SendTaker | None = None
        """Handles common sends without decoding them. For connections that are made later."""
        self.taken_from: dict[int, Handler] = {}
        """The handlers of these sends; `send_taker` gets none of a code that has another one since."""
        self.patience_ms = math.inf
        """The shortest time after which a request may be refused because it has waited."""

    def add(self, requests: int | Iterable[int], handler: Handler) -> None:
        """Add a handler for these requests; its awaitable is cancelled when the connection is lost."""
        for request in (requests,) if isinstance(requests, int) else requests:
            code = int(request)
            row = self.requests[code] = request if isinstance(request, Request) else Request(request)
            self.handlers[code] = reduce(lambda inner, wrapper: wrapper(row, inner), self._wrappers, handler)

    def take_sends(self, codes: Iterable[int], taker: SendTaker) -> None:
        """Have `taker` handle the common requests of these codes, as long as they have the handlers they have now."""
        self.send_taker, self.taken_from = taker, {int(code): self.handlers[code] for code in codes}

    def add_change(self, request: int, handler: Callable[[Connection, Command], Coroutine[Any, Any, Answer]]) -> None:
        """`add` for a handler that changes several things one after another: once begun it continues to its end, even
        if its connection is lost.
        """

        def change(connection: Connection, command: Command) -> Awaitable[Answer]:
            return self.shielded.run(handler(connection, command))

        self.add(request, change)

    def limit_wait(self, request: int, limit_ms: float) -> None:
        """Refuse requests of this code that have waited longer: the client should try elsewhere, or later."""
        self._patience[int(request)] = limit_ms
        self.patience_ms = min(self._patience.values())

    def overdue(self, command: Command, waited_ms: float) -> Command | None:
        """The refusal of a request that has waited too long, None when it may still be served."""
        if waited_ms <= self._patience.get(command.code, math.inf):
            return None
        remark = f"[TIMEOUT_CLEAN_QUEUE] the {self.name} is busy: the request has waited {waited_ms:.0f} ms at least"
        return command.response(ResponseCode.SYSTEM_BUSY, remark)

    def wrap(self, wrapper: Wrapper) -> None:
        """Have `wrapper` put something around the handler of each request, those added later included."""
        self._wrappers.append(wrapper)
        for code, handler in self.handlers.items():
            self.handlers[code] = wrapper(self.requests[code], handler)

    def limit_bodies(self, refusals: Refusals) -> None:
        """Refuse requests with larger bodies than their rows allow: parsing one delays all others."""

        def limit(request: Request, handler: Handler) -> Handler:
            return handler if request.body_max is None else _limited(handler, request.body_max, refusals)

        self.wrap(limit)

    def guard(self, check: Check) -> None:
        """Call `check` for every request from now on, also for codes without a handler."""
        self.wrap(lambda _request, handler: _checked(check, handler))
        self.unsupported = _checked(check, self.unsupported)

    def _unsupported(self, _connection: Connection, command: Command) -> Answer:
        remark = f" request type {command.code} not supported"
        return command.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)

    def failed(self, command: Command, error: BaseException) -> Command:
        """The response an error becomes. An error outside orbitmq's tree is our own bug: logged with its trace."""
        if isinstance(error, RequestRejected):
            answer = command.response(error.code, error.remark)
            if command.code in ALWAYS_WITH_FIELDS:
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
