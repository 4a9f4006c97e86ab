"""A topic in a lake: archive it with its bodies as columns, query it, draw its rates and its lag, replay a part of it.

Editors that know `# %%` show this file as a notebook. It needs `orbitmq[spark]`, duckdb, matplotlib and Java 17.
"""

# %% [markdown]
# Every run makes a new lake. Its archive goes on where that of the run before ended, as its group has stored that.

# %%
from __future__ import annotations

import atexit
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from matplotlib import pyplot as plt
from pyspark.sql import DataFrame, SparkSession, functions

import orbitmq.spark
from orbitmq.client import Message
from orbitmq.client.sync import Producer

NAME_SERVER = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
TOPIC, AGAIN = "ExampleLakehouse", "ExampleLakehouseAgain"
SCHEMA = "hour INT, city STRING, total DECIMAL(10,2)"
PIPELINE = [sys.executable, "-m", "orbitmq", "pipeline"]  # in a shell: orbitmq pipeline
FOLDER = Path(tempfile.mkdtemp(prefix="lakehouse-"))
LAKE = str(FOLDER / "lake")

producer = Producer("example-lakehouse-orders", NAME_SERVER)
producer.start()
for topic in (TOPIC, AGAIN):
    producer.create_topic(topic)

# %% [markdown]
# The archive runs beside this notebook and publishes every two seconds. Without `--period` it would end when all is
# archived, as you want it from a timer.

# %%
archive = subprocess.Popen(
    [
        *PIPELINE, "archive", "--name-server", NAME_SERVER, "--topics", TOPIC, "--lake", LAKE, "--period", "2",
        "--archive-group", "example-lakehouse", "--starting-offsets", "group",
        "--body-format", "json", "--body-schema", SCHEMA, "--body-mode", "failfast", "-o", "json",
    ],
    stdout=subprocess.PIPE,
)  # fmt: skip
atexit.register(archive.terminate)  # whatever happens below


def wait_for_archive(orders: int) -> None:
    while not DeltaTable.is_deltatable(LAKE) or DeltaTable(LAKE).count() < orders:
        assert archive.poll() is None, "the archive has ended; its error stands above"
        time.sleep(0.2)


# %% [markdown]
# Meanwhile people order. The first one waits for Spark, which takes some seconds to start and for its first batch. Then
# comes a day in ten seconds, busy at noon, and more so in the evening.

# %%
HOUR_SECONDS = 0.4
chance = random.Random(24)


def orders_an_hour(hour: float) -> float:
    return 30 + 150 * math.exp(-(((hour - 12) / 2) ** 2)) + 300 * math.exp(-(((hour - 19) / 2) ** 2))


def order(hour: int) -> Message:
    city, cents = chance.choice(["Berlin", "Köln", "Leipzig"]), chance.randrange(500, 20_000)
    return Message(TOPIC, json.dumps({"hour": hour, "city": city, "total": cents / 100}).encode(), tags="OrderPaid")


