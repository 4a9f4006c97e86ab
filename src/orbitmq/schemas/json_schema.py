"""JSON Schema: the rules that matter when a reader gets bodies of another schema.

A body that the writer's schema allows must be one that the reader's allows. Keywords that are not compared here (such
as `if` and `not`) must be the same in both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

from orbitmq.errors import SchemaIllegal
from orbitmq.schemas.model import PARSED_MAX, Schema
from orbitmq.schemas.paths import Difference, Pairs, joined

TYPES: Final = frozenset(("null", "boolean", "integer", "number", "string", "array", "object"))
LOWER: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
UPPER: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
SAME: Final = (
    "pattern", "format", "multipleOf", "uniqueItems", "contentEncoding", "if", "then", "else", "not",
    "patternProperties", "propertyNames", "dependentRequired", "dependentSchemas", "dependencies",
    "unevaluatedProperties", "unevaluatedItems", "contains", "minContains", "maxContains",
)  # fmt: skip
"""Keywords that a reader may not have otherwise than the writer."""
_COMPARED: Final = frozenset(
    ("type", "enum", "const", "properties", "required", "additionalProperties", "items", "prefixItems",
     "additionalItems", "allOf", *LOWER, *UPPER, *SAME)
)  # fmt: skip
CHOICES: Final = ("anyOf", "oneOf")
_ANYTHING: Final[dict[str, Any]] = {}
DEPTH_MAX: Final = 64  # of references to references; more is a circle


def check(schema: Schema) -> None:
    """SchemaIllegal for an invalid schema."""
    _check(parsed(schema.text), parsed(schema.text), "")


@lru_cache(PARSED_MAX)
def parsed(text: str) -> Any:
    """The schema as Python has it. SchemaIllegal for what is no JSON, or no object."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaIllegal(f"no JSON Schema: {error}") from error
    if not isinstance(found, dict):
        raise SchemaIllegal("no JSON Schema: it is not an object")
    return found


def _check(node: Any, root: Any, path: str) -> None:
    where = f"at {path or 'the top'}"
    if isinstance(node, bool):
        return
    if not isinstance(node, dict):
        raise SchemaIllegal(f"no JSON Schema: {where} is {type(node).__name__}, not an object")
    types = node.get("type", [])
    for kind in types if isinstance(types, list) else [types]:
        if not isinstance(kind, str) or kind not in TYPES:
            raise SchemaIllegal(f"no JSON Schema: {where} is the type {kind!r}; use {', '.join(sorted(TYPES))}")
    if "$ref" in node:
        resolved(node, root)
    for part in ("properties", "patternProperties", "$defs", "definitions"):
        inside = node.get(part, {})
        if not isinstance(inside, dict):
            raise SchemaIllegal(f"no JSON Schema: {part} {where} is no object")
        for name, each in inside.items():
            _check(each, root, joined(path, name))
    for part in ("items", "additionalItems", "additionalProperties"):
        if part in node and not isinstance(node[part], list):
            _check(node[part], root, f"{path}[]")
    for keyword in (*LOWER, *UPPER):
        if not isinstance(node.get(keyword, 0), int | float):
            raise SchemaIllegal(f"no JSON Schema: {keyword} {where} is no number")
    for part in ("anyOf", "oneOf", "allOf", "prefixItems", "items"):
        branches = node.get(part, [])
        if part == "items" and not isinstance(branches, list):
            continue
        if not isinstance(branches, list):
            raise SchemaIllegal(f"no JSON Schema: {part} {where} is no list")
        for each in branches:
            _check(each, root, path)
    required = node.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise SchemaIllegal(f"no JSON Schema: required {where} is no list of names")


def resolved(node: Any, root: Any) -> Any:
    """What a reference stands for. SchemaIllegal for one that leads nowhere, or outside the schema."""
    return _followed(node, root)[-1]


