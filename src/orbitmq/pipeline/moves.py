"""Which queue goes where in a migration, how far each is, and where a group's offset is after it. Pure but for the file
the moves are kept in.

Each source queue has a target queue of its own and is copied in its order, so that the message at `start + n` of the
one is at `base + n` of the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from orbitmq.errors import ConfigurationError
from orbitmq.message.model import MessageQueue
from orbitmq.runtime.files import load_with_backup, save_with_backup

VERSION = 1


@dataclass
class Move:
    """One queue. `done` is the next source offset to copy; a pass that is under way copies up to before `end`."""

    source: MessageQueue
    target: MessageQueue
    start: int
    base: int
    done: int
    end: int

    @property
    def copied(self) -> int:
        """Messages that are on the other side."""
        return self.done - self.start

    def offset_of(self, offset: int) -> int:
        """Where a group that stands at this source offset stands on the other side; no further than what is copied."""
        return self.base + min(max(offset, self.start), self.done) - self.start


@dataclass
class Migration:
    """All moves between two clusters, as they are kept between runs. `name` makes the idempotency keys."""

    name: str
    clusters: tuple[str, str]
    passes: int = 0
    moves: list[Move] = field(default_factory=list)

    @property
    def pending(self) -> list[Move]:
        """Moves of the pass that is under way."""
        return [move for move in self.moves if move.end > move.done]

    def add(self, source: MessageQueue, target: MessageQueue, start: int, base: int) -> None:
        self.moves.append(Move(source, target, start, base, start, start))

    def plan(self, goals: Mapping[MessageQueue, int], count_max: int) -> bool:
        """Begin a pass towards the goals, of at most so many messages a queue; False when all are reached."""
        for move in self.moves:
            move.end = max(move.done, min(goals.get(move.source, move.done), move.done + count_max))
        self.passes += bool(self.pending)
        return bool(self.pending)

    def finish(self) -> None:
        """Everything of the pass is stored."""
        for move in self.moves:
            move.done = move.end

    def save(self, path: Path) -> None:
        """On disk when this returns. OSError."""
        moves = [asdict(move) for move in self.moves]
        whole = {
            "version": VERSION,
            "name": self.name,
            "clusters": self.clusters,
            "passes": self.passes,
            "moves": moves,
        }
        save_with_backup(path, json.dumps(whole, indent=1))


def load(path: Path, clusters: tuple[str, str]) -> Migration | None:
    """The migration kept in a file, None when there is none. ConfigurationError when it is one of other clusters."""
    found = load_with_backup(path, _parsed)
    if found is not None and found.clusters != clusters:
        raise ConfigurationError(f"option state: {path} is of a migration from {' to '.join(found.clusters)}")
    return found


def _parsed(text: str) -> Migration:
    try:
        whole = json.loads(text)
        moves = [
            Move(**{**move, "source": MessageQueue(**move["source"]), "target": MessageQueue(**move["target"])})
            for move in whole["moves"]
        ]
        source, target = whole["clusters"]
        return Migration(whole["name"], (source, target), whole["passes"], moves)
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigurationError(f"this is no state of a migration: {error}") from error


def paired(sources: Iterable[MessageQueue], brokers: Sequence[str]) -> dict[MessageQueue, MessageQueue]:
    """The target queue of each source queue of one topic, none used twice.

    With as many brokers on the other side or more, each source broker gets one and queues keep their numbers; with
    fewer the queues are dealt out.
    """
    queues, targets = sorted(sources), sorted(brokers)
    names = sorted({queue.broker_name for queue in queues})
    if len(names) <= len(targets):
        home = dict(zip(names, targets, strict=False))
        return {queue: MessageQueue(queue.topic, home[queue.broker_name], queue.queue_id) for queue in queues}
    count = len(targets)
    return {
        queue: MessageQueue(queue.topic, targets[number % count], number // count)
        for number, queue in enumerate(queues)
    }
