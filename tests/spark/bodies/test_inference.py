"""The schema of a sample of JSON bodies."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.spark.bodies.ddl import parse_ddl
from orbitmq.spark.bodies.json_text import inferred_type, json_parser


def inferred(*values: Any) -> pa.StructType | None:
    return inferred_type([json.dumps(value).encode() for value in values])


@pytest.mark.parametrize(
    ("values", "ddl"),
    [
        ([{"b": 1, "a": "x"}], "a STRING, b BIGINT"),
        ([{"a": 1}, {"a": 2.5}], "a DOUBLE"),
        ([{"a": 1 << 70}, {"a": 1}], "a DECIMAL(38,0)"),
        ([{"a": 10**40}], "a DOUBLE"),
        ([{"a": True}, {"b": None}], "a BOOLEAN, b STRING"),
        ([{"a": 1}, {"a": "x"}], "a STRING"),
        ([{"a": {"y": 1}}, {"a": {"x": [1.5, None]}}], "a STRUCT<x: ARRAY<DOUBLE>, y: BIGINT>"),
        ([{"a": [{"x": 1}, {"y": "z"}]}], "a ARRAY<STRUCT<x: BIGINT, y: STRING>>"),
        ([{"a": []}, {"a": None}], "a ARRAY<STRING>"),
        ([{"a": {}, "b": [{}], "": 1, "c": 1}], "c BIGINT"),
        ([[1], 7, {"a": 1}], "a BIGINT"),
    ],
)
def test_types_of_a_sample(values: list[Any], ddl: str) -> None:
    assert inferred(*values) == parse_ddl(ddl)


@pytest.mark.parametrize("bodies", [[], [b""], [b"{"], [b"[]", b"7"], [b"{}"], [b"[" * 100_000]])
def test_a_sample_without_objects_has_no_type(bodies: list[bytes]) -> None:
    assert inferred_type(bodies) is None


def test_names_that_are_values_are_no_schema() -> None:
    with pytest.raises(ValueError, match="1001 fields"):
        inferred({f"user-{number}": number for number in range(2000)})


OBJECTS = st.dictionaries(
    st.text("abc", max_size=2),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=1), inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


@given(st.lists(OBJECTS, max_size=4), st.randoms())
def test_the_order_of_messages_does_not_matter(values: list[Any], random: Any) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)
    assert inferred(*values) == inferred(*shuffled)


@given(OBJECTS)
def test_an_object_fits_the_type_that_is_inferred_from_it(value: dict[str, Any]) -> None:
    kind = inferred(value)
    if kind is None or not _is_of_one_kind(value):
        return
    found = json_parser(kind, kind)(json.dumps(value).encode())
    assert not found.errors
    pa.array([found.value], kind).validate(full=True)


def _is_of_one_kind(value: Any) -> bool:
    """Whether no list has values of several types, and all numbers have a type."""
    if isinstance(value, dict):
        return all(map(_is_of_one_kind, value.values()))
    if isinstance(value, list):
        return len(value) <= 1 and all(map(_is_of_one_kind, value))
    return not isinstance(value, int) or abs(value) < 10**38
