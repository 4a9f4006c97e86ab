"""Records about the files of a lake: their paths and the messages in them. Pure.

Tasks create these records, Spark carries them as JSON, and the commit publishes them.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from orbitmq.errors import LakeError


class QueueSpan(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of one queue: `first` and `last` are offsets, both included."""

    topic: str
    broker: str
    queue: int
    first: int
    last: int
    rows: int


class LakeFile(msgspec.Struct, frozen=True, kw_only=True):
    """One Parquet file with messages of one topic that were stored on one day (UTC). `path` is relative to the lake's
    root, or a URI outside of it; times are milliseconds since the epoch, `size` is in bytes.

    A table keeps the topic and the day of each file. They are empty where another engine has changed how the table is
    partitioned. A table does not keep the times and `queues`. `is_whole` is false when another engine marked some rows
    as deleted without rewriting the file.
    """

    path: str
    topic: str
    day: str
    rows: int
    size: int
    first_stored_ms: int = 0
    last_stored_ms: int = 0
    queues: list[QueueSpan] = []
    is_whole: bool = True


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
