"""Long polling: pulls that found nothing wait here until a message they match arrives or their time is up.

Arrivals of one turn of the event loop are handled together, so that a waiting consumer gets all of them in one
response. When many pulls read each message of a topic, what arrives in a few times the time that these took is handled
together, too, and pulls of these queues that come meanwhile wait for it: fifty groups that pull each message by itself
would leave no time for sends. Waking ten thousand consumers for one message and checking fifty thousand queues are both
done in turns. The caller passes the time and the function that runs a pull again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from orbitmq.net.connection import Connection
from orbitmq.runtime.refusals import Limit, Refusals
from orbitmq.store.pull_batch import Selection
from orbitmq.wire.command import Command

_log = logging.getLogger(__name__)

HELD_MAX: Final = 100_000  # pulls of all connections; RocketMQ's pull queue capacity. One costs some KiB at most
HELD_BY_ONE_MAX = 25_000  # of one connection: a client of many queues must leave room for others
TURN_PULLS = 200  # run again before other work gets its turn: some 5 ms
TURN_QUEUES = 500  # looked over before other work gets its turn: some 2 ms

# Arrivals wait for others so many times as long as it took to run the pulls that were woken before: the broker needs
# that time again to read their next pulls, and as much as both for sends.
GATHER_TIMES: Final = 3.0
# How long they wait at most: 200 groups at eight queues have 1,600 pulls, which take 32 ms.
GATHER_SECONDS_MAX: Final = 0.05
GATHER_SECONDS_MIN: Final = 0.001  # what a timer can measure
# Pulls for each message of a topic: so many groups read it. Fewer are served at once, in half a millisecond.
WIDE_FROM: Final = 20
WIDE_SECONDS: Final = 1.0  # after they were last so many; a topic that is read less often than that needs no gathering
COUNTED_SECONDS: Final = 0.1  # in which pulls and messages are counted
# What a pull takes at least: most of it is to write its response and to read the next, which is not measured here.
PULL_SECONDS: Final = 12e-6

# New messages of one queue that a held pull with an expression is compared with in one turn; with more of them running
# the pull is the shorter way.
LOOKED_AT_MAX: Final = 32

QueueKey = tuple[str, int]
Unit = Callable[[str, int, int], memoryview | None]  # topic, queue id and queue offset of a message -> the message


@dataclass(slots=True, eq=False)
class HeldPull:
    """A parked pull. `offset` is the first it can get; `weight`, as how many pulls it counts where they are limited."""

    connection: Connection
    command: Command
    offset: int
    deadline_ms: int
    wanted: Selection
    weight: int = 1
    is_due: bool = False
    """Whether it finds something already, and waits only for what is gathered."""


@dataclass(slots=True)
class Reads:
    """Pulls of a topic that have found something, and messages that have arrived in it, until a time."""

    until: float
    pulls: int = 0
    messages: int = 0


class HeldPulls:
    """(topic, queue id) -> held pulls. `rerun` responds to a pull without holding it again, `unit` reads a message.
    `call_later` and `now` count seconds.
    """

    def __init__(
        self,
        rerun: Callable[[HeldPull], None],
        call_soon: Callable[[Callable[[], None]], object],
        call_later: Callable[[float, Callable[[], None]], object],
        now: Callable[[], float],
        unit: Unit,
        limit: int = HELD_MAX,
        refusals: Refusals | None = None,
    ) -> None:
        self._refusals = refusals or Refusals()
        self._rerun = rerun
        self._call_soon = call_soon
        self._call_later = call_later
        self._now = now
        self._gathers_until = 0.0
        self._spent = 0.0  # seconds for the pulls that ran since none was ready
        self._unit = unit
        self._limit = limit
        self._held: dict[QueueKey, list[HeldPull]] = {}
        self._count = 0
        self._weight = 0
        self._weights: dict[Connection, int] = {}
        self._ready: deque[HeldPull] = deque()
        self._running = False  # whether a turn is scheduled that runs ready pulls
        self._scanning = False
        self._arrived: dict[QueueKey, list[tuple[int, int]]] = {}  # handled in the next turn
        self._gathered: dict[QueueKey, list[tuple[int, int]]] = {}  # handled together with what comes meanwhile
        self._wide: dict[str, float] = {}  # topic of which many pulls read each message -> until when it counts as such
        self._reads: dict[str, Reads] = {}

    def __len__(self) -> int:
        return self._count

    def hold(self, topic: str, queue_id: int, pull: HeldPull) -> bool:
        """Hold a pull; False if a limit is reached and the caller must respond now."""
        own = self._weights.get(pull.connection, 0)
        if not self._has_room(own, pull):
            text = "event=pull_not_held peer=%s held=%d all=%d limit=%d"
            self._refusals.note(Limit.HELD_PULLS, _log, text, pull.connection, own, self._weight, self._limit)
            return False
        self._weights[pull.connection] = own + pull.weight
        self._held.setdefault((topic, queue_id), []).append(pull)
        self._count += 1
        self._weight += pull.weight
        return True

    def _has_room(self, own: int, pull: HeldPull) -> bool:
        return self._weight + pull.weight <= self._limit and own + pull.weight <= HELD_BY_ONE_MAX

    def gathers(self, topic: str) -> bool:
        """Whether pulls of a topic are handled together: many have just read each of its messages."""
        until = self._wide.get(topic)
        if until is None:
            return False
        if until < self._now():
            del self._wide[topic]
            return False
        return True

    def hold_for_gathered(self, topic: str, queue_id: int, pull: HeldPull) -> bool:
        """`hold` for a pull that finds something, until the arrivals of its topic are handled."""
        if not self._has_room(self._weights.get(pull.connection, 0), pull):
            return False  # it is answered now, as it would be elsewhere
        pull.is_due = True
        self._box(topic).setdefault((topic, queue_id), [])
        return self.hold(topic, queue_id, pull)

    def arrived(self, topic: str, queue_id: int, next_offset: int, codes: Sequence[int]) -> None:
        """The store dispatched consecutive messages of a queue, with the hashes of their tags; `next_offset` is the
        queue offset of the first + 1. Costs one lookup while no pull is held.
        """
        if (reads := self._reads.get(topic)) is not None:
            reads.messages += len(codes)
        key = (topic, queue_id)
        if key in self._held:
            self._box(topic).setdefault(key, []).extend(enumerate(codes, next_offset))

    def note_reads(self, topic: str, count: int) -> None:
        """So many pulls of a topic have found something, at once or when a message arrived."""
        now, reads = self._now(), self._reads.get(topic)
        if reads is not None and now < reads.until:
            reads.pulls += count
            return
        if reads is not None and 0 < reads.messages * WIDE_FROM <= reads.pulls:
            self._wide[topic] = now + WIDE_SECONDS
        self._reads[topic] = Reads(now + COUNTED_SECONDS, count)

    def _box(self, topic: str) -> dict[QueueKey, list[tuple[int, int]]]:
        """What is to be handled together with arrivals of a topic; that will happen."""
        delay = self._gathers_until - self._now() if self.gathers(topic) else 0.0
        if delay <= 0.0:
            if not self._arrived:
                self._call_soon(self._wake)
            return self._arrived
        if not self._gathered:
            self._call_later(max(delay, GATHER_SECONDS_MIN), self._wake_gathered)
        return self._gathered

    def _wake(self) -> None:
        arrived, self._arrived = self._arrived, {}
        self._handle(arrived)

    def _wake_gathered(self) -> None:
        gathered, self._gathered = self._gathered, {}
        self._handle(gathered)

    def _handle(self, arrived: dict[QueueKey, list[tuple[int, int]]]) -> None:
        now = self._now()
        for key, messages in arrived.items():
            before = len(self._ready)
            self._release(key, _NewMessages(key, messages, self._unit).match)
            if (woken := len(self._ready) - before) >= WIDE_FROM:
                self._wide[key[0]] = now + WIDE_SECONDS
            if woken:
                self.note_reads(key[0], woken)
        self._run_ready()

    def scan(self, now_ms: int, newest_offset: Callable[[str, int], int]) -> None:
        """Run pulls whose time is up, whose queue has grown, or whose connection is closed; every few seconds."""
        if not self._scanning:
            now = self._now()
            self._reads = {topic: reads for topic, reads in self._reads.items() if now < reads.until}
            self._scan_some(deque(self._held), now_ms, newest_offset)

    def _scan_some(self, keys: deque[QueueKey], now_ms: int, newest_offset: Callable[[str, int], int]) -> None:
        for _ in range(min(TURN_QUEUES, len(keys))):
            key = keys.popleft()
            self._release(key, partial(_is_due, now_ms, newest_offset(*key)))
        self._run_ready()
        self._scanning = bool(keys)
        if keys:
            self._call_soon(partial(self._scan_some, keys, now_ms, newest_offset))

    def release_all(self) -> None:
        """Respond to all held pulls: the broker is about to stop."""
        for key in list(self._held):
            self._release(key, lambda _: True)
        while self._ready:
            self._run_some()

    def _release(self, key: QueueKey, is_ready: Callable[[HeldPull], bool]) -> None:
        kept: list[HeldPull] = []
        for pull in self._held.pop(key, []):
            if is_ready(pull):
                self._ready.append(pull)
                self._uncount(pull)
            else:
                kept.append(pull)
        if kept:
            self._held[key] = kept

    def _uncount(self, pull: HeldPull) -> None:
        self._count -= 1
        self._weight -= pull.weight
        own = self._weights[pull.connection] - pull.weight
        if own:
            self._weights[pull.connection] = own
        else:
            del self._weights[pull.connection]

    def _run_ready(self) -> None:
        """Run the pulls that are ready: some now, the rest in later turns."""
        if not self._running:
            self._spent = 0.0
            self._run_some()
            self._schedule()

    def _schedule(self) -> None:
        self._running = bool(self._ready)
        if self._running:
            self._call_soon(self._go_on)

    def _go_on(self) -> None:
        self._run_some()
        self._schedule()

    def _run_some(self) -> None:
        begun, count = self._now(), min(TURN_PULLS, len(self._ready))
        for _ in range(count):
            pull = self._ready.popleft()
            if pull.connection.is_open:
                self._rerun(pull)
        now = self._now()
        self._spent += max(now - begun, count * PULL_SECONDS)
        self._gathers_until = now + min(GATHER_TIMES * self._spent, GATHER_SECONDS_MAX)


class _NewMessages:
    """Messages that arrived in a queue in one turn; each is read once for all pulls with an expression."""

    def __init__(self, key: QueueKey, messages: list[tuple[int, int]], unit: Unit) -> None:
        self._key = key
        self._messages = messages
        self._read = unit
        self._units: dict[int, memoryview | None] = {}

    def match(self, pull: HeldPull) -> bool:
        if pull.is_due:
            return True
        matcher, look = pull.wanted
        new = [offset for offset, code in self._messages if offset > pull.offset and (matcher is None or matcher(code))]
        if look is None or len(new) > min(LOOKED_AT_MAX, look.reads_max):
            return bool(new)
        for offset in new:
            message = self._unit(offset - 1)
            if message is None or look.takes(message):  # an expired one: the pull decides
                return True
        return False

    def _unit(self, offset: int) -> memoryview | None:
        if offset not in self._units:
            self._units[offset] = self._read(*self._key, offset)
        return self._units[offset]


def _is_due(now_ms: int, newest: int, pull: HeldPull) -> bool:
    return newest > pull.offset or now_ms >= pull.deadline_ms or not pull.connection.is_open
