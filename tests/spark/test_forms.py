"""The columns of Spark's Kafka source and of rocketmq-spark, made of the same messages."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, MapType, StringType, StructType

from orbitmq.errors import SourceError
from orbitmq.message.hosts import encode_host
from orbitmq.message.unit import Unit, body_crc, encode_unit
from orbitmq.spark.columns import ColumnSource, record_batch
from orbitmq.spark.forms import FORMS, check_schema, read_schema
from orbitmq.spark.units import Units, unit_positions

HOST = encode_host("127.0.0.1", 10911)
PROPERTIES = ["KEYS\x01order-7 customer-9\x02TAGS\x01TagA\x02city\x01東京", ""]


def batch_of(schema: StructType, form: str) -> pa.RecordBatch:
    units = [
        encode_unit(Unit(0, body_crc(b"x"), 3, 5, 40 + n, 0, 0, 1000, HOST, 2000, HOST, 0, 0, b"x", "orders", text))
        for n, text in enumerate(PROPERTIES)
    ]
    region = b"".join(units)
    rows = ColumnSource(Units(region, unit_positions(region)), "broker-a", True)
    return record_batch(rows, to_arrow_schema(schema, timezone="UTC"), FORMS[form])


def test_the_form_of_the_kafka_source() -> None:
    batch = batch_of(read_schema((), "map", "kafka"), "kafka")
    first, second = batch.to_pylist()
    assert {**first, "timestamp": first["timestamp"].timestamp()} == {
        "key": b"order-7",
        "value": b"x",
        "topic": "orders",
        "partition": 3,
        "offset": 40,
        "timestamp": 2.0,
        "timestampType": 1,
        "headers": [
            {"key": "KEYS", "value": b"order-7 customer-9"},
            {"key": "TAGS", "value": b"TagA"},
            {"key": "city", "value": "東京".encode()},
        ],
        "brokerName": "broker-a",
    }
    assert (second["key"], second["headers"]) == (None, [])
    assert "headers" not in read_schema((), "none", "kafka").names


def test_the_form_of_rocketmq_spark() -> None:
    first, second = batch_of(read_schema((), "map", "rocketmq-spark"), "rocketmq-spark").to_pylist()
    assert list(first) == [
        "topic", "flag", "body", "properties", "brokerName", "queueId", "queueOffset",
        "bornTimestamp", "storeTimestamp",
    ]  # fmt: skip
    assert json.loads(first["properties"]) == {"KEYS": "order-7 customer-9", "TAGS": "TagA", "city": "東京"}
    assert second["properties"] == "{}"


@given(st.sampled_from(sorted(FORMS)), st.randoms())
def test_a_batch_has_exactly_the_schema_of_the_read(form: str, random: object) -> None:
    names = random.sample(list(FORMS[form]), random.randint(1, len(FORMS[form])))
    schema = read_schema(tuple(names), "map", form)
    check_schema(schema, form)
    assert batch_of(schema, form).schema == to_arrow_schema(schema, timezone="UTC")


def test_columns_of_another_form_are_told_by_name() -> None:
    with pytest.raises(SourceError, match=r"^ORBITMQ_BAD_OPTION: option columns: no column body; the columns are key"):
        read_schema(("body",), "map", "kafka")
    with pytest.raises(SourceError, match=r"^ORBITMQ_BAD_SCHEMA: no column queueId; the columns are key, value"):
        check_schema(StructType().add("queueId", IntegerType()), "kafka")
    with pytest.raises(SourceError, match=r"^ORBITMQ_BAD_SCHEMA: column properties is string, nullable"):
        check_schema(StructType().add("properties", MapType(StringType(), StringType())), "rocketmq-spark")
