"""Columns of a lake: their types, whichever engine wrote them, and what a table can take on. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa

from orbitmq.errors import LakeError

TOPIC, DAY = PARTITIONS = ("topic", "dt")  # what tables are partitioned by: `dt` is the UTC day of storing
MICROSECONDS = pa.timestamp("us", "UTC")  # the only times in a lake: Delta has no other unit
_SAME: tuple[tuple[Callable[[pa.DataType], bool], pa.DataType], ...] = (
    (lambda kind: pa.types.is_large_string(kind) or pa.types.is_string_view(kind), pa.string()),
    (lambda kind: pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind), pa.binary()),
    (pa.types.is_timestamp, MICROSECONDS),
)
_WIDER = {(pa.int32(), pa.int64()), (pa.float32(), pa.float64())}
_HELD = {(pa.int32(), pa.int8()), (pa.int32(), pa.int16())}  # what Iceberg makes of small numbers


def plain(kind: pa.DataType) -> pa.DataType:
    """The type in the form that these jobs write: engines store texts, lists and times in several."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, plain(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(plain(kind.key_type), plain(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(plain(kind.value_type))
    if pa.types.is_dictionary(kind):
        return plain(kind.value_type)
    return next((same for is_kind, same in _SAME if is_kind(kind)), kind)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The same for all columns, without metadata."""
    return pa.schema([(field.name, plain(field.type)) for field in schema])


def changes(has: pa.Schema, new: pa.Schema, *, widens: bool) -> bool:
    """Whether a table with the columns `has` must change to hold files with the columns `new`: by more columns or
    fields, or, if a table `widens`, by wider types. Both have plain types. LakeError names a field that cannot change.
    """
    return _more({field.name: field.type for field in has}, list(new), "", widens=widens)


def _more(known: Mapping[str, pa.DataType], fields: Iterable[pa.Field], path: str, *, widens: bool) -> bool:
    found = [
        field.name not in known or _changes(known[field.name], field.type, path + field.name, widens=widens)
        for field in fields
    ]
    return any(found)


def _changes(has: pa.DataType, new: pa.DataType, path: str, *, widens: bool) -> bool:
    if has == new or (widens and (has, new) in _HELD):
        return False
    if pa.types.is_struct(has) and pa.types.is_struct(new):
        return _more({field.name: field.type for field in has}, list(new), f"{path}.", widens=widens)
    if pa.types.is_list(has) and pa.types.is_list(new):
        return _changes(has.value_type, new.value_type, f"{path}[]", widens=widens)
    if pa.types.is_map(has) and pa.types.is_map(new):
        return _changes(has.item_type, new.item_type, f"{path}[]", widens=widens)
    if widens and _is_wider(has, new):
        return True
    remedy = "keep its type, give it another name, or use another lake"
    raise LakeError(f"the field {path} is {has} in the lake and {new} in the schema of the bodies; {remedy}")


def _is_wider(has: pa.DataType, new: pa.DataType) -> bool:
    """Whether every value of `has` is one of `new`, in the steps that Iceberg knows."""
    if pa.types.is_decimal(has) and pa.types.is_decimal(new):
        return bool(has.scale == new.scale and has.precision < new.precision)
    return (has, new) in _WIDER
