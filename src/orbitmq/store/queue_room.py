"""Allocates room for the entries of queues on a worker thread: a new queue needs directories, a file, its map and disk
blocks, and a busy disk makes that slow.

A message without room waits here, and with it all later ones of the same queue, so that they are stored in the order of
their arrival. A queue in use gets its next blocks before it needs them, its next file when it needs it. Does not know
messages: waiting puts are called back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from orbitmq.runtime.clock import Clock
from orbitmq.store.queue import ENTRY_SIZE, ConsumeQueue

CALLED_A_TURN = 50  # callbacks per turn of the event loop: each stores a message

Deliver = Callable[[Callable[[], object]], object]
RoomCallback = Callable[[OSError | None], object]


class RoomAwaited(Exception):
    """A message must wait until all its queues have room for `entries`. It waits in the first of them, its own: for
    those that wait after it there it does not matter which one has no room.
    """

    def __init__(self, queues: Sequence[ConsumeQueue], entries: int) -> None:
        super().__init__(f"queue {queues[0].queue_id} of {queues[0].topic}, or a further one, has no room yet")
        self.queues = queues
        self.entries = entries

    def behind(self, queue: ConsumeQueue) -> RoomAwaited:
        """The same for a message that waits in another queue, which needs room as well."""
        return RoomAwaited((queue, *self.queues), self.entries)


class QueueRoom:
    """`step` belongs to a worker that `wake` wakes, the rest to the thread that appends; `deliver` passes it the
    worker's results. No caller waits longer than `patience_ms`.

    Invariant: while a caller waits for a queue its `limit` is not above its `end`, so that every put is checked here.
    """

    def __init__(self, deliver: Deliver, clock: Clock, patience_ms: int, wake: Callable[[], None]) -> None:
        self._deliver = deliver
        self._clock = clock
        self._patience_ms = patience_ms
        self._wake = wake
        self._asked: deque[tuple[Sequence[ConsumeQueue], int]] = deque()
        self._under_way: set[ConsumeQueue] = set()
        self._waiting: dict[ConsumeQueue, deque[tuple[int, RoomCallback]]] = {}
        self._called: tuple[ConsumeQueue, int] | None = None  # whose turn it is now in this queue, and its deadline

    def take(self, queue: ConsumeQueue, entries: int) -> bool:
        """Whether a put may use room of the queue now, without waiting for a disk or overtaking those that wait."""
        return (self._is_called(queue) or queue not in self._waiting) and queue.take_room(entries)

    def need(self, queues: Sequence[ConsumeQueue], entries: int) -> None:
        """Take room in all of these for a put that comes now. RoomAwaited when one has none yet."""
        for queue in queues:
            if not queue.has_room(entries):
                if not self.take(queue, entries):
                    raise RoomAwaited(queues, entries)
                if queue.wants_room:
                    self.ask(queue)

    def make(self, queues: Sequence[ConsumeQueue], entries: int) -> None:
        """The same for a put that cannot wait: make room synchronously, however slow the disk is. OSError as a queue
        raises it. Puts that wait already still come first.
        """
        for queue in queues:
            if not queue.has_room(entries):
                queue.make_room(entries)
                if queue in self._waiting:
                    queue.limit = min(queue.limit, queue.end + entries * ENTRY_SIZE)
                if queue.wants_room:
                    self.ask(queue)

    def ask(self, *queues: ConsumeQueue, entries: int = 0) -> None:
        """Request room for this many entries in each, and the next room if a queue needs it."""
        if len(queues) > 1 or queues[0] not in self._under_way:
            self._under_way.add(queues[0])
            self._asked.append((queues, entries))
            self._wake()

    def wait(self, awaited: RoomAwaited, done: RoomCallback) -> None:
        """Call `done` when there is room and it is its turn; with an error when there will be none: that of the disk,
        or TimeoutError. A callback that still finds none, because its batch is larger or a further queue has none,
        keeps its place before all others.
        """
        queue = awaited.queues[0]
        queue.limit = min(queue.limit, queue.end)
        waiting = self._waiting.setdefault(queue, deque())
        if self._called is not None and self._is_called(queue):
            waiting.appendleft((self._called[1], done))
            self._called = None
        else:
            waiting.append((self._clock.now_ms() + self._patience_ms, done))
        self.ask(*awaited.queues, entries=awaited.entries)

    def expire(self) -> None:
        """Call back those that have waited too long."""
        now_ms = self._clock.now_ms()
        for queue, waiting in list(self._waiting.items()):
            while waiting and waiting[0][0] <= now_ms:
                waiting.popleft()[1](TimeoutError(f"{queue.topic}/{queue.queue_id} got no room in time"))
            self._go_on(queue)

    def step(self) -> None:
        """Allocate the requested room."""
        while self._asked:
            queues, entries = self._asked.popleft()
            error = None
            try:
                for queue in queues:
                    queue.claim(entries)
                    queue.claim_ahead()
            except OSError as found:
                error = found
            self._deliver(partial(self._made, queues[0], error))

    def _made(self, queue: ConsumeQueue, error: OSError | None) -> None:
        self._under_way.discard(queue)
        self._call(queue, error)

    def _call(self, queue: ConsumeQueue, error: OSError | None) -> None:
        waiting = self._waiting.get(queue)
        if waiting is None:
            return
        try:
            for _ in range(min(CALLED_A_TURN, len(waiting))):
                deadline_ms, done = waiting.popleft()
                self._called = queue, deadline_ms
                done(error)
                if not self._is_called(queue):
                    break  # it waits on
        finally:
            self._called = None
            if not self._go_on(queue) and queue not in self._under_way:
                self._deliver(partial(self._call, queue, error))

    def _is_called(self, queue: ConsumeQueue) -> bool:
        return self._called is not None and self._called[0] is queue

    def _go_on(self, queue: ConsumeQueue) -> bool:
        """Whether no caller waits for the queue any more; otherwise later ones must wait, too."""
        if self._waiting[queue]:
            queue.limit = min(queue.limit, queue.end)
            return False
        del self._waiting[queue]
        return True
