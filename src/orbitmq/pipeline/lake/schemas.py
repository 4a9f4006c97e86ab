"""Columns of a lake: their types, whichever engine wrote them. Pure."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

TOPIC, DAY = PARTITIONS = ("topic", "dt")  # what tables are partitioned by: `dt` is the UTC day of storing
MICROSECONDS = pa.timestamp("us", "UTC")  # the only times in a lake: Delta has no other unit
_SAME: tuple[tuple[Callable[[pa.DataType], bool], pa.DataType], ...] = (
    (lambda kind: pa.types.is_large_string(kind) or pa.types.is_string_view(kind), pa.string()),
    (lambda kind: pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind), pa.binary()),
    (pa.types.is_timestamp, MICROSECONDS),
)


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
