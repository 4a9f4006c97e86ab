"""The job `replay`: messages of the lake, or of a store, are sent again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module

from pyspark.sql import Column, DataFrame, SparkSession, functions

from orbitmq.errors import ConfigurationError
from orbitmq.pipeline.job import Job, JobContext, JobOptions, JobResult
from orbitmq.pipeline.lake_frame import between, messages
from orbitmq.pipeline.lake_options import LakeOptions
from orbitmq.pipeline.send import send
from orbitmq.pipeline.shared_options import LossOptions, connection, losses, store, time_ms
from orbitmq.pipeline.task_progress import tasks_shown
from orbitmq.runtime.options import option
from orbitmq.spark.cluster_client import ClusterClient, Retries
from orbitmq.spark.cluster_options import ClusterOptions, parts
from orbitmq.spark.sink_keys import COORDINATES
from orbitmq.spark.stores.source import StoreSource

ORIGIN_MSG_ID = "ORIGIN_MSG_ID"
ORIGIN_QUEUE_OFFSET = "ORIGIN_QUEUE_OFFSET"
SELECTORS = {"exact": "fixed", "queue": "keyHash", "key": "keyHash", "none": "roundRobin"}
TIMEOUT_MS = 10_000
RETRIES = Retries(2, 500)  # of the look whether the topics are there
Transform = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True)
class ReplayJob(LakeOptions, LossOptions, ClusterOptions, JobOptions):
    """Which messages are sent again, where to, and how."""

    input: str = option("input", "lake", "Where messages come from.", choices=("lake", "store"))
    path: str = option("path", "", "With input store: the store directory, or JSON broker -> directory.")
    broker_name: str = option(
        "brokerName",
        "",
        "With input store and a single directory: whose it is, as messages tell where they come from. Required with "
        "name; empty is the directory's own name.",
    )
    topics: str = option("topics", "", "Topics whose messages are wanted, separated by commas. Required.")
    target: str = option("to", "", "Topic they are sent to; empty is the one each came from.")
    begin: str = option("from", "", "Stored then or later; 2026-11-21T10:00 (local time) or milliseconds.")
    end: str = option("until", "", "Stored before then.")
    keys: str = option("keys", "", "Messages with one of these keys, separated by commas.")
    tags: str = option("tags", "", "Messages with one of these tags, separated by commas.")
    where: str = option(
        "where", "", "Condition of Spark's SQL over the columns, as in `queueId = 3 AND length(body) > 9`."
    )
    preserve: str = option(
        "preserve",
        "queue",
        "What keeps its order: queue, the messages of each queue, in one queue of the target; exact, the same and in "
        "the queue with the number they came from; key, messages with one key; none.",
        choices=tuple(SELECTORS),
    )
    rate: int = option(
        "rate",
        0,
        "Messages a second, all tasks together; 0 is as fast as it goes. Each task has an even share, one at least; a "
        "queue, or a key, is one task's: the whole rate for one queue needs tasks=1.",
        minimum=0,
    )
    transform: str = option(
        "transform", "", "Function of a DataFrame that gives another, `module:function`, to repair bodies or leave "
        "messages out. Its module must be on the PYTHONPATH.",
    )  # fmt: skip
    name: str = option(
        "name",
        "",
        "Name of this replay. Repeated under the same name it sends nothing twice; without one each run sends all.",
    )
    tasks: int = option(
        "tasks", 4, "How many tasks send at a time. A named replay must be repeated with the same number.", minimum=1,
        maximum=1000,
    )  # fmt: skip


def run(context: JobContext[ReplayJob]) -> JobResult:
    """Send them; the counts are the sink's."""
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
    _check_target(options)
    with tasks_shown(context, "replay"):
        sent = send(ordered(frame, options), connection(options) | sink_options(options))
    return JobResult({"messages sent": sent.messages, "sent before": sent.skipped})


