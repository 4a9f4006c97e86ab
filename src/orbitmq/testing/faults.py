"""Fault injection: requests that are refused, lost or late, or that close the connection.

A fault wraps the handlers of a router and sees only requests; it knows neither broker nor store.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from dataclasses import dataclass, field
from enum import Enum
from inspect import isawaitable

from orbitmq.errors import ConfigurationError
from orbitmq.net.connection import Connection
from orbitmq.net.routing import Answer, Handler, Router
from orbitmq.wire.command import FLAG_ONEWAY, Command
from orbitmq.wire.requests import RequestCode

EVERY_TIME = 1 << 31

# A send has several request codes: one message in either header format, and a batch.
NAMES: dict[str, frozenset[int]] = {
    "send": frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}),
    "pull": frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE}),
    "heartbeat": frozenset({RequestCode.HEART_BEAT}),
    "commit": frozenset({RequestCode.UPDATE_CONSUMER_OFFSET}),
    "send_back": frozenset({RequestCode.CONSUMER_SEND_MSG_BACK}),
    "route": frozenset({RequestCode.GET_ROUTEINFO_BY_TOPIC}),
    "end_transaction": frozenset({RequestCode.END_TRANSACTION}),
}


class Kind(Enum):
    """What happens to a request that a fault matches."""

    REFUSE = "it has no effect, and its response is an error"
    DROP = "it has no effect and no response: the client times out"
    LOSE_RESPONSE = "it takes effect, and the response is lost"
    DISCONNECT = "it has no effect, and the connection is closed"
    DELAY = "it takes effect later"


Kind.LOSE_ANSWER = Kind.LOSE_RESPONSE  # type: ignore[attr-defined]  # its former name, for one version


@dataclass(eq=False)
class Fault:
    """A fault for the next `times` matching requests. `hits` counts them; `end` removes the fault."""

    kind: Kind
    """What happens to the requests."""
    codes: frozenset[int]
    """The request codes that it matches."""
    times: int
    topic: str | None = None
    """Only requests for this topic; None for all."""
    broker: str | None = None
    """Only requests to the broker of this name; None for all, name servers included."""
    code: int = 0
    """Response code of a refused request."""
    remark: str = ""
    """Remark of a refused request."""
    seconds: float = 0.0
    """The delay, for DELAY."""
    hits: int = 0
    _faults: Faults | None = field(default=None, repr=False)

    def end(self) -> None:
        """End this fault."""
        self.times = 0

    def meets(self, command: Command, broker: str | None = None) -> bool:
        """Whether the fault matches this request to that broker and has not ended."""
        if self.hits >= self.times or command.code not in self.codes or self.broker not in (None, broker):
            return False
        return self.topic is None or _topic(command) == self.topic


def _topic(command: Command) -> str | None:
    """The topic of a request, if it has one; the short form of a send names it `b`."""
    if command.typed is not None:
        topic: str | None = getattr(command.typed, "topic", None)
        return topic
    fields = command.ext or {}
    return fields.get("topic") or fields.get("b")


class Faults:
    """Wraps every handler of the routers that it was installed in. Add faults from any thread."""

    def __init__(self) -> None:
        self._active: list[Fault] = []
        self._guard = threading.Lock()

    def install(self, router: Router, broker: str | None = None) -> None:
        """Wrap the handlers of a router, that of the broker with this name. Call it before the router serves."""
        for code, handler in list(router.handlers.items()):
            router.handlers[code] = self._before(handler, broker)

    def add(
        self,
        kind: Kind,
        request: str | int,
        times: int | None,
        topic: str | None,
        broker: str | None = None,
        *,
        code: int = 0,
        remark: str = "",
        seconds: float = 0.0,
    ) -> Fault:
        """Add a fault that starts now. `request` is a name of NAMES or a request code."""
        most = EVERY_TIME if times is None else times
        fault = Fault(kind, _codes(request), most, topic, broker, code, remark, seconds)
        with self._guard:
            self._active.append(fault)
        return fault

    def clear(self) -> None:
        """End all of them."""
        with self._guard:
            self._active.clear()

    def _before(self, handler: Handler, broker: str | None) -> Handler:
        def handle(connection: Connection, command: Command) -> Answer | Awaitable[Answer]:
            fault = self._hit(command, broker) if self._active else None
            return handler(connection, command) if fault is None else _go_wrong(fault, handler, connection, command)

        return handle

    def _hit(self, command: Command, broker: str | None) -> Fault | None:
        with self._guard:
            self._active = [fault for fault in self._active if fault.hits < fault.times]
            for fault in self._active:
                if fault.meets(command, broker):
                    fault.hits += 1
                    return fault
        return None


def _codes(request: str | int) -> frozenset[int]:
    if isinstance(request, int):
        return frozenset({int(request)})
    if request not in NAMES:
        raise ConfigurationError(f"no request is called {request!r}; use a RequestCode or one of {', '.join(NAMES)}")
    return NAMES[request]


async def _go_wrong(fault: Fault, handler: Handler, connection: Connection, command: Command) -> Answer:
    if fault.kind is Kind.REFUSE:
        return command.response(fault.code, fault.remark)
    if fault.kind is Kind.DISCONNECT:
        connection.close()
        return None
    if fault.kind is Kind.DROP:
        return None
    if fault.kind is Kind.DELAY:
        await asyncio.sleep(fault.seconds)
    response = handler(connection, command)
    if isawaitable(response):
        response = await response
    if fault.kind is Kind.LOSE_RESPONSE:
        command.flag |= FLAG_ONEWAY  # for a handler that completes it later
        return None
    return response
