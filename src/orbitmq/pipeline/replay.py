"""The job `replay`: sends messages of the lake or of a store again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module

from pyspark.sql import Column, DataFrame, SparkSession, functions

from orbitmq.errors import ConfigurationError
from orbitmq.pipeline.archive_stream import MESSAGES
from orbitmq.pipeline.datasets import Lineage, location, topics
from orbitmq.pipeline.job import Job, JobContext, JobOptions, JobResult
from orbitmq.pipeline.lake_options import LakeOptions
from orbitmq.pipeline.send import send, where
from orbitmq.pipeline.shared_options import (
    LossOptions,
    connection,
    losses,
    require_topics,
    store,
    store_datasets,
    time_ms,
    times,
)
from orbitmq.pipeline.task_progress import tasks_shown
from orbitmq.runtime.options import option
from orbitmq.spark.cluster_options import ClusterOptions, parts
from orbitmq.spark.lake.source import LakeSource
from orbitmq.spark.sink_keys import COORDINATES
from orbitmq.spark.stores.source import StoreSource
from orbitmq.spark.versions import read_batch

ORIGIN_MSG_ID = "ORIGIN_MSG_ID"
ORIGIN_QUEUE_OFFSET = "ORIGIN_QUEUE_OFFSET"
SELECTORS = {"exact": "fixed", "queue": "keyHash", "key": "keyHash", "none": "roundRobin"}
Transform = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True)
class ReplayJob(LakeOptions, LossOptions, ClusterOptions, JobOptions):
    """Options of the job `replay`."""

    input: str = option("input", "lake", "Where messages come from.", choices=("lake", "store"))
    path: str = option("path", "", "With input store: the store directory, or JSON broker -> directory.")
    broker_name: str = option(
        "brokerName",
        "",
        "With input store and a single directory: the broker that owns it, which messages name as their origin. "
        "Required with name. Empty is the name of the directory.",
    )
    topics: str = option("topics", "", "Topics whose messages are sent again, separated by commas. Required.")
    target: str = option("to", "", "Topic to send to. Empty sends each message to the topic it came from.")
    begin: str = option(
        "from", "", "Messages stored at or after this time: 2026-11-21T10:00 (local time) or milliseconds."
    )
    end: str = option("until", "", "Messages stored before this time.")
    keys: str = option("keys", "", "Messages with one of these keys, separated by commas.")
    tags: str = option("tags", "", "Messages with one of these tags, separated by commas.")
    where: str = option(
        "where",
        "",
        "Condition in Spark SQL over the columns, such as `queueId = 3 AND length(body) > 9`. Times are UTC.",
    )
    preserve: str = option(
        "preserve",
        "queue",
        "Which order is kept: that of each queue, in one queue of the target (queue); the same, in the queue with "
        "the same number (exact); that of messages with the same key (key); or none.",
        choices=tuple(SELECTORS),
    )
    rate: int = option(
        "rate",
        0,
        "Maximum messages in a second, of all tasks together. 0 is no limit. Each task has an equal share, at least "
        "one. A queue, or a key, is sent by one task: to use the whole rate for one queue, set tasks=1.",
        minimum=0,
    )
    transform: str = option(
        "transform",
        "",
        "Function that takes a DataFrame and returns one, `module:function`, to repair bodies or to drop messages. "
        "Its module must be on the PYTHONPATH.",
    )
    name: str = option(
        "name",
        "",
        "Name of this replay. A replay repeated under the same name sends nothing twice. Without a name each run "
        "sends all messages.",
    )
    tasks: int = option(
        "tasks",
        4,
        "Number of tasks that send at a time. A named replay must be repeated with the same number.",
        minimum=1,
        maximum=1000,
    )


def run(context: JobContext[ReplayJob]) -> JobResult:
    """Send the messages. The counts are those of the sink."""
    options = context.options
    _check(options)
    spark = context.spark()
    frame = selected(spark, options)
    if options.dry_run:
        rows = (
            frame.groupBy("topic", "brokerName", "queueId").count().orderBy("topic", "brokerName", "queueId").collect()
        )
        table: list[dict[str, int | str]] = [
            {"topic": row.topic, "broker": row.brokerName, "queue": row.queueId, "messages": row["count"]}
            for row in rows
        ]
        return JobResult({"messages": sum(int(row["messages"]) for row in table)}, table)
    require_topics(options, (options.target,) if options.target else parts(options.topics, ","))
    with tasks_shown(context, "replay"):
        sent = send(ordered(frame, options), connection(options) | sink_options(options))
    counts = {"messages sent": sent.messages, "sent before": sent.skipped}
    return JobResult(counts, lineage=lineage(options, sent.messages))


def lineage(options: ReplayJob, rows: int | None = None) -> Lineage:
    """The lake or the stores, and the topics that get messages."""
    lake = [location(options.lake)] if options.lake else []
    goals = (options.target,) if options.target else parts(options.topics, ",")
    inputs = lake if options.input == "lake" else store_datasets(options.path)
    return Lineage(inputs, topics(options.name_servers, goals, rows))


def selected(spark: SparkSession, options: ReplayJob) -> DataFrame:
    """The selected rows, as they were archived."""
    topics, begin_ms, end_ms = (
        parts(options.topics, ","),
        time_ms("from", options.begin),
        time_ms("until", options.end),
    )
    transform = _transform(options.transform) if options.transform else None
    if options.input == "store":
        read = {**store(options.path, options.broker_name), **losses(options), "topics": ",".join(topics)}
        frame = _between(read_batch(spark, StoreSource, read), begin_ms, end_ms)
    else:
        options.open_existing()  # fail early for a wrong format
        read = {**options.reading(), "topics": ",".join(topics), **times(begin_ms, end_ms)}
        frame = read_batch(spark, LakeSource, read, MESSAGES)
    if options.tags:
        frame = frame.where(functions.col("tags").isin(*parts(options.tags, ",")))
    if options.keys:
        frame = frame.where(
            functions.arrays_overlap(
                functions.split("keys", " "), functions.array(*map(functions.lit, parts(options.keys, ",")))
            )
        )
    frame = where(frame, options.where)
    return transform(frame) if transform else frame


def _between(frame: DataFrame, begin_ms: int, end_ms: int) -> DataFrame:
    """Rows stored from `begin_ms` on and before `end_ms`; 0 is no limit."""
    stored = functions.unix_millis("storeTimestamp")
    if begin_ms:
        frame = frame.where(stored >= begin_ms)
    return frame.where(stored < end_ms) if end_ms else frame


def ordered(frame: DataFrame, options: ReplayJob) -> DataFrame:
    """The rows for the sink, partitioned and sorted so that rows whose order is kept are in one task."""
    coordinates = [functions.coalesce(functions.col(name).cast("string"), functions.lit("")) for name in COORDINATES]
    source_queue = functions.concat_ws("/", *coordinates[:3])
    sharding = {
        "queue": source_queue,
        "exact": source_queue,
        "key": functions.coalesce(functions.element_at(functions.split("keys", " "), 1), functions.col("msgId")),
    }.get(options.preserve)
    origin = functions.create_map(
        functions.lit(ORIGIN_MSG_ID), functions.coalesce("msgId", functions.lit("")),
        functions.lit(ORIGIN_QUEUE_OFFSET), functions.concat_ws("/", *coordinates),
    )  # fmt: skip
    frame = frame.withColumn("properties", functions.map_concat(_without_origin(), origin))
    if options.name:
        frame = frame.withColumn("idempotencyKey", functions.concat_ws("/", functions.lit(options.name), *coordinates))
    if sharding is None:
        return frame.repartition(options.tasks, *coordinates)
    frame = frame.withColumn("queueKey", sharding).repartition(options.tasks, "queueKey")
    order = ("storeTimestamp", *COORDINATES) if options.preserve == "key" else COORDINATES
    return frame.sortWithinPartitions("queueKey", *order)


def sink_options(options: ReplayJob) -> dict[str, str]:
    """Options of the sink."""
    told = {"queueSelector": SELECTORS[options.preserve], "topic": options.target, "jobId": options.name}
    if options.name:
        told["deliveryGuarantee"] = "effectively-once"
    if options.rate:
        told["maxRowsPerSecond"] = str(options.rate // options.tasks)
    return {key: value for key, value in told.items() if value}


def _check(options: ReplayJob) -> None:
    needed: Mapping[str, str] = {"nameServer": options.name_server, "topics": options.topics}
    for key, value in needed.items():
        if not value:
            raise ConfigurationError(f"option {key} is missing")
    if 0 < options.rate < options.tasks:
        text = f"{options.rate} messages a second cannot be divided among {options.tasks} tasks; use fewer tasks"
        raise ConfigurationError(f"option rate: {text}")
    if options.input == "store":
        store(options.path, options.broker_name, needs_broker=bool(options.name))


def _without_origin() -> Column:
    """The properties without those of an earlier replay."""
    empty = functions.create_map().cast("map<string,string>")
    return functions.map_filter(
        functions.coalesce("properties", empty), lambda name, _: ~name.isin(ORIGIN_MSG_ID, ORIGIN_QUEUE_OFFSET)
    )


def _transform(text: str) -> Transform:
    module, _, name = text.partition(":")
    try:
        found: Transform = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"option transform: {text} cannot be imported: {error}; use module:function"
        ) from error
    return found


JOB = Job(
    "replay",
    "Messages keep their keys, tags and properties. ORIGIN_MSG_ID and ORIGIN_QUEUE_OFFSET (topic/broker/queue/offset)\n"
    "record their origin. Delays are not applied again. Ids and times are new, as a replay is a send.",
    ReplayJob,
    run,
    (
        "--name-server 127.0.0.1:9876 --lake ./lake --topics orders --from 2026-11-20 --until 2026-11-21 --dry-run",
        "--name-server 127.0.0.1:9876 --lake ./lake --topics orders --to orders-again --name friday --rate 500",
        "--name-server 127.0.0.1:9876 --input store --path /data/store --topics orders --keys order-17,order-18",
    ),
    "with --name the next run sends the rest, without it everything again",
    lineage,
)
