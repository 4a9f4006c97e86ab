"""A schema that could not read earlier bodies is refused, with the field and the rule; what it can read is not."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest

from orbitmq.errors import SchemaIllegal
from orbitmq.schemas.compatibility import check, refusals
from orbitmq.schemas.model import (
    TEXT_LENGTH_MAX,
    Compatibility,
    Schema,
    SchemaKind,
    SchemaVersion,
    decode_version,
    encode_version,
)
from orbitmq.schemas.protobuf import schema_of


def part(space: str, y: str, x: Any) -> dict[str, Any]:
    """A record Order with a record X, or one that is known by its name."""
    inner = x if "." in x else {"type": "record", "name": "X", "fields": [{"name": "n", "type": x}]}
    fields = [{"name": "x", "type": inner}, {"name": "y", "type": y}]
    return {"type": "record", "name": "Part", "namespace": space, "fields": fields}


def json_schema(**properties: Any) -> Schema:
    """An object; a name that ends with `_` is of a required property."""
    return Schema(
        SchemaKind.JSON,
        json.dumps(
            {
                "type": "object",
                "properties": {name.rstrip("_"): each for name, each in properties.items()},
                "required": [name.rstrip("_") for name in properties if name.endswith("_")],
            }
        ),
    )


def avro(*fields: Any, name: str = "Order") -> Schema:
    declared = [{"name": one[0], "type": one[1], **(one[2] if len(one) > 2 else {})} for one in fields]
    return Schema(SchemaKind.AVRO, json.dumps({"type": "record", "name": name, "fields": declared}))


def proto(*fields: tuple[Any, ...]) -> Schema:
    """Fields by name, number, type, and label: 1 optional, 2 required, 3 repeated."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

    file = FileDescriptorProto(name="order.proto", package="shop", syntax="proto2")
    message = file.message_type.add(name="Order")
    for name, number, kind, *label in fields:
        message.field.add(name=name, number=number, type=kind, label=label[0] if label else 1)
    pool = DescriptorPool()
    pool.Add(file)
    return schema_of(pool.FindMessageTypeByName("shop.Order"))


def proto_file(file: Any) -> Schema:
    """The message Order of this file."""
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    pool.Add(file)
    return schema_of(pool.FindMessageTypeByName("Order"))


def aliased(*values: tuple[str, int], more: bool = False) -> Schema:
    """A field of an enum with these values, whose numbers may have several names."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto(name="order.proto", syntax="proto3")
    kind = file.enum_type.add(name="State")
    kind.options.allow_alias = len({number for _, number in values}) < len(values)
    for name, number in values:
        kind.value.add(name=name, number=number)
    message = file.message_type.add(name="Order")
    message.field.add(name="state", number=1, type=14, label=1, type_name=".State")
    if more:
        message.field.add(name="n", number=2, type=INT32, label=1)
    return proto_file(file)


def choosing(*chosen: str) -> Schema:
    """Fields a and b, and a oneof with those that are chosen."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto(name="order.proto", syntax="proto3")
    message = file.message_type.add(name="Order")
    if chosen:
        message.oneof_decl.add(name="way")
    for number, name in enumerate("abc", 1):
        place = {"oneof_index": 0} if name in chosen else {}
        if name != "c" or place:
            message.field.add(name=name, number=number, type=INT32, label=1, **place)
    return proto_file(file)


def chain(length: int, end: Any) -> Schema:
    """Choices of two that differ at the end of a long chain only: comparing each way would take for ever."""
    defs: dict[str, Any] = {
        f"n{n}": {
            "anyOf": [
                {"type": "object", "properties": {name: {"$ref": f"#/$defs/n{n + 1}"}}, "title": title}
                for name, title in (("a", "one"), ("a", "other"))
            ]
        }
        for n in range(length)
    }
    return Schema(SchemaKind.JSON, json.dumps({"$ref": "#/$defs/n0", "$defs": {**defs, f"n{length}": end}}))


INT, STR, NUM, NULL = {"type": "integer"}, {"type": "string"}, {"type": "number"}, {"type": "null"}
INT32, INT64, STRING, BYTES, DOUBLE = 5, 3, 9, 12, 1
NEW_DEFAULT = {"default": 0}


def named(more: dict[str, Any] | None = None, **beside: Any) -> Schema:
    """A field that is defined elsewhere, with what is demanded beside the reference."""
    node = {"properties": {"a": {"$ref": "#/$defs/A", **beside}}, "$defs": {"A": STR}}
    return Schema(SchemaKind.JSON, json.dumps({"type": "object", **node, **(more or {})}))


