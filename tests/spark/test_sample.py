"""The sample for the schema of bodies: the newest messages that the read has, of every topic, within limits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orbitmq.client.sync import Producer
from orbitmq.message.model import Message
from orbitmq.spark import sample
from orbitmq.spark.options import ReadOptions, read_options
from orbitmq.spark.sample import MESSAGES_MAX, newest_bodies
from orbitmq.testing import Cluster

COUNT = MESSAGES_MAX + 300


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A topic of COUNT messages in one queue, every tenth with a tag of its own, and one of five."""
    with Cluster() as running:
        for topic, count in (("many", COUNT), ("few", 5), ("none", 0)):
            running.create_topic(topic, queues=1)
            sent = [Message(topic, b"%s %d" % (topic.encode(), n), tags="a" if n % 10 else "b") for n in range(count)]
            with Producer("samples", running.namesrv_address) as producer:
                for at in range(0, count, 100):
                    producer.send_batch(sent[at : at + 100])
        yield running


def options(cluster: Cluster, topics: str, **more: str) -> ReadOptions:
    told = {"nameServer": cluster.namesrv_address, "subscribe": topics, "bodyFormat": "json", "bodySchema": "x INT"}
    return read_options({**told, **more})


def test_the_newest_messages_are_the_sample(cluster: Cluster) -> None:
    assert newest_bodies(options(cluster, "many")) == [b"many %d" % number for number in range(300, COUNT)]


def test_every_topic_is_in_the_sample(cluster: Cluster) -> None:
    found = newest_bodies(options(cluster, "many,few,none"))
    assert found[:5] == [b"few %d" % number for number in range(5)]
    assert found[5:] == [b"many %d" % number for number in range(COUNT - MESSAGES_MAX // 2, COUNT)]
    assert newest_bodies(options(cluster, "none")) == []


def test_what_the_read_leaves_out_is_not_in_the_sample(cluster: Cluster) -> None:
    found = newest_bodies(options(cluster, "many", subExpression="b"))
    assert found == [b"many %d" % number for number in range(300, COUNT, 10)]


def test_the_sample_ends_with_its_size(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.spark.batches.DECODE_SIZE", 1)
    monkeypatch.setattr(sample, "SIZE_MAX", 1)
    assert 0 < len(newest_bodies(options(cluster, "many", pullBatchSize="100"))) < MESSAGES_MAX
    monkeypatch.setattr(sample, "QUEUES_MAX", 1)
    assert {body.split()[0] for body in newest_bodies(options(cluster, "many,few"))} == {b"few"}