producer.send(order(-1))
wait_for_archive(1)
sent, begun = 1, time.monotonic()
for step in range(24 * 5):
    orders = [order(step // 5) for _ in range(round(orders_an_hour(step / 5) / 5))]
    producer.send_batch(orders)
    sent += len(orders)
    time.sleep(max(0.0, begun + (step + 1) * HOUR_SECONDS / 5 - time.monotonic()))

# %% [markdown]
# Let the archive publish the rest, and end it as Ctrl-C would: it says what it has done.

# %%
wait_for_archive(sent)
archive.terminate()
counts = json.loads(archive.communicate()[0])["counts"]
print(f"sent {sent:,} orders, archived {counts['messages']:,} in {counts['files']} files")

# %% [markdown]
# The table names the files that count. duckdb reads them with the bodies as columns; so do polars, pandas and others.

# %%
table = DeltaTable(LAKE)
duckdb.read_parquet(table.file_uris()).create_view("orders")
for city, count, total in duckdb.execute(
    "SELECT value.city, count(*), sum(value.total) FROM orders GROUP BY ALL ORDER BY ALL"
).fetchall():
    print(f"{city}: {count:,} orders, {total:,} €")

# %% [markdown]
# How many messages a second did the broker store? Every message has the time.

# %%
STEP_MS = 500
rates = duckdb.execute(
    f"SELECT epoch_ms(storeTimestamp) // {STEP_MS}, count(*) * 1000 / {STEP_MS}"
    " FROM orders WHERE value.hour >= 0 GROUP BY 1 ORDER BY 1"
).fetchall()
first_ms: int = rates[0][0] * STEP_MS


def seconds(milliseconds: int) -> float:
    return (milliseconds - first_ms) / 1000


figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
axes.fill_between(
    [seconds(step * STEP_MS) for step, _ in rates], [rate for _, rate in rates], step="post", color="#1e6fb3"
)
axes.set(title=f"{TOPIC}: messages stored", xlabel="seconds", ylabel="messages per second")
figure.savefig(FOLDER / "rates.png", dpi=110)

# %% [markdown]
# And how far was the archive behind? A message counts from its storing until the commit of the table that has it, so
# the lag falls with every batch.

# %%
duckdb.register("files", pa.table(table.get_add_actions(flatten=True)))
lag = duckdb.execute(
    "SELECT ms, sum(sum(change)) OVER (ORDER BY ms) FROM ("
    "SELECT epoch_ms(storeTimestamp) AS ms, 1 AS change FROM orders"
    " UNION ALL SELECT modification_time, -num_records FROM files"
    ") GROUP BY ms ORDER BY ms"
).fetchall()
figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
axes.step([seconds(ms) for ms, _ in lag], [behind for _, behind in lag], where="post", color="#b3541e")
axes.set(
    title=f"{TOPIC}: messages not yet in the lake", xlabel="seconds", ylabel="messages", xlim=(0, None), ylim=(0, None)
)
figure.savefig(FOLDER / "lag.png", dpi=110)
print(f"the lag was {max(behind for _, behind in lag):,} at most, and {lag[-1][1]} at the end")
print(f"pictures: {FOLDER / 'rates.png'} {FOLDER / 'lag.png'}")

# %% [markdown]
# Send the evening again, to another topic. Under one name nothing is sent twice, however often you repeat this.

# %%
first, last, newest = duckdb.execute(
    "SELECT min(ms) FILTER (value.hour >= 17), max(ms) FILTER (value.hour < 22), max(ms)"
    " FROM (SELECT value, epoch_ms(storeTimestamp) AS ms FROM orders)"
).fetchall()[0]
replay = subprocess.run(
    [
        *PIPELINE, "replay", "--name-server", NAME_SERVER, "--lake", LAKE, "--topics", TOPIC, "--to", AGAIN,
        "--from", str(first), "--until", str(last + 1), "--name", FOLDER.name, "-o", "json",
    ],
    stdout=subprocess.PIPE, check=True,
)  # fmt: skip
replayed = json.loads(replay.stdout)["counts"]["messages sent"]
print(f"replayed {replayed:,} orders of the evening")

# %% [markdown]
# Spark reads both: the lake, and the topic of the replay, whose bodies it parses by the same schema.

# %%
os.environ["PYSPARK_PYTHON"] = sys.executable  # Spark's workers run this Python
spark = SparkSession.builder.config("spark.python.unix.domain.socket.enabled", "true").getOrCreate()
orbitmq.spark.register(spark)
lake = spark.read.format("orbitmq-lake").option("topics", TOPIC).load(LAKE)
again = (
    spark.read.format("orbitmq")
    .option("nameServer", NAME_SERVER)
    .option("bodyFormat", "json")
    .option("bodySchema", SCHEMA)
    .load(AGAIN)
    .where(
        functions.col("storeTimestamp") > functions.timestamp_millis(functions.lit(newest))
    )  # not those of an earlier run
)


def evening(frame: DataFrame) -> str:
    orders = frame.where("value.hour BETWEEN 17 AND 21")
    count, total = orders.agg(functions.count("*"), functions.sum("value.total")).first() or (0, 0)
    return f"{count:,} orders, {total:,} €"


print(f"the evening in the lake: {evening(lake)}; in {AGAIN}: {evening(again)}")
spark.stop()
producer.shutdown()
