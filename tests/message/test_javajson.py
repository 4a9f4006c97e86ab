"""The dialect of Java's JSON is written as Java writes it and read as leniently; bad text gives BodyError alone."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from json.decoder import scanstring  # type: ignore[attr-defined]  # the stubs leave it out
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orbitmq.errors import BodyError
from orbitmq.message import javajson
from orbitmq.message.javajson import (
    DEPTH_MAX,
    LENIENT_MAX,
    REFERRED_TEXT,
    Allowance,
    ObjectKey,
    dumps,
    dumps_pretty,
    loads,
)
from tests.support.golden import GOLDEN, unpack

PRETTY_FILES = ["consumerFilter", "consumerOffset", "delayOffset", "subscriptionGroup", "topics"]


# ------------------------------------------------------------------------------------------------------ Java's files


@pytest.mark.parametrize("name", PRETTY_FILES)
def test_files_written_by_java_come_out_byte_for_byte(name: str) -> None:
    text = (GOLDEN / f"configs/broker_{name}.json").read_text(encoding="utf-8")
    assert dumps_pretty(loads(text)) == text


def test_the_compact_file_of_a_name_server_comes_out_byte_for_byte() -> None:
    text = (GOLDEN / "configs/namesrv_kvConfig.json").read_text(encoding="utf-8")
    assert dumps(loads(text)) == text


def test_offset_files_of_broadcasting_consumers_come_out_byte_for_byte(tmp_path: Path) -> None:
    unpack("broadcast", tmp_path)
    files = list(tmp_path.rglob("offsets.json"))
    assert files
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert dumps_pretty(loads(text)) == text


def test_number_keys_stand_bare_on_the_line_of_their_brace() -> None:
    assert dumps_pretty({"offsetTable": {"T@g": {0: 5, 10: 6}}, "n": [1, 2], "e": {}}) == (
        '{\n\t"offsetTable":{\n\t\t"T@g":{0:5,10:6\n\t\t}\n\t},\n\t"n":[1,2],\n\t"e":{}\n}'
    )


# ----------------------------------------------------------------------------------------------------------- writing


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": None, "b": [None, True, False, 1, 1.5]}, '{"b":[null,true,false,1,1.5]}'),
        ({0: "x", "1": "y"}, '{0:"x","1":"y"}'),
        ({ObjectKey(queueId=0, topic="T"): 10}, '{{"queueId":0,"topic":"T"}:10}'),
        ({}, "{}"),
        ([], "[]"),
        ({"none": {}, "nothing": []}, '{"none":{},"nothing":[]}'),
        ('"\\/\b\f\n\r\t\x01\x7f\x85\u2028中😀<>', r'"\"\\/\b\f\n\r\t\u0001\u007F\u0085\u2028中😀<>"'),
        ([0.0, 1.0, float("nan"), float("inf"), float("-inf")], "[0.0,1.0,null,null,null]"),
    ],
)
def test_values_are_written_compactly_as_java_does(value: Any, text: str) -> None:
    assert dumps(value) == text


def test_what_has_no_form_is_the_callers_mistake() -> None:
    with pytest.raises(TypeError):
        dumps(object())


# ----------------------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{0:"a",1:"b"}', {0: "a", 1: "b"}),
        ('{"0":"a"}', {"0": "a"}),
        ("{-5:1}", {-5: 1}),
        ('{{"queueId":0,"topic":"T"}:10}', {ObjectKey(queueId=0, topic="T"): 10}),
        ('{{"topic":"T","queueId":0}:10}', {ObjectKey(queueId=0, topic="T"): 10}),
        ("{'a':'it\"s',b:'it\\'s'}", {"a": 'it"s', "b": "it's"}),
        ("{name:1,$x_2.y-z:2}", {"name": 1, "$x_2.y-z": 2}),
        ('{,,"a":1,,"b":[1,,2,],}', {"a": 1, "b": [1, 2]}),
        (" \t\r\n{ 'a' : 1 } \n", {"a": 1}),
        ("[1L,2.5F,3d,4S,5B,-1e3,1.5E-2]", [1, 2.5, 3, 4, 5, -1000.0, 0.015]),
        ("[true,false,null,undefined,NaN]", [True, False, None, None, None]),
        (r"'\x41\u00e9\t\q\0'", "Aé\tq\0"),
        (r"{'a':'\ud83d\ude00'}", {"a": "😀"}),
        (r"{'a':'\ud83d'}", {"a": "\ufffd"}),
        ("{'a':1,'a':2}", {"a": 2}),
        ("9007199254740993", 9007199254740993),
        ("[" * DEPTH_MAX + "]" * DEPTH_MAX, eval("[" * DEPTH_MAX + "]" * DEPTH_MAX)),
    ],
)
def test_the_reader_takes_what_java_takes(text: str, value: Any) -> None:
    assert loads(text) == value
    assert loads(text.encode()) == value
    assert loads(memoryview(bytearray(text.encode()))) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":{"t":"T"},"b":{"$ref":"$.a"}}', {"a": {"t": "T"}, "b": {"t": "T"}}),
        ('{"a":[{"t":1},{"t":2}],"b":[{"$ref":"$.a[1]"}]}', {"a": [{"t": 1}, {"t": 2}], "b": [{"t": 2}]}),
        ('[{"t":1},{"$ref":"$[0]"},{"$ref":"$[0].t"}]', [{"t": 1}, {"t": 1}, 1]),
        ("[{x:{0:5}},{$ref:'$[0].x'}]", [{"x": {0: 5}}, {0: 5}]),
        ('{"$ref":"$"}', {"$ref": "$"}),
    ],
)
def test_references_to_an_earlier_part_are_followed(text: str, value: Any) -> None:
    assert loads(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "{",
        "[1",
        '{"a"}',
        '{"a":}',
        "{:1}",
        "{'a':1}}",
        "nope",
        "-",
        "'open",
        r"'\u12g4'",
        "'\\",
        "{{1:2}",
        "{[1]:2}",
        '{{"a":[1]}:2}',
        '{{"a":{"b":1}}:2}',
        "{1:" + "9" * 5000 + "}",
        "{" + "9" * 5000 + ":1}",
        '{"b":{"$ref":"$.a"}}',
        '{"a":1,"b":{"$ref":"$.a.c"}}',
        '{"a":[1],"b":{"$ref":"$.a[7]"}}',
        '{"a":[1],"b":{"$ref":"$.a[' + "9" * 5000 + ']"}}',
        "\ud800",
        "{'\udfff':1}",
    ],
)
def test_what_is_no_value_gives_a_body_error(text: str) -> None:
    with pytest.raises(BodyError):
        loads(text)


@pytest.mark.parametrize(
    "text",
    [
        "[" * (DEPTH_MAX + 2) + "]" * (DEPTH_MAX + 2),
        '{"a":' * 500 + "1" + "}" * 500,
        "[" * (DEPTH_MAX + 2) + "1,]",
        "[" * 5000 + "]" * 5000,
        "[" * 100_000,
        "{a:" * 100_000,
    ],
    ids=lambda text: f"{text[:4]}x{len(text)}",
)
def test_deep_nesting_is_refused_however_it_is_written(text: str) -> None:
    with pytest.raises(BodyError):
        loads(text)


def test_text_that_is_not_utf8_gives_a_body_error() -> None:
    with pytest.raises(BodyError, match="UTF-8"):
        loads(b'{"a":"\xff"}')


@pytest.mark.parametrize(
    "text",
    [
        '{"a":{"$ref":"$"}}',
        '{"a":[{"$ref":"$.a"}]}',
        '{"a":[1],"b":[{"$ref":"$.a"}],"c":[{"$ref":"$.b"}]}',
        '{"a":{"$ref":"$.b"},"b":{"$ref":"$.a"}}',
    ],
)
def test_references_cannot_make_a_circle_or_a_bomb(text: str) -> None:
    with pytest.raises(BodyError, match="refer"):
        loads(text)


def test_many_references_to_something_large_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(javajson, "REFERRED_MAX", 100)
    ten_values = "[1,2,3,4,5,6,7,8,9]"
    assert len(loads('{"a":' + ten_values + ',"b":[' + '{"$ref":"$.a"},' * 10 + "]}")["b"]) == 10
    with pytest.raises(BodyError, match="refer"):
        loads('{"a":' + ten_values + ',"b":[' + '{"$ref":"$.a"},' * 11 + "]}")


def test_references_to_a_long_text_count_by_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(javajson, "REFERRED_MAX", 100)
    text = "x" * (REFERRED_TEXT * 9)
    assert len(loads(f'{{"a":"{text}","b":[' + '{"$ref":"$.a"},' * 10 + "]}")["b"]) == 10
    with pytest.raises(BodyError, match="refer"):
        loads(f'{{"a":"{text}","b":[' + '{"$ref":"$.a"},' * 11 + "]}")


def test_no_more_of_what_is_referred_to_is_looked_at_than_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body of 16 MiB may hold half a million references to half a million values."""
    looked_at = 0
    content = javajson._content

    def counted(value: Any) -> Iterable[Any]:
        nonlocal looked_at
        looked_at += 1
        return content(value)

    monkeypatch.setattr(javajson, "REFERRED_MAX", 100)
    monkeypatch.setattr(javajson, "_content", counted)
    with pytest.raises(BodyError, match="more than 100 values"):
        loads('{"a":[' + "1," * 1000 + '],"b":[' + '{"$ref":"$.a"},' * 1000 + "]}")
    assert looked_at == 100


