"""What a user's program does on a cluster whose Python has no orbitmq: read a topic, run a stream into another one, and
look where its tasks ran. It also tries to write effectively once, which is refused where tasks may be speculative.
spark-submit runs it: `cluster_program.py NAME_SERVER SOURCE TARGET CHECKPOINT`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import orbitmq.spark


def where(_number: int) -> tuple[str, str]:
    """The working directory of an executor, and where its orbitmq comes from."""
    import orbitmq

    return str(Path.cwd()), orbitmq.__file__


def bodies(frame: DataFrame) -> list[str]:
    return sorted(bytes(row.body).decode() for row in frame.select("body").collect())


def refusals(batch: DataFrame, stream: DataFrame, checkpoint: str, options: dict[str, str]) -> list[str]:
    """The errors of a batch and of a stream that write effectively once."""
    once = {**options, "deliveryGuarantee": "effectively-once"}
    writer = stream.writeStream.format("orbitmq").options(**once).option("checkpointLocation", checkpoint)
    found = []
    for write in (
        lambda: batch.write.format("orbitmq").options(**once).mode("append").save(),
        lambda: writer.trigger(availableNow=True).start().awaitTermination(),
    ):
        try:
            write()
        except PySparkException as error:
            found.append(str(error))
    return found


def main(name_server: str, source: str, target: str, checkpoint: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    orbitmq.spark.ship(spark)
    orbitmq.spark.register(spark)
    places = spark.sparkContext.parallelize(range(8), 8).map(where).distinct().collect()
    read = spark.read.format("orbitmq").option("nameServer", name_server)
    options = {"nameServer": name_server, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "700"}
    stream = spark.readStream.format("orbitmq").options(**options).load(source).select("body", "keys", "tags")
    writer = stream.writeStream.format("orbitmq").option("nameServer", name_server).option("topic", target)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    batches = sum(1 for progress in query.recentProgress if progress.numInputRows)
    to = {"nameServer": name_server, "topic": target}
    refused = refusals(read.load(source).select("body"), stream, f"{checkpoint}-refused", to)
    found = {"places": places, "batch": bodies(read.load(source)), "stream": bodies(read.load(target))}
    print(json.dumps(found | {"batches": batches, "refused": refused}))


if __name__ == "__main__":
    main(*sys.argv[1:])
