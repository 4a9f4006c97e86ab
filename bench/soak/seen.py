"""Which of many numbered messages came, in memory that does not grow with them. Pure."""

from __future__ import annotations

from collections.abc import Iterator

CHUNK = 4096  # numbers that are kept bit by bit until all of them came


class Seen:
    """Numbers from 0 on. A chunk that is whole is one number, and joins those before it; what is missing costs
    CHUNK / 8 bytes a place, so memory stays small as long as little is.
    """

    def __init__(self) -> None:
        self.count = 0
        self.again = 0
        self._whole_below = 0  # chunks
        self._whole: set[int] = set()
        self._open: dict[int, int] = {}  # chunk -> bits

    def add(self, number: int) -> bool:
        """Whether it is new."""
        chunk, bit = divmod(number, CHUNK)
        bits = self._open.get(chunk, 0)
        if chunk < self._whole_below or chunk in self._whole or bits >> bit & 1:
            self.again += 1
            return False
        self.count += 1
        bits |= 1 << bit
        if bits.bit_count() == CHUNK:
            self._close(chunk)
        else:
            self._open[chunk] = bits
        return True

    def _close(self, chunk: int) -> None:
        del self._open[chunk]
        self._whole.add(chunk)
        while self._whole_below in self._whole:
            self._whole.discard(self._whole_below)
            self._whole_below += 1

    def missing(self, end: int) -> Iterator[int]:
        """Numbers below `end` that did not come, in their order."""
        for chunk in range(self._whole_below, -(-end // CHUNK)):
            if chunk not in self._whole:
                bits = self._open.get(chunk, 0)
                first = chunk * CHUNK
                yield from (first + bit for bit in range(min(CHUNK, end - first)) if not bits >> bit & 1)
