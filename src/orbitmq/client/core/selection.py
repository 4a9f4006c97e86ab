"""The queue of a topic for the next message. Pure; must not know routes, connections or the clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random

from orbitmq.client.core.latency import BrokerLatencies, FaultTable
from orbitmq.message.java_hash import string_hash
from orbitmq.message.model import MessageQueue

ROUND_ROBIN, LEAST_LATENCY = "round_robin", "least_latency"
COUNTER_MASK = 0x7FFF_FFFF  # Java's counter is a signed int kept non-negative; the order of queues wraps with it
SIGN_BIT, WORD = 1 << 31, 1 << 32
TURNS_MAX = 64  # of a topic: more sends at a time fill every broker anyway, and share one
GOLDEN = (math.sqrt(5) - 1) / 2  # multiples of it fall far from each other, however many there are


class RoundRobin:
    """Takes the queues of one topic in turn. `start` is random so that many producers do not march in step."""

    def __init__(self, start: int) -> None:
        self._next = start & COUNTER_MASK

    def select(self, queues: Sequence[MessageQueue], avoid_broker: str | None = None) -> MessageQueue:
        """The next queue, on another broker than `avoid_broker` if there is one. `queues` is not empty."""
        if avoid_broker is not None:
            for _ in queues:
                queue = self._step(queues)
                if queue.broker_name != avoid_broker:
                    return queue
        return self._step(queues)

    def first(self, queues: Sequence[MessageQueue], suits: Callable[[MessageQueue], bool]) -> MessageQueue | None:
        """The next queue that suits, None when none of them does."""
        for _ in queues:
            if suits(queue := self._step(queues)):
                return queue
        return None

    def leave(self, queues: Sequence[MessageQueue], broker_name: str) -> None:
        """Go on behind the queues of a broker, when they are next and others follow."""
        for _ in queues:
            if queues[self._next % len(queues)].broker_name != broker_name:
                return
            self._step(queues)

    def step_back(self) -> None:
        """The queue that was selected last is the next one: nothing was sent to it."""
        self._next = (self._next - 1) & COUNTER_MASK

    def jump(self, start: int) -> None:
        """Go on elsewhere."""
        self._next = start & COUNTER_MASK

    def _step(self, queues: Sequence[MessageQueue]) -> MessageQueue:
        position = self._next
        self._next = (position + 1) & COUNTER_MASK
        return queues[position % len(queues)]


class Turns:
    """The round-robin positions of one topic; each send in flight has its own.

    A broker that hangs blocks every send to it. With one position for all, concurrent sends would select its adjacent
    queues one right after the other and hang together; Java's threads, each with its own position, do not. Sequential
    sends use the same position, so that queues are selected in turn.
    """

    def __init__(self, start: int) -> None:
        self._start = start
        self._free: list[RoundRobin] = []
        self._made = 0
        self.shared = RoundRobin(start)
        """For sends that take none, or find none."""

    def take(self, queue_count: int) -> RoundRobin:
        """A turn for a send that begins; new ones start far from each other, together at every queue."""
        if self._free:
            return self._free.pop()
        if self._made == TURNS_MAX:
            return self.shared
        self._made += 1
        return RoundRobin(self._start + self._made * _stride(queue_count))

    def give_back(self, turn: RoundRobin) -> None:
        """The send has ended."""
        if turn is not self.shared:
            self._free.append(turn)


def _stride(size: int) -> int:
    """About the golden part of a round, and coprime to it: its multiples come to every position."""
    return next(step for step in range(max(1, round(size * GOLDEN)), size + 2) if math.gcd(step, size) == 1)


EXPLORED = 0.03  # share of messages sent to any broker, to detect that another has become faster


class QueueChooser:
    """Which queue a message takes that may go anywhere: the next one in turn, with `faults` of a broker that is not
    left out, with `latencies` of the fastest of them.
    """

    def __init__(
        self, chance: Random, faults: FaultTable | None = None, latencies: BrokerLatencies | None = None
    ) -> None:
        self._chance = chance
        self.faults = faults
        self.latencies = latencies
        self._turns: dict[str, Turns] = {}
        self.measures = faults is not None or latencies is not None
        """Whether `note` is of any use."""

    def turns(self, topic: str) -> Turns:
        """Those of a topic."""
        turns = self._turns.get(topic)
        if turns is None:
            turns = self._turns[topic] = Turns(self._chance.getrandbits(31))
        return turns

    def forget_topics(self) -> None:
        """Each topic begins at another queue when it is next sent to."""
        self._turns.clear()

    def choose(
        self, turn: RoundRobin, queues: Sequence[MessageQueue], avoid_broker: str | None, now_ms: int
    ) -> MessageQueue:
        """The queue for a message; after a failed attempt one on another broker than `avoid_broker` if that can be."""
        if not self.measures:
            return turn.select(queues, avoid_broker)
        if avoid_broker is not None:  # senders that were thrown off the same broker should not march on in step
            turn.jump(self._chance.getrandbits(31))
        names = self._brokers({queue.broker_name for queue in queues}, avoid_broker, now_ms)
        return turn.first(queues, lambda queue: queue.broker_name in names) or turn.select(queues, avoid_broker)

    def _brokers(self, names: set[str], avoid_broker: str | None, now_ms: int) -> set[str]:
        if self.faults is not None and self.faults.probes:
            return self._fastest(self._sound(names, avoid_broker, now_ms, self.faults), now_ms)
        if self.faults is not None:
            faults = self.faults
            available = {name for name in names if faults.is_available(name, now_ms)}
            names = available or {faults.least_bad(names) or next(iter(names))}
        return self._fastest(names - {avoid_broker} or names, now_ms)

    def _sound(self, names: set[str], avoid_broker: str | None, now_ms: int, faults: FaultTable) -> set[str]:
        """Other brokers that are not left out, else others that can be reached, else any."""
        for suits in (faults.is_available, faults.is_reachable):
            if sound := {name for name in names if name != avoid_broker and suits(name, now_ms)}:
                return sound
        return names

    def _fastest(self, names: set[str], now_ms: int) -> set[str]:
        if self.latencies is not None and self._chance.random() >= EXPLORED:
            return self.latencies.fastest(names, now_ms)
        return names

    def note(self, broker_name: str, latency_ms: int, now_ms: int, *, failed: bool, reachable: bool = True) -> None:
        """An attempt at a broker has ended; without `reachable` the network failed."""
        if self.faults is not None:
            self.faults.note(broker_name, latency_ms, now_ms, failed=failed, is_reachable=reachable)
        if self.latencies is not None:
            self.latencies.note(broker_name, latency_ms, now_ms, failed=failed)


def queue_of_key(queues: Sequence[MessageQueue], key: str | int | bytes) -> MessageQueue:
    """The queue that messages with this sharding key share, as Java's hash selector chooses it."""
    return queues[position_of_key(key, len(queues))]


def position_of_key(key: str | int | bytes, size: int) -> int:
    """Java takes the remainder first and its absolute value then, which is the remainder of the absolute value."""
    return abs(_java_hash(key)) % size


def _java_hash(key: str | int | bytes) -> int:
    if isinstance(key, str):
        return string_hash(key)
    if isinstance(key, bytes):
        return string_hash(key.decode("latin-1"))
    if -SIGN_BIT <= key < SIGN_BIT:
        return key
    folded = (key ^ (key >> 32)) & (WORD - 1)  # as the hash of a Java long
    return folded - WORD if folded & SIGN_BIT else folded
