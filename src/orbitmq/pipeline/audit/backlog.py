"""The lag of groups in messages, bytes and seconds, and messages that were deleted before a group consumed them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from orbitmq.message.model import MessageQueue
from orbitmq.pipeline.audit.facts import QUEUE
from orbitmq.pipeline.audit.messages import BARS_MAX, Bounds
from orbitmq.pipeline.audit.options import BACKLOG, LOST, AuditJob
from orbitmq.pipeline.audit.report import duration
from orbitmq.pipeline.audit.results import AuditFinding, ChartBar, Field, ReportChart, Row, Section, counted
from orbitmq.pipeline.audit.tables import Tables

_FIELDS = (
    Field("group", "Group"), Field("topic", "Topic"), Field("brokerName", "Broker"), Field("queueId", "Queue", "count"),
    Field("offset", "Offset", "count"), Field("firstOffset", "First", "count"), Field("nextOffset", "End", "count"),
    Field("messages", "Lag in messages", "count"), Field("bytes", "Lag in bytes", "bytes"),
    Field("seconds", "Age of the oldest", "seconds"), Field("lost", "Deleted unread", "count"),
)  # fmt: skip
_GROUPS = (
    Field("group", "Group"), Field("topic", "Topic"), Field("messages", "Lag in messages", "count"),
    Field("bytes", "Lag in bytes", "bytes"), Field("seconds", "Age of the oldest", "seconds"),
    Field("lost", "Deleted unread", "count"),
)  # fmt: skip


@dataclass(frozen=True)
class GroupOffset:
    """The committed offset of a group in a queue: the next one it will read."""

    group: str
    queue: MessageQueue
    offset: int


def backlog(
    facts: DataFrame, standings: Sequence[GroupOffset], bounds: Bounds, options: AuditJob, tables: Tables, now_ms: int
) -> Section:
    """A row for each group and queue. `facts` must reach from the lowest group offset of each queue to its end."""
    behind = _behind(facts, standings, bounds)
    rows = [
        _row(standing, bounds[standing.queue], behind, now_ms) for standing in standings if standing.queue in bounds
    ]
    rows.sort(key=lambda row: (-row["messages"], row["group"], row["topic"], row["brokerName"], row["queueId"]))
    groups = _groups(rows)
    bars = [
        ChartBar(f"{row['group']} / {row['topic']}", row["messages"], duration(row["seconds"]))
        for row in groups[:BARS_MAX]
        if row["messages"]
    ]
    return Section(
        BACKLOG,
        "Backlog",
        "Messages that groups have not consumed yet. The seconds are the age of the oldest one.",
        {"groups": len({row["group"] for row in rows}), "messages behind": sum(row["messages"] for row in rows)},
        _findings(rows, options),
        (
            tables.small("groups", "Groups", _GROUPS, groups),
            tables.small("backlog", "Queues", _FIELDS, rows),
        ),
        (ReportChart("Lag in messages", "bars", "count", bars),),
    )


def _behind(facts: DataFrame, standings: Sequence[GroupOffset], bounds: Bounds) -> dict[tuple[MessageQueue, int], Row]:
    """Bytes and oldest message after each offset that a group has committed.

    Spark counts between these offsets, once for all groups. The sums from each offset to the end are computed here.
    """
    marks: dict[MessageQueue, list[int]] = defaultdict(list)
    for standing in standings:
        if standing.queue in bounds:
            marks[standing.queue].append(_clamped(standing.offset, bounds[standing.queue]))
    if not marks:
        return {}
    offsets = {queue: sorted(set(found)) for queue, found in marks.items()}
    rows = [(queue.topic, queue.broker_name, queue.queue_id, found) for queue, found in offsets.items()]
    kinds = "topic STRING, brokerName STRING, queueId INT, marks ARRAY<BIGINT>"
    marked = facts.join(f.broadcast(facts.sparkSession.createDataFrame(rows, kinds)), list(QUEUE))
    passed = f.size(f.filter("marks", lambda mark: mark <= f.col("queueOffset")))
    counted = (
        marked.groupBy(*QUEUE, passed.alias("passed"))
        .agg(f.sum("size").alias("bytes"), f.min("stored").alias("oldest"))
        .where("passed > 0")
        .collect()
    )
    parts = {(MessageQueue(row.topic, row.brokerName, row.queueId), row.passed): row for row in counted}
    found: dict[tuple[MessageQueue, int], Row] = {}
    for queue, own in offsets.items():
        size, oldest = 0, None
        for number in range(len(own), 0, -1):
            part = parts.get((queue, number))
            if part is not None:
                size += part.bytes or 0
                oldest = part.oldest if oldest is None else min(part.oldest, oldest)
            found[queue, own[number - 1]] = {"bytes": size, "oldest": oldest}
    return found


def _row(
    standing: GroupOffset, bounds: tuple[int, int], behind: Mapping[tuple[MessageQueue, int], Row], now_ms: int
) -> Row:
    low, high = bounds
    at = _clamped(standing.offset, bounds)
    oldest = behind[standing.queue, at]["oldest"]
    return {
        "group": standing.group,
        "topic": standing.queue.topic,
        "brokerName": standing.queue.broker_name,
        "queueId": standing.queue.queue_id,
        "offset": standing.offset,
        "firstOffset": low,
        "nextOffset": high,
        "messages": high - at,
        "bytes": behind[standing.queue, at]["bytes"],
        "seconds": 0 if oldest is None else max(0, now_ms - oldest) // 1000,
        "lost": max(0, low - max(0, standing.offset)),
    }


def _clamped(offset: int, bounds: tuple[int, int]) -> int:
    return min(max(offset, bounds[0]), bounds[1])


def _groups(rows: Sequence[Row]) -> list[Row]:
    """The same by group and topic, the largest lag first."""
    found: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        total = found[row["group"], row["topic"]]
        for name in ("messages", "bytes", "lost"):
            total[name] += row[name]
        total["seconds"] = max(total["seconds"], row["seconds"])
    merged = [{"group": group, "topic": topic, **totals} for (group, topic), totals in found.items()]
    return sorted(merged, key=lambda row: (-row["messages"], row["group"], row["topic"]))


def _findings(rows: Sequence[Row], options: AuditJob) -> list[AuditFinding]:
    findings = []
    for row in rows:
        where = f"group {row['group']} in queue {row['queueId']} of {row['topic']} on {row['brokerName']}"
        if row["lost"]:
            text = f"{where}: {counted(row['lost'], 'message')} deleted before the group consumed them"
            findings.append(AuditFinding(LOST, row["lost"], text))
        if options.backlog_messages and row["messages"] > options.backlog_messages:
            findings.append(
                AuditFinding(BACKLOG, row["messages"], f"{where} lags by {counted(row['messages'], 'message')}")
            )
        if options.backlog_age and row["seconds"] > options.backlog_age:
            text = f"{where}: the oldest message has waited for {duration(row['seconds'])}"
            findings.append(AuditFinding(BACKLOG, row["messages"], text))
    return findings