# -------------------------------------------------------------------------------------------------------- properties

scalars = st.text() | st.integers() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)
object_keys = st.dictionaries(st.text(), scalars, max_size=3).map(ObjectKey)
keys = st.text() | st.integers() | object_keys
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner | st.none(), max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=20,
).filter(lambda value: "$ref" not in dumps(value))


@given(values)
@example({"": ""})
@example({1: {2: {ObjectKey(a=1.5): [None, "\x00\x7f"]}}})
def test_what_is_written_reads_back_the_same(value: Any) -> None:
    assert loads(dumps(value)) == value
    assert loads(dumps_pretty(value)) == value


@given(st.recursive(scalars | st.none(), lambda v: st.lists(v) | st.dictionaries(st.text(), v), max_leaves=20))
def test_plain_json_is_read_as_a_json_reader_does(value: Any) -> None:
    text = json.dumps(value)
    if "$ref" not in text:
        assert loads(text) == value


words = ["0", "17", "null", "true", '"$ref"', '"$.a"', "a", "\\u", "d83d", "é"]
snippets = st.lists(st.sampled_from([*"{}[],:\"'\\$.-+eE \n", *words]), max_size=40).map("".join)


@given(snippets | st.text(st.characters()))
def test_any_text_gives_a_value_or_a_body_error(text: str) -> None:
    with suppress(BodyError):
        dumps(loads(text))