def _followed(node: Any, root: Any) -> list[Any]:
    """The nodes from a reference to what it stands for. Each but the last is a reference."""
    nodes = [node]
    for _ in range(DEPTH_MAX):
        if not isinstance(node, dict) or "$ref" not in node:
            return nodes
        reference = str(node["$ref"])
        if reference != "#" and not reference.startswith("#/"):
            raise SchemaIllegal(f"the reference {reference} leads outside the schema; put its definition into $defs")
        found = root
        for part in reference[1:].split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or key not in found:
                raise SchemaIllegal(f"the reference {reference} leads nowhere")
            found = found[key]
        if not isinstance(found, dict | bool):
            raise SchemaIllegal(f"the reference {reference} leads to no schema")
        node = found
        nodes.append(node)
    raise SchemaIllegal("a reference leads to itself")


def branches_of(node: Any) -> list[Any] | None:
    """The alternatives of a schema; None if it has none."""
    found = node.get("anyOf", node.get("oneOf")) if isinstance(node, dict) else None
    return found if isinstance(found, list) else None


def unreadable(reader: Schema, writer: Schema) -> Iterator[Difference]:
    """What a reader does not allow of bodies of the writer."""
    own, other = parsed(reader.text), parsed(writer.text)
    yield from _Comparison(own, other).differences(own, other, "")


