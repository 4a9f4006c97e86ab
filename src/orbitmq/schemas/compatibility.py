"""Whether a new schema may follow the versions before it. What reads what is a matter of each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from orbitmq.errors import SchemaIllegal
from orbitmq.schemas import avro, json_schema, protobuf
from orbitmq.schemas.model import TEXT_LENGTH_MAX, Compatibility, Refusal, Schema, SchemaKind, SchemaVersion
from orbitmq.schemas.paths import Difference

Check: TypeAlias = Callable[[Schema], None]
Read: TypeAlias = Callable[[Schema, Schema], Iterable[Difference]]


class _Rules(NamedTuple):
    check: Check
    """SchemaIllegal for an invalid schema."""
    unreadable: Read
    """What a reader with the first schema cannot read of bodies of the second."""


_RULES: Mapping[SchemaKind, _Rules] = {
    SchemaKind.AVRO: _Rules(avro.check, avro.unreadable),
    SchemaKind.JSON: _Rules(json_schema.check, json_schema.unreadable),
    SchemaKind.PROTOBUF: _Rules(protobuf.check, protobuf.unreadable),
}
TOO_DEEP = "the schema is nested too deeply to be compared"
_BACK = frozenset((Compatibility.BACKWARD, Compatibility.FULL))
_FORTH = frozenset((Compatibility.FORWARD, Compatibility.FULL))


def check(schema: Schema) -> None:
    """SchemaIllegal for a schema that is too long, or not valid in its language."""
    if len(schema.text) > TEXT_LENGTH_MAX:
        raise SchemaIllegal(f"the schema has {len(schema.text)} characters, {TEXT_LENGTH_MAX} are allowed")
    check_valid(schema)


def check_valid(schema: Schema) -> None:
    """SchemaIllegal for a schema that is not valid in its language."""
    try:
        _RULES[schema.kind].check(schema)
    except RecursionError as error:
        raise SchemaIllegal(TOO_DEEP) from error


def refusals(schema: Schema, versions: Iterable[SchemaVersion], mode: Compatibility) -> list[Refusal]:
    """Why `schema` may not be the next version; empty if it may. SchemaIllegal for one nested too deeply, and for a
    version that is not valid.
    """
    found: dict[Refusal, None] = {}
    for earlier in versions:
        try:
            found |= {Refusal(earlier.number, *one): None for one in _differences(schema, earlier.schema, mode)}
        except RecursionError as error:
            raise SchemaIllegal(TOO_DEEP) from error
        except SchemaIllegal as error:
            raise SchemaIllegal(f"version {earlier.number} cannot be compared: {error}") from error
    return list(found)


def _differences(new: Schema, old: Schema, mode: Compatibility) -> Iterable[Difference]:
    if mode is Compatibility.NONE:
        return
    if new.kind is not old.kind:
        yield Difference("", f"is {new.kind}, and was {old.kind}")
        return
    unreadable = _RULES[new.kind].unreadable
    if mode in _BACK:
        yield from unreadable(new, old)
    if mode in _FORTH:
        for field, rule in unreadable(old, new):
            yield Difference(field, f"{rule}, for consumers with the earlier version")
