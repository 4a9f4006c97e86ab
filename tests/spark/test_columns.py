"""A batch has exactly the Arrow form of the schema Spark was told, for every choice of columns."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, MapType, StringType, StructField, StructType

from orbitmq.errors import SourceError
from orbitmq.message.hosts import encode_host
from orbitmq.message.unit import Unit, body_crc, encode_unit
from orbitmq.spark.columns import COLUMNS, DEFAULT_COLUMNS, ColumnSource, record_batch
from orbitmq.spark.forms import check_schema, read_schema
from orbitmq.spark.units import Units, unit_positions

HOST = encode_host("10.0.0.1", 10911)


def unit(body: bytes, properties: str, sys_flag: int = 0) -> bytes:
    return encode_unit(
        Unit(0, body_crc(body), 3, 5, 7, 900, sys_flag, 1_700_000_000_123, HOST, 1_700_000_001_456, HOST, 2, 8, body,
             "orders", properties)
    )  # fmt: skip


RUN = unit(b"one", "UNIQ_KEY\x01ID1\x02TAGS\x01TagA\x02KEYS\x01k1 k2\x02city\x01München") + unit(b"", "")


def batch_of(schema: StructType, run: bytes = RUN) -> pa.RecordBatch:
    arrow = to_arrow_schema(schema, timezone="UTC")
    batch = record_batch(ColumnSource(Units(run, unit_positions(run)), "broker-a", True), arrow)
    batch.validate(full=True)
    assert batch.schema.equals(arrow)  # the comparison Spark makes
    return batch


def test_every_pair_of_columns_has_the_form_spark_was_told() -> None:
    for pair in itertools.permutations(COLUMNS, 2):
        batch_of(read_schema(pair, "map"))


@given(st.permutations(list(COLUMNS)), st.integers(1, len(COLUMNS)), st.sampled_from(["map", "string"]))
def test_any_choice_of_columns_has_the_form_spark_was_told(names: list[str], count: int, properties: str) -> None:
    batch_of(read_schema(names[:count], properties))


def test_all_columns_of_a_message() -> None:
    first, second = batch_of(read_schema(tuple(COLUMNS), "map")).to_pylist()
    assert first == {
        "topic": "orders",
        "brokerName": "broker-a",
        "queueId": 3,
        "queueOffset": 7,
        "msgId": "ID1",
        "tags": "TagA",
        "keys": "k1 k2",
        "body": b"one",
        "properties": [("UNIQ_KEY", "ID1"), ("TAGS", "TagA"), ("KEYS", "k1 k2"), ("city", "München")],
        "bornTimestamp": datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC),
        "storeTimestamp": datetime(2023, 11, 14, 22, 13, 21, 456_000, tzinfo=UTC),
        "bornHost": "10.0.0.1:10911",
        "storeHost": "10.0.0.1:10911",
        "reconsumeTimes": 2,
        "sysFlag": 0,
        "flag": 5,
        "bodyCrc": body_crc(b"one"),
        "physOffset": 900,
        "preparedTransactionOffset": 8,
        "offsetMsgId": "0A00000100002A9F0000000000000384",
        "size": len(RUN) - len(unit(b"", "")),
    }
    missing = {"tags": None, "keys": None, "body": b"", "properties": [], "bodyCrc": 0, "size": len(unit(b"", ""))}
    assert second == {**first, **missing, "msgId": first["offsetMsgId"]}


def test_the_default_columns_are_the_first_twelve() -> None:
    assert tuple(read_schema((), "map").names) == DEFAULT_COLUMNS == tuple(COLUMNS)[:12]
    assert "properties" not in read_schema((), "none").names


def test_properties_may_come_as_the_stored_text() -> None:
    batch = batch_of(read_schema(("properties", "tags"), "string"))
    assert batch.to_pylist()[0] == {
        "properties": "UNIQ_KEY\x01ID1\x02TAGS\x01TagA\x02KEYS\x01k1 k2\x02city\x01München",
        "tags": "TagA",
    }


@pytest.mark.parametrize(
    ("names", "properties", "text"),
    [
        (("body", "offset"), "map", "no column offset; the columns are topic, brokerName"),
        (("body", "body"), "map", "a column occurs twice"),
        (("properties",), "none", "has properties, but includeProperties is none"),
    ],
)
def test_columns_that_cannot_be_are_refused(names: tuple[str, ...], properties: str, text: str) -> None:
    with pytest.raises(SourceError, match=f"^ORBITMQ_BAD_OPTION: option columns.*{text}"):
        read_schema(names, properties)


@pytest.mark.parametrize("properties", [StringType(), MapType(StringType(), StringType())])
def test_a_users_schema_chooses_columns_and_the_form_of_properties(properties: object) -> None:
    schema = StructType([StructField("keys", StringType()), StructField("properties", properties)])
    check_schema(schema)
    assert batch_of(schema).num_columns == 2


@pytest.mark.parametrize(
    ("field", "text"),
    [
        (StructField("offset", IntegerType()), "no column offset; the columns are topic"),
        (StructField("body", StringType()), "column body is binary, nullable; cast it after the read"),
        (StructField("tags", StringType(), False), "column tags is string, nullable"),
        (StructField("properties", MapType(StringType(), IntegerType())), "properties is map<string,string> or string"),
    ],
)
def test_a_users_schema_that_does_not_fit_is_refused(field: StructField, text: str) -> None:
    with pytest.raises(SourceError, match=f"^ORBITMQ_BAD_SCHEMA: .*{text}"):
        check_schema(StructType([field]))
