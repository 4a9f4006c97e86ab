"""Checks of messages: traffic, duplicates, gaps, damage and hot keys."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from orbitmq.message.model import MessageQueue
from orbitmq.pipeline.audit.facts import QUEUE
from orbitmq.pipeline.audit.options import DAMAGE, DUPLICATES, GAPS, KEYS, SKEW, AuditJob
from orbitmq.pipeline.audit.results import AuditFinding, ChartBar, Field, ReportChart, Row, Section, counted
from orbitmq.pipeline.audit.tables import Tables

POINTS_MAX = 60  # bars of the chart over time: more are too narrow on a phone
STEPS_MS = (1000, 5000, 15_000, 60_000, 300_000, 900_000, 3_600_000, 21_600_000, 86_400_000)  # width of such a bar
BARS_MAX = 20
KEYS_MAX = 1000  # the most frequent ones, which the driver collects
SKEW_MESSAGES_MIN = 100  # of a topic; with fewer a skew means nothing
RUNS = "topic STRING, brokerName STRING, queueId INT, first BIGINT, last BIGINT"
PERCENTILES = (0.5, 0.95, 0.99)
Bounds = Mapping[MessageQueue, tuple[int, int]]

_QUEUE_FIELDS = Field("topic", "Topic"), Field("brokerName", "Broker"), Field("queueId", "Queue", "count")
_QUEUES = (
    *_QUEUE_FIELDS, Field("messages", "Messages", "count"), Field("bytes", "Size", "bytes"),
    Field("firstOffset", "First", "count"), Field("nextOffset", "End", "count"), Field("oldest", "Oldest", "time"),
    Field("newest", "Newest", "time"), Field("percent", "Of the topic", "percent"),
)  # fmt: skip
_TOPICS = (
    Field("topic", "Topic"), Field("messages", "Messages", "count"), Field("bytes", "Size", "bytes"),
    Field("queues", "Queues", "count"), Field("skewPercent", "Fullest queue, of the mean", "percent"),
    Field("storeP50", "Born to stored, p50", "ms"), Field("storeP95", "p95", "ms"), Field("storeP99", "p99", "ms"),
    Field("storeMax", "longest", "ms"),
)  # fmt: skip
_DUPLICATES = (
    Field("kind", "Same"), Field("topic", "Topic"), Field("value", "Value"), Field("messages", "Messages", "count"),
    Field("firstPlace", "First at"), Field("lastPlace", "Last at"), Field("firstStored", "First stored", "time"),
    Field("lastStored", "Last stored", "time"),
)  # fmt: skip
_GAPS = (
    *_QUEUE_FIELDS, Field("firstMissing", "First missing", "count"), Field("lastMissing", "Last missing", "count"),
    Field("messages", "Messages", "count"),
)  # fmt: skip
_DAMAGE = (
    *_QUEUE_FIELDS, Field("queueOffset", "Offset", "count"), Field("msgId", "Message"), Field("reason", "Reason"),
)  # fmt: skip
_KEYS = (
    Field("topic", "Topic"), Field("key", "Key"), Field("messages", "Messages", "count"),
    Field("percent", "Of the topic", "percent"), Field("hot", "Hot", "flag"),
)  # fmt: skip
SAME = {"msgId": "message id", "idempotencyKey": "idempotency key", "keys": "keys"}


@dataclass(frozen=True)
class Traffic:
    """The section of traffic, and the number of messages of each topic for other checks."""

    section: Section
    of_topics: Mapping[str, int]


# ------------------------------------------------------------------------------------------------- how much there is


def traffic(facts: DataFrame, bounds: Bounds, options: AuditJob, tables: Tables) -> Traffic:
    """Messages and bytes of topics and queues, the delay until they were stored, and the rate over time."""
    whole = facts.where("topic IS NOT NULL")
    found = whole.groupBy(*QUEUE).agg(
        f.count("*").alias("messages"), f.sum("size").alias("bytes"), f.min("queueOffset").alias("low"),
        f.max("queueOffset").alias("high"), f.min("stored").alias("oldest"), f.max("stored").alias("newest"),
    ).collect()  # fmt: skip
    counted = {MessageQueue(row.topic, row.brokerName, row.queueId): row.asDict() for row in found}
    of_topics: dict[str, int] = defaultdict(int)
    for queue, row in counted.items():
        of_topics[queue.topic] += row["messages"]
    queues = [_queue_row(queue, counted, bounds, of_topics) for queue in sorted({*counted, *bounds})]
    topics = _topic_rows(whole, queues)
    skewed = [
        row for row in topics if row["messages"] >= SKEW_MESSAGES_MIN and row["skewPercent"] >= options.skew_percent
    ]
    findings = [
        AuditFinding(
            SKEW, 1, f"{row['topic']}: its fullest queue has {row['skewPercent']:.0f} % of the mean of its queues"
        )
        for row in skewed
    ]
    spread = sorted(queues, key=lambda row: -row["messages"])[:BARS_MAX]
    bars = [ChartBar(_place(row), row["messages"], f"{row['percent']:.1f} % of the topic") for row in spread]
    section = Section(
        "messages",
        "Messages",
        "The messages that were audited, and their distribution over the queues.",
        {"messages": sum(of_topics.values()), "bytes": sum(int(row["bytes"]) for row in queues)},
        findings,
        (tables.small("topics", "Topics", _TOPICS, topics), tables.small("queues", "Queues", _QUEUES, queues)),
        (_over_time(whole, queues), ReportChart("Messages by queue", "bars", "count", bars)),
    )
    return Traffic(section, of_topics)


def _queue_row(
    queue: MessageQueue, counted: Mapping[MessageQueue, Row], bounds: Bounds, of_topics: Mapping[str, int]
) -> Row:
    row = counted.get(queue, {})
    messages = row.get("messages", 0)
    low, high = bounds.get(queue, (row.get("low"), row.get("high", -1) + 1))
    return {
        "topic": queue.topic,
        "brokerName": queue.broker_name,
        "queueId": queue.queue_id,
        "messages": messages,
        "bytes": row.get("bytes") or 0,
        "firstOffset": low,
        "nextOffset": high,
        "oldest": row.get("oldest"),
        "newest": row.get("newest"),
        "percent": 100 * messages / max(1, of_topics.get(queue.topic, 0)),
    }


def _topic_rows(whole: DataFrame, queues: Sequence[Row]) -> list[Row]:
    delay = f.col("stored") - f.col("born")
    found = whole.groupBy("topic").agg(f.percentile(delay, list(PERCENTILES)).alias("p"), f.max(delay).alias("max"))
    delays = {row.topic: row for row in found.collect()}
    rows: list[Row] = []
    for topic in sorted({row["topic"] for row in queues}):
        own = [row for row in queues if row["topic"] == topic]
        messages = sum(row["messages"] for row in own)
        spread = (messages and delays[topic].p) or [None] * len(PERCENTILES)  # archives may lack the time of birth
        rows.append(
            {
                "topic": topic,
                "messages": messages,
                "bytes": sum(row["bytes"] for row in own),
                "queues": len(own),
                "skewPercent": 100 * len(own) * max(row["messages"] for row in own) / max(1, messages),
                **dict(zip(("storeP50", "storeP95", "storeP99"), map(_whole, spread), strict=True)),
                "storeMax": delays[topic].max if messages else None,
            }
        )
    return rows


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _over_time(whole: DataFrame, queues: Sequence[Row]) -> ReportChart:
    times = [row[name] for row in queues for name in ("oldest", "newest") if row[name] is not None]
    if not times:
        return ReportChart("Messages over time", "columns", "count", ())
    span = max(times) - min(times)
    step = next(
        (step for step in STEPS_MS if span // step < POINTS_MAX),
        STEPS_MS[-1] * (1 + span // STEPS_MS[-1] // POINTS_MAX),
    )
    begin = min(times) // step * step
    slot = f.floor((f.col("stored") - begin) / step)
    counts = {row.slot: row["count"] for row in whole.groupBy(slot.alias("slot")).count().collect()}
    points = [
        ChartBar(str(begin + number * step), counts.get(number, 0))
        for number in range((max(times) - begin) // step + 1)
    ]
    return ReportChart("Messages over time", "columns", "count", points)


# ------------------------------------------------------------------------------------------------------ findings


def duplicates(facts: DataFrame, tables: Tables) -> Section:
    """Messages of one topic with the same id, idempotency key or keys. Equal keys are listed, but no finding."""
    place = f.struct("stored", f.concat_ws("/", "brokerName", "queueId", "queueOffset").alias("place"))
    groups = [
        facts.where(f.col(column).isNotNull())
        .groupBy("topic", f.col(column).alias("value"))
        .agg(
            f.count("*").alias("messages"), f.min(place).alias("first"), f.max(place).alias("last"),
        )
        .where("messages > 1")
        .select(
            f.lit(kind).alias("kind"), "topic", "value", "messages",
            f.col("first.place").alias("firstPlace"), f.col("last.place").alias("lastPlace"),
            f.col("first.stored").alias("firstStored"), f.col("last.stored").alias("lastStored"),
        )
        for column, kind in SAME.items()
    ]  # fmt: skip
    frame = groups[0].unionAll(groups[1]).unionAll(groups[2])
    table, copies = tables.large(
        "duplicates",
        "Duplicate messages",
        _DUPLICATES,
        frame,
        (f.expr("kind = 'keys'"), f.desc("messages"), f.col("topic"), f.col("value")),
        {kind: f.when(f.col("kind") == kind, f.col("messages") - 1).otherwise(0) for kind in SAME.values()},
    )
    findings = [
        AuditFinding(DUPLICATES, count, f"{counted(count, 'message')} with the {kind} of an earlier one of the topic")
        for kind, count in copies.items()
        if count and kind != SAME["keys"]
    ]
    figures = {f"copies by {kind}": count for kind, count in copies.items()}
    text = "Messages with the id or idempotency key of an earlier one of their topic. Equal keys may be intended."
    return Section(DUPLICATES, "Duplicates", text, figures, findings, (table,))


def gaps(facts: DataFrame, read: Bounds, lows: Bounds, tables: Tables) -> Section:
    """Offsets without a message. `read` has the ranges that should be complete, if known. Messages below `lows` were
    deleted by their broker meanwhile."""
    offsets = facts.where("topic IS NOT NULL").select(
        *QUEUE, "queueOffset", f.bitmap_bucket_number(_number()).alias("slot")
    )
    slots = _slots(offsets).persist()
    try:
        return _gaps(runs(offsets, slots), read, lows, tables)
    finally:
        slots.unpersist()


def _gaps(found: DataFrame, read: Bounds, lows: Bounds, tables: Tables) -> Section:
    spark = found.sparkSession
    edges = [(*_names(queue), at, at) for queue, (begin, end) in read.items() if begin < end for at in (begin - 1, end)]
    if edges:
        found = found.unionAll(spark.createDataFrame(edges, RUNS))
    before = Window.partitionBy(*QUEUE).orderBy("first", "last").rowsBetween(Window.unboundedPreceding, -1)
    missing = found.withColumn("reach", f.max("last").over(before)).where("first > reach + 1").select(
        *QUEUE, (f.col("reach") + 1).alias("firstMissing"), (f.col("first") - 1).alias("lastMissing")
    )  # fmt: skip
    if lows:
        rows = [(*_names(queue), low) for queue, (low, _) in lows.items()]
        floor = spark.createDataFrame(rows, "topic STRING, brokerName STRING, queueId INT, low BIGINT")
        missing = missing.join(f.broadcast(floor), list(QUEUE), "left").withColumn(
            "firstMissing", f.greatest("firstMissing", f.coalesce("low", f.col("firstMissing")))
        )
    missing = missing.where("lastMissing >= firstMissing").withColumn(
        "messages", f.col("lastMissing") - f.col("firstMissing") + 1
    )
    order = f.desc("messages"), *map(f.col, QUEUE), f.col("firstMissing")
    table, sums = tables.large(
        "gaps", "Offsets without a message", _GAPS, missing, order, {"messages": f.col("messages")}
    )
    count = sums["messages"]
    findings = (
        [AuditFinding(GAPS, count, f"no message at {counted(count, 'offset')}, in {counted(table.total, 'gap')}")]
        if count
        else []
    )
    text = "The offsets of a queue are consecutive. Where one is missing, a message was lost or is damaged."
    return Section(GAPS, "Gaps", text, {"gaps": table.total, "missing messages": count}, findings, (table,))


def _slots(offsets: DataFrame) -> DataFrame:
    """The offsets of each slot of 32,768: tasks mark them in a bitmap."""
    held = f.bitmap_count(f.bitmap_construct_agg(f.bitmap_bit_position(_number())))
    ends = f.min("queueOffset").alias("first"), f.max("queueOffset").alias("last")
    return offsets.groupBy(*QUEUE, "slot").agg(*ends, held.alias("held"))


def _number() -> Column:
    """The place of an offset among the bitmaps, which begin at 1."""
    return f.col("queueOffset") + 1


def runs(offsets: DataFrame, slots: DataFrame) -> DataFrame:
    """Runs of consecutive offsets, which may touch. Offsets are sorted only in slots with a gap."""
    is_whole = f.col("held") == f.col("last") - f.col("first") + 1
    names = (*QUEUE, "first", "last")
    whole, broken = slots.where(is_whole).select(*names), slots.where(~is_whole).select(*QUEUE, "slot")
    if broken.isEmpty():
        return whole
    ordered = Window.partitionBy(*QUEUE, "slot").orderBy("queueOffset")
    is_next = f.col("queueOffset") - f.lag("queueOffset").over(ordered) <= 1
    begins = f.when(is_next, 0).otherwise(1)
    marked = offsets.join(f.broadcast(broken), [*QUEUE, "slot"], "left_semi").withColumn("begins", begins)
    parts = marked.withColumn("run", f.sum("begins").over(ordered)).groupBy(*QUEUE, "slot", "run")
    ends = parts.agg(f.min("queueOffset").alias("first"), f.max("queueOffset").alias("last"))
    return whole.unionAll(ends.select(*names))


def damage(facts: DataFrame, tables: Tables) -> Section:
    """Messages whose body does not match its checksum, and bytes of a log that are not a message."""
    frame = facts.where("damage IS NOT NULL").withColumnRenamed("damage", "reason")
    order = *map(f.col, QUEUE), f.col("queueOffset"), f.col("reason")
    table, _ = tables.large("damage", "Damaged messages", _DAMAGE, frame, order)
    findings = [AuditFinding(DAMAGE, table.total, f"{counted(table.total, 'message')} damaged")] if table.total else []
    text = "Every body was compared with the checksum that the broker stored."
    return Section(DAMAGE, "Damage", text, {"damaged": table.total}, findings, (table,))


def keys(facts: DataFrame, of_topics: Mapping[str, int], options: AuditJob, tables: Tables) -> Section:
    """The most frequent keys. Spark counts exactly, the driver gets the first KEYS_MAX."""
    each = facts.select("topic", f.explode(f.array_distinct(f.split("keys", r"\s+"))).alias("key"))
    several = each.groupBy("topic", "key").count().where("count > 1")
    totals = facts.sparkSession.createDataFrame(list(of_topics.items()), "topic STRING, whole BIGINT")
    shares = several.join(f.broadcast(totals), "topic").select(
        "topic", "key", f.col("count").alias("messages"), (100 * f.col("count") / f.col("whole")).alias("percent")
    )
    is_hot = (f.col("percent") >= options.hot_key_percent) & (f.col("messages") >= options.hot_key_messages)
    first = shares.withColumn("hot", is_hot).orderBy(~f.col("hot"), f.desc("messages"), "topic", "key")
    rows: list[Row] = [row.asDict() for row in first.limit(KEYS_MAX).collect()]
    hot = [row for row in rows if row["hot"]]
    findings = [
        AuditFinding(
            KEYS, row["messages"], f"{row['percent']:.1f} % of the messages of {row['topic']} have the key {row['key']}"
        )
        for row in hot
    ]
    bars = [
        ChartBar(f"{row['topic']}: {row['key']}", row["messages"], f"{row['percent']:.1f} %") for row in rows[:BARS_MAX]
    ]
    text = "The most frequent keys. Queues that are chosen by a hot key are overloaded."
    table = tables.small("hot_keys", "Keys", _KEYS, rows)
    return Section(
        KEYS, "Hot keys", text, {"hot keys": len(hot)}, findings, (table,),
        (ReportChart("Messages by key", "bars", "count", bars),),
    )  # fmt: skip


def _names(queue: MessageQueue) -> tuple[str, str, int]:
    return queue.topic, queue.broker_name, queue.queue_id


def _place(row: Row) -> str:
    return f"{row['topic']} {row['brokerName']}/{row['queueId']}"
