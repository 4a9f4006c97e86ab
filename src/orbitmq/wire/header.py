"""The one codec between typed headers and the `extFields` text map of a command. Knows no particular header.

A header is declared as a struct: Python names in snake case correspond to Java's camel case, `renamed` has Java's
spelling if it differs. On the wire every value is text: integers in decimal, booleans as `true` / `false`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec

from orbitmq.errors import HeaderError

# Java's int and long: a number beyond them would only fail later, when it is packed into a message.
Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]

_REQUIRED = object()


class Header(msgspec.Struct, rename="camel", gc=False):
    """Base of every header declaration. A field without default is required."""


H = TypeVar("H", bound=Header)


def renamed(name: str, default: Any = _REQUIRED) -> Any:
    """A field whose name on the wire is `name`."""
    return msgspec.field(name=name) if default is _REQUIRED else msgspec.field(name=name, default=default)


def from_ext(kind: type[H], ext: Mapping[str, str | None] | None) -> H:
    """Read a header out of the text map; HeaderError names the field that is missing or not of its type."""
    ext = ext or {}
    try:
        header = msgspec.convert(ext, kind, strict=False)
    except msgspec.ValidationError:
        pass
    else:
        for _, wire in _truths(kind):
            if ext.get(wire) == "1":  # msgspec reads it as true, Java does not
                break
        else:
            return header
    try:
        return msgspec.convert(_as_java_reads(kind, ext), kind, strict=False)
    except msgspec.ValidationError as error:
        raise HeaderError(f"{kind.__name__.removesuffix('Header')}: {error}") from None


def true_fields(header: Header) -> list[str]:
    """The wire names of its bool fields. msgspec also reads `1` as true, which Java takes for false."""
    return [wire for name, wire in _truths(type(header)) if getattr(header, name)]


@cache
def _truths(kind: type[Header]) -> tuple[tuple[str, str], ...]:
    """Name and wire name of the fields that are true or false."""
    return tuple((name, wire) for name, wire, type_ in _declared(kind) if type_ in (bool, bool | None))


@cache
def _declared(kind: type[Header]) -> tuple[tuple[str, str, Any], ...]:
    """Name, wire name and type of each field, cached: msgspec reads all annotations at each call, for 0.1 ms."""
    return tuple((field.name, field.encode_name, field.type) for field in msgspec.structs.fields(kind))


def _as_java_reads(kind: type[Header], ext: Mapping[str, str | None]) -> dict[str, str]:
    """As lenient as Java: empty text counts as missing, as in a binary header, and any text but `true` is false."""
    kept = {name: value for name, value in ext.items() if value is not None}
    for _, wire, type_ in _declared(kind):
        value = kept.get(wire)
        if value is None:
            continue
        if type_ in (bool, bool | None):
            kept[wire] = "true" if value.lower() == "true" else "false"
        elif value == "" and type_ is not str:
            del kept[wire]
    return kept
