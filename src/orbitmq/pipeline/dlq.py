"""The job `dlq`: shows the dead letters of a group and sends them again, each message once."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import chain
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from orbitmq.errors import ConfigurationError
from orbitmq.message.model import MessageQueue
from orbitmq.message.pop import FIRST_POP_TIME, pop_retry_topic
from orbitmq.message.properties import RETRY_TOPIC
from orbitmq.message.topics import dlq_topic, retry_topic
from orbitmq.pipeline.datasets import Lineage, topics
from orbitmq.pipeline.job import Job, JobContext, JobOptions, JobResult
from orbitmq.pipeline.ledger import Chunk, Origin, RedeliveryLedger, open_ledger
from orbitmq.pipeline.send import SendCounts, send, where
from orbitmq.pipeline.shared_options import ExpectedBrokers, cluster, connection, expected, ranges, require_topics
from orbitmq.pipeline.task_progress import tasks_shown
from orbitmq.runtime.options import option
from orbitmq.spark.cluster_options import ClusterOptions
from orbitmq.spark.group_offsets import connected, stored_offsets
from orbitmq.spark.source import TopicSource
from orbitmq.spark.versions import read_batch
from orbitmq.wire.bodies_pop import is_popped

REDELIVERIES = "ORBIT_REDELIVERIES"  # property: how often this job sent a message again
ORIGIN_5X = "DLQ_ORIGIN_TOPIC"  # property of RocketMQ 5 with the meaning of RETRY_TOPIC
COLUMNS = (
    "brokerName", "queueId", "queueOffset", "msgId", "tags", "keys", "body", "properties", "bornTimestamp",
    "storeTimestamp", "flag", "reconsumeTimes",
)  # fmt: skip
PLACE = ("brokerName", "queueId", "queueOffset")
CHUNK_SIZE = 5000  # messages sent together by one task: what may be in doubt after a run that fails
CHUNK_SECONDS = 30  # with a rate, a chunk takes no longer: progress and ledger are updated after each chunk
SELECTION_SIZE = 10_000  # messages that are selected in one transaction of the ledger
PARTITION_RECORDS_MAX = 100_000  # the driver has the places of two partitions in memory at once: about 30 MB
UNKNOWN = "unknown"  # origin
GOALS = ("retry", "origin")  # of `to`; anything else is a topic
ROWS_MAX = 100  # of the closing table; the largest groups come first


@dataclass(frozen=True)
class DlqJob(ExpectedBrokers, ClusterOptions, JobOptions):
    """Options of the job `dlq`."""

    group: str = option("group", "", "Consumer group of the dead letters. Required.")
    target: str = option(
        "to",
        "retry",
        "Where messages are sent: to this group only, through its retry topic (retry); to the topic each came from, "
        "so that every group receives it again (origin); or to the topic of this name.",
    )
    where: str = option(
        "where",
        "",
        "Condition in Spark SQL that selects messages. Its columns are those of a read, `origin` (the topic a "
        "message came from), `age` (hours since it became a dead letter) and `redeliveries`. Times are UTC.",
    )
    ledger: str = option(
        "ledger", "", "File that records what was sent, so that no run sends it again. Without it nothing is sent."
    )
    redeliveries_max: int = option(
        "maxRedeliveries", 3, "Messages that were sent again this often are not sent once more.", minimum=1
    )
    rate: int = option("rate", 0, "Maximum messages in a second. 0 is no limit.", unit="1/s", minimum=0)


def run(context: JobContext[DlqJob]) -> JobResult:
    """Count the dead letters, and send those that are selected and were not sent before."""
    options = context.options
    for key, value in (("nameServer", options.name_server), ("group", options.group)):
        if not value:
            raise ConfigurationError(f"option {key} is missing")
    if options.ledger and options.target not in GOALS:  # a message that is planned for a topic is bound to it
        require_topics(options, [options.target])
    with tasks_shown(context, "read"):
        frame = dead_letters(context.spark(), options)
        chosen = where(frame, options.where)
        table = triage(frame)
        counts: dict[str, int | str] = {"dead letters": frame.count()}
    if not options.ledger:
        read = lineage(options, int(counts["dead letters"]))
        return JobResult({**counts, "chosen": chosen.count()}, table, lineage=read)
    with open_ledger(Path(options.ledger).expanduser()) as ledger:
        selection = plan_redelivery(chosen, options, ledger)
        counts |= selection.counts
        failed = selection.failed
        if not options.dry_run:
            sent, not_found = redeliver(context, ledger, selection)
            counts |= sent
            failed += not_found
    goals = [str(row["origin"]) for row in table if row["origin"] != UNKNOWN] if options.target == "origin" else ()
    moved = lineage(options, int(counts["dead letters"]), int(counts.get("sent", 0)), goals)
    return JobResult(counts, table, failed, moved)


def lineage(options: DlqJob, rows: int | None = None, sent: int | None = None, origins: Sequence[str] = ()) -> Lineage:
    """The dead letters, and the topics that get them again, if there is a ledger. The topics that messages came from
    are known once they are read."""
    if not options.group:
        return Lineage()
    goals = {"retry": [retry_topic(options.group)], "origin": origins}.get(options.target, [options.target])
    outputs = topics(options.name_servers, goals, sent) if options.ledger else ()
    return Lineage(topics(options.name_servers, [dlq_topic(options.group)], rows), outputs)


# --------------------------------------------------------------------------------------------------------- reading


def dead_letters(spark: SparkSession, options: DlqJob, **narrower: str) -> DataFrame:
    """The dead letters, with their `origin`, `age` in hours and `redeliveries`."""
    wanted = narrower or {**expected(options), "subscribe": dlq_topic(options.group)}
    read = {**connection(options), **wanted, "columns": ",".join(COLUMNS), "failOnDataLoss": "false"}
    read["maxRecordsPerPartition"] = str(PARTITION_RECORDS_MAX)
    hours = (f.unix_millis(f.current_timestamp()) - f.unix_millis("storeTimestamp")) / 3_600_000
    frame = read_batch(spark, TopicSource, read)
    origin, popped = f.coalesce(_property(RETRY_TOPIC), _property(ORIGIN_5X)), pop_retry_topic("", options.group)
    was_popped = _property(FIRST_POP_TIME).isNotNull() & origin.startswith(popped)  # it was dead after a retry
    return frame.withColumns(
        {
            "origin": f.when(was_popped, f.substr(origin, f.lit(len(popped) + 1))).otherwise(origin),
            "age": hours,
            "redeliveries": f.coalesce(_property(REDELIVERIES).cast("int"), f.lit(0)),
        }
    )


def triage(frame: DataFrame) -> list[dict[str, int | str]]:
    """Counts by origin, number of attempts and redeliveries."""
    heaps = frame.groupBy("origin", "reconsumeTimes", "redeliveries").agg(
        f.count("*").alias("messages"), f.min("storeTimestamp").alias("oldest"), f.max("storeTimestamp").alias("newest")
    )
    return [
        {
            "origin": row.origin or UNKNOWN,
            "attempts": row.reconsumeTimes,
            "redelivered": row.redeliveries,
            "messages": row.messages,
            "oldest": _utc(row.oldest),
            "newest": _utc(row.newest),
        }
        for row in heaps.orderBy(f.desc("messages"), "origin", "reconsumeTimes").limit(ROWS_MAX).collect()
    ]


def _utc(moment: datetime) -> str:
    """A time that Spark has collected, which is naive and local, as `where` takes it."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def _property(name: str) -> Column:
    return f.col("properties")[name]


