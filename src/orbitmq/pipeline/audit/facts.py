"""The columns of each message that the checks use: no body, but the result of its checksum.

One pass over the messages makes this frame. Spark persists it in memory and on disk, and every check reads it.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from orbitmq.message.checksum import CRC_MASK
from orbitmq.message.flags import COMPRESSED
from orbitmq.spark.sink_keys import IDEMPOTENCY_KEY

QUEUE = ("topic", "brokerName", "queueId")


def facts(frame: DataFrame, size: Column, damage: Column | None) -> DataFrame:
    """The facts of a read. Without the column `properties` there are no idempotency keys."""
    nothing = f.lit(None).cast("string")
    has_properties = "properties" in frame.columns
    return frame.select(
        *QUEUE,
        "queueOffset",
        "msgId",
        f.nullif(f.trim("keys"), f.lit("")).alias("keys"),
        (f.col("properties")[IDEMPOTENCY_KEY] if has_properties else nothing).alias("idempotencyKey"),
        size.cast("bigint").alias("size"),
        f.unix_millis("bornTimestamp").alias("born"),
        f.unix_millis("storeTimestamp").alias("stored"),
        (nothing if damage is None else damage).alias("damage"),
    )


def wrong_checksum(*, is_unpacked: bool) -> Column:
    """Why a message is damaged, or null. The checksum is that of the stored, perhaps compressed, bytes."""
    actual = f.crc32("body").bitwiseAND(f.lit(CRC_MASK).cast("bigint"))
    differs = actual != f.col("bodyCrc").cast("bigint")
    if is_unpacked:
        differs &= f.col("sysFlag").bitwiseAND(f.lit(COMPRESSED)) == 0
    return f.when(differs, f.lit("the body does not match its CRC"))


def within(frame: DataFrame, begin_ms: int, end_ms: int) -> DataFrame:
    """Messages stored at or after `begin_ms` and before `end_ms`; 0 is no limit. Damaged bytes are always included."""
    if begin_ms:
        frame = frame.where((f.col("stored") >= begin_ms) | f.col("stored").isNull())
    return frame.where((f.col("stored") < end_ms) | f.col("stored").isNull()) if end_ms else frame
