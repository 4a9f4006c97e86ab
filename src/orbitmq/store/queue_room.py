"""Room for the entries of queues, made by a worker thread: a new queue takes directories, a file, its map and disk
blocks, and a disk that is busy lets whoever makes them wait.

A message that finds no room waits here, and with it all that come for the same queue, so that they are stored in the
order they came in. A queue that goes on gets its next blocks before it needs them, its next file when it needs it.
Knows no message: who waits is called.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from orbitmq.runtime.clock import Clock
from orbitmq.store.queue import ConsumeQueue

CALLED_A_TURN = 50  # of those that waited, before other work gets its turn: each stores a message

Deliver = Callable[[Callable[[], object]], object]
RoomCallback = Callable[[OSError | None], object]


class RoomAwaited(Exception):
    """A message has to wait until `queue` has room for `entries`."""

    def __init__(self, queue: ConsumeQueue, entries: int) -> None:
        super().__init__(f"queue {queue.queue_id} of {queue.topic} has no room yet")
        self.queue = queue
        self.entries = entries


class QueueRoom:
    """`step` belongs to a worker that `wake` wakes, all else to the thread that appends; `deliver` brings it what the
    worker has to say. Nobody waits longer than `patience_ms`.

    Invariant: while somebody waits for a queue its `limit` is not above its `end`, so that every put comes by here.
    """

    def __init__(self, deliver: Deliver, clock: Clock, patience_ms: int, wake: Callable[[], None]) -> None:
        self._deliver = deliver
        self._clock = clock
        self._patience_ms = patience_ms
        self._wake = wake
        self._asked: deque[tuple[ConsumeQueue, int]] = deque()
        self._under_way: set[ConsumeQueue] = set()
        self._waiting: dict[ConsumeQueue, deque[tuple[int, RoomCallback]]] = {}

    def take(self, queue: ConsumeQueue, entries: int) -> bool:
        """Whether the queue has room that a put may use now, without a wait for a disk or past those that wait."""
        return queue not in self._waiting and queue.take_room(entries)

    def ask(self, queue: ConsumeQueue, entries: int = 0) -> None:
        """Have the worker make room for so many entries, and the next room if the queue wants it."""
        if queue not in self._under_way:
            self._under_way.add(queue)
            self._asked.append((queue, entries))
            self._wake()

    def wait(self, awaited: RoomAwaited, done: RoomCallback) -> None:
        """Call `done` when there is room and it is its turn; with an error when there will be none: that of the disk,
        or TimeoutError.
        """
        queue = awaited.queue
        queue.limit = min(queue.limit, queue.end)
        self._waiting.setdefault(queue, deque()).append((self._clock.now_ms() + self._patience_ms, done))
        self.ask(queue, awaited.entries)

    def expire(self) -> None:
        """Tell those who have waited too long."""
        now_ms = self._clock.now_ms()
        for queue, waiting in list(self._waiting.items()):
            while waiting and waiting[0][0] <= now_ms:
                waiting.popleft()[1](TimeoutError(f"{queue.topic}/{queue.queue_id} got no room in time"))
            self._go_on(queue)

    def step(self) -> None:
        """Make the room that was asked for."""
        while self._asked:
            queue, entries = self._asked.popleft()
            error = None
            try:
                queue.claim(entries)
                queue.claim_ahead()
            except OSError as found:
                error = found
            self._deliver(partial(self._made, queue, error))

    def _made(self, queue: ConsumeQueue, error: OSError | None) -> None:
        self._under_way.discard(queue)
        self._call(queue, error)

    def _call(self, queue: ConsumeQueue, error: OSError | None) -> None:
        waiting = self._waiting.get(queue)
        if waiting is None:
            return
        try:
            for _ in range(min(CALLED_A_TURN, len(waiting))):
                waiting.popleft()[1](error)
        finally:
            if not self._go_on(queue):
                self._deliver(partial(self._call, queue, error))

    def _go_on(self, queue: ConsumeQueue) -> bool:
        """Whether nobody waits for the queue any more; else what comes now has to wait, too."""
        if self._waiting[queue]:
            queue.limit = min(queue.limit, queue.end)
            return False
        del self._waiting[queue]
        return True