# --------------------------------------------------------------------------------------------------------- sending


@dataclass(frozen=True)
class RedeliveryPlan:
    """What a run sends, in numbers: the messages are in the ledger. Those in flight when an earlier run failed come
    first."""

    new: int
    in_flight: int = 0
    sent_before: int = 0
    worn_out: int = 0
    homeless: int = 0

    @property
    def counts(self) -> dict[str, int | str]:
        return {
            "sent before": self.sent_before,
            "in flight when a run ended": self.in_flight,
            "redelivered too often": self.worn_out,
            "to send": self.new,
        }

    @property
    def failed(self) -> list[str]:
        text = f"messages whose topic is not known or does not exist: {self.homeless:,}; name a topic with --to"
        return [text] if self.homeless else []


def plan_redelivery(chosen: DataFrame, options: DlqJob, ledger: RedeliveryLedger) -> RedeliveryPlan:
    """Select in the ledger which of the chosen messages to send. The driver reads their places partition by partition,
    and holds two of them at most."""
    topic = dlq_topic(options.group)
    worn_out = homeless = 0
    popped = options.target == "retry" and _is_popped(options)

    @cache
    def exists(name: str) -> bool:
        return not cluster(options).look_up([name]).unknown

    def has_home(origin: str | None) -> bool:
        if options.target not in GOALS or origin is None:
            return options.target not in GOALS
        if popped:
            return exists(pop_retry_topic(origin, options.group))
        return options.target == "retry" or exists(origin)

    new: list[Origin] = []
    for row in chosen.select(*PLACE, "msgId", "redeliveries", "origin").toLocalIterator(prefetchPartitions=True):
        message = Origin(topic, row.brokerName, row.queueId, row.queueOffset, row.msgId)
        if ledger.knows(message):
            continue
        if row.redeliveries >= options.redeliveries_max:
            worn_out += 1
        elif not has_home(row.origin):
            homeless += 1
        else:
            new.append(message)
        if len(new) >= SELECTION_SIZE:
            ledger.select(new)
            new.clear()
    ledger.select(new)
    return RedeliveryPlan(ledger.selected, ledger.in_flight, ledger.sent, worn_out, homeless)