def selected(spark: SparkSession, options: ReplayJob) -> DataFrame:
    """The rows wanted, as they were archived."""
    topics, begin_ms, end_ms = (
        parts(options.topics, ","),
        time_ms("from", options.begin),
        time_ms("until", options.end),
    )
    transform = _transform(options.transform) if options.transform else None
    if options.input == "store":
        read = spark.read.format(StoreSource.name()).options(**store(options.path, options.broker_name))
        read = read.options(**losses(options))
        frame = between(read.option("topics", ",".join(topics)).load(), begin_ms, end_ms)
    else:
        frame = messages(spark, options.open_existing(), topics, begin_ms, end_ms)
    if options.tags:
        frame = frame.where(functions.col("tags").isin(*parts(options.tags, ",")))
    if options.keys:
        frame = frame.where(
            functions.arrays_overlap(
                functions.split("keys", " "), functions.array(*map(functions.lit, parts(options.keys, ",")))
            )
        )
    if options.where:
        frame = frame.where(options.where)
    return transform(frame) if transform else frame


def ordered(frame: DataFrame, options: ReplayJob) -> DataFrame:
    """The rows as the sink wants them: parted and sorted so that what keeps its order lies in one task."""
    coordinates = [functions.coalesce(functions.col(name).cast("string"), functions.lit("")) for name in COORDINATES]
    source_queue = functions.concat_ws("/", *coordinates[:3])
    sharding = {"queue": source_queue, "exact": source_queue, "key": _first_key()}.get(options.preserve)
    origin = functions.create_map(
        functions.lit(ORIGIN_MSG_ID), functions.coalesce("msgId", functions.lit("")),
        functions.lit(ORIGIN_QUEUE_OFFSET), functions.concat_ws("/", *coordinates),
    )  # fmt: skip
    frame = frame.withColumn("properties", functions.map_concat(_without_origin(), origin))
    if options.name:
        frame = frame.withColumn("idempotencyKey", functions.concat_ws("/", functions.lit(options.name), *coordinates))
    if sharding is None:
        return frame.repartition(options.tasks, *coordinates)
    frame = frame.withColumn("shardingKey", sharding).repartition(options.tasks, "shardingKey")
    order = ("storeTimestamp", *COORDINATES) if options.preserve == "key" else COORDINATES
    return frame.sortWithinPartitions("shardingKey", *order)


def sink_options(options: ReplayJob) -> dict[str, str]:
    """What the sink is told."""
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
        text = f"{options.rate} messages a second cannot be shared by {options.tasks} tasks; give fewer tasks"
        raise ConfigurationError(f"option rate: {text}")
    if options.input == "store":
        store(options.path, options.broker_name, needs_broker=bool(options.name))


def _check_target(options: ReplayJob) -> None:
    """SourceError when a topic to send to is not there: tasks would find out much later."""
    goals = (options.target,) if options.target else parts(options.topics, ",")
    ClusterClient(options.name_servers, TIMEOUT_MS, RETRIES, options.protection).queues(*goals)


def _first_key() -> Column:
    """The first key of a message; without any each is by itself."""
    return functions.coalesce(functions.element_at(functions.split("keys", " "), 1), functions.col("msgId"))


def _without_origin() -> Column:
    """The properties; those of an earlier replay make room."""
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
            f"option transform: {text} cannot be imported: {error}; give module:function"
        ) from error
    return found


JOB = Job(
    "replay",
    "Messages keep their keys, tags and properties; ORIGIN_MSG_ID and ORIGIN_QUEUE_OFFSET (topic/broker/queue/offset)\n"
    "tell where they come from. Delays are not repeated. Ids and times are new: a replay is a send.",
    ReplayJob,
    run,
    (
        "--name-server 127.0.0.1:9876 --lake ./lake --topics orders --from 2026-11-20 --until 2026-11-21 --dry-run",
        "--name-server 127.0.0.1:9876 --lake ./lake --topics orders --to orders-again --name friday --rate 500",
        "--name-server 127.0.0.1:9876 --input store --path /data/store --topics orders --keys order-17,order-18",
    ),
    "what was sent stays sent; with --name the next run sends the rest, without one everything again",
)
