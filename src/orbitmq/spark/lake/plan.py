"""Chooses the files of a read, and divides them among tasks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from orbitmq.errors import SourceError
from orbitmq.lake.lakes import Snapshot
from orbitmq.lake.manifest import LakeFile
from orbitmq.spark.lake.files import FilePart, LakePartition
from orbitmq.spark.lake.options import LakeReadOptions, unreadable
from orbitmq.spark.topic_names import TopicNames
from orbitmq.spark.versions import InputPartition

OPEN_COST = 1 << 20  # bytes that could be read in the time that it takes to open a file
TOPICS_SHOWN = 20  # in an error


def plan(snapshot: Snapshot, options: LakeReadOptions) -> list[InputPartition]:
    """The tasks. SourceError ORBITMQ_TOPIC_NOT_FOUND for a topic by name that the lake does not have,
    ORBITMQ_LAKE_UNREADABLE when another engine marked rows as deleted."""
    topics = options.topic_names
    require_topics(topics, snapshot)
    files = wanted(snapshot.files, topics, options.begin_ms, options.end_ms)
    if marked := [file.path for file in files if not file.is_whole]:
        raise unreadable(
            f"rows of {options.place.uri(marked[0])} are marked as deleted, and would be there again; rewrite the data "
            "files of the table with the engine that deleted them"
        )
    return list(_packed(files, options.split_size))


def require_topics(topics: TopicNames, snapshot: Snapshot) -> None:
    """SourceError ORBITMQ_TOPIC_NOT_FOUND for a topic by name that the lake does not have."""
    known = {file.topic for file in snapshot.files}
    if "" in known:  # of a file with any topics
        return
    if missing := [topic for topic in topics.names if topic not in known]:
        shown = ", ".join(sorted(known)[:TOPICS_SHOWN]) or "none"
        more = f" and {len(known) - TOPICS_SHOWN} more" if len(known) > TOPICS_SHOWN else ""
        raise SourceError(
            "ORBITMQ_TOPIC_NOT_FOUND",
            f"nothing of topic {missing[0]} is archived in this version of the lake; its topics: {shown}{more}",
        )


def wanted(files: Iterable[LakeFile], topics: TopicNames, begin_ms: int, end_ms: int) -> list[LakeFile]:
    """Files that may hold such messages, by their topic and day, where these are known. All topics when none is named;
    a time below zero is no limit."""
    first = _day(begin_ms) if begin_ms >= 0 else ""
    last = _day(end_ms - 1) if end_ms >= 0 else "9999"
    return [
        file
        for file in files
        if (not topics or not file.topic or file.topic in topics) and (not file.day or first <= file.day <= last)
    ]


def _day(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).date().isoformat()


def _packed(files: Iterable[LakeFile], split_size: int) -> Iterator[LakePartition]:
    """Small files share a task, in the order of their paths; large ones are divided."""
    held: list[FilePart] = []
    size = 0
    for file in files:
        parts = -(-file.size // split_size)
        cost = max(file.size, OPEN_COST)
        if held and size + cost > split_size:
            yield LakePartition(tuple(held))
            held, size = [], 0
        if parts > 1:
            yield from (LakePartition((FilePart(file.path, file.topic, part, parts),)) for part in range(parts))
        else:
            held.append(FilePart(file.path, file.topic))
            size += cost
    if held:
        yield LakePartition(tuple(held))
