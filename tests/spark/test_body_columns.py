"""The columns that bodies are read as: chosen by the options or by the user's schema, of topics and of stores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from orbitmq.errors import SourceError
from orbitmq.message.compression import ZLIB, compress
from orbitmq.message.flags import COMPRESSED
from orbitmq.spark.bodies.options import BodyFormat, BodyOptions
from orbitmq.spark.body_columns import body_reader, body_writer, value_type
from orbitmq.spark.columns import DEFAULT_COLUMNS
from orbitmq.spark.forms import schema_read
from orbitmq.spark.options import read_options
from orbitmq.spark.stores.batches import read_partition
from orbitmq.spark.stores.options import scan_options
from orbitmq.spark.stores.source import StoreBatchReader, StoreSource, settings
from tests.support import golden
from tests.support.stores import open_store, record

DDL = "id BIGINT, s STRUCT<a: STRING, b: INT>, l ARRAY<STRUCT<x: INT>>, m MAP<STRING, INT>"
INNER = StructType([StructField("b", IntegerType())])


def struct(**kinds: object) -> StructType:
    return StructType([StructField("value", StructType([StructField(name, kind) for name, kind in kinds.items()]))])


def reading(schema: StructType, ddl: str = DDL) -> None:
    body_reader(BodyOptions(body_format="json", body_schema=ddl), schema)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (struct(id=StringType()), "column value.id is bigint, not string; cast it after the read"),
        (struct(id=ShortType()), "column value.id is bigint, not smallint"),
        (struct(no=LongType()), "column value has no field no by bodySchema; the fields are id, s, l, m"),
        (struct(s=StructType([StructField("c", LongType())])), "column value.s has no field c"),
        (struct(s=LongType()), "column value.s is struct<a:string,b:int>, not bigint"),
        (struct(l=ArrayType(StructType([StructField("x", LongType())]))), "column value.l[].x is int, not bigint"),
        (struct(l=ArrayType(StructType([StructField("x", IntegerType())]), False)), "column value.l is nullable"),
        (struct(m=MapType(StringType(), LongType())), "column value.m{} is int, not bigint"),
        (struct(m=MapType(StringType(), IntegerType(), False)), "column value.m is nullable"),
        (
            StructType([StructField("value", StructType([StructField("id", LongType(), False)]))]),
            "value.id is nullable",
        ),
        (StructType([StructField("value", struct(id=LongType())[0].dataType, False)]), "column value is nullable"),
        (struct(), "column value has no fields"),
        (StructType([StructField("value", StringType())]), "column value is a struct, not string"),
        (StructType([*struct(id=LongType()), StructField("_rescued", BinaryType())]), "column _rescued is string"),
    ],
)
def test_a_users_schema_of_other_types_is_refused_by_the_field(schema: StructType, text: str) -> None:
    with pytest.raises(SourceError) as refused:
        reading(schema)
    assert refused.value.name == "ORBITMQ_BAD_SCHEMA"
    assert text in refused.value.text


def test_types_that_no_body_has_are_refused_without_a_schema_too() -> None:
    options = BodyOptions(body_format="json")
    with pytest.raises(SourceError, match=r"column value\.t cannot be timestamp_ntz"):
        body_reader(options, struct(t=TimestampNTZType()))
    with pytest.raises(SourceError, match="column _rescued needs column value, or option bodySchema"):
        body_reader(options, StructType([StructField("_rescued", StringType())]))


def test_bodies_that_no_column_needs_are_not_parsed() -> None:
    assert (
        body_reader(BodyOptions(body_format="json", body_schema=DDL), StructType([StructField("keys", StringType())]))
        is None
    )
    assert body_reader(BodyOptions(), struct(id=LongType())) is None


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"bodySchema": "id INT"}, "options bodySchema and bodyMessage need bodyFormat"),
        ({"bodyFormat": "json", "bodyMessage": "M", "bodySchema": "id INT"}, "bodyMessage is for bodyFormat protobuf"),
        ({"bodyFormat": "avro"}, "option bodySchema is missing; bodyFormat avro needs it"),
        ({"bodyFormat": "protobuf"}, "option bodySchema is missing; bodyFormat protobuf needs it"),
        ({"bodyFormat": "json", "bodySchema": "nowhere.ddl"}, "option bodySchema: .*nowhere.ddl"),
        ({"bodyFormat": "json"}, "bodySchema is missing, and none of the 2 newest messages is a JSON object"),
    ],
)
def test_options_that_say_too_little_or_too_much(options: dict[str, str], text: str) -> None:
    with pytest.raises(SourceError, match=text):
        value_type(BodyOptions.parse(options), lambda: [b"", b"7"])


def test_options_that_exclude_parsing_are_refused() -> None:
    told = {"nameServer": "n:1", "subscribe": "T", "bodyFormat": "json"}
    with pytest.raises(SourceError, match="option bodyFormat is for schema=native"):
        read_options({**told, "schema": "kafka"})
    with pytest.raises(SourceError, match="option bodyFormat: bodies that stay compressed cannot be parsed"):
        read_options({**told, "decompress": "false"})
    with pytest.raises(SourceError, match="option bodyFormat: scan=index reads no bodies"):
        scan_options({"path": "/x", "scan": "index", "bodyFormat": "json"})


def test_names_that_are_values_ask_for_a_schema() -> None:
    body = json.dumps({f"user-{number}": 1 for number in range(2000)}).encode()
    with pytest.raises(SourceError, match="the sample has 1001 fields, more than 1000: names are values there"):
        value_type(BodyOptions(body_format="json"), lambda: [body])


def test_parsed_bodies_take_the_place_of_the_body() -> None:
    options = read_options({"nameServer": "n:1", "subscribe": "T", "bodyFormat": "json"})
    names = schema_read(options, value=INNER).names
    at = DEFAULT_COLUMNS.index("body")
    assert names == [*DEFAULT_COLUMNS[:at], "value", "_rescued", *DEFAULT_COLUMNS[at + 1 :]]
    chosen = schema_read(options.replace(columns="keys,body,value"), value=INNER)
    assert chosen.names == ["keys", "body", "value"]
    with pytest.raises(SourceError, match="no column value; the columns are"):
        schema_read(options.replace(columns="value"))


@pytest.mark.parametrize(
    ("given", "known", "fits"),
    [
        ("INT", "BIGINT", True), ("BIGINT", "INT", False), ("BIGINT", "DECIMAL(20,0)", True), ("FLOAT", "DOUBLE", True),
        ("DOUBLE", "FLOAT", False), ("DECIMAL(9,2)", "DECIMAL(10,2)", True), ("DECIMAL(10,2)", "DECIMAL(9,2)", False),
        ("STRING", "BINARY", False), ("MAP<STRING, INT>", "MAP<STRING, BIGINT>", True),
        ("ARRAY<STRUCT<a: INT>>", "ARRAY<STRUCT<b: INT>>", False),
    ],
)  # fmt: skip
def test_a_column_is_written_only_as_a_type_that_has_all_of_its_values(given: str, known: str, fits: bool) -> None:
    column = value_type(BodyFormat("json", f"f {given}"), list)
    assert column is not None
    if fits:
        assert body_writer(BodyFormat("json", f"f {known}"), column) is not None
    else:
        with pytest.raises(SourceError, match=r"ORBITMQ_BAD_SCHEMA: column value(\.f.* by bodySchema| has no field)"):
            body_writer(BodyFormat("json", f"f {known}"), column)


BODIES = [b'{"id": 1, "city": "Ulm"}', compress(b'{"id": 2, "city": "K\xc3\xb6ln", "zip": 5}', ZLIB), b'{"id": "x"}']


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with a message of another topic, then three orders of which one is compressed."""
    store = open_store(tmp_path / "store")
    store.put(record(b'{"other": 1}', topic="other"))
    for number, body in enumerate(BODIES):
        store.put(record(body, topic="orders", sys_flag=COMPRESSED if number == 1 else 0))
    store.close()
    return tmp_path / "store"


