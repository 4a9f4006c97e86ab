"""Routes requests to handlers by their code and turns what a handler does into an answer.

A handler returns the response, or None when it answers later (or never), or an awaitable of either. Knows neither
sockets nor what any request means.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from orbitmq.errors import OrbitMQError, RequestRejected
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command

if TYPE_CHECKING:
    from orbitmq.net.connection import Connection

_log = logging.getLogger(__name__)

Answer = Command | None
Handler = Callable[["Connection", Command], Answer | Awaitable[Answer]]


class Router:
    """Request code -> handler. A code without handler is answered REQUEST_CODE_NOT_SUPPORTED."""

    def __init__(self, name: str = "node") -> None:
        self.name = name
        self.handlers: dict[int, Handler] = {}

    def add(self, codes: int | Iterable[int], handler: Handler) -> None:
        """Let `handler` answer these codes."""
        for code in (codes,) if isinstance(codes, int) else codes:
            self.handlers[int(code)] = handler

    def unsupported(self, _connection: Connection, command: Command) -> Answer:
        """The answer to a code nobody handles; also the `Handler` used for it."""
        remark = f" request type {command.code} not supported"
        return command.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)

    def failed(self, command: Command, error: BaseException) -> Command:
        """The response an error becomes. An error outside orbitmq's tree is our own bug: logged with its trace."""
        if isinstance(error, RequestRejected):
            return command.response(error.code, error.remark)
        if isinstance(error, OrbitMQError):
            return command.response(error.response_code, str(error))
        _log.error("event=handler_failed node=%s code=%d", self.name, command.code, exc_info=error)
        return command.response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
