"""Latencies from the message traces of clients: from the send to the listener, and to its end."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from orbitmq.client.core.trace import ConsumeBegun, ConsumeEnded, Published, decode_trace
from orbitmq.errors import BodyError
from orbitmq.pipeline.audit.messages import BARS_MAX, PERCENTILES
from orbitmq.pipeline.audit.options import LATENCY, AuditJob
from orbitmq.pipeline.audit.results import AuditFinding, ChartBar, Field, LatencyStrip, ReportChart, Row, Section
from orbitmq.pipeline.audit.tables import Tables

SENT, BEGUN, ENDED, UNREADABLE = "sent", "begun", "ended", "unreadable"
RECORD = "kind STRING, at BIGINT, topic STRING, `group` STRING, msgId STRING, request STRING, cost BIGINT, ok BOOLEAN"
_SENDS = (
    Field("topic", "Topic"), Field("group", "Producer group"), Field("messages", "Messages", "count"),
    Field("costP50", "Send, p50", "ms"), Field("costP95", "p95", "ms"), Field("costP99", "p99", "ms"),
    Field("costMax", "longest", "ms"), Field("unconfirmed", "Not confirmed", "count"),
)  # fmt: skip
_DELIVERIES = (
    Field("topic", "Topic"), Field("group", "Consumer group"), Field("messages", "Messages", "count"),
    Field("done", "Done", "count"), Field("failures", "Failed calls", "count"),
    Field("waitP50", "Send to listener, p50", "ms"), Field("waitP95", "p95", "ms"), Field("waitP99", "p99", "ms"),
    Field("workP50", "Listener, p50", "ms"), Field("workP95", "p95", "ms"), Field("workP99", "p99", "ms"),
    Field("doneP50", "Send to done, p50", "ms"), Field("doneP95", "p95", "ms"), Field("doneP99", "p99", "ms"),
    Field("doneMax", "longest", "ms"),
)  # fmt: skip


def rows_of(body: bytes | None) -> list[Row]:
    """The rows of a trace message, one for each message it describes. Runs in a task."""
    try:
        found = decode_trace(bytes(body or b""))
    except BodyError:
        return [{"kind": UNREADABLE}]
    rows: list[Row] = []
    for record in found:
        if isinstance(record, Published):  # of a batch it names every message
            known = {"kind": SENT, "at": record.timestamp, "topic": record.topic, "group": record.group}
            told = {**known, "cost": record.cost_ms, "ok": record.success}
            rows += [{**told, "msgId": msg_id} for msg_id in record.msg_id.split(",")]
        elif isinstance(record, ConsumeBegun):
            known = {"kind": BEGUN, "at": record.timestamp, "group": record.group}
            rows.append({**known, "msgId": record.msg_id, "request": record.request_id})
        elif isinstance(record, ConsumeEnded):
            known = {"kind": ENDED, "at": record.timestamp, "msgId": record.msg_id, "request": record.request_id}
            rows.append({**known, "cost": record.cost_ms, "ok": record.success})
    return rows


def latency(traces: DataFrame, options: AuditJob, tables: Tables) -> Section:
    """The section of latencies. `traces` are the messages of the trace topic, with the column `body`."""
    read = f.udf(rows_of, f"ARRAY<STRUCT<{RECORD}>>", useArrow=False)
    told = traces.select(f.inline(read("body"))).persist()
    try:
        return _latency(told, options, tables)
    finally:
        told.unpersist()


def _latency(told: DataFrame, options: AuditJob, tables: Tables) -> Section:
    counts = {row.kind: row["count"] for row in told.groupBy("kind").count().collect()}
    deliveries = _deliveries(told).persist()
    sends = _rows_of(_sends(told), ("cost",))
    rows = _rows_of(_by_group(deliveries), ("wait", "work", "done_"))
    charts = (
        ReportChart("Send to done, by group", "strips", "ms", _strips(rows)),
        ReportChart("Time from send to done", "columns", "ms", _histogram(deliveries)),
    )
    deliveries.unpersist()
    slow = [
        row for row in rows if options.latency_ms and row["doneP99"] is not None and row["doneP99"] > options.latency_ms
    ]
    findings = [
        AuditFinding(
            LATENCY, row["done"], f"{row['topic']} is done by {row['group']} within {row['doneP99']:,} ms (p99)"
        )
        for row in slow
    ]
    figures = {"sends traced": counts.get(SENT, 0), "deliveries traced": counts.get(BEGUN, 0)}
    return Section(
        LATENCY,
        "Latency",
        "Computed from message traces, by the clocks of the clients. A message that is retried is done when a listener "
        "succeeds.",
        figures | {"unreadable traces": counts.get(UNREADABLE, 0)},
        findings,
        (
            tables.small("deliveries", "From send to done", _DELIVERIES, rows),
            tables.small("sends", "Sends", _SENDS, sends),
        ),
        charts,
    )  # fmt: skip


def _sends(told: DataFrame) -> DataFrame:
    each = told.where(f.col("kind") == SENT)
    unconfirmed = f.count_if(~f.col("ok")).alias("unconfirmed")
    return each.groupBy("topic", "group").agg(f.count("*").alias("messages"), unconfirmed, *_spread("cost"))


def _deliveries(told: DataFrame) -> DataFrame:
    """A row for each message and group: from its first send to the first call, and to the end of the successful one."""
    sends = told.where(f.col("kind") == SENT).groupBy("msgId")
    sent = sends.agg(f.min("at").alias("sentAt"), f.min_by("topic", "at").alias("topic"))
    begun = told.where(f.col("kind") == BEGUN).select("msgId", "group", "request", f.col("at").alias("begunAt"))
    ended = told.where(f.col("kind") == ENDED).select("msgId", "request", "at", "cost", "ok")
    calls = begun.join(ended, ["msgId", "request"], "left")
    end = f.when(f.col("at") > 0, f.col("at")).otherwise(
        f.col("begunAt") + f.col("cost")
    )  # older clients do not record the end
    took = f.when(f.col("ok"), f.struct(end.alias("at"), f.col("cost").alias("work")))
    by_group = calls.groupBy("msgId", "group").agg(
        f.min("begunAt").alias("begunAt"), f.min(took).alias("took"), f.count_if(~f.col("ok")).alias("failures")
    )
    return by_group.join(sent, "msgId").select(
        "topic", "group", "failures", (f.col("begunAt") - f.col("sentAt")).alias("wait"),
        f.col("took.work").alias("work"), (f.col("took.at") - f.col("sentAt")).alias("done_"),
    )  # fmt: skip


def _by_group(deliveries: DataFrame) -> DataFrame:
    return deliveries.groupBy("topic", "group").agg(
        f.count("*").alias("messages"), f.count("done_").alias("done"), f.sum("failures").alias("failures"),
        *_spread("wait"), *_spread("work"), *_spread("done_"),
    )  # fmt: skip


def _spread(name: str) -> tuple[Column, Column]:
    return f.percentile(name, list(PERCENTILES)).alias(f"{name}P"), f.max(name).alias(f"{name}Max")


def _rows_of(frame: DataFrame, spreads: Sequence[str]) -> list[Row]:
    """The percentiles as columns, in whole milliseconds."""
    rows: list[Row] = []
    for found in frame.orderBy("topic", "group").collect():
        row = found.asDict()
        for name in spreads:
            values = row.pop(f"{name}P") or [None] * len(PERCENTILES)
            shown = name.rstrip("_")
            for part, value in zip(("P50", "P95", "P99"), values, strict=True):
                row[shown + part] = None if value is None else round(value)
            row[f"{shown}Max"] = row.pop(f"{name}Max")
        rows.append(row)
    return rows


def _strips(rows: Sequence[Row]) -> list[LatencyStrip]:
    done = sorted((row for row in rows if row["doneP99"] is not None), key=lambda row: -row["doneP99"])
    return [
        LatencyStrip(f"{row['group']} / {row['topic']}", row["doneP50"], row["doneP95"], row["doneP99"])
        for row in done[:BARS_MAX]
    ]


def _histogram(deliveries: DataFrame) -> list[ChartBar]:
    """Messages by the power of two their latency is below."""
    power = f.floor(f.log2(f.greatest(f.col("done_"), f.lit(0)) + 1))
    found = deliveries.where("done_ IS NOT NULL").groupBy(power.alias("power")).count().collect()
    counts = {row.power: row["count"] for row in found}
    if not counts:
        return []
    return [ChartBar(str((1 << power + 1) - 1), counts.get(power, 0)) for power in range(min(counts), max(counts) + 1)]
