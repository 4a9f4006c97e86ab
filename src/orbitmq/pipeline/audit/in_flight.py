"""Messages in flight: delivered by POP consumption, neither acknowledged nor redelivered. Offsets of groups have passed
them. Of ordered groups they are part of the backlog, because their offsets wait for acknowledgements.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from orbitmq.pipeline.audit.options import IN_FLIGHT
from orbitmq.pipeline.audit.results import Field, Section
from orbitmq.pipeline.audit.tables import Tables

CHECKPOINT, ACKS, MARK, FORGET = "ck", ("ack", "bAck"), "orbitmq-mark", "orbitmq-forget"  # tags of records
_RECORD = (
    "so BIGINT, pt BIGINT, it BIGINT, q INT, t STRING, c STRING, d ARRAY<BIGINT>, bm BIGINT, ps BIGINT, pp BIGINT, "
    "ao BIGINT, aol ARRAY<BIGINT>"
)
_KEY = ("brokerName", "t", "c", "q", "so", "pt")  # of a checkpoint
_FIELDS = (
    Field("group", "Group"), Field("topic", "Topic"), Field("brokerName", "Broker"), Field("queueId", "Queue", "count"),
    Field("queueOffset", "Offset", "count"), Field("delivered", "Delivered", "time"),
    Field("due", "Redelivered", "time"),
)  # fmt: skip


def unacknowledged(records: DataFrame) -> DataFrame:
    """The messages in flight, with the names of `_FIELDS`, by the records of POP consumption: `records` is a read of
    their topic with `brokerName`, `queueOffset`, `tags` and `body`.

    Brokers of RocketMQ write no mark, and do not record what they redelivered: they are left out.
    """
    each = records.withColumn("record", f.from_json(f.col("body").cast("string"), _RECORD))
    each = each.select("brokerName", "queueOffset", "tags", "record.*")
    each = each.join(each.where(f.col("tags") == MARK).select("brokerName").distinct(), "brokerName", "left_semi")
    sent = each.where(f.col("tags") == CHECKPOINT)
    messages = sent.select("*", f.posexplode("d").alias("bit", "distance")).withColumn("at", f.expr("so + distance"))
    replaced = messages.where("pp >= 0").drop("so", "pt").withColumnsRenamed({"ps": "so", "pp": "pt"})
    acks = each.where(f.col("tags").isin(*ACKS))
    acks = acks.select(*_KEY, f.explode(f.expr("if(size(aol) > 0, aol, array(ao))")).alias("at"))
    done = acks.union(replaced.select(*_KEY, "at")).distinct()
    forgotten = each.where(f.col("tags") == FORGET).groupBy("brokerName", "t").agg(f.max("queueOffset").alias("until"))
    left = messages.where("(shiftright(coalesce(bm, 0), bit) & 1) = 0").join(done, [*_KEY, "at"], "left_anti")
    left = left.join(forgotten, ["brokerName", "t"], "left").where("until IS NULL OR queueOffset > until")
    return left.select(
        f.col("c").alias("group"), f.col("t").alias("topic"), "brokerName", f.col("q").alias("queueId"),
        f.col("at").alias("queueOffset"), f.col("pt").alias("delivered"), f.expr("pt + it").alias("due"),
    ).distinct()  # fmt: skip


def in_flight_messages(records: DataFrame, tables: Tables) -> Section:
    """All of them. None is a finding: who works on a message longer than it is invisible sees it redelivered."""
    order = "due", "group", "topic", "brokerName", "queueId", "queueOffset"
    table, _ = tables.large(
        "in_flight", "Messages in flight", _FIELDS, unacknowledged(records), [f.col(name) for name in order]
    )
    return Section(
        IN_FLIGHT,
        "Messages in flight",
        "Messages that were delivered to a group without queues (POP) and are not acknowledged. They are not part of "
        "its backlog.",
        {"in flight": table.total},
        (),
        (table,),
    )
