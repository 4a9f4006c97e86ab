"""Messages that were delivered and are not acknowledged yet, in memory. Knows no store and no clock.

A checkpoint stands for the messages of one queue in one response. It is dropped when all of them are acknowledged, or
have been put to the retry topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple

ALL_MAX = 500_000  # checkpoints: half a KiB each
GROUP_MAX = 200_000  # so that one group leaves room for others
STALE_MIN = 10_000  # checkpoints that are done and may stay in the heap: to remove them takes time


class Key(NamedTuple):
    """What names a checkpoint. `topic` is the retry topic for messages that came from there."""

    topic: str
    group: str
    queue_id: int
    start: int
    pop_ms: int


class Checkpoint:
    """`offsets` are the messages' queue offsets, `done` has a bit for each that is acknowledged. `entry` is the queue
    offset of its record, `place` where that lies in the log.
    """

    __slots__ = ("done", "due_ms", "entry", "invisible_ms", "key", "offsets", "place")

    def __init__(self, key: Key, invisible_ms: int, offsets: tuple[int, ...], done: int = 0) -> None:
        self.key = key
        self.invisible_ms = invisible_ms
        self.offsets = offsets
        self.done = done
        self.due_ms = key.pop_ms + invisible_ms
        self.entry = -1
        self.place = -1

    def __lt__(self, other: Checkpoint) -> bool:
        return self.due_ms < other.due_ms

    @property
    def is_done(self) -> bool:
        return self.done == (1 << len(self.offsets)) - 1

    def left(self) -> list[int]:
        """Offsets that are not acknowledged."""
        return [offset for bit, offset in enumerate(self.offsets) if not self.done >> bit & 1]

    def acknowledge(self, offset: int) -> bool:
        """Whether the message was not acknowledged before."""
        try:
            bit = 1 << self.offsets.index(offset)
        except ValueError:
            return False
        is_new = not self.done & bit
        self.done |= bit
        return is_new


class InFlight:
    """The checkpoints, by key, by the order of their records and by the time at which they are due."""

    def __init__(self) -> None:
        self._by_key: dict[Key, Checkpoint] = {}  # in the order of their records
        self._heap: list[Checkpoint] = []
        self.messages: Counter[tuple[str, str, int]] = Counter()
        """(topic, group, queue id) -> messages that are delivered and not acknowledged."""
        self._of_group: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Checkpoint]:
        return iter(self._by_key.values())

    def find(self, key: Key) -> Checkpoint | None:
        return self._by_key.get(key)

    def is_full(self, group: str) -> bool:
        """Whether a group, or all of them, have as many checkpoints as may be remembered."""
        return self._of_group[group] >= GROUP_MAX or len(self._by_key) >= ALL_MAX

    def is_free(self, key: Key) -> bool:
        return key not in self._by_key

    def free(self, key: Key) -> Key:
        """The key, or one some milliseconds later: one that no checkpoint has."""
        while key in self._by_key:
            key = key._replace(pop_ms=key.pop_ms + 1)
        return key

    def add(self, checkpoint: Checkpoint) -> None:
        """One of the same key is replaced: its record was written again."""
        self.drop(checkpoint.key)
        if checkpoint.is_done:
            return
        self._by_key[checkpoint.key] = checkpoint
        heappush(self._heap, checkpoint)
        self._of_group[checkpoint.key.group] += 1
        self.messages[checkpoint.key[:3]] += len(checkpoint.left())

    def acknowledge(self, key: Key, offsets: Iterable[int]) -> list[int]:
        """Those of `offsets` that were in flight."""
        checkpoint = self._by_key.get(key)
        if checkpoint is None:
            return []
        new = [offset for offset in offsets if checkpoint.acknowledge(offset)]
        self._count(key, -len(new))
        if checkpoint.is_done:
            self.drop(key)
        return new

    def drop(self, key: Key) -> None:
        checkpoint = self._by_key.pop(key, None)
        if checkpoint is None:
            return
        self._count(key, -len(checkpoint.left()))
        self._of_group[key.group] -= 1
        if not self._of_group[key.group]:
            del self._of_group[key.group]
        if len(self._heap) > STALE_MIN + 2 * len(self._by_key):
            self._heap = list(self._by_key.values())
            heapify(self._heap)

    def postpone(self, checkpoint: Checkpoint, due_ms: int) -> None:
        """Have one that is due be due later."""
        checkpoint.due_ms = due_ms
        self._heap = list(self._by_key.values())
        heapify(self._heap)

    def forget_topic(self, topic: str) -> list[Key]:
        """Drop what is in flight of a topic; the keys."""
        keys = [key for key in self._by_key if key.topic == topic]
        for key in keys:
            self.drop(key)
        return keys

    def first_offsets(self) -> dict[tuple[str, str, int], int]:
        """(topic, group, queue id) -> the first queue offset that is not acknowledged. For any thread."""
        found: dict[tuple[str, str, int], int] = {}
        for checkpoint in list(self._by_key.values()):
            if left := checkpoint.left():
                place = checkpoint.key[:3]
                found[place] = min(left[0], found.get(place, left[0]))
        return found

    def oldest(self) -> Checkpoint | None:
        """The one with the oldest record."""
        return next(iter(self._by_key.values()), None)

    def due(self, now_ms: int) -> Checkpoint | None:
        """One that is due; it stays until it is dropped."""
        first = self._first()
        return first if first is not None and first.due_ms <= now_ms else None

    def next_due_ms(self) -> int | None:
        first = self._first()
        return None if first is None else first.due_ms

    def _first(self) -> Checkpoint | None:
        heap = self._heap
        while heap and self._by_key.get(heap[0].key) is not heap[0]:
            heappop(heap)
        return heap[0] if heap else None

    def _count(self, key: Key, change: int) -> None:
        self.messages[key[:3]] += change
        if self.messages[key[:3]] <= 0:
            del self.messages[key[:3]]
