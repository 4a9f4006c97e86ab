"""What a client of Spark Connect does: bring orbitmq along, then read, write and follow a stream. The server's Python
has none until the client, on the same machine, puts an archive where that Python looks, which streams need. Then it
tries jobs, which do not run there. `connect_program.py URL NAME_SERVER SOURCE TARGET ARCHIVE`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import orbitmq.spark
from orbitmq.pipeline import command
from orbitmq.spark.session import pack
from tests.support.process import wait_until

PATIENCE_S = 120


LIMIT = 100  # messages of the stream's first batch


def main(url: str, name_server: str, source: str, target: str, archive: str) -> None:
    spark = SparkSession.builder.remote(url).getOrCreate()
    orbitmq.spark.ship(spark)
    orbitmq.spark.register(spark)
    frame = orbitmq.spark.create_view(spark, "source", nameServer=name_server, subscribe=source)
    writer = frame.select("body").write.format("orbitmq").mode("append").option("nameServer", name_server)
    writer.option("topic", target).save()
    read = spark.read.format("orbitmq").option("nameServer", name_server).load(target)
    counted = spark.sql("SELECT count(DISTINCT body) AS number FROM source").collect()[0]
    found = {"source": counted.number, "target": read.select("body").distinct().count()}
    codes = [command.main([*job, "/there/is/none"]) for job in (("compact", "--lake"), ("rebuild", "--path"))]
    print(json.dumps(found | {"behind": behind(spark, name_server, source, Path(archive)), "codes": codes}))
    spark.stop()


def behind(spark: SparkSession, name_server: str, source: str, archive: Path) -> float:
    """How many messages a stream leaves after its first batch, as its listener has it."""
    pack(archive)
    options = {"nameServer": name_server, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(LIMIT)}
    with orbitmq.spark.listen(spark) as listener:
        writer = spark.readStream.format("orbitmq").options(**options).load(source).writeStream.queryName("followed")
        checkpoint = str(archive.with_name("followed"))
        query = writer.format("noop").option("checkpointLocation", checkpoint).trigger(processingTime="1 hour").start()
        wait_until(lambda: listener.queries() or not query.isActive, PATIENCE_S, "the first batch")
        (lag,) = listener.queries()
        query.stop()
    return lag.topics[0].messages.avg * lag.topics[0].queues


if __name__ == "__main__":
    main(*sys.argv[1:])
