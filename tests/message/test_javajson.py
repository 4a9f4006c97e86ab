"""The Java dialect: what fastjson accepts is read, what is written is Java's text, nothing but BodyError escapes."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import BodyError
from orbitmq.message.javajson import DEPTH_MAX, ObjectKey, dumps, dumps_pretty, loads


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":1}', {"a": 1}),
        ("{0:'x',-1:\"y\"}", {0: "x", -1: "y"}),
        ('{{"q":0,"t":"T"}:10}', {ObjectKey(q=0, t="T"): 10}),
        ('{{"t":"T","q":0}:10}', {ObjectKey(q=0, t="T"): 10}),
        ("{a:1,b_c:[1,2,],}", {"a": 1, "b_c": [1, 2]}),
        ("{a:true,b:false,c:null}", {"a": True, "b": False, "c": None}),
        ("{a:1.5,b:-2e3,c:7L}", {"a": 1.5, "b": -2000.0, "c": 7}),
        ("{a:'it\\'s',b:'\\u4e2d\\x41\\t'}", {"a": "it's", "b": "中A\t"}),
        ('{0:"\\ud83d\\ude80"}', {0: "🚀"}),
        ("[{a:1},{$ref:'$[0]'}]", [{"a": 1}, {"a": 1}]),
        ('{"a":{"b":[7,8]},"c":{"$ref":"$.a.b"}}', {"a": {"b": [7, 8]}, "c": [7, 8]}),
        ("  {  }  ", {}),
        ("7", 7),
    ],
)
def test_what_java_accepts_is_read(text: str, value: Any) -> None:
    assert loads(text) == value
    assert loads(text.encode()) == value
    assert loads(memoryview(text.encode())) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{a}",
        "{a:}",
        "{a:1}}",
        "[1",
        "'open",
        "{'a\\u12':1}",
        "nothing",
        "{{a:{}}:1}",
        '{"a":{"$ref":"$.b"}}',
        '{"a":{"$ref":"$.a.x"}}',
        "{0:" * (DEPTH_MAX + 2),
        "[" * 100_000,
    ],
)
def test_what_java_refuses_is_refused(text: str) -> None:
    with pytest.raises(BodyError):
        loads(text)


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(BodyError):
        loads(b'{0:"\xff"}')


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": None, "b": []}, '{"b":[]}'),
        ({0: "x"}, '{0:"x"}'),
        ({ObjectKey(q=0): 1}, '{{"q":0}:1}'),
        ({"a": [1, True, 0.0, "x", None]}, '{"a":[1,true,0.0,"x",null]}'),
        ({"a": '"\\\t\n\x01/<ü🚀'}, '{"a":"\\"\\\\\\t\\n\\u0001/<ü🚀"}'),
    ],
)
def test_compact_text_is_javas(value: Any, text: str) -> None:
    assert dumps(value) == text


def test_pretty_text_is_javas() -> None:
    assert dumps_pretty({"t": {"a@g": {0: 1, 1: 2}}, "n": [1, 2], "e": {}}) == (
        '{\n\t"t":{\n\t\t"a@g":{0:1,1:2\n\t\t}\n\t},\n\t"n":[1,2],\n\t"e":{}\n}'
    )


TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
SCALARS = st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
KEYS = TEXTS | st.integers() | st.dictionaries(TEXTS, SCALARS, max_size=3).map(ObjectKey)
VALUES = st.recursive(SCALARS, lambda v: st.lists(v, max_size=4) | st.dictionaries(KEYS, v, max_size=4), max_leaves=15)


def refers(value: Any) -> bool:
    return "$ref" in dumps(value)


@given(VALUES.filter(lambda value: not refers(value)))
def test_what_is_written_is_read_back_equal(value: Any) -> None:
    assert loads(dumps(value)) == value
    assert loads(dumps_pretty(value)) == value


@given(VALUES.filter(lambda value: isinstance(value, dict)))
def test_plain_json_is_read_as_a_json_reader_does(value: Any) -> None:
    text = json.dumps({str(key): content for key, content in value.items()}, default=str, skipkeys=True)
    with suppress(BodyError):  # a text may hold a reference that leads nowhere
        if "$ref" not in text:
            assert loads(text) == json.loads(text)


@given(st.binary(max_size=100) | st.text("{}[]:,\"'0a$\\u \n-1.e", max_size=40).map(str.encode))
def test_any_bytes_give_a_value_or_a_body_error(data: bytes) -> None:
    with suppress(BodyError):
        loads(data)
