"""Reads what is not in memory on threads, before the event loop touches it: it would stop for every connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from orbitmq.net.connection import Answer, Connection, Handler
from orbitmq.store.cold import Pages, Then, fetch
from orbitmq.wire.command import Command

READERS_MAX: Final = 4  # a disk serves several reads at a time; if it hangs, what is in memory is served all the same


class ColdReads:
    """For one event loop. What waits here counts as a request under way, so connections limit how much that is."""

    def __init__(self) -> None:
        self._readers = ThreadPoolExecutor(READERS_MAX, "orbitmq-cold")

    def serve_later(self, connection: Connection, command: Command, absent: Sequence[Pages], handler: Handler) -> None:
        """Have `handler` respond once these pages are in memory; with the error if the disk fails."""
        connection.defer(command)
        self.fetch(absent, partial(_serve, connection, command, handler))

    def fetch(self, absent: Sequence[Pages], then: Then) -> None:
        """Bring these pages into memory, and call `then` with the error if the disk fails, None otherwise."""
        reading = asyncio.get_running_loop().run_in_executor(self._readers, fetch, absent)
        reading.add_done_callback(partial(_done, then))

    def stop(self) -> None:
        """Begin no further read."""
        self._readers.shutdown(wait=False, cancel_futures=True)


def _done(then: Then, reading: asyncio.Future[None]) -> None:
    if not reading.cancelled():
        then(reading.exception())


def _serve(connection: Connection, command: Command, handler: Handler, error: BaseException | None) -> None:
    answer: Answer | Awaitable[Answer]
    try:
        if error is not None:
            raise error
        answer = handler(connection, command)
    except Exception as failure:  # an error becomes the response, as in a handler that is called at once
        answer = connection.failed(command, failure)
    connection.complete(command, answer)
