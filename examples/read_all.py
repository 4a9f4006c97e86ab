"""Read all that a topic has, message by message and as a frame, then only what is new."""

from __future__ import annotations

import os

import polars as pl

from orbitmq.client import Message
from orbitmq.client.sync import Producer, PullConsumer

NAME_SERVERS = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
TOPIC = "ExampleReadAll"

with Producer("example-shop", NAME_SERVERS) as producer, PullConsumer("example-reports", NAME_SERVERS) as consumer:
    producer.create_topic(TOPIC)
    before = consumer.read_all(TOPIC)
    for _ in before:
        pass  # of an earlier run of this example

    for number in range(100):
        producer.send(Message(TOPIC, b"%d" % number, tags="Paid" if number % 4 else "Refunded"))

    read = consumer.read_all(TOPIC, start=before.ends)
    print(f"{sum(int(message.body) for message in read)} in all")

    frame = pl.DataFrame(consumer.read_all(TOPIC, start=before.ends).to_arrow(["tags", "body"]))
    for tag, count in frame.group_by("tags").len().sort("tags").iter_rows():
        print(f"{tag}: {count}")

    producer.send(Message(TOPIC, b"100"))
    print(f"new: {[message.body.decode() for message in consumer.read_all(TOPIC, start=read.ends)]}")