def defined(definition: dict[str, Any], *, note: bool = False, **beside: Any) -> Schema:
    more = {"note": STR} if note else {}
    node = {"properties": {"a": {"$ref": "#/$defs/A", **beside}, **more}, "$defs": {"A": definition}}
    return Schema(SchemaKind.JSON, json.dumps({"type": "object", **node}))


def reasons(new: Schema, old: Schema, mode: Compatibility = Compatibility.BACKWARD) -> list[str]:
    check(new)
    check(old)
    return [f"{one.field}: {one.rule}" for one in refusals(new, [SchemaVersion(1, old, 0)], mode)]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (json_schema(id_=INT), json_schema(id_=INT, note=STR), []),
        (json_schema(id_=INT), json_schema(id_=NUM), []),
        (json_schema(id_=INT, note=STR), json_schema(id_=INT), []),
        (json_schema(id_=INT), json_schema(id_=INT, note_=STR), ["note: is required, and is new"]),
        (json_schema(id=INT), json_schema(id_=INT), ["id: is required, and was optional"]),
        (json_schema(id_=NUM), json_schema(id_=INT), ["id: is integer, and was number"]),
        (json_schema(id_=INT), json_schema(id_=STR), ["id: is string, and was integer"]),
        (
            json_schema(lines={"type": "array", "items": {"type": "object", "properties": {"n": INT}}}),
            json_schema(lines={"type": "array", "items": {"type": "object", "properties": {"n": STR}}}),
            ["lines[].n: is string, and was integer"],
        ),
        (json_schema(s={"enum": ["a", "b"]}), json_schema(s={"enum": ["a"]}), ["s: does not allow 'b' any more"]),
        (json_schema(s={"enum": ["a"]}), json_schema(s={"enum": ["a", "b"]}), []),
        (
            json_schema(s={"type": "string", "maxLength": 9}),
            json_schema(s={"type": "string", "maxLength": 5}),
            ["s: has maxLength 5, and had 9"],
        ),
        (json_schema(s={"anyOf": [STR, NULL]}), json_schema(s=STR), ["s: is string, and was null"]),
        (json_schema(s=STR), json_schema(s={"anyOf": [STR, NULL]}), []),
        (json_schema(s=INT), json_schema(s={"anyOf": [STR, NULL]}), ["s: was integer, which is no choice now"]),
        (json_schema(at=STR), json_schema(at={"type": "string", "format": "date-time"}), ["at: has another format"]),
        (
            json_schema(n={"type": "integer", "format": "int32"}),
            json_schema(n={"type": "integer", "format": "int64"}),
            [],
        ),
        (
            json_schema(pair={"type": "array", "prefixItems": [INT, STR], "items": False}),
            json_schema(pair={"type": "array", "prefixItems": [STR, STR], "items": False}),
            ["pair[0]: is string, and was integer"],
        ),
        (
            json_schema(pair={"type": "array", "prefixItems": [INT, STR], "maxItems": 2}),
            json_schema(pair={"type": "array", "items": INT}),
            ["pair[1]: is integer, and was string"],
        ),
        (
            json_schema(pair={"type": "array", "items": [INT, STR], "additionalItems": False}),
            json_schema(pair={"type": "array", "items": [INT, INT], "additionalItems": False}),
            ["pair[1]: is integer, and was string"],
        ),
        (
            json_schema(pair={"type": "array", "prefixItems": [INT, INT], "maxItems": 2}),
            json_schema(pair={"type": "array", "items": NUM}),
            [],
        ),
        (
            json_schema(m={"type": "object"}),
            json_schema(m={"type": "object", "additionalProperties": INT}),
            ["m{}: is integer, and was anything"],
        ),
        (
            json_schema(m={"type": "object", "additionalProperties": STR}),
            json_schema(m={"type": "object", "properties": {"a": INT}}),
            ["m.a: is integer, and was string"],
        ),
        (
            json_schema(m={"type": "object", "properties": {}}),
            json_schema(m={"type": "object", "properties": {"a": INT}}),
            [],
        ),
        (
            json_schema(a={"allOf": [{"type": "object", "properties": {"n": INT}}]}),
            json_schema(a={"allOf": [{"type": "object", "properties": {"n": STR}}]}),
            ["a.n: is string, and was integer"],
        ),
        (json_schema(a={"allOf": [INT]}), json_schema(a={"allOf": [INT, NUM]}), ["a: has another allOf"]),
        (
            json_schema(u={"type": "object", "anyOf": [{"properties": {"a": INT}}, {"properties": {"b": INT}}]}),
            json_schema(
                u={
                    "type": "object",
                    "required": ["c"],
                    "anyOf": [{"properties": {"a": INT}}, {"properties": {"b": INT}}],
                }
            ),
            ["u.c: is required, and is new"],
        ),
        (
            json_schema(m={"patternProperties": {"^x": INT}, "additionalProperties": False}),
            json_schema(m={"additionalProperties": False}),
            ["m{}: is not allowed any more"],
        ),
        (
            json_schema(m={"patternProperties": {"^x": INT}, "additionalProperties": False}),
            json_schema(m={"additionalProperties": STR}),
            ["m{}: is string, and was integer"],
        ),
        (
            json_schema(m={"type": "object", "patternProperties": {"^x": INT}}),
            json_schema(m={"type": "object"}),
            [],
        ),
        (
            json_schema(n=INT),
            json_schema(n={"oneOf": [INT, NUM]}),
            ["n: fits 2 choices of a oneOf, which allows one only"],
        ),
        (json_schema(n=INT), json_schema(n={"anyOf": [INT, NUM]}), []),
        (json_schema(n=INT), json_schema(n={"oneOf": [INT, STR]}), []),
        (json_schema(n={"oneOf": [INT, NUM]}), json_schema(n={"oneOf": [INT, NUM]}, m=STR), []),
        (json_schema(n={"type": ["integer", "number"]}), json_schema(n={"oneOf": [NUM, STR]}), []),
        (
            json_schema(n=INT),
            json_schema(n={"anyOf": [INT, STR], "oneOf": [STR, NULL]}),
            ["n: was integer, which is no choice now"],
        ),
        (
            json_schema(n={"anyOf": [INT, STR], "oneOf": [STR, NULL]}),
            json_schema(n={"anyOf": [INT, STR], "oneOf": [STR, NULL]}, note=STR),
            [],
        ),
        *((json_schema(n=node), json_schema(n=node, m=STR), []) for node in (
            {"anyOf": [NULL, {"oneOf": [INT, NUM]}]}, {"oneOf": [STR, {"oneOf": [INT, NUM]}]},
        )),
        *((defined(one, **beside), defined(one, note=True, **beside), []) for one, beside in (
            ({"type": "string", "pattern": "^a"}, {"pattern": "b$"}),
            ({"type": "object", "properties": {"x": STR}}, {"properties": {"x": {"maxLength": 3}}}),
            ({"allOf": [STR]}, {"allOf": [{"maxLength": 3}]}),
            ({"type": "object", "minProperties": 1}, {"minProperties": 0}),
        )),
        (
            defined({"type": "string", "pattern": "^a"}, pattern="b$"),
            defined({"type": "string", "pattern": "^c"}, pattern="b$"),
            ["a: has another pattern"],
        ),
        (named(), named(maxLength=5), ["a: has maxLength 5, and had none"]),
        (named(maxLength=5), named(maxLength=5, title="new"), []),
        (named(maxLength=5), named(maxLength=9), []),
        (named(), named({"$schema": "http://json-schema.org/draft-07/schema#"}, maxLength=5), []),
        (
            json_schema(a={"contains": INT, "minContains": 0}),
            json_schema(a={"contains": INT}),
            ["a: has another minContains"],
        ),
        (json_schema(a={"contains": INT, "minContains": 1}), json_schema(a={"contains": INT}), []),
        (json_schema(s={"type": ["string", "null"]}), json_schema(s={"anyOf": [STR, NULL]}), []),
        (json_schema(s={"type": ["string", "null"]}), json_schema(s={"anyOf": [INT, NULL]}), [
            "s: was string, which is no choice now"
        ]),
        (avro(("id", "int")), avro(("id", "long")), []),
        (
            avro(("s", {"type": "enum", "name": "S", "symbols": ["A"]})),
            avro(("s", {"type": "enum", "name": "T", "symbols": ["A"]})),
            ["s: is the enum T, and was S"],
        ),
        (
            avro(("s", {"type": "enum", "name": "S", "symbols": ["A"]})),
            avro(("s", {"type": "enum", "name": "T", "symbols": ["A"], "aliases": ["S"]})),
            [],
        ),
        (
            avro(("f", {"type": "fixed", "name": "F", "size": 2})),
            avro(("f", {"type": "fixed", "name": "G", "size": 2})),
            ["f: is the fixed G, and was F"],
        ),
        (
            avro(("o", part("w", "int", "string"))),
            avro(("o", [part("one", "int", "int"), part("two", "int", "one.X")])),
            ["o.x.n: is int, and was string"],
        ),
        (aliased(("A", 0), ("B", 0)), aliased(("A", 0), ("B", 0), more=True), []),
        (aliased(("A", 0), ("B", 0)), aliased(("B", 0)), []),
        (aliased(("A", 0), ("B", 0)), aliased(("C", 0)), ["state: has C for number 0, which was A and B"]),
        (choosing(), choosing("a", "b"), ["way: has one of a and b, and bodies had both"]),
        (choosing("a"), choosing("a", "b"), ["way: has one of a and b, and bodies had both"]),
        (choosing("a", "b"), choosing("a", "b", "c"), []),
        (choosing("a", "b"), choosing(), []),
        (choosing(), choosing("a"), []),
        (avro(("id", "int")), avro(("id", "int"), ("n", "int", NEW_DEFAULT)), []),
        (avro(("id", "int"), ("n", "int")), avro(("id", "int")), []),
        (avro(("id", "int")), avro(("id", "int"), ("n", "int")), ["n: is new and has no default"]),
        (avro(("id", "long")), avro(("id", "int")), ["id: is int, and was long"]),
        (avro(("id", "int")), avro(("key", "int", {"aliases": ["id"]})), []),
        (avro(("id", "int")), avro(("id", ["null", "int"])), []),
        (avro(("id", ["null", "int"])), avro(("id", "int")), ["id: is int, and was null"]),
        (avro(("id", "int")), avro(("id", "int"), name="Bill"), [": is the record Bill, and was Order"]),
        (
            avro(("s", {"type": "enum", "name": "S", "symbols": ["A", "B"]})),
            avro(("s", {"type": "enum", "name": "S", "symbols": ["A"]})),
            ["s: has lost the symbol B and has no default"],
        ),
        (
            avro(("s", {"type": "array", "items": "string"})),
            avro(("s", {"type": "array", "items": "int"})),
            ["s[]: is int, and was string"],
        ),
        (
            avro(("d", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2})),
            avro(("d", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3})),
            ["d: is a decimal of (9, 3), and was one of (9, 2)"],
        ),
        (proto(("id", 1, INT32)), proto(("id", 1, INT64), ("n", 2, STRING)), []),
        (proto(("id", 1, INT32), ("n", 2, STRING)), proto(("id", 1, INT32)), []),
        (proto(("id", 1, INT32)), proto(("id", 1, STRING)), ["id: is string, and was int32"]),
        (proto(("id", 1, INT32)), proto(("n", 1, INT32)), ["n: reuses number 1, which was id"]),
        (proto(("id", 1, INT32)), proto(("id", 2, INT32)), ["id: has number 2, and had 1"]),
        (proto(("id", 1, INT32)), proto(("id", 1, INT32, 3)), ["id: is repeated, and was not"]),
        (proto(("id", 1, INT32)), proto(("id", 1, INT32), ("n", 2, STRING, 2)), ["n: is required, and is new"]),
        (proto(("b", 1, BYTES)), proto(("b", 1, STRING)), []),
        (proto(("d", 1, DOUBLE)), json_schema(d=NUM), [": is json, and was protobuf"]),
    ],
)  # fmt: skip
def test_a_reader_of_the_new_schema_reads_what_the_old_one_wrote(old: Schema, new: Schema, expected: list[str]) -> None:
    assert reasons(new, old) == expected
    assert reasons(new, old, Compatibility.NONE) == []
    assert (reasons(old, new, Compatibility.FORWARD) == []) == (expected == []), "the other way round"
    assert reasons(new, new, Compatibility.FULL) == []