class _Comparison:
    """Compares two schemas."""

    def __init__(self, reader: Any, writer: Any) -> None:
        self._reader = reader
        self._writer = writer
        self._pairs = Pairs()
        self._merged: dict[tuple[int, str, int], Any] = {}
        """Id of a node, keyword, and place of a branch -> both together. It keeps what was made here, so no id is used
        twice."""

    def differences(self, reader: Any, writer: Any, path: str, *, of_one: bool = False) -> Iterator[Difference]:
        """`of_one` says that the writer's node is a branch of its oneOf: its other branches leave out some bodies."""
        if self._is_apart(reader, writer, path, of_one=of_one):
            return
        *references, reader = _followed(reader, self._reader)
        for node in references:
            if beside := self._beside(node, "$ref", self._reader):
                yield from self.differences(beside, writer, path, of_one=of_one)
        writer = self._with_siblings(writer)
        if reader is True or reader == {} or writer is False:
            return
        if reader is False:
            yield Difference(path, "is not allowed any more")
            return
        written = _ANYTHING if writer is True else writer
        pair = id(reader), id(written), of_one
        yield from self._pairs.compared(pair, partial(self._compared, reader, written, path, of_one=of_one))

    def _is_apart(self, reader: Any, writer: Any, path: str, *, of_one: bool) -> bool:
        """Whether both are references with more beside, and each part allows its counterpart. Merged, the parts of the
        writer may hide what one of them demands.
        """
        if not all(isinstance(node, dict) and "$ref" in node for node in (reader, writer)):
            return False
        mine, theirs = self._beside(reader, "$ref", self._reader), self._beside(writer, "$ref", self._writer)
        targets = _followed(reader, self._reader)[1], _followed(writer, self._writer)[1]
        return bool(mine and theirs) and not any(
            self._pairs.tried(partial(self.differences, one, other, path, of_one=of_one))
            for one, other in (targets, (mine, theirs))
        )

    def _compared(self, reader: Any, writer: Any, path: str, *, of_one: bool) -> Iterator[Difference]:
        mine = [keyword for keyword in CHOICES if isinstance(reader.get(keyword), list)]
        theirs = next((keyword for keyword in CHOICES if isinstance(writer.get(keyword), list)), None)
        if theirs is None and mine and isinstance(writer.get("type"), list):
            theirs = "type"
        if theirs is not None:
            of_one = of_one or theirs == "oneOf"
            for place in range(len(writer[theirs])):
                yield from self.differences(reader, self._branch(writer, theirs, place), path, of_one=of_one)
            return
        for keyword in mine:
            yield from self._choice(reader[keyword], writer, path, alone=keyword == "oneOf", of_one=of_one)
        yield from self._single(reader, writer, path)

    def _beside(self, node: Any, keyword: str, root: Any) -> Any:
        """What a node demands besides a keyword. Up to draft 7 nothing counts beside a reference."""
        if (id(node), keyword, -1) not in self._merged:
            ignored = keyword == "$ref" and "draft-0" in str(root.get("$schema", ""))
            choices = [one for one in CHOICES if one != keyword]
            counted = {one: each for one, each in node.items() if one in _COMPARED or one in choices}
            self._merged[id(node), keyword, -1] = _ANYTHING if ignored else counted
        return self._merged[id(node), keyword, -1]

    def _with_siblings(self, writer: Any) -> Any:
        """What a reference of the writer stands for, with what is demanded beside it."""
        *references, found = _followed(writer, self._writer)
        for node in reversed(references):
            found = self._together(node, "$ref", 0, found)
        return found

    def _branch(self, node: Any, keyword: str, place: int) -> Any:
        """A branch with what its node demands besides."""
        branch = {"type": node["type"][place]} if keyword == "type" else node[keyword][place]
        return self._together(node, keyword, place, self._with_siblings(branch))

    def _together(self, node: Any, keyword: str, place: int, other: Any) -> Any:
        """What a node demands besides a keyword, and `other`, which the keyword stands for."""
        beside = self._beside(node, keyword, self._writer)
        if not beside or not isinstance(other, dict):
            return other
        if (id(node), keyword, place) not in self._merged:
            merged = other | beside if keyword == "$ref" else beside | other
            if keyword != "type" and "type" in beside and "type" in other:
                types = sorted(_common(_types(beside), _types(other)))
                merged["type"] = types[0] if len(types) == 1 else types
            if "properties" in beside and "properties" in other:
                merged["properties"] = beside["properties"] | other["properties"]
            merged["required"] = [*beside.get("required", ()), *other.get("required", ())]
            self._merged[id(node), keyword, place] = merged if merged.get("type") != [] else False
        return self._merged[id(node), keyword, place]

    def _choice(
        self, branches: list[Any], writer: Any, path: str, *, alone: bool, of_one: bool
    ) -> Iterator[Difference]:
        """One branch must allow it; if `alone`, no other one, unless the writer's node is `of_one`."""
        tries = []
        for branch in branches:
            tries.append(self._pairs.tried(partial(self.differences, branch, writer, path, of_one=of_one)))
            if not tries[-1] and (of_one or not alone):
                return
        fitting = sum(not found for found in tries)
        if fitting:
            if fitting > 1:
                yield Difference(path, f"fits {fitting} choices of a oneOf, which allows one only")
            return
        alike = [
            found
            for branch, found in zip(branches, tries, strict=True)
            if _types(resolved(branch, self._reader)) == _types(writer)
        ]
        yield from alike[0] if len(alike) == 1 else [Difference(path, f"was {_said(writer)}, which is no choice now")]

    def _single(self, reader: Any, writer: Any, path: str) -> Iterator[Difference]:
        mine, theirs = _types(reader), _types(writer)
        if not all(kind in mine or (kind == "integer" and "number" in mine) for kind in theirs):
            yield Difference(path, f"is {_said(reader)}, and was {_said(writer)}")
            return
        allowed, values = _values(reader), _values(writer)
        if allowed is not None and (values is None or not all(one in allowed for one in values)):
            gone = "any value" if values is None else repr(next(one for one in values if one not in allowed))
            yield Difference(path, f"does not allow {gone} any more")
        yield from self._limits(reader, writer, path)
        yield from self._all_of(reader.get("allOf", ()), writer.get("allOf", ()), path)
        if "object" in theirs:
            yield from self._object(reader, writer, path)
        if "array" in theirs:
            yield from self._array(_items(reader), _items(writer), path)

    def _all_of(self, reader: Sequence[Any], writer: Sequence[Any], path: str) -> Iterator[Difference]:
        if reader and len(reader) != len(writer):
            yield Difference(path, "has another allOf")
            return
        for own, other in zip(reader, writer, strict=False):
            yield from self.differences(own, other, path)

    def _array(self, reader: _Items, writer: _Items, path: str) -> Iterator[Difference]:
        for place in range(max(len(reader.first), len(writer.first))):
            yield from self.differences(reader.at(place), writer.at(place), f"{path}[{place}]")
        yield from self.differences(reader.rest, writer.rest, f"{path}[]")

    def _limits(self, reader: Any, writer: Any, path: str) -> Iterator[Difference]:
        for keyword in (*LOWER, *UPPER):
            limit, was = reader.get(keyword), writer.get(keyword)
            if limit is None or limit == was:
                continue
            if was is None or (limit > was if keyword in LOWER else limit < was):
                yield Difference(path, f"has {keyword} {limit}, and had {'none' if was is None else was}")
        for keyword in SAME:
            if keyword == "format" and "string" not in _types(writer):
                continue  # of numbers it is a remark
            was = writer.get(keyword)
            needs_one = keyword == "minContains" and "contains" in reader and was == 0  # without the keyword it is 1
            if reader[keyword] != was if keyword in reader else needs_one:
                yield Difference(path, f"has another {keyword}")

    def _object(self, reader: Any, writer: Any, path: str) -> Iterator[Difference]:
        mine, theirs = reader.get("properties", {}), writer.get("properties", {})
        certain = set(writer.get("required", ()))
        for name in reader.get("required", ()):
            if name not in certain:
                was = "was optional" if name in theirs else "is new"
                yield Difference(joined(path, name), f"is required, and {was}")
        others = reader.get("additionalProperties", True)
        rest = writer.get("additionalProperties", True)
        is_free = rest is True and "properties" not in writer  # such as a dictionary
        for name, each in theirs.items():
            if name in mine:
                yield from self.differences(mine[name], each, joined(path, name))
            elif others is False:
                yield Difference(joined(path, name), "is gone, and other fields are not allowed")
            else:
                yield from self.differences(others, each, joined(path, name))
        if "patternProperties" not in reader:
            for each in writer.get("patternProperties", {}).values():
                yield from self.differences(others, each, f"{path}{{}}")
        if is_free or isinstance(rest, Mapping):
            for name in (name for name in mine if name not in theirs):
                yield from self.differences(mine[name], rest, joined(path, name))
        if others is False and rest is not False:
            if not theirs or rest is not True:
                yield Difference(path, "does not allow other fields any more")
        elif is_free or isinstance(rest, Mapping):
            yield from self.differences(others, rest, f"{path}{{}}")


