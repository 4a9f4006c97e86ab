"""Overdue messages at brokers: undecided half messages, and delayed messages whose time has passed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from orbitmq.message.properties import (
    KEYS,
    PGROUP,
    REAL_QID,
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    TRAN_PREPARED_QUEUE_OFFSET,
    TRANSACTION_CHECK_TIMES,
    UNIQ_KEY,
)
from orbitmq.pipeline.audit.options import DELAYED, HALF, AuditJob
from orbitmq.pipeline.audit.results import AuditFinding, Field, Section, Table, counted
from orbitmq.pipeline.audit.tables import Tables
from orbitmq.wire.bodies import TimerProgress

PLACE = ("brokerName", "queueId", "queueOffset")
NUMBER = r"^\d{1,18}$"
_HALF = (
    Field("brokerName", "Broker"), Field("queueOffset", "Offset", "count"), Field("msgId", "Message"),
    Field("topic", "For topic"), Field("group", "Producer group"), Field("keys", "Keys"), Field("born", "Born", "time"),
    Field("seconds", "Age", "seconds"), Field("checks", "Checks", "count"),
)  # fmt: skip
_DELAYED = (
    Field("brokerName", "Broker"), Field("level", "Level", "count"), Field("queueOffset", "Offset", "count"),
    Field("msgId", "Message"), Field("topic", "For topic"), Field("toQueue", "Queue"), Field("keys", "Keys"),
    Field("due", "Due", "time"), Field("seconds", "Late", "seconds"),
)  # fmt: skip


def undecided(half: DataFrame, op: DataFrame) -> DataFrame:
    """The half messages without a decision, each once: a broker appends a copy with each check, and the decision may
    name any of the copies.

    `half` and `op` are reads with PLACE and `body`, `half` with `msgId`, `properties` and `bornTimestamp` as well.
    """
    known = half.select(
        *PLACE, "msgId", _text(PGROUP).alias("group"), _text(REAL_TOPIC).alias("topic"), _text(KEYS).alias("keys"),
        f.unix_millis("bornTimestamp").alias("born"), _number(TRANSACTION_CHECK_TIMES).alias("checks"),
        _number(TRAN_PREPARED_QUEUE_OFFSET).alias("original"),
    )  # fmt: skip
    offsets = f.split(f.col("body").cast("string"), ",")  # RocketMQ 5 settles several with one op message
    done = op.select("brokerName", "queueId", f.explode(offsets).alias("at"))
    done = done.where(f.col("at").rlike(NUMBER)).select("brokerName", "queueId", f.col("at").cast("bigint")).distinct()
    places = f.array_distinct(f.array("queueOffset", f.coalesce("original", "queueOffset")))
    each = known.withColumn("at", f.explode(places))
    marked = each.join(done.withColumn("decided", f.lit(True)), ["brokerName", "queueId", "at"], "left")
    found = marked.groupBy("brokerName", "msgId", "group").agg(
        f.max("decided").alias("decided"), f.max("queueOffset").alias("queueOffset"),
        f.first("topic").alias("topic"), f.first("keys").alias("keys"), f.min("born").alias("born"),
        f.coalesce(f.max("checks"), f.lit(0)).alias("checks"),
    )  # fmt: skip
    return found.where("decided IS NULL")


def half_messages(half: DataFrame, op: DataFrame, options: AuditJob, tables: Tables, now_ms: int) -> Section:
    """Half messages older than `halfAge`, and the number of all pending ones."""
    pending = undecided(half, op).withColumn("seconds", f.floor((now_ms - f.col("born")) / 1000))
    order = f.desc("seconds"), f.col("brokerName"), f.col("queueOffset")
    table, count = _overdue(
        pending, options.half_age, lambda found: tables.large("half", "Overdue half messages", _HALF, found, order)[0]
    )
    text = f"{counted(table.total, 'half message')} undecided for more than {options.half_age} s"
    return Section(
        HALF,
        "Half messages",
        "Messages of transactions that are neither committed nor rolled back. Consumers do not receive them.",
        {"undecided": count, "overdue half messages": table.total},
        [AuditFinding(HALF, table.total, text)] if table.total else (),
        (table,),
    )


def waiting_timers(frame: DataFrame, progress: Mapping[str, TimerProgress]) -> DataFrame:
    """The timer messages that wait, with `due`, and `level`, which they have none of. Not those that were delivered,
    moved to the end of the log, or recalled, nor the recalls, which are no messages.

    `frame` is a read of the timer topic with PLACE, `physOffset` and `properties`; brokers without progress are left
    out.
    """
    done = frame.sparkSession.createDataFrame(
        [(name, one.known, one.done_due_ms, list(one.late), one.moved) for name, one in progress.items()],
        "brokerName STRING, known BIGINT, doneDue BIGINT, late ARRAY<BIGINT>, moved BIGINT",
    )
    exact = f.coalesce(_number(TIMER_DELIVER_MS), f.lit(0))
    each = frame.withColumn("due", f.greatest(_number(TIMER_OUT_MS) + 1, exact)).join(f.broadcast(done), "brokerName")
    place, late = f.col("physOffset"), f.expr("array_contains(late, physOffset)")
    is_done = (place < f.col("moved")) | ((place < f.col("known")) & (f.col("due") <= f.col("doneDue")) & ~late)
    open_ = each.where(~is_done).drop("known", "doneDue", "late", "moved", "physOffset")
    recalled = _text(TIMER_DEL_UNIQKEY)
    names = open_.where(recalled.isNotNull()).select("brokerName", "due", recalled.alias("name")).distinct()
    named = open_.where(recalled.isNull()).withColumn("name", f.concat(_text(REAL_TOPIC), f.lit("+"), _text(UNIQ_KEY)))
    waiting = named.join(names, ["brokerName", "due", "name"], "left_anti").drop("name")
    return waiting.withColumn("level", f.lit(None).cast("int"))


def delayed_messages(frame: DataFrame, options: AuditJob, tables: Tables, now_ms: int) -> Section:
    """`frame` has the undelivered delayed messages: PLACE, `level`, `msgId`, `properties` and `due` (epoch
    milliseconds). Timer messages have no level.
    """
    waiting = frame.select(
        *PLACE, "level", "msgId", _text(REAL_TOPIC).alias("topic"),
        _text(REAL_QID).alias("toQueue"), _text(KEYS).alias("keys"), "due",
        f.floor((now_ms - f.col("due")) / 1000).alias("seconds"),
    )  # fmt: skip
    order = f.desc("seconds"), f.col("brokerName"), f.col("level"), f.col("queueOffset")
    table, count = _overdue(
        waiting,
        options.delayed_late,
        lambda found: tables.large("delayed", "Overdue delayed messages", _DELAYED, found, order)[0],
    )
    text = f"{counted(table.total, 'delayed message')} more than {options.delayed_late} s late"
    return Section(
        DELAYED,
        "Delayed messages",
        "Messages that wait for their delivery time, and those whose time has passed.",
        {"waiting": count, "overdue delayed messages": table.total},
        [AuditFinding(DELAYED, table.total, text)] if table.total else (),
        (table,),
    )


def _overdue(waiting: DataFrame, limit_s: int, write: Callable[[DataFrame], Table]) -> tuple[Table, int]:
    """The table of messages that wait longer than `limit_s`, and the number of all that wait. Read once."""
    waiting.persist()
    try:
        return write(waiting.where(f.col("seconds") > limit_s)), waiting.count()
    finally:
        waiting.unpersist()


def _text(name: str) -> Column:
    return f.col("properties")[name]


def _number(name: str) -> Column:
    return f.when(_text(name).rlike(NUMBER), _text(name)).cast("bigint")