def test_forward_says_what_consumers_with_the_earlier_version_cannot_read() -> None:
    old, new = json_schema(id_=INT, note_=STR), json_schema(id_=INT)
    assert reasons(new, old) == []
    expected = ["note: is required, and is new, for consumers with the earlier version"]
    assert reasons(new, old, Compatibility.FORWARD) == expected
    assert reasons(new, old, Compatibility.FULL) == expected


class Node(msgspec.Struct):
    name: str
    inside: list[Node] = []


def test_schemas_that_hold_themselves_are_compared_to_the_end() -> None:
    text = json.dumps(msgspec.json.schema(Node))
    old = Schema(SchemaKind.JSON, text)
    new = Schema(SchemaKind.JSON, text.replace('"type": "string"', '"type": "integer"'))
    assert reasons(old, old, Compatibility.FULL) == []
    assert reasons(new, old) == ["name: is integer, and was string"]
    tree = avro(("name", "string"), ("inside", {"type": "array", "items": "Order"}))
    assert reasons(tree, tree, Compatibility.FULL) == []
    taller = avro(("name", "int"), ("inside", {"type": "array", "items": "Order"}))
    assert reasons(taller, tree) == ["name: is int, and was string"]


def test_long_chains_of_choices_are_compared_once() -> None:
    assert reasons(chain(30, INT), chain(30, INT)) == []
    assert len(reasons(chain(30, STR), chain(30, INT))) == 1


