"""A connection inside one process: what one end writes, the other receives at once. Knows no request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

Bytes = bytes | bytearray | memoryview
Address = tuple[str, int]

HIGH = 64 << 10  # unreceived bytes at which a writer is paused, unless it sets another number


class _Pipe:
    """One direction. A reader that is called while it still receives, or that has paused, gets the rest in a later turn
    of the event loop, so two ends that respond to each other never recurse.
    """

    def __init__(self, reader: asyncio.Protocol, writer: asyncio.Protocol) -> None:
        self.high, self.low = HIGH, HIGH // 4
        self.size = 0  # bytes that are written and not received
        self.is_paused = self.is_ended = False
        self.reader = reader
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._held: list[bytes] = []
        self._is_busy = self._is_planned = self._is_full = False
        self.fail: Callable[[], None] = self.end  # ends both directions once there is a transport

    def push(self, data: bytes) -> None:
        if not (self._held or self._is_busy or self.is_paused):
            self._deliver(data)
            return
        self._held.append(data)
        self.size += len(data)
        if not self._is_full and self.size > self.high:
            self._is_full = True
            self._writer.pause_writing()
        self.plan()

    def plan(self) -> None:
        """Have what is held received."""
        if self._held and not self._is_planned and not self.is_paused:
            self._is_planned = True
            self._loop.call_soon(self._deliver_held)

    def _deliver_held(self) -> None:
        self._is_planned = False
        if self.is_paused or not self._held:
            return
        held, self._held, self.size = self._held, [], 0
        self._deliver(b"".join(held))
        if self._is_full and self.size <= self.low:
            self._is_full = False
            if not self.is_ended:
                self._writer.resume_writing()
        self.plan()

    def _deliver(self, data: bytes) -> None:
        if self.is_ended:
            return
        self._is_busy = True
        try:
            self.reader.data_received(data)
        except Exception as error:  # as of a socket: the connection ends, the writer goes on
            self._loop.call_exception_handler({"message": "a protocol failed to receive", "exception": error})
            self.fail()
        finally:
            self._is_busy = False

    def end(self) -> None:
        """The reader has lost its connection."""
        if not self.is_ended:
            self.is_ended = True
            self._held.clear()
            self.size = 0
            try:
                self.reader.connection_lost(None)
            except Exception as error:  # the other end must lose its connection all the same
                self._loop.call_exception_handler({"message": "a protocol failed to end", "exception": error})


class MemoryTransport(asyncio.Transport):
    """One end. Its extra information has the protocol of the other one as `other_end`."""

    def __init__(
        self, protocol: asyncio.Protocol, incoming: _Pipe, outgoing: _Pipe, own: Address, peer: Address
    ) -> None:
        super().__init__({"sockname": own, "peername": peer, "other_end": outgoing.reader})
        self._protocol = protocol
        self._incoming = incoming
        self._outgoing = outgoing
        self._loop = asyncio.get_running_loop()
        self._is_closing = False
        incoming.fail = self.abort

    def write(self, data: Bytes) -> None:
        if data and not self.is_closing():
            self._outgoing.push(bytes(data))

    def writelines(self, list_of_data: Iterable[Bytes]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._outgoing.high = HIGH if high is None else high
        self._outgoing.low = self._outgoing.high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return self._outgoing.size

    def is_reading(self) -> bool:
        return not self._incoming.is_paused

    def pause_reading(self) -> None:
        self._incoming.is_paused = True

    def resume_reading(self) -> None:
        self._incoming.is_paused = False
        self._incoming.plan()

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def is_closing(self) -> bool:
        return self._is_closing or self._incoming.is_ended

    def close(self) -> None:
        """What is written arrives first; who closes and loses patience aborts."""
        if not self.is_closing():
            self._is_closing = True
            self._loop.call_soon(self._end)

    def _end(self) -> None:
        if self._outgoing.size and not self._outgoing.is_ended:
            self._loop.call_later(0.01, self._end)
        else:
            self._lose()

    def abort(self) -> None:
        self._is_closing = True
        self._loop.call_soon(self._lose)

    def _lose(self) -> None:
        self._incoming.end()
        self._outgoing.end()


def connect(client: asyncio.Protocol, server: asyncio.Protocol, client_address: Address, address: Address) -> None:
    """Join two protocols. The server sees its peer as `client_address`, the client as `address`."""
    requests, responses = _Pipe(server, client), _Pipe(client, server)
    server.connection_made(MemoryTransport(server, requests, responses, address, client_address))
    client.connection_made(MemoryTransport(client, responses, requests, client_address, address))
