"""The lake as a DataFrame, over those published files that may contain the requested rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession

from orbitmq.pipeline.archive_stream import MESSAGES
from orbitmq.pipeline.lake.lakes import Lake
from orbitmq.pipeline.lake.manifest import MIXED, LakeFile

DAY_MS = 86_400_000


def messages(
    spark: SparkSession, lake: Lake, topics: Collection[str] = (), begin_ms: int = 0, end_ms: int = 0
) -> DataFrame:
    """Messages of the topics (of all when none is named) stored from `begin_ms` on and before `end_ms`, milliseconds
    since the epoch; 0 is no limit. It reads what is published now, and tolerates a concurrent compaction for an hour.
    """
    files = wanted(lake.files(), topics, begin_ms, end_ms)
    if not files:
        return spark.createDataFrame([], MESSAGES)
    frame = spark.read.schema(MESSAGES).parquet(*(lake.place.uri(file.path) for file in files))
    if topics:
        frame = frame.where(frame.topic.isin(*topics))
    return between(frame, begin_ms, end_ms)


def between(frame: DataFrame, begin_ms: int, end_ms: int) -> DataFrame:
    """Rows stored from `begin_ms` on and before `end_ms`; 0 is no limit."""
    if begin_ms:
        frame = frame.where(frame.storeTimestamp >= _time(begin_ms))
    return frame.where(frame.storeTimestamp < _time(end_ms)) if end_ms else frame


def wanted(files: Iterable[LakeFile], topics: Collection[str], begin_ms: int, end_ms: int) -> list[LakeFile]:
    """Files that may hold such messages, by the topic and the day they are filed under."""
    names = {*topics, MIXED} if topics else None
    first = _day(begin_ms) if begin_ms else ""
    last = _day(end_ms - 1) if end_ms else "9999"
    return [file for file in files if (names is None or file.topic in names) and first <= file.day <= last]


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _day(milliseconds: int) -> str:
    return _time(milliseconds).date().isoformat()
