"""Fields as SQL writes them are types, as Spark's own parser reads them."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_type

from orbitmq.errors import SourceError
from orbitmq.spark.bodies.ddl import PLAIN, parse_ddl

NAMES = st.text("abcXYZ_09é", min_size=1, max_size=8) | st.sampled_from(["struct", "array", "comment", "not", "int"])


def structs(kinds: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.dictionaries(NAMES, kinds, min_size=1, max_size=4).map(lambda fields: pa.struct(list(fields.items())))


DECIMALS = st.integers(1, 38).flatmap(lambda digits: st.integers(0, digits).map(lambda s: pa.decimal128(digits, s)))
KINDS = st.recursive(
    st.sampled_from(list(PLAIN.values())) | DECIMALS,
    lambda inner: inner.map(pa.list_) | inner.map(lambda kind: pa.map_(pa.string(), kind)) | structs(inner),
    max_leaves=8,
)


@given(structs(KINDS))
def test_what_spark_calls_a_type_is_read_as_that_type(kind: pa.StructType) -> None:
    text = from_arrow_type(kind).simpleString()
    assert parse_ddl(text) == kind
    assert parse_ddl(text.removeprefix("struct<")[:-1].upper()).num_fields == kind.num_fields


def test_fields_may_be_written_in_any_way_that_sql_allows() -> None:
    text = """
      id BIGINT NOT NULL COMMENT 'of the order', `a ``b` : String,
      total DECIMAL(10,2), exact Decimal, one DECIMAL(3), at TIMESTAMP,
      lines ARRAY<STRUCT<sku: STRING, count INT>>, more MAP<STRING, ARRAY<DATE>>
    """
    lines = pa.list_(pa.struct([("sku", pa.string()), ("count", pa.int32())]))
    assert parse_ddl(text) == pa.struct(
        [
            ("id", pa.int64()), ("a `b", pa.string()), ("total", pa.decimal128(10, 2)), ("exact", pa.decimal128(10, 0)),
            ("one", pa.decimal128(3, 0)), ("at", pa.timestamp("us", "UTC")), ("lines", lines),
            ("more", pa.map_(pa.string(), pa.list_(pa.date32()))),
        ]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id", "'the end' after 'id', where 'a name' was expected"),
        ("id BIGINT,", "'the end' after 'id BIGINT ,'"),
        ("id BLOB", "no type blob; the types are boolean, "),
        ("id ARRAY<INT", "'the end' after 'ARRAY < INT', where '>' was expected"),
        ("id INT other INT", "'other' after 'id INT', where 'the end' was expected"),
        ("id INT, id STRING", "field id occurs twice"),
        ("m MAP<INT, INT>", "a map is MAP<STRING, ...>"),
        ("d DECIMAL(40, 1)", "a decimal has 1 to 38 digits"),
        ("d DECIMAL(x)", "x is no number"),
        ("s STRUCT<>", "'>' after 's STRUCT <', where 'a name' was expected"),
        ("a;b INT", "cannot read ';b INT' at 1"),
        ("a " + "ARRAY<" * 200, "more than 100 levels"),
        ("", "'the end' after '', where 'a name' was expected"),
    ],
)
def test_what_is_no_schema_is_refused_by_its_place(text: str, said: str) -> None:
    with pytest.raises(SourceError) as refused:
        parse_ddl(text)
    assert refused.value.text.startswith("option bodySchema")
    assert said in refused.value.text


@given(st.text("ab <>(),:`'1", max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(SourceError):
        assert parse_ddl(text).num_fields
