"""Which message of an outbox is sent next: lines, pauses, doubtful topics. Pure; time is passed in.

Messages that must keep their order form a line: those with one sharding key, for one chosen queue, or the others of one
topic. Only the head of a line is sent, and a head that fails blocks only its line. Knows sizes and numbers of messages,
not the messages, and neither files nor connections.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

Line = tuple[str | int | bytes, ...]
"""The topic, then what sets the line apart: nothing, a key, or broker name and queue id."""

FAILURES_BEFORE_DOUBT = 3  # consecutive failures of a topic, after which one message at a time probes it


@dataclass(slots=True)
class BacklogEntry:
    """One message of the outbox, as far as its schedule goes."""

    sequence: int
    line: Line
    size: int
    first_failed_ms: int
    msg_id: str = ""
    error: str = ""
    """Of the last send."""
    attempts: int = 0
    """Sends since it is in the outbox."""
    next_ms: int = 0
    """When the next one is due."""
    is_in_flight: bool = False
    ticket: int = -1
    """Its valid entry in the heap; older entries are ignored."""

    @property
    def topic(self) -> str:
        return str(self.line[0])


@dataclass(slots=True)
class _Topic:
    due: list[tuple[int, int, int]] = field(default_factory=list)  # heap of (when, ticket, sequence): heads of lines
    in_flight: int = 0
    failures: int = FAILURES_BEFORE_DOUBT  # nothing is known of a topic at first

    @property
    def must_wait(self) -> bool:
        """Whether a message is already probing the topic."""
        return self.failures >= FAILURES_BEFORE_DOUBT and self.in_flight > 0


class Backlog:
    """The messages of one outbox.

    Invariants: every head of a line is either in flight or has a valid ticket; `bytes` is the sum of the sizes.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._messages: dict[int, BacklogEntry] = {}  # in the order they came
        self._lines: dict[Line, deque[BacklogEntry]] = {}
        self._topics: dict[str, _Topic] = {}
        self._tickets = count()

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[BacklogEntry]:
        return iter(self._messages.values())

    def find(self, sequence: int) -> BacklogEntry | None:
        """The message with this number."""
        return self._messages.get(sequence)

    def holds(self, line: Line) -> bool:
        """Whether a new message of this line must wait for others."""
        return line in self._lines

    def add(self, message: BacklogEntry) -> None:
        """Append a message to its line."""
        self._messages[message.sequence] = message
        self.bytes += message.size
        line = self._lines.get(message.line)
        if line is None:
            self._lines[message.line] = deque([message])
            self._schedule(message)
        else:
            line.append(message)

    def remove(self, sequence: int) -> None:
        """Remove a message, delivered or not; the next one of its line may be sent."""
        message = self._messages.pop(sequence)
        self.bytes -= message.size
        topic, line = self._topics[message.topic], self._lines[message.line]
        was_head = line[0] is message
        line.remove(message)
        topic.in_flight -= message.is_in_flight
        if not line:
            del self._lines[message.line]
        elif was_head:
            self._schedule(line[0])
        if not topic.in_flight and not self._prune(topic):
            del self._topics[message.topic]

    def take(self, now_ms: int) -> BacklogEntry | None:
        """A message that is due; it is in flight until `failed` or `remove`. Topics take turns."""
        for name, topic in list(self._topics.items()):
            if not topic.must_wait and self._prune(topic) and topic.due[0][0] <= now_ms:
                message = self._messages[heapq.heappop(topic.due)[2]]
                message.is_in_flight = True
                topic.in_flight += 1
                self._topics[name] = self._topics.pop(name)
                return message
        return None

    def next_due_ms(self) -> int | None:
        """When `take` will return a message; None while there are only messages in flight."""
        waiting = [topic for topic in self._topics.values() if not topic.must_wait and self._prune(topic)]
        return min((topic.due[0][0] for topic in waiting), default=None)

    def failed(self, sequence: int, next_ms: int) -> None:
        """A send failed; the next one is due at `next_ms`. The message keeps its place."""
        message = self._messages[sequence]
        topic = self._topics[message.topic]
        topic.failures += 1
        topic.in_flight -= 1
        message.is_in_flight = False
        message.attempts += 1
        message.next_ms = next_ms
        self._schedule(message)

    def reached(self, name: str, now_ms: int) -> None:
        """A broker has accepted a message of this topic: if it was doubtful, every line may be tried at once."""
        topic = self._topics.get(name)
        if topic is None:
            return
        was_doubtful, topic.failures = topic.failures >= FAILURES_BEFORE_DOUBT, 0
        if was_doubtful:
            topic.due = [(min(when, now_ms), ticket, sequence) for when, ticket, sequence in topic.due]
            heapq.heapify(topic.due)

    def _schedule(self, message: BacklogEntry) -> None:
        topic = self._topics.setdefault(message.topic, _Topic())
        message.ticket = next(self._tickets)
        heapq.heappush(topic.due, (message.next_ms, message.ticket, message.sequence))

    def _prune(self, topic: _Topic) -> bool:
        """Drop invalid entries from the front; whether one is left."""
        while topic.due:
            _, ticket, sequence = topic.due[0]
            message = self._messages.get(sequence)
            if message is not None and message.ticket == ticket:
                return True
            heapq.heappop(topic.due)
        return False

    def _is_valid(self, sequence: int, ticket: int) -> bool:
        message = self._messages.get(sequence)
        return message is not None and message.ticket == ticket and not message.is_in_flight
