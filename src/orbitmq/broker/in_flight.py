"""Requests in progress off the event loop: how many, and since when. Must not know the work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from orbitmq.runtime.clock import Clock


class InFlight:
    """Requests of one kind, in the order of their arrival."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._numbers = count()
        self._since: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._since)

    @property
    def oldest_ms(self) -> int:
        """The age of the oldest in milliseconds."""
        first = next(iter(self._since.values()), None)
        return 0 if first is None else self._clock.now_ms() - first

    @contextmanager
    def one(self) -> Iterator[None]:
        """One more, while the context lasts."""
        number = next(self._numbers)
        self._since[number] = self._clock.now_ms()
        try:
            yield
        finally:
            del self._since[number]
