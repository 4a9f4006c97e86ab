"""The job `archive`: writes messages of topics, or of a store, into the lake before the broker deletes them."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from orbitmq.errors import ConfigurationError
from orbitmq.lake.lakes import Sweeper
from orbitmq.lake.layout import written_by
from orbitmq.lake.manifest import LakeFile
from orbitmq.pipeline.archive_stream import WRITER, ArchiveOptions, ArchiveSource
from orbitmq.pipeline.datasets import Lineage, counted_topics, location, topics
from orbitmq.pipeline.job import Advance, Job, JobContext, JobOptions, JobResult
from orbitmq.pipeline.lake_bodies import check_fit
from orbitmq.pipeline.lake_options import LakeOptions
from orbitmq.pipeline.lake_sink import LakeSink
from orbitmq.pipeline.shared_options import (
    ExpectedBrokers,
    LossOptions,
    connection,
    expected,
    losses,
    store,
    store_datasets,
)
from orbitmq.pipeline.task_progress import tasks_shown
from orbitmq.runtime.options import option
from orbitmq.spark.bodies.options import RAW, BodyOptions
from orbitmq.spark.bodies.schema import body_schema
from orbitmq.spark.cluster_options import ClusterOptions
from orbitmq.spark.group_offsets import stored_offsets
from orbitmq.spark.options import GROUP, ReadOptions, read_options
from orbitmq.spark.queue_selection import queue_selection
from orbitmq.spark.read_brokers import complete_queues
from orbitmq.spark.read_tasks import cluster_of
from orbitmq.spark.stores.options import EARLIEST, scan_options
from orbitmq.spark.stores.splits import checked, known_bounds
from orbitmq.spark.topic_names import topic_names
from orbitmq.spark.versions import HAS_SOURCES, lacking, start_until_now

LOOK_SECONDS = 1  # how often the progress of the query is looked at
CHECKPOINT = "_checkpoint"


@dataclass(frozen=True)
class ArchiveJob(LakeOptions, ArchiveOptions, BodyOptions, ExpectedBrokers, LossOptions, ClusterOptions, JobOptions):
    """Options of the job `archive`."""

    topics: str = option(
        "topics",
        "*",
        "Topics to archive, separated by commas, with `*` for any characters. `*` does not match topics of brokers "
        "and groups (retries, dead letters): name them in full.",
    )
    path: str = option("path", "", "With input store: the store directory, or JSON broker -> directory.")
    broker_name: str = option(
        "brokerName",
        "",
        "With input store and a single directory: the broker that owns it, as the lake and the brokers record it. "
        "Required with nameServer. Empty is the name of the directory, which several brokers may share.",
    )
    starting_offsets: str = option(
        "startingOffsets",
        EARLIEST,
        "With input pull: where the first run starts: earliest, latest, group (the offsets of archiveGroup), or JSON "
        "topic -> broker -> queue -> offset. Later runs resume where the run before ended.",
    )
    unavailable_timeout_ms: int = option(
        "brokerUnavailableTimeoutMs",
        600_000,
        "How long a broker may be unavailable before the archive fails. The other brokers are archived meanwhile.",
        unit="ms",
        minimum=0,
    )
    batch_rows: int = option(
        "batchRows",
        2_000_000,
        "Messages that are published together. With input store: KiB of the log.",
        minimum=1,
    )
    checkpoint: str = option(
        "checkpoint",
        "",
        "Folder for Spark's checkpoint of the archive, or a URI of a file system that Spark supports. Empty is "
        "`_checkpoint` in the lake. Required for a lake in an object store.",
    )
    period: int = option(
        "period",
        0,
        "Run until stopped and publish at this interval. 0 archives what is there now and ends.",
        unit="s",
        minimum=0,
    )


def run(context: JobContext[ArchiveJob]) -> JobResult:
    """Archive. The counts are what this run published."""
    options = context.options
    if not HAS_SOURCES:
        raise lacking(
            "the archive, which is a stream,",
            "4.0",
            "run this job in an environment with the newest Spark, on one machine",
        )
    lake = options.open()
    if lake.place.is_object_store and not options.checkpoint:
        raise ConfigurationError(
            "option checkpoint is missing; Spark cannot write into an object store without a connector, so set it to a "
            "folder that later runs find again"
        )
    before = lake.files()
    source_options(options)  # fail early for a wrong schema or source
    check_fit(options, lake)
    if options.dry_run:
        return _waiting(options)
    begun, sweeper = time.monotonic(), Sweeper(lake)
    spark, unit = context.spark(), "messages" if options.input == "pull" else "bytes"
    with context.progress("archive", unit) as advance, tasks_shown(context, "batch"):
        _follow(_query(spark, options), advance, sweeper, endless=options.period > 0)
    after = lake.files()
    counts = published(before, after)
    moved = _moved(options, before, after, counts)
    stuck = sweeper.sweep().stuck
    counts["old files removed"] = sweeper.removed
    if stuck:
        counts["old files not removed"] = stuck
    return JobResult({**counts, "seconds": f"{time.monotonic() - begun:.1f}"}, lineage=moved)


def published(before: Sequence[LakeFile], after: Sequence[LakeFile]) -> dict[str, int]:
    """What an archive published, as far as its files still exist. A concurrent compaction may have merged some of them,
    which does not change the total number of messages."""
    known = {file.path for file in before}
    files = [file for file in after if file.path not in known and written_by(file.path, WRITER)]
    return {
        "messages": sum(file.rows for file in after) - sum(file.rows for file in before),
        "files": len(files),
        "bytes": sum(file.size for file in files),
    }


def lineage(options: ArchiveJob) -> Lineage:
    """Topics that the options name in full, or store directories; and the lake."""
    if options.input == "store":
        inputs = store_datasets(options.path)
    else:
        inputs = topics(options.name_servers, topic_names(options.topics).names)
    return Lineage(inputs, [location(options.lake)] if options.lake else ())


def _moved(
    options: ArchiveJob, before: Sequence[LakeFile], after: Sequence[LakeFile], counts: Mapping[str, int]
) -> Lineage:
    """The same, with the topics that had messages, and what was published."""
    planned = lineage(options)
    rows = Counter({file.topic: 0 for file in after})
    for files, sign in ((after, 1), (before, -1)):
        for file in files:
            rows[file.topic] += sign * file.rows
    moved = {topic: count for topic, count in sorted(rows.items()) if count > 0}
    inputs = planned.inputs if options.input == "store" else counted_topics(options.name_servers, moved)
    lake = location(options.lake, counts["messages"], counts["bytes"], counts["files"])
    return Lineage(inputs or planned.inputs, [lake])


def source_options(options: ArchiveJob) -> dict[str, str]:
    """Options of the stream. ConfigurationError for options that exclude each other, SourceError for a schema of bodies
    that cannot be read."""
    own = {key: value for key, value in options.pairs().items() if key in ArchiveOptions.table() and value}
    if options.body_format != RAW and not options.body_schema:
        text = (
            "option bodySchema is missing; an archive infers none, because messages of another day would have another"
        )
        raise ConfigurationError(text)
    body_schema(options)
    bodies = {key: value for key, value in options.pairs().items() if key in BodyOptions.table() and value}
    shared = own | losses(options) | bodies
    if options.input == "store":
        return shared | _of_store(options)
    if not options.name_server:
        raise ConfigurationError("option nameServer is missing; set it to the addresses of the name servers")
    limits = {
        "startingOffsets": options.starting_offsets,
        "maxOffsetsPerTrigger": str(options.batch_rows),
        "brokerUnavailableTimeoutMs": str(options.unavailable_timeout_ms),
    }
    if options.starting_offsets.strip().lower() == GROUP:
        limits["groupId"] = options.group
    return shared | connection(options) | expected(options) | topics_wanted(options.topics) | limits


def _of_store(options: ArchiveJob) -> dict[str, str]:
    for key, is_given in (
        ("expectBrokers", bool(options.expected_brokers)),
        ("startingOffsets", options.starting_offsets != EARLIEST),
    ):
        if is_given:
            raise ConfigurationError(f"option {key} needs input pull; with input store no broker is contacted")
    where = store(options.path, options.broker_name, needs_broker=bool(options.name_server))
    return where | {"topics": options.topics, "maxBytesPerTrigger": str(1024 * options.batch_rows)}


def _reading(options: ArchiveJob) -> ReadOptions:
    """The options for the topic source."""
    own = ArchiveOptions.table()
    return read_options({key: value for key, value in source_options(options).items() if key not in own})


def topics_wanted(text: str) -> dict[str, str]:
    """Topics, some with `*`, as options of the topic source."""
    names = topic_names(text)
    told = {"subscribe": ",".join(names.names), "subscribePattern": names.pattern}
    return {key: value for key, value in told.items() if value}


def _query(spark: SparkSession, options: ArchiveJob) -> StreamingQuery:
    spark.createDataFrame([], "nothing INT")  # makes it this thread's session; a write looks for its sink there
    source = {**source_options(options), "availableNow": str(not options.period)}
    stream = spark.readStream.format(ArchiveSource.name()).options(**source).load()
    sink = {key: value for key, value in options.pairs().items() if key in LakeSink.OPTIONS.table() and value}
    writer = (
        stream.writeStream.format(LakeSink.name()).options(**sink).option("checkpointLocation", checkpoint(options))
    )
    if options.period:
        return writer.trigger(processingTime=f"{options.period} seconds").start()
    return start_until_now(writer)


def checkpoint(options: ArchiveJob) -> str:
    """Where Spark keeps its checkpoint. Spark itself expands no `~`: the same folder would be another one for a run
    from elsewhere, which would archive everything again."""
    place = options.checkpoint or f"{options.lake.rstrip('/')}/{CHECKPOINT}"
    return str(Path(place).expanduser()) if place.startswith("~") else place


def _follow(query: StreamingQuery, advance: Advance, sweeper: Sweeper, *, endless: bool) -> None:
    """Wait for the end of the query, and stop it with the job. An endless one ends by an interruption."""
    try:
        while not query.awaitTermination(LOOK_SECONDS):
            sweeper.sweep_if_due()
            if query.lastProgress is not None:
                told = json.loads(query.lastProgress.json)["sources"][0]
                advance(*_distance(told))
    except KeyboardInterrupt:
        if not endless:
            raise
    finally:
        with suppress(
            Py4JError
        ):  # an interruption may break the connection to the JVM; the query ends with the session
            query.stop()


def _distance(source: Mapping[str, str | None]) -> tuple[int, int]:
    """The position of the query and its end, as sums of offsets."""
    at, most = (_sum(source.get(name)) for name in ("endOffset", "latestOffset"))
    return at, max(at, most)


def _sum(offset: object) -> int:
    """The sum of all offsets of queues or brokers."""
    value = json.loads(offset) if isinstance(offset, str) else offset
    if not isinstance(value, dict):
        return 0
    return _total(value.get("q", value.get("b")))


def _total(value: object) -> int:
    if isinstance(value, dict):
        return sum(_total(part) for part in value.values())
    return value if isinstance(value, int) else 0


def _waiting(options: ArchiveJob) -> JobResult:
    """What a run would archive by the offsets at the brokers, which may lag behind Spark's checkpoint."""
    if options.input == "store":
        return _in_stores(options)
    given = _reading(options)
    cluster = cluster_of(given)
    places = complete_queues(cluster, given, queue_selection(given))
    queues = {queue: place.addresses for queue, place in places.items()}
    done = stored_offsets(cluster, options.group, queues)
    rows: list[dict[str, int | str]] = []
    lost = 0
    for queue, (low, high) in sorted(cluster.bounds(queues).items()):
        at = done.get(queue, low)
        lost += max(0, low - at)
        row: dict[str, int | str] = {"topic": queue.topic, "broker": queue.broker_name, "queue": queue.queue_id}
        rows.append(row | {"from": max(low, at), "to": high, "messages": high - max(low, at)})
    return JobResult({"messages": sum(int(row["messages"]) for row in rows), "lost already": lost}, rows)


def _in_stores(options: ArchiveJob) -> JobResult:
    """What the directories hold. Only Spark's checkpoint knows how much of it is archived."""
    rows: list[dict[str, int | str]] = []
    scan = scan_options(store(options.path, options.broker_name))
    for broker, directory in checked(scan.stores).items():
        known = known_bounds(directory, scan.safe_end)
        rows.append({"broker": broker, "queues": len(directory.queues()), "bytes": known.end - known.start})
    return JobResult({"bytes": sum(int(row["bytes"]) for row in rows)}, rows)


JOB = Job(
    "archive",
    "A run resumes where the previous one ended, and commits its progress to the brokers as offsets of a consumer\n"
    "group. With the option archiveGuard a broker keeps its log until it is archived. You can repeat a failed run.",
    ArchiveJob,
    run,
    (
        "--name-server 127.0.0.1:9876 --lake ./lake",
        "--name-server 10.0.0.1:9876 --topics 'orders,pay-*' --lake ./lake --period 60",
        "--name-server 10.0.0.1:9876 --lake s3://bucket/lake --checkpoint /var/lib/orbitmq/archive",
        "--input store --path /data/store --broker-name broker-a --lake ./lake",
    ),
    "the next run resumes after what was published",
    lineage,
)
