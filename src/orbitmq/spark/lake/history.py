"""The history of a topic: what its lake has, and from there on what its brokers have.

One commit publishes files and the progress that the archive reached by them. So one version of the table says where
each queue has to be continued, whatever is archived, sent or deleted meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from orbitmq.lake.manifest import Reached
from orbitmq.spark.bodies.options import BodyOptions
from orbitmq.spark.cluster_options import bad_option, parts
from orbitmq.spark.lake.options import LakeReadOptions, Unreadable, lake_options, unreadable
from orbitmq.spark.lake.plan import require_topics
from orbitmq.spark.lake.source import LakeSource
from orbitmq.spark.options import ALIASES, read_options
from orbitmq.spark.source import TopicSource
from orbitmq.spark.versions import HAS_SOURCES, lacking, read_batch

OFFSETS = "archivedOffsets"
OF_THE_LAKE = ("lakeCatalog", "splitBytes")
OF_BOTH = (*BodyOptions.table(), "startingTimestamp", "endingTimestamp")
_STARTS = "a history begins with the first message, or with startingTimestamp"
_ENDS = "a history ends with the newest message, or with endingTimestamp"
_FILTERS = "select rows of the history with where() instead"
_TOPICS = "pass the topics by name, as the second argument"
# Options of a topic that a lake cannot follow, each with what to do instead; in lower case, with the values that are no
# harm.
REFUSED: Mapping[str, tuple[str, frozenset[str]]] = {
    "startingoffsets": (_STARTS, frozenset()),
    "startingoffsetsbytimestamp": (_STARTS, frozenset()),
    "endingoffsets": (_ENDS, frozenset({"latest"})),
    "endingoffsetsbytimestamp": (_ENDS, frozenset()),
    "archivedoffsets": ("the lake tells them", frozenset()),
    "subscribe": (_TOPICS, frozenset()),
    "subscribepattern": (_TOPICS, frozenset()),
    "assign": (_TOPICS, frozenset()),
    "path": (_TOPICS, frozenset()),
    "namespace": ("a lake has full names; pass the topic as namespace%topic", frozenset()),
    "subexpression": (_FILTERS, frozenset({"*"})),
    "filterpushdown": ("Spark would apply the conditions of one query to others of the history", frozenset({"false"})),
    "schema": ("a lake has the columns of schema=native", frozenset({"native"})),
    "decompress": ("a lake has no compressed bodies", frozenset({"true"})),
    "oncorruptrecord": ("a lake has no damaged messages; use skip or fail", frozenset({"skip", "fail"})),
    "includeproperties": ("a lake has no text of properties; use map or none", frozenset({"map", "none"})),
}


@dataclass(frozen=True)
class SplitHistory:
    """The two parts of a history, from `split_history`. No message is in both, and none is in neither.

    `archived` is the batch of what the lake has at `version`; it does not change. `live` is the stream of the rest,
    with the same columns: it begins at `offsets`, the value of option archivedOffsets. Later starts of its query need
    the same ones: keep them, or pass `version` to `split_history`, which divides at the same place then.
    """

    version: str
    offsets: str
    archived: DataFrame
    live: DataFrame


def history(
    spark: SparkSession, topics: str, lake: str, *, version: str = "", **options: str | int | bool
) -> DataFrame:
    """All messages of topics, older than the retention of brokers: `history(spark, "orders", "./lake",
    nameServer="...")`.

    The rows are those of the lake at one version, and those of the brokers from where the archive ended in that
    version: each message once, also while the archive runs, messages arrive and old ones are deleted. The columns are
    those of a read of the topic. `topics` are separated by commas; `options` are those of a read of a topic, and
    `lakeCatalog` and `splitBytes` of a lake. `version` is one of `SplitHistory`; by default it is the newest now. This
    process opens the lake, also with Spark Connect.

    SourceError ORBITMQ_LAKE_UNREADABLE when the lake or the version does not exist, or does not tell how far a topic is
    archived; ORBITMQ_TOPIC_NOT_FOUND when nothing of a topic is in it; ORBITMQ_BAD_OPTION for an option that a lake
    cannot follow, such as startingOffsets or subExpression. A query fails with ORBITMQ_DATA_LOSS when brokers deleted
    messages that this version does not have.
    """
    cut = _cut(topics, lake, version, options)
    live = read_batch(spark, TopicSource, cut.of_topic)
    return cut.archived(spark, live).unionAll(live)


def split_history(
    spark: SparkSession, topics: str, lake: str, *, version: str = "", **options: str | int | bool
) -> SplitHistory:
    """The history of topics for a query that goes on: what the lake has as a batch, and the rest as a stream, see
    `SplitHistory`. Arguments, columns and errors are those of `history`, and `options` also those of a stream.

    A queue whose broker is down when the stream starts for the first time begins where its archive ended, when the
    broker is back.
    """
    if not HAS_SOURCES:
        raise lacking("a history as a stream", "4.0", "read it as a batch with history()")
    cut = _cut(topics, lake, version, options)
    live = spark.readStream.format(TopicSource.name()).options(**cut.of_topic).load()
    return SplitHistory(cut.version, cut.of_topic[OFFSETS], cut.archived(spark, live), live)


@dataclass(frozen=True)
class _Cut:
    """The version of the lake, and the options of both reads."""

    version: str
    of_topic: dict[str, str]
    of_lake: dict[str, str]

    def archived(self, spark: SparkSession, live: DataFrame) -> DataFrame:
        return read_batch(spark, LakeSource, {**self.of_lake, "versionAsOf": self.version}, live.schema)


def _cut(topics: str, lake: str, version: str, given: Mapping[str, str | int | bool]) -> _Cut:
    texts = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in given.items()}
    _check(texts)
    of_topic = {key: value for key, value in texts.items() if key.lower() not in _lower(OF_THE_LAKE)}
    of_lake = {key: value for key, value in texts.items() if key.lower() in _lower((*OF_THE_LAKE, *OF_BOTH))}
    of_lake |= {"path": lake, "topics": topics}
    read_options({**of_topic, "subscribe": topics})  # fails here for an invalid option
    found, points = _progress(lake_options({**of_lake, "versionAsOf": version}))
    return _Cut(found, {**of_topic, "subscribe": topics, OFFSETS: _offsets(points)}, of_lake)


def _check(options: Mapping[str, str]) -> None:
    for key, value in options.items():
        remedy, harmless = REFUSED.get(ALIASES.get(key.lower(), key).lower(), ("", frozenset()))
        if remedy and value.strip().lower() not in harmless:
            raise bad_option(f"option {key}: {remedy}")


def _progress(options: LakeReadOptions) -> tuple[str, list[Reached]]:
    """The version, and how far the topics are archived in it."""
    topics = parts(options.topics, ",")
    if not topics or options.topic_names.stars:
        raise bad_option(f"a history has topics by name, separated by commas, not {options.topics!r}")
    lake = options.lake()
    with Unreadable():
        snapshot = lake.snapshot(options.version)
        require_topics(options.topic_names, snapshot)
        points = lake.reached(snapshot.version, topics)
    if unknown := set(topics) - {point.topic for point in points}:
        text = f"the lake does not tell how far topic {min(unknown)} is archived; only the job archive writes that"
        raise unreadable(text)
    return snapshot.version, points


def _offsets(points: Iterable[Reached]) -> str:
    nested: dict[str, dict[str, dict[str, int]]] = {}
    for point in points:
        nested.setdefault(point.topic, {}).setdefault(point.broker, {})[str(point.queue)] = point.next
    return json.dumps(nested, separators=(",", ":"))


def _lower(keys: Iterable[str]) -> frozenset[str]:
    return frozenset(key.lower() for key in keys)
