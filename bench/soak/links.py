"""A TCP proxy on a loopback address of its own: what a broker tells others is its address here, so that the way to it
can be cut, be silent, or be slow while the broker itself is well.

Runs on an event loop in a thread; the methods of `Links` are for any other.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

OUTSIDE, INSIDE = "127.0.0.2", "127.0.0.1"
CHUNK = 64 << 10


@dataclass
class Link:
    """The way to one port. `delay` in seconds is added to each piece in either direction."""

    port: int
    """Of the broker itself."""
    is_cut: bool = False
    delay: float = 0.0
    passes: asyncio.Event = field(default_factory=asyncio.Event)
    writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until either end or a cut ends it."""
        self.writers.add(writer)
        try:
            if self.is_cut:
                return
            to_reader, to_writer = await asyncio.open_connection(INSIDE, self.port)
            self.writers.add(to_writer)
            try:
                await self._both(self._pump(reader, to_writer), self._pump(to_reader, writer))
            finally:
                self._end(to_writer)
        except OSError:
            return  # the broker is not there; who connects sees an end at once
        finally:
            self._end(writer)

    @staticmethod
    async def _both(*pumps: object) -> None:
        tasks = [asyncio.ensure_future(pump) for pump in pumps]  # type: ignore[call-overload]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                if self.delay:
                    await asyncio.sleep(self.delay)
                await self.passes.wait()
                writer.write(data)
                await writer.drain()

    def _end(self, writer: asyncio.StreamWriter) -> None:
        self.writers.discard(writer)
        writer.transport.abort()

    def cut(self) -> None:
        """End every connection, and each new one at once."""
        self.is_cut = True
        for writer in list(self.writers):
            writer.transport.abort()


class Links:
    """All of them, by port."""

    def __init__(self) -> None:
        self._links: dict[int, Link] = {}
        self._servers: dict[int, asyncio.Server] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)

    def open(self, port: int, outside: int | None = None) -> None:
        """Have OUTSIDE:port lead to INSIDE:port. `outside` is the port there, where it cannot be the same."""
        asyncio.run_coroutine_threadsafe(self._open(port, outside or port), self._loop).result()

    async def _open(self, port: int, outside: int) -> None:
        link = self._links[port] = Link(port)
        link.passes.set()
        self._servers[port] = await asyncio.start_server(link.serve, OUTSIDE, outside)

    def close(self, port: int) -> None:
        """Refuse connections, as a machine does whose process is gone, until it is opened again."""
        asyncio.run_coroutine_threadsafe(self._close_one(port), self._loop).result()

    async def _close_one(self, port: int) -> None:
        self._servers.pop(port).close()

    def cut(self, port: int) -> None:
        self._do(self._links[port].cut)

    def silence(self, port: int) -> None:
        """Connections stay and new ones are taken; nothing gets through until `heal`, and then all that was said."""
        self._do(self._links[port].passes.clear)

    def slow(self, port: int, seconds: float) -> None:
        self._do(lambda: setattr(self._links[port], "delay", seconds))

    def heal(self, port: int) -> None:
        link = self._links[port]

        def well() -> None:
            link.is_cut, link.delay = False, 0.0
            link.passes.set()

        self._do(well)

    def _do(self, change: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(change)

    async def _close(self) -> None:
        for server in self._servers.values():
            server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
