"""Schemas of Avro: parsing, and the rules of schema resolution as the specification of Avro has them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, cast

from orbitmq.errors import SchemaIllegal, WrongBody
from orbitmq.schemas.model import PARSED_MAX, Schema
from orbitmq.schemas.paths import Difference, Pairs, joined

PROMOTED: Final = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}
"""Type as written -> other types that it can be read as."""
_NAMED: Final = frozenset(("record", "error", "enum", "fixed"))


def check(schema: Schema) -> None:
    """SchemaIllegal for an invalid schema."""
    parsed(schema.text)


@lru_cache(PARSED_MAX)
def parsed(text: str) -> Any:
    """The schema with every name resolved, as fastavro has it. SchemaIllegal if it is invalid, ImportError without
    fastavro.
    """
    import fastavro
    from fastavro.schema import SchemaParseException, UnknownType

    try:
        return fastavro.parse_schema(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise SchemaIllegal(f"no schema of Avro: {type(error).__name__} {error}") from error
    except (SchemaParseException, UnknownType) as error:
        raise SchemaIllegal(f"no schema of Avro: {error}") from error


def joined_text(text: str, others: Iterable[str]) -> str:
    """A schema with the named types of others inside, where it names them first. Of the others, those that name another
    one follow it. SchemaIllegal for invalid ones.
    """
    import fastavro
    from fastavro.schema import SchemaParseException, UnknownType

    named: dict[str, Any] = {}
    try:
        for one in others:
            fastavro.parse_schema(json.loads(one), named_schemas=named)
        known = dict(named)
        main = fastavro.parse_schema(json.loads(text), named_schemas=named)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise SchemaIllegal(f"no schema of Avro: {type(error).__name__} {error}") from error
    except (SchemaParseException, UnknownType) as error:
        raise SchemaIllegal(f"no schema of Avro: {error}") from error
    return json.dumps(_with_types(main, known))


def _with_types(schema: Any, named: dict[str, Any]) -> Any:
    """The parsed schema with these types, each where its name is first; they are taken out of `named`."""
    if isinstance(schema, str):
        return _with_types(named.pop(schema), named) if schema in named else schema
    if isinstance(schema, list):
        return [_with_types(one, named) for one in schema]
    found = {name: part for name, part in schema.items() if not name.startswith("__")}  # fastavro's notes
    for name in ("type", "items", "values"):
        if name in found:
            found[name] = _with_types(found[name], named)
    if "fields" in found:
        found["fields"] = [field | {"type": _with_types(field["type"], named)} for field in found["fields"]]
    return found


def datum_reader(schema: Any) -> Callable[..., Any]:
    """What reads a datum that was written with this parsed schema, called as `schemaless_reader` of fastavro. Data of a
    schema that holds itself may be nested as deeply as they are long: the library's compiled reader has no limit and
    would end the process, the one in Python raises RecursionError.
    """
    import fastavro
    from fastavro._read_py import schemaless_reader

    uses = {name: set(_uses(one)) for name, one in _named(schema).items()}
    try:
        TopologicalSorter(uses).prepare()
    except CycleError:
        return cast("Callable[..., Any]", schemaless_reader)
    return cast("Callable[..., Any]", fastavro.schemaless_reader)


@lru_cache(PARSED_MAX)
def _reader_of(text: str) -> Callable[..., Any]:
    return datum_reader(parsed(text))


def datum(body: bytes, written: Schema, own: Schema | None = None) -> object:
    """The value of a body that was written with the schema `written`, as a reader with the schema `own` sees it.
    WrongBody if it is none, also if a schema cannot be parsed.
    """
    data = io.BytesIO(body)
    try:
        reader = None if own is None else parsed(own.text)
        found: object = _reader_of(written.text)(data, parsed(written.text), reader)
    except Exception as error:  # the library's errors for bytes of another schema have no common base
        raise WrongBody(f"no data of the schema: {type(error).__name__} {error}") from error
    if rest := len(body) - data.tell():
        raise WrongBody(f"no data of the schema: {rest} bytes too many")
    return found


def _uses(schema: Any) -> Iterator[str]:
    """The names inside a named type."""
    waiting = [field["type"] for field in schema.get("fields", ())]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            waiting += one
        elif isinstance(one, str):
            yield one
        else:
            if "name" in one:
                yield one["name"]
            waiting += [one[part] for part in ("items", "values") if part in one]
            waiting += [field["type"] for field in one.get("fields", ())]


def unreadable(reader: Schema, writer: Schema) -> Iterator[Difference]:
    """What a reader cannot resolve of data of the writer."""
    own, other = parsed(reader.text), parsed(writer.text)
    yield from _Resolution(_named(own), _named(other)).differences(own, other, "")


def _named(schema: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            waiting += one
        elif isinstance(one, dict):
            if _kind(one) in _NAMED:
                found[one["name"]] = one
            waiting += [one[part] for part in ("items", "values") if part in one]
            waiting += [field["type"] for field in one.get("fields", ())]
            if isinstance(one["type"], dict | list):
                waiting.append(one["type"])
    return found


class _Resolution:
    """Compares two schemas."""

    def __init__(self, readers: dict[str, Any], writers: dict[str, Any]) -> None:
        self._readers = readers
        self._writers = writers
        self._pairs = Pairs()

    def differences(self, reader: Any, writer: Any, path: str) -> Iterator[Difference]:
        reader, writer = _plain(reader, self._readers), _plain(writer, self._writers)
        if isinstance(writer, list):
            for branch in writer:
                yield from self.differences(reader, branch, path)
        elif isinstance(reader, list):
            tries = [self._pairs.tried(partial(self.differences, branch, writer, path)) for branch in reader]
            if all(tries):
                alike = [one for branch, one in zip(reader, tries, strict=True) if self._is_alike(branch, writer)]
                yield from alike[0] if alike else [Difference(path, f"was {_name(writer)}, which the union has not")]
        else:
            yield from self._single(reader, writer, path)

    def _is_alike(self, branch: Any, writer: Any) -> bool:
        return _kind(_plain(branch, self._readers)) == _kind(writer)

    def _single(self, reader: Any, writer: Any, path: str) -> Iterator[Difference]:
        mine, theirs = _kind(reader), _kind(writer)
        if mine != theirs:
            if mine not in PROMOTED.get(theirs, ()):
                yield Difference(path, f"is {_name(reader)}, and was {_name(writer)}")
        elif mine in _NAMED and _short(writer["name"]) not in _names(reader):
            yield Difference(path, f"is the {mine} {_short(reader['name'])}, and was {_short(writer['name'])}")
        elif mine == "record":
            pair = reader["name"], writer["name"]
            yield from self._pairs.compared(pair, partial(self._record, reader, writer, path))
        elif mine == "enum":
            gone = [symbol for symbol in writer["symbols"] if symbol not in reader["symbols"]]
            if gone and "default" not in reader:
                yield Difference(path, f"has lost the symbol {gone[0]} and has no default")
        elif mine == "fixed" and reader["size"] != writer["size"]:
            yield Difference(path, f"has {reader['size']} bytes, and had {writer['size']}")
        elif mine == "array":
            yield from self.differences(reader["items"], writer["items"], f"{path}[]")
        elif mine == "map":
            yield from self.differences(reader["values"], writer["values"], f"{path}{{}}")
        elif _decimal(reader) != _decimal(writer):
            yield Difference(path, f"is a decimal of {_decimal(reader)}, and was one of {_decimal(writer)}")

    def _record(self, reader: Any, writer: Any, path: str) -> Iterator[Difference]:
        written = {field["name"]: field for field in writer["fields"]}
        for field in reader["fields"]:
            names = [name for name in (field["name"], *field.get("aliases", ())) if name in written]
            if names:
                yield from self.differences(field["type"], written[names[0]]["type"], joined(path, field["name"]))
            elif "default" not in field:
                yield Difference(joined(path, field["name"]), "is new and has no default")


def _plain(schema: Any, named: dict[str, Any]) -> Any:
    """What a name or a type inside a type stands for."""
    while True:
        if isinstance(schema, str) and schema in named:
            schema = named[schema]
        elif isinstance(schema, dict) and isinstance(schema["type"], dict | list):
            schema = schema["type"]
        else:
            return schema


def _kind(schema: Any) -> str:
    kind = schema if isinstance(schema, str) else "union" if isinstance(schema, list) else schema["type"]
    return "record" if kind == "error" else str(kind)


def _name(schema: Any) -> str:
    return f"{_kind(schema)} {_short(schema['name'])}" if _kind(schema) in _NAMED else _kind(schema)


def _names(schema: Any) -> set[str]:
    return {_short(name) for name in (schema["name"], *schema.get("aliases", ()))}


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _decimal(schema: Any) -> tuple[int, int] | None:
    """Precision and scale. Without a precision it is no decimal."""
    if not isinstance(schema, dict) or schema.get("logicalType") != "decimal" or not schema.get("precision"):
        return None
    return schema["precision"], schema.get("scale", 0)
