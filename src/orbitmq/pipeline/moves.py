"""The state of a migration: the target and the progress of each queue, and the mapping of group offsets. Pure, except
for the state file.

Each source queue has a target queue of its own and is copied in its order, so that the message at `start + n` of the
one is at `base + n` of the other, except for messages that were deleted before they were copied.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from orbitmq.errors import ConfigurationError
from orbitmq.message.model import MessageQueue
from orbitmq.runtime.files import load_with_backup, save_with_backup

VERSION = 1


@dataclass
class Move:
    """One queue. `done` is the next source offset to copy. An unfinished pass copies up to before `end`."""

    source: MessageQueue
    target: MessageQueue
    start: int
    base: int
    done: int
    end: int
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """Source offsets that were deleted before they were copied: from the first up to before the second, in order."""

    @property
    def copied(self) -> int:
        """Messages that are on the target."""
        return self.top - self.base

    @property
    def gone(self) -> int:
        """Messages that were deleted before they were copied."""
        return sum(after - first for first, after in self.gaps)

    @property
    def top(self) -> int:
        """The target offset that the next message gets."""
        return self.offset_of(self.done)

    def offset_of(self, offset: int) -> int:
        """The target offset of a group at this source offset, at most the end of the copy."""
        at = min(max(offset, self.start), self.done)
        return self.base + at - self.start - sum(min(at, after) - min(at, first) for first, after in self.gaps)

    def settle(self, stored: int, low: int) -> None:
        """`stored` messages of the unfinished pass are copied, and messages before `low` were deleted."""
        self.done += stored
        if low > self.done:
            self.gaps.append((self.done, low))
            self.done = low
        self.end = max(self.end, self.done)

    def shared(self, low: int, target_low: int) -> tuple[int, int]:
        """The source and the target offset from which on both sides still have what was copied; `low` and `target_low`
        are the first offsets they have."""
        behind_gaps = self.gaps[-1][1] if self.gaps else self.start
        begin = max(behind_gaps, low, self.done - (self.top - target_low))
        return min(begin, self.done), self.offset_of(begin)


@dataclass
class Migration:
    """All moves between two clusters, as they are kept between runs. `name` makes the idempotency keys."""

    name: str
    clusters: tuple[str, str]
    passes: int = 0
    moves: list[Move] = field(default_factory=list)

    @property
    def pending(self) -> list[Move]:
        """Moves of the unfinished pass."""
        return [move for move in self.moves if move.end > move.done]

    def add(self, source: MessageQueue, target: MessageQueue, start: int, base: int) -> None:
        self.moves.append(Move(source, target, start, base, start, start))

    def plan(self, goals: Mapping[MessageQueue, int], count_max: int) -> bool:
        """Begin a pass towards the goals, of at most so many messages a queue; False when all are reached."""
        for move in self.moves:
            move.end = max(move.done, min(goals.get(move.source, move.done), move.done + count_max))
        self.passes += bool(self.pending)
        return bool(self.pending)

    def settle(self, stored: Mapping[MessageQueue, int], lows: Mapping[MessageQueue, int]) -> None:
        """Leave out what is deleted: `lows` are the first offsets of the source queues, `stored` what of a pass that
        broke off is there, by target queue. What is left of it is a pass of its own, under another name."""
        for move in self.moves:
            move.settle(stored.get(move.target, 0), lows.get(move.source, 0))
        self.passes += bool(self.pending)

    def finish(self) -> None:
        """Everything of the pass is stored."""
        for move in self.moves:
            move.done = move.end

    def save(self, path: Path) -> None:
        """Save to disk, flushed. OSError."""
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
        raise ConfigurationError(f"option state: {path} belongs to a migration from {' to '.join(found.clusters)}")
    return found


def _parsed(text: str) -> Migration:
    try:
        whole = json.loads(text)
        moves = [_move(**move) for move in whole["moves"]]
        source, target = whole["clusters"]
        return Migration(whole["name"], (source, target), whole["passes"], moves)
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigurationError(f"this is not the state of a migration: {error}") from error


def _move(
    source: Mapping[str, Any], target: Mapping[str, Any], gaps: Iterable[Sequence[int]] = (), **offsets: int
) -> Move:
    found = [(first, after) for first, after in gaps]
    return Move(MessageQueue(**source), MessageQueue(**target), **offsets, gaps=found)


def paired(sources: Iterable[MessageQueue], brokers: Sequence[str]) -> dict[MessageQueue, MessageQueue]:
    """The target queue of each source queue of one topic, none used twice.

    With at least as many brokers on the target, each source broker gets one and queues keep their numbers; with
    fewer the queues are distributed.
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