def test_a_schema_that_is_nested_too_deeply_is_refused() -> None:
    deep = Schema(SchemaKind.JSON, '{"items":' * 400 + "{}" + "}" * 400)
    with pytest.raises(SchemaIllegal, match="deeply"):
        reasons(deep, Schema(SchemaKind.JSON, deep.text + " "))


def test_each_earlier_version_counts() -> None:
    versions = [SchemaVersion(1, json_schema(id_=INT), 0), SchemaVersion(2, json_schema(id_=NUM), 0)]
    found = refusals(json_schema(id_=STR), versions, Compatibility.BACKWARD)
    assert [str(one) for one in found] == [
        "version 1: field id is string, and was integer",
        "version 2: field id is string, and was number",
    ]


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (Schema(SchemaKind.JSON, "no"), "no JSON Schema"),
        (Schema(SchemaKind.JSON, "[]"), "not an object"),
        (Schema(SchemaKind.JSON, '{"type": "text"}'), "the type 'text'"),
        (Schema(SchemaKind.JSON, '{"properties": {"a": 1}}'), "at a is int"),
        (Schema(SchemaKind.JSON, '{"$ref": "#/$defs/A"}'), "leads nowhere"),
        (Schema(SchemaKind.JSON, '{"$ref": "http://a/b"}'), "outside"),
        (Schema(SchemaKind.JSON, '{"$ref": "#A"}'), "outside"),
        (Schema(SchemaKind.JSON, '{"$ref": "#/title", "title": "a"}'), "leads to no schema"),
        (Schema(SchemaKind.JSON, '{"type": [["string"]]}'), "the type ['string']"),
        (Schema(SchemaKind.JSON, '{"maxLength": "9"}'), "maxLength at the top is no number"),
        (Schema(SchemaKind.JSON, '{"items": [1]}'), "at the top is int"),
        (Schema(SchemaKind.JSON, '{"required": "a"}'), "no list of names"),
        (Schema(SchemaKind.JSON, "[" * 100_000), "characters"),
        (Schema(SchemaKind.JSON, "[" * 60_000), "no JSON Schema"),
        (Schema(SchemaKind.AVRO, "no"), "no schema of Avro"),
        (Schema(SchemaKind.AVRO, '{"type": "nothing"}'), "no schema of Avro"),
        (Schema(SchemaKind.AVRO, '{"type": "record"}'), "no schema of Avro"),
        (Schema(SchemaKind.AVRO, "7"), "no schema of Avro"),
        (Schema(SchemaKind.PROTOBUF, "no!"), "no descriptors"),
        (Schema(SchemaKind.PROTOBUF, "AAAA", "shop.Order"), "no descriptors"),
        (Schema(SchemaKind.PROTOBUF, proto(("id", 1, INT32)).text, "shop.Bill"), "no message 'shop.Bill'"),
    ],
)
def test_what_is_no_schema_is_refused(schema: Schema, text: str) -> None:
    with pytest.raises(SchemaIllegal, match=re.escape(text)):
        check(schema)


def test_an_id_depends_on_the_content_alone() -> None:
    one = json_schema(id_=INT)
    assert one.id == json_schema(id_=INT).id
    assert len({one.id, Schema(SchemaKind.AVRO, one.text).id, json_schema(id=INT).id}) == 3
    assert len(one.id) == 16


def test_a_version_is_kept_as_text() -> None:
    version = SchemaVersion(3, avro(("id", "int")), 1234)
    assert decode_version(encode_version(version)) == version
    for text in ("", "{}", "[]", '{"number": 1}', "\ud800"):
        with pytest.raises(SchemaIllegal):
            decode_version(text)
    assert TEXT_LENGTH_MAX < 1 << 20, "a header of the protocol has room for it"