class _Items(NamedTuple):
    """The schemas of the elements of an array."""

    first: Sequence[Any]
    """By their place."""
    rest: Any

    def at(self, place: int) -> Any:
        return self.first[place] if place < len(self.first) else self.rest


def _items(node: Any) -> _Items:
    items = node.get("items", True)
    first, rest = (items, node.get("additionalItems", True)) if isinstance(items, list) else ((), items)
    first = node.get("prefixItems", first)
    return _Items(first, False if len(first) >= node.get("maxItems", len(first) + 1) else rest)


def _types(node: Any) -> frozenset[str]:
    if not isinstance(node, dict):
        return TYPES
    found = node.get("type")
    if found is not None:
        return frozenset(found if isinstance(found, list) else [found])
    values = _values(node)
    return TYPES if values is None else frozenset(_type_of(each) for each in values)


def _common(some: frozenset[str], others: frozenset[str]) -> frozenset[str]:
    """The types that both allow: an integer is a number."""
    return frozenset(
        kind
        for kind in some | others
        if all(kind in each or (kind == "integer" and "number" in each) for each in (some, others))
    )


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    kinds = ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "object")


def _said(node: Any) -> str:
    types = _types(node)
    return "anything" if types == TYPES else " or ".join(sorted(types))


def _values(node: Any) -> list[Any] | None:
    """The values that are allowed; None for all."""
    if "const" in node:
        return [node["const"]]
    found = node.get("enum")
    return found if isinstance(found, list) else None
