"""The timer messages that wait, in the order in which they are due. Knows no store.

A key is one number: the time due, then a bit that is 0 for a recall (so that it comes before the messages of its time),
then the place in the commit log. 1,000,000 keys take some 60 MB, and as much again if each is due in
another second.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from heapq import heapify, heappop, heappush
from typing import Final

PLACE_BITS: Final = 63
PLACE_MASK: Final = (1 << PLACE_BITS) - 1
IS_MESSAGE: Final = 1 << PLACE_BITS
DUE_SHIFT: Final = PLACE_BITS + 1
SLOT_MS: Final = 1000  # of RocketMQ's wheel: from behind a full second up to the next
KEYS_A_TURN: Final = 20_000  # looked at in one turn of the event loop: some 2 ms
STALE_MIN: Final = 10_000  # keys of moved messages that may stay in the heap: to remove them takes time


def key_of(due_ms: int, place: int, *, is_recall: bool = False) -> int:
    key = due_ms << DUE_SHIFT | place
    return key if is_recall else key | IS_MESSAGE


def due_of(key: int) -> int:
    return key >> DUE_SHIFT


def place_of(key: int) -> int:
    return key & PLACE_MASK


def slot_of(due_ms: int) -> int:
    return (due_ms - 1) // SLOT_MS


def is_recall(key: int) -> bool:
    return not key & IS_MESSAGE


class Pending:
    """`file_size` is that of the commit log's files: `lowest` is where the first of them begins in which a message
    waits, None if none does. What lay below `moved` lies further behind in the log again, under another key.

    `ready` are those due, in order. `late` are those that wait though later ones are done: they became known when they
    were due already, or the clock was set back.
    """

    def __init__(self, file_size: int) -> None:
        self.ready: deque[int] = deque()
        self.late: set[int] = set()
        self.lowest: int | None = None
        self.moved = 0
        self._file_size = file_size
        self._heap: list[int] = []
        self._stale = 0  # keys in the heap or in `ready` whose messages were moved
        self._of_file: Counter[int] = Counter()
        self._of_slot: Counter[int] = Counter()  # without recalls
        self._taken = 0  # the last key that was taken out of the heap
        self._done = 0  # the last key that was done in its turn

    def __len__(self) -> int:
        return len(self._heap) + len(self.ready) - self._stale

    async def chunks(self) -> AsyncIterator[list[int]]:
        """All that wait now, in no order; between two chunks other work gets its turn of the event loop."""
        keys = [*self._heap, *self.ready]
        for at in range(0, len(keys), KEYS_A_TURN):
            yield [key for key in keys[at : at + KEYS_A_TURN] if place_of(key) >= self.moved]
            await asyncio.sleep(0)

    def add(self, key: int) -> None:
        file = place_of(key) // self._file_size
        self._of_file[file] += 1
        if not is_recall(key):
            self._of_slot[slot_of(due_of(key))] += 1
        start = file * self._file_size
        if self.lowest is None or start < self.lowest:
            self.lowest = start
        if key < self._taken:  # what is ready must not overtake it: it may be what recalls one of these, or the reverse
            for taken in self.ready:
                heappush(self._heap, taken)
            self.ready.clear()
            self._taken = self._done
        if key < self._done:
            self.late.add(key)
        heappush(self._heap, key)

    def take(self, now_ms: int, limit: int) -> bool:
        """Move what is due to `ready`, until that has `limit`; whether more is due."""
        beyond = (now_ms + 1) << DUE_SHIFT
        heap, ready = self._heap, self.ready
        while heap and heap[0] < beyond:
            if len(ready) >= limit:
                return True
            self._taken = heappop(heap)
            ready.append(self._taken)
        return False

    def first(self) -> int | None:
        """The next of `ready`."""
        while self.ready:
            key = self.ready[0]
            if place_of(key) >= self.moved:
                return key
            self.ready.popleft()
            self._stale -= 1
        return None

    def done(self) -> None:
        """The first of `ready` is done."""
        key = self.ready.popleft()
        if key in self.late:
            self.late.remove(key)
        else:
            self._done = key
        self._leave(key)

    def waits(self, key: int) -> bool:
        """Whether one of the keys that were added is not done."""
        return place_of(key) >= self.moved and (key > self._done or key in self.late)

    def move(self, key: int) -> None:
        """The message of a key that waits was moved, as all that waited before it in the log."""
        self.moved = place_of(key) + 1
        self.late.discard(key)
        self._leave(key)
        self._stale += 1
        if self._stale > STALE_MIN + len(self):
            self._heap = [key for key in self._heap if place_of(key) >= self.moved]
            heapify(self._heap)
            self.ready = deque(key for key in self.ready if place_of(key) >= self.moved)
            self._stale = 0

    def waiting_with(self, due_ms: int) -> int:
        """How many messages wait for the same second as one due then."""
        return self._of_slot[slot_of(due_ms)]

    def _leave(self, key: int) -> None:
        if not is_recall(key):
            slot = slot_of(due_of(key))
            self._of_slot[slot] -= 1
            if not self._of_slot[slot]:
                del self._of_slot[slot]
        file = place_of(key) // self._file_size
        self._of_file[file] -= 1
        if not self._of_file[file]:
            del self._of_file[file]
            self.lowest = min(self._of_file) * self._file_size if self._of_file else None

    def next_due_ms(self) -> int | None:
        """When the next one is due, in milliseconds."""
        key = self.first()
        if key is None:
            key = self._heap[0] if self._heap else None
        return None if key is None else due_of(key)