def redeliver(
    context: JobContext[DlqJob], ledger: RedeliveryLedger, selection: RedeliveryPlan
) -> tuple[dict[str, int | str], list[str]]:
    """Send chunk by chunk. Each is in the ledger before it is sent. Returns the counts, and what has failed."""
    began, sent, done, missing = time.monotonic(), SendCounts(), 0, 0
    total = selection.in_flight + selection.new
    with context.progress(f"dead letters of {context.options.group}", "messages") as advance:
        advance(0, total)
        for chunk in chain(ledger.unfinished(), _planned(context.options, ledger)):
            stored = deliver(context.spark(), context.options, chunk)
            sent += stored
            left = len(chunk.messages) - stored.messages - stored.skipped
            if left and left > _expired(context.options, chunk):
                missing += left  # the chunk stays in flight
            else:
                ledger.finish(chunk)
            advance(done := done + len(chunk.messages), total)
    gone = total - sent.messages - sent.skipped - missing
    counts = {"sent": sent.messages, "found stored": sent.skipped, "gone meanwhile": gone}
    text = f"planned messages that no broker has now: {missing:,}; if a master is away, run it again when it is back"
    return {**counts, "seconds": f"{time.monotonic() - began:.1f}"}, [text] if missing else []


def _expired(options: DlqJob, chunk: Chunk) -> int:
    """How many messages of the chunk their brokers have removed. A slave that stands for its master may lack others."""
    asked = cluster(options)
    places = asked.queues(dlq_topic(options.group))
    first = {queue: low for queue, (low, _) in asked.bounds({q: one.addresses for q, one in places.items()}).items()}
    return sum(one.offset < first.get(MessageQueue(one.topic, one.broker, one.queue), 0) for one in chunk.messages)


