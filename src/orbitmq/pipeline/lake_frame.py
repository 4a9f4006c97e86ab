"""The lake as a DataFrame, over those published files that may contain the requested rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession, functions

from orbitmq.errors import LakeError
from orbitmq.lake.lakes import Lake
from orbitmq.lake.manifest import LakeFile
from orbitmq.pipeline.archive_stream import MESSAGES


def messages(
    spark: SparkSession, lake: Lake, topics: Collection[str] = (), begin_ms: int = 0, end_ms: int = 0
) -> DataFrame:
    """Messages of the topics (of all when none is named) stored from `begin_ms` on and before `end_ms`, milliseconds
    since the epoch; 0 is no limit. It reads what is published now, and tolerates a concurrent compaction for an hour.
    LakeError when a file has rows that another engine marked as deleted.
    """
    files = wanted(lake.files(), topics, begin_ms, end_ms)
    if not files:
        return spark.createDataFrame([], MESSAGES)
    if marked := [file.path for file in files if not file.is_whole]:
        raise LakeError(
            f"rows of {lake.place.uri(marked[0])} are marked as deleted, and would be there again; rewrite the data "
            "files of the table with the engine that deleted them"
        )
    frame = spark.read.schema(MESSAGES).parquet(*(lake.place.uri(file.path) for file in files))
    frame = with_topics(spark, frame, files)
    if topics:
        frame = frame.where(frame.topic.isin(*topics))
    return between(frame, begin_ms, end_ms)


def with_topics(spark: SparkSession, frame: DataFrame, files: Iterable[LakeFile]) -> DataFrame:
    """Rows with the topic that the table has for their file: engines of Delta write files without that column."""
    names = {(file.path.rpartition("/")[2], file.topic) for file in files if file.topic}
    if len({name for name, _ in names}) < len(names):
        raise LakeError("files of several topics have the same name; rewrite the data files of the table")
    known = spark.createDataFrame(sorted(names), "fileName STRING, fileTopic STRING")
    told = frame.select("*", functions.col("_metadata.file_name").alias("fileName"))
    told = told.join(functions.broadcast(known), "fileName", "left")
    return told.withColumn("topic", functions.coalesce("topic", "fileTopic")).select(*MESSAGES.names)


def between(frame: DataFrame, begin_ms: int, end_ms: int) -> DataFrame:
    """Rows stored from `begin_ms` on and before `end_ms`; 0 is no limit."""
    if begin_ms:
        frame = frame.where(frame.storeTimestamp >= _time(begin_ms))
    return frame.where(frame.storeTimestamp < _time(end_ms)) if end_ms else frame


def wanted(files: Iterable[LakeFile], topics: Collection[str], begin_ms: int, end_ms: int) -> list[LakeFile]:
    """Files that may hold such messages, by their topic and day, where these are known."""
    names = {*topics, ""} if topics else None
    first = _day(begin_ms) if begin_ms else ""
    last = _day(end_ms - 1) if end_ms else "9999"
    return [
        file for file in files if (names is None or file.topic in names) and (not file.day or first <= file.day <= last)
    ]


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _day(milliseconds: int) -> str:
    return _time(milliseconds).date().isoformat()
