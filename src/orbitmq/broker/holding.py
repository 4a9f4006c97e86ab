"""Long polling: pulls that found nothing wait here until a message they want arrives or their time is up.

Arrivals of one turn of the event loop are handled together, so that a waiting consumer gets all of them with one
answer. The time comes in; what running a pull again means is the caller's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

from orbitmq.net.connection import Connection
from orbitmq.store.reading import Selection
from orbitmq.wire.command import Command

_log = logging.getLogger(__name__)

HELD_MAX = 100_000  # pulls of all connections; RocketMQ's pull queue capacity. One costs about 1 KiB

# New messages of one queue that a held pull with an expression is compared with in one turn; with more of them running
# the pull is the shorter way.
LOOKED_AT_MAX = 32

QueueKey = tuple[str, int]
Unit = Callable[[str, int, int], memoryview | None]  # topic, queue id and queue offset of a message -> the message


@dataclass(slots=True, eq=False)
class HeldPull:
    """A parked pull. `offset` is the first it can get."""

    connection: Connection
    command: Command
    offset: int
    deadline_ms: int
    wanted: Selection


class HeldPulls:
    """(topic, queue id) -> parked pulls. `rerun` answers a pull without parking it again, `unit` reads a message."""

    def __init__(
        self,
        rerun: Callable[[HeldPull], None],
        call_soon: Callable[[Callable[[], None]], object],
        unit: Unit,
        limit: int = HELD_MAX,
    ) -> None:
        self._rerun = rerun
        self._call_soon = call_soon
        self._unit = unit
        self._limit = limit
        self._held: dict[QueueKey, list[HeldPull]] = {}
        self._count = 0
        self._arrived: dict[QueueKey, list[tuple[int, int]]] = {}

    def __len__(self) -> int:
        return self._count

    def hold(self, topic: str, queue_id: int, pull: HeldPull) -> bool:
        """Park a pull; False when the limit is reached and it must be answered now."""
        if self._count >= self._limit:
            _log.warning("event=pull_not_held limit=%d", self._limit)
            return False
        self._held.setdefault((topic, queue_id), []).append(pull)
        self._count += 1
        return True

    def arrived(self, topic: str, queue_id: int, next_offset: int, tags_code: int) -> None:
        """The store tells of a message; `next_offset` is its queue offset + 1. Costs one look-up while nobody waits."""
        key = (topic, queue_id)
        if key not in self._held:
            return
        if not self._arrived:
            self._call_soon(self._wake)
        self._arrived.setdefault(key, []).append((next_offset, tags_code))

    def _wake(self) -> None:
        arrived, self._arrived = self._arrived, {}
        for key, messages in arrived.items():
            unit = cache(partial(self._unit, *key))
            self._release(key, partial(_wants, messages, unit))

    def scan(self, now_ms: int, newest_offset: Callable[[str, int], int]) -> None:
        """Run pulls whose time is up, whose queue grew unnoticed, or whose connection is gone; every few seconds."""
        for key in list(self._held):
            newest = newest_offset(*key)
            self._release(key, partial(_is_due, now_ms, newest))

    def release_all(self) -> None:
        """Answer everything that waits: the broker is about to stop."""
        for key in list(self._held):
            self._release(key, lambda _: True)

    def _release(self, key: QueueKey, is_ready: Callable[[HeldPull], bool]) -> None:
        ready: list[HeldPull] = []
        kept: list[HeldPull] = []
        for pull in self._held.pop(key, []):
            (ready if is_ready(pull) else kept).append(pull)
        if kept:
            self._held[key] = kept
        self._count -= len(ready)
        for pull in ready:
            if pull.connection.is_open:
                self._rerun(pull)


def _wants(messages: list[tuple[int, int]], unit: Callable[[int], memoryview | None], pull: HeldPull) -> bool:
    matcher, look = pull.wanted
    new = [(offset, code) for offset, code in messages if offset > pull.offset and (matcher is None or matcher(code))]
    if look is None or len(new) > LOOKED_AT_MAX:
        return bool(new)
    found = (unit(offset - 1) for offset, _ in new)
    return any(message is None or look.takes(message) for message in found)  # one that is gone: let the pull see


def _is_due(now_ms: int, newest: int, pull: HeldPull) -> bool:
    return newest > pull.offset or now_ms >= pull.deadline_ms or not pull.connection.is_open
