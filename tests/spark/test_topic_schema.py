"""The schema of a topic for Spark, without Spark: name servers do not know each other, and one may lack versions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orbitmq.client.sync import Producer
from orbitmq.client.typed import avro_codec
from orbitmq.errors import SourceError
from orbitmq.spark.bodies.schema import body_schema
from orbitmq.spark.options import read_options
from orbitmq.spark.topic_schema import with_topic_schema
from orbitmq.testing import Cluster

CODEC = avro_codec({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})


@pytest.fixture
def full() -> Iterator[str]:
    """A name server that has the schema."""
    with Cluster() as cluster, Producer("typed", cluster.namesrv_address) as producer:
        producer.register_schema("orders", CODEC.schema)
        yield cluster.namesrv_address


@pytest.fixture
def empty() -> Iterator[str]:
    """One that is new."""
    with Cluster() as cluster:
        yield cluster.namesrv_address


def found(*name_servers: str) -> list[str]:
    """The ids of the schemas."""
    options = {"nameServer": ";".join(name_servers), "subscribe": "orders", "bodyFormat": "avro", "bodySchema": "topic"}
    schema = body_schema(with_topic_schema(read_options({**options, "fetchOffset.numRetries": "0"})))
    return [schema_id for schema_id, _ in schema.writers] if schema is not None else []


def test_versions_that_one_name_server_lacks_are_read_from_another(full: str, empty: str) -> None:
    assert found(empty, full) == [CODEC.schema.id]


def test_a_name_server_that_does_not_respond_is_skipped(full: str) -> None:
    assert found("127.0.0.1:1", full) == [CODEC.schema.id]
    with pytest.raises(SourceError, match="key-value settings"):
        found("127.0.0.1:1")