@given(st.binary())
def test_any_bytes_give_a_value_or_a_body_error(data: bytes) -> None:
    with suppress(BodyError):
        loads(data)


@pytest.mark.parametrize(
    "text",
    [
        b"{a:[" + b"0," * 10_000 + b"]}",
        b"{a:[" + b"0L" * 10_000 + b"]}",
        b"{a:[" + b"''" * 10_000 + b"]}",
        b"{" + b"a:{}" * 10_000 + b"}",
        b"{a:'" + b"\\n" * 50_000 + b"'}",
    ],
)
def test_what_is_no_standard_json_may_cost_so_much_where_a_stranger_sends_it(text: bytes) -> None:
    loads(text)
    with pytest.raises(BodyError, match="not standard JSON"):
        loads(text, LENIENT_MAX)


def test_all_strangers_together_have_an_allowance_that_comes_back() -> None:
    """Nineteen texts of 2,008 units are read at first, and one more each tenth of a second."""
    allowance, text = Allowance(), b"{a:[" + b"0," * 249 + b"]}"
    for _ in range(LENIENT_MAX // 2_008):
        loads(text, allowance)
    with pytest.raises(BodyError, match="not standard JSON"):
        loads(text, allowance)
    assert len(loads(b"{a:[" + b"0," * 240 + b"]}", allowance)["a"]) == 240, "a small one is always read"
    assert len(loads(b"[" + b"0," * 100_000 + b"0]", allowance)) == 100_001, "and standard JSON"
    for _ in range(100):
        with suppress(BodyError):
            loads(text, allowance)
    allowance.refill(0.101)
    loads(text, allowance)  # who came before leaves no debt


def test_texts_that_json_cannot_read_are_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error counts the lines from the beginning of the document."""
    tried = []

    def scan(*given: Any) -> Any:
        tried.append(given[1])
        return scanstring(*given)

    monkeypatch.setattr(javajson, "scanstring", scan)
    assert loads(rb'{a:"\u0041",b:["\q","\q","\n"]}') == {"a": "A", "b": ["q", "q", "\n"]}
    assert len(tried) == 2


def test_a_long_text_is_one_value() -> None:
    """Some clients quote nothing but texts, and properties of a message are one."""
    text = b"{queueId:3,properties:'" + b"v" * 200_000 + b"'}"
    assert loads(text, LENIENT_MAX) == {"queueId": 3, "properties": "v" * 200_000}
    standard = b"[" + b"0," * 100_000 + b"0]"
    assert len(loads(standard, LENIENT_MAX)) == 100_001