def rows(root: Path, **options: str) -> list[dict[str, object]]:
    told = {"path": str(root), "topics": "orders", "bodyFormat": "json", **options}
    source = StoreSource(told)
    parsed = scan_options(told)
    found = settings(parsed, source.schema())
    partitions = StoreBatchReader(parsed, found).partitions()
    return [row for part in partitions for batch in read_partition(part, found) for row in batch.to_pylist()]


def test_bodies_of_a_store_are_parsed_also_compressed_ones(root: Path) -> None:
    schema = "id BIGINT, city STRING"
    assert rows(root, columns="queueOffset,value,_rescued", bodySchema=schema) == [
        {"queueOffset": 0, "value": {"id": 1, "city": "Ulm"}, "_rescued": None},
        {"queueOffset": 1, "value": {"id": 2, "city": "Köln"}, "_rescued": '{"zip": 5}'},
        {"queueOffset": 2, "value": {"id": None, "city": None}, "_rescued": '{"id": "x"}'},
    ]
    left = rows(root, columns="queueOffset", bodySchema=schema, bodyMode="dropmalformed")
    assert len(left) == 3, "no column needs them"
    assert [row["value"] for row in rows(root, columns="value", bodySchema="id BIGINT", bodyMode="dropmalformed")] == [
        {"id": 1}, {"id": 2},
    ]  # fmt: skip
    place = "the body of queue 0 of topic orders on store at offset 2"
    with pytest.raises(SourceError, match=f'{place} does not fit the schema: id: "x" is no int64'):
        rows(root, columns="value", bodySchema=schema, bodyMode="failfast")


def test_the_schema_of_a_store_is_inferred_from_the_selected_topics(root: Path) -> None:
    found = rows(root, columns="value")
    assert [row["value"] for row in found][1] == {"city": "Köln", "id": None, "zip": 5}, "id is of two types"


def test_bodies_that_are_only_parsed_are_verified_as_well(tmp_path: Path) -> None:
    root = golden.unpack("crash_crc", tmp_path)
    with pytest.raises(SourceError, match=r"ORBITMQ_CORRUPT_RECORD: .* does not match its CRC"):
        rows(root, topics="", columns="value", bodySchema="id INT")
    assert rows(root, topics="", columns="value", bodySchema="id INT", verifyCrc="false")
