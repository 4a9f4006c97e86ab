"""Timeouts of a connection for its request and for reading the response, and which connection is closed at the limit.

uvicorn waits for headers and bodies as long as they take, and refuses further connections when there are too many: some
hundred that send nothing would keep everybody else out. Knows no page.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

CONNECTIONS_MAX = (
    200  # browsers hold six each; that many with a request under way, and further ones are told to come back
)
REQUEST_SECONDS = 15.0  # from the connection or the last answer to the end of a request; forms are small
READ_SECONDS = 30.0  # for a browser that has an answer waiting to take some of it


class BoundedConnection(H11Protocol):
    """A connection of uvicorn with these limits."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.since = self.loop.time()
        self._asking: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None
        if len(self.connections) >= CONNECTIONS_MAX:
            self._take_place()
        self._look()

    @property
    def has_request(self) -> bool:
        """Whether it has a whole request that is being answered."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.more_body and not cycle.response_complete

    def give_way(self) -> None:
        self.connections.discard(self)
        self.transport.abort()

    def _take_place(self) -> None:
        """Close the connection that has been idle longest; none when all of them have a request in flight."""
        others = [
            one
            for one in self.connections
            if one is not self and isinstance(one, BoundedConnection) and not one.has_request
        ]
        if others:
            min(others, key=lambda one: one.since).give_way()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        self.since = self.loop.time()
        _ended(self._asking)
        self._asking = None
        super().on_response_complete()
        self._look()

    def _look(self) -> None:
        if self.has_request or self.transport.is_closing():
            _ended(self._asking)
            self._asking = None
        elif self._asking is None:
            self._asking = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reading = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        _ended(self._reading)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        _ended(self._asking)
        _ended(self._reading)


def _ended(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
