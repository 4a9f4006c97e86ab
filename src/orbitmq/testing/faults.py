"""Things that go wrong on purpose: requests refused, lost, late, or answered by a closed connection.

A fault stands before the handlers of a router and looks at requests only; it knows neither broker nor store.
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

# What an application sends goes under several codes: one message in either header form, and a batch.
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
    """What happens to a request that meets a fault."""

    REFUSE = "answered with an error; nothing is done"
    DROP = "nothing is done and nothing answered: the client waits until its time is over"
    LOSE_ANSWER = "it is done, and the answer gets lost"
    DISCONNECT = "nothing is done, the connection is closed"
    DELAY = "it is done later"


@dataclass(eq=False)
class Fault:
    """One thing that goes wrong, the next `times` times. `hits` counts them; `end` takes it away."""

    kind: Kind
    """What goes wrong."""
    codes: frozenset[int]
    """The request codes it meets."""
    times: int
    topic: str | None = None
    """Only requests for this topic; None for all."""
    broker: str | None = None
    """Only requests to the broker of this name; None for all, name servers included."""
    code: int = 0
    """Of the answer, when refused."""
    remark: str = ""
    """Of the answer, when refused."""
    seconds: float = 0.0
    """How late, when delayed."""
    hits: int = 0
    _faults: Faults | None = field(default=None, repr=False)

    def end(self) -> None:
        """From now on nothing goes wrong by this fault."""
        self.times = 0

    def meets(self, command: Command, broker: str | None = None) -> bool:
        """Whether the request to that broker is one of those, and its turn is not over."""
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
    """Stands before every handler of the routers it was installed in. Faults may be added from any thread."""

    def __init__(self) -> None:
        self._active: list[Fault] = []
        self._guard = threading.Lock()

    def install(self, router: Router, broker: str | None = None) -> None:
        """Before the router serves, which is that of a broker of this name."""
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
        """A fault that begins now. `request` is a name of NAMES or a request code."""
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
        raise ConfigurationError(f"no request is called {request!r}; give a RequestCode or one of {', '.join(NAMES)}")
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
    answer = handler(connection, command)
    if isawaitable(answer):
        answer = await answer
    if fault.kind is Kind.LOSE_ANSWER:
        command.flag |= FLAG_ONEWAY  # a handler that settles it later
        return None
    return answer