def _planned(options: DlqJob, ledger: RedeliveryLedger) -> Iterator[Chunk]:
    size = min(CHUNK_SIZE, options.rate * CHUNK_SECONDS) or CHUNK_SIZE
    while chunk := ledger.plan(options.target, size):
        yield chunk


def _is_popped(options: DlqJob) -> bool:
    asked, own = cluster(options), retry_topic(options.group)
    members = connected(asked, options.group, asked.queues(dlq_topic(options.group)))
    names = asked.topics()
    popped = is_popped(options.group, members, names)
    if popped is not None:
        return popped
    places = {queue: one.addresses for queue, one in asked.queues(own).items()} if own in names else {}
    return not any(stored_offsets(asked, options.group, places).values())


def deliver(spark: SparkSession, options: DlqJob, chunk: Chunk) -> SendCounts:
    """Send the messages of a chunk, except those that are stored under its name already."""
    popped = chunk.target == "retry" and _is_popped(options)
    frame = dead_letters(spark, options, **_range_of(chunk))
    wanted = spark.createDataFrame(
        [message[1:4] for message in chunk.messages], "brokerName STRING, queueId INT, queueOffset BIGINT"
    )
    added = {REDELIVERIES: (f.col("redeliveries") + 1).cast("string")}
    if popped:  # by which retries of such a group are recognized
        added[FIRST_POP_TIME] = f.coalesce(
            _property(FIRST_POP_TIME), f.unix_millis(f.current_timestamp()).cast("string")
        )
    redelivery = f.create_map(*chain.from_iterable((f.lit(name), value) for name, value in added.items()))
    others = f.map_filter("properties", lambda name, _: ~name.isin(*added))
    rows = frame.join(f.broadcast(wanted), list(PLACE), "left_semi").select(
        *PLACE,
        _topic(options.group, chunk.target, popped=popped).alias("topic"),
        "body", "keys", "tags", "flag",
        f.map_concat(others, redelivery).alias("properties"),
        f.concat_ws("/", f.lit(chunk.name), *PLACE).alias("idempotencyKey"),
    )  # fmt: skip
    one_task = rows.coalesce(1).sortWithinPartitions(*PLACE)  # the same rows in the same order when it is repeated
    sink = {"jobId": chunk.name, "deliveryGuarantee": "effectively-once", "idempotencyKeyIn": "keys"}
    rate = {"maxRowsPerSecond": str(options.rate)} if options.rate else {}
    return send(one_task, connection(options) | sink | rate)


def _range_of(chunk: Chunk) -> dict[str, str]:
    """Options of a read that is limited to the queues and offsets of the chunk."""
    offsets: dict[MessageQueue, list[int]] = defaultdict(list)
    for message in chunk.messages:
        offsets[MessageQueue(message.topic, message.broker, message.queue)].append(message.offset)
    return ranges({queue: (min(found), max(found) + 1) for queue, found in offsets.items()})


def _topic(group: str, target: str, *, popped: bool) -> Column:
    if target == "origin":
        return f.col("origin")
    if popped:
        return f.concat(f.lit(pop_retry_topic("", group)), "origin")
    return f.lit(retry_topic(group) if target == "retry" else target)


JOB = Job(
    "dlq",
    "Without a ledger it only shows the dead letters. With one, it sends the messages that no run has sent yet, with\n"
    "their keys, tags and properties. ORBIT_REDELIVERIES counts how often, and you find each message by the key it\n"
    "gets, ORBIT_IK. The dead letters stay in their topic. The ledger records what was sent, so you can repeat a\n"
    "failed run without duplicates.",
    DlqJob,
    run,
    (
        "--name-server 127.0.0.1:9876 --group billing",
        "--name-server 127.0.0.1:9876 --group billing --ledger billing.ledger --where \"origin = 'orders'\"",
        "--name-server 127.0.0.1:9876 --group billing --ledger billing.ledger --to orders-repaired --rate 100",
    ),
    "the ledger records what was sent, and the next run sends the rest",
    lineage,
)
