"""Requests of POP consumers that found nothing wait here until a message arrives or their time is up.

One of those that wait for the same messages is tried when something arrives, and the next one as long as they find
something.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from orbitmq.net.connection import Connection
from orbitmq.runtime.refusals import Limit, Refusals
from orbitmq.store.pull_batch import Matcher
from orbitmq.wire.command import Command

_log = logging.getLogger(__name__)

WAITING_MAX: Final = 100_000  # of all connections, and 1024 for the same messages, as in RocketMQ
WAITING_FOR_ONE_MAX: Final = 1024
WAITING_OF_ONE_MAX: Final = 25_000  # of one connection, as of held pulls; a long expression counts as several
SECONDS_MAX: Final = 600.0  # a request may ask for any time
LOOKED_AT: Final = 8  # of those that wait for the same: whether one of them may want what arrives
EARLY_MS: Final = 50  # the answer should arrive before the client's own time is up

WaitKey = tuple[str, str, int]  # topic, group, queue id or -1


@dataclass(slots=True, eq=False)
class Waiting:
    """A request that waits. `tries` answers it if it finds something, in any case at the end. `matcher` checks hashes
    of tags, None accepts all; `weight` is as how many requests it counts where they are limited.
    """

    connection: Connection
    command: Command
    key: WaitKey
    tries: Callable[[bool], bool]
    matcher: Matcher | None = None
    weight: int = 1
    is_fetched: bool = False
    """Whether what it reads was brought into memory before."""
    timer: asyncio.TimerHandle | None = field(default=None)


class WaitingPops:
    """What waits, by its topic and by the retry topics it also reads."""

    def __init__(self, refusals: Refusals) -> None:
        self.begun: set[tuple[Connection, int | None]] = set()
        """Requests that may come to wait, by connection and number."""
        self._refusals = refusals
        self._lines: dict[WaitKey, deque[Waiting]] = {}
        self._by_topic: dict[str, set[WaitKey]] = {}
        self._retries: dict[WaitKey, str] = {}
        self._of: dict[Connection, set[Waiting]] = {}
        self._weights: dict[Connection, int] = {}
        self._count = 0
        self._arrived: set[WaitKey] = set()

    def __len__(self) -> int:
        return self._count

    def of(self, topic: str, group: str, queue_id: int) -> int:
        """How many wait for these messages."""
        return len(self._lines.get((topic, group, queue_id), ()))

    def park(self, waiting: Waiting, seconds: float, retry_topic: str) -> bool:
        """False if a limit is reached."""
        line = self._lines.get(waiting.key)
        own = self._weights.get(waiting.connection, 0)
        is_full = line is not None and len(line) >= WAITING_FOR_ONE_MAX
        if is_full or self._count >= WAITING_MAX or own + waiting.weight > WAITING_OF_ONE_MAX:
            text = "event=pop_not_held peer=%s held=%d all=%d"
            self._refusals.note(Limit.HELD_PULLS, _log, text, waiting.connection, own, self._count)
            return False
        if line is None:
            line = self._lines[waiting.key] = deque()
            self._retries[waiting.key] = retry_topic
            for topic in (waiting.key[0], retry_topic):
                self._by_topic.setdefault(topic, set()).add(waiting.key)
        line.append(waiting)
        self._count += waiting.weight
        self._of.setdefault(waiting.connection, set()).add(waiting)
        self._weights[waiting.connection] = own + waiting.weight
        waiting.timer = asyncio.get_running_loop().call_later(min(seconds, SECONDS_MAX), self._is_up, waiting)
        return True

    def leave(self, connection: Connection) -> None:
        """It was closed."""
        for waiting in list(self._of.get(connection, ())):
            self._leave(waiting)

    def drop(self, connection: Connection, number: int) -> bool:
        """The response to this request of a connection is not needed any more; whether it has waited here. One that has
        only begun is answered, and does not come to wait.
        """
        self.begun.discard((connection, number))
        for waiting in self._of.get(connection, ()):
            if waiting.command.opaque == number:
                self._leave(waiting)
                return True
        return False

    def arrived(self, topic: str, queue_id: int, codes: Iterable[int]) -> None:
        """Messages can be read, with these hashes of tags. Costs one lookup while nothing waits for their topic."""
        keys = self._by_topic.get(topic)
        if keys is None:
            return
        for key in keys:
            is_here = key[2] == -1 or key[0] != topic or key[2] == queue_id
            if is_here and self._may_want(key, codes):
                self.wake(key)

    def _may_want(self, key: WaitKey, codes: Iterable[int]) -> bool:
        line = self._lines[key]
        if len(line) > LOOKED_AT:
            return True
        return any(one.matcher is None or any(map(one.matcher, codes)) for one in line)

    def wake(self, key: WaitKey) -> None:
        """Try those that wait for these messages, in the next turn of the event loop."""
        if key in self._lines:
            if not self._arrived:
                asyncio.get_running_loop().call_soon(self._try)
            self._arrived.add(key)

    def wake_group(self, topic: str, group: str) -> None:
        """`wake` for all queues of a topic."""
        for key in [key for key in self._by_topic.get(topic, ()) if key[1] == group]:
            self.wake(key)

    def _try(self) -> None:
        arrived, self._arrived = self._arrived, set()
        for key in arrived:
            while line := self._lines.get(key):
                first = line[0]
                if not first.tries(False):
                    line.rotate(-1)  # another one may want what this one does not
                    break
                self._leave(first)

    def _is_up(self, waiting: Waiting) -> None:
        self._leave(waiting)
        if waiting.connection.is_open:
            waiting.tries(True)

    def release_all(self) -> None:
        """Answer all: the broker is about to stop."""
        for waiting in [one for line in self._lines.values() for one in line]:
            self._is_up(waiting)

    def _leave(self, waiting: Waiting) -> None:
        if waiting.timer is None:
            return  # its connection was closed meanwhile
        waiting.timer.cancel()
        waiting.timer = None
        key = waiting.key
        line = self._lines[key]
        line.remove(waiting)
        if not line:
            del self._lines[key]
            for topic in (key[0], self._retries.pop(key)):
                self._by_topic[topic].discard(key)
                if not self._by_topic[topic]:
                    del self._by_topic[topic]
        self._count -= waiting.weight
        own = self._of[waiting.connection]
        own.discard(waiting)
        self._weights[waiting.connection] -= waiting.weight
        if not own:
            del self._of[waiting.connection], self._weights[waiting.connection]
