"""What a client of Spark Connect does: bring orbitmq along, then read and write. The server's Python has none. Then it
tries jobs, which do not run there. `connect_program.py URL NAME_SERVER SOURCE TARGET`.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

import orbitmq.spark
from orbitmq.pipeline import command


def main(url: str, name_server: str, source: str, target: str) -> None:
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
    print(json.dumps(found | {"codes": codes}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
