"""Timeouts of a connection for its request and for reading the response, and which connection is closed at the limit.

uvicorn waits for headers and bodies without a limit, and refuses further connections when there are too many: a few
hundred idle connections would lock out all others. Knows no page.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

CONNECTIONS_MAX = 200  # browsers open six each; if so many have a request in flight, further ones get an error
REQUEST_SECONDS = 15.0  # from the connection or the last response to the end of a request; forms are small
READ_SECONDS = 30.0  # for a browser to read some of a pending response


class BoundedConnection(H11Protocol):
    """A connection of uvicorn with these limits."""

    connections_max: ClassVar[int] = CONNECTIONS_MAX
    request_seconds: ClassVar[float] = REQUEST_SECONDS

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.since = self.loop.time()
        self._receiving: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None
        if len(self.connections) >= self.connections_max:
            self._take_place()
        self._expire()

    @property
    def has_request(self) -> bool:
        """Whether its request is complete and the response is not."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.more_body and not cycle.response_complete

    def give_way(self) -> None:
        self.connections.discard(self)
        self.transport.abort()

    def _take_place(self) -> None:
        """Close the connection that has been idle longest; none if all of them have a request in flight."""
        others = [
            one
            for one in self.connections
            if one is not self and isinstance(one, BoundedConnection) and not one.has_request
        ]
        if others:
            min(others, key=lambda one: one.since).give_way()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._expire()

    def on_response_complete(self) -> None:
        self.since = self.loop.time()
        _ended(self._receiving)
        self._receiving = None
        super().on_response_complete()
        self._expire()

    def _expire(self) -> None:
        if self.has_request or self.transport.is_closing():
            _ended(self._receiving)
            self._receiving = None
        elif self._receiving is None:
            self._receiving = self.loop.call_later(self.request_seconds, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reading = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        _ended(self._reading)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        _ended(self._receiving)
        _ended(self._reading)


def _ended(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
