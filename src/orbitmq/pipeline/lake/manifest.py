"""Records about the files of a lake: their paths and the messages in them. Pure.

Tasks create these records, Spark carries them as JSON, and the commit publishes them. The plain Parquet lake keeps them
in its log unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

import msgspec

from orbitmq.errors import LakeError

MIXED = "__mixed__"  # in place of the topic if several small ones share a file


class QueueSpan(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of one queue: `first` and `last` are offsets, both included."""

    topic: str
    broker: str
    queue: int
    first: int
    last: int
    rows: int


class LakeFile(msgspec.Struct, frozen=True, kw_only=True):
    """One Parquet file. `path` is relative to the lake's root, `day` is the UTC day the messages were stored on,
    `topic` is MIXED where it holds several; times are milliseconds since the epoch, sizes are bytes, `raw_size` that of
    the messages in memory.

    Lakes whose table format does not keep them know nothing of `raw_size`, the times and `queues`.
    """

    path: str
    topic: str
    day: str
    rows: int
    size: int
    raw_size: int = 0
    first_stored_ms: int = 0
    last_stored_ms: int = 0
    queues: list[QueueSpan] = []

    def __post_init__(self) -> None:
        date.fromisoformat(self.day)


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a task in one queue: `next` is the first offset that is not archived."""

    topic: str
    broker: str
    queue: int
    next: int


class TaskReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of one task of the archive."""

    files: list[LakeFile] = []
    reached: list[Reached] = []


def encode(report: TaskReport) -> str:
    return msgspec.json.encode(report).decode()


def decode(text: str) -> TaskReport:
    """LakeError for anything that `encode` has not made."""
    try:
        return msgspec.json.decode(text, type=TaskReport)
    except (msgspec.MsgspecError, ValueError) as error:
        raise LakeError(f"this is not the report of an archive task: {text[:200]!r}: {error}") from error


def furthest(reports: Iterable[TaskReport]) -> list[Reached]:
    """The furthest point of each queue, sorted."""
    found: dict[tuple[str, str, int], int] = {}
    for report in reports:
        for point in report.reached:
            key = point.topic, point.broker, point.queue
            found[key] = max(point.next, found.get(key, 0))
    return [Reached(topic=key[0], broker=key[1], queue=key[2], next=found[key]) for key in sorted(found)]
