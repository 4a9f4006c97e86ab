"""Bodies in JSON: an object, of which every field that fits is used, in any order.

Times are ISO 8601, without an offset in UTC, or milliseconds since 1970; bytes are base64; decimals numbers or text. A
number is no text and a text no number: what producers mean is theirs to say, so such a field is rescued.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, DecimalException
from typing import Any, Self

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from orbitmq.spark.bodies.parsed import Misfit, Parse, ParsedBody, misfit, nothing

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MISFITS = (ValueError, TypeError, OverflowError, DecimalException)
BLOCK_MAX = 1 << 30  # bytes of one block of Arrow's parser, whose sizes are 32-bit numbers

Fit = Callable[[Any, str, dict[str, Any]], Any]
"""From a value, its path and where to put names that no schema has: the value of a column. One of MISFITS if it is not
of the type; of a list or a map all fits, or nothing."""


class Number(float):
    """A number with its digits, for decimals that have more of them than a float."""

    def __new__(cls, text: str) -> Self:
        made = super().__new__(cls, text)
        made.text = text
        return made

    text: str


def json_parser(known: pa.StructType, wanted: pa.StructType) -> Parse:
    """Parses an object field by field. `wanted` are some of the `known` fields, of the same types."""
    read = _record(known, wanted)
    number = Number if _has(wanted, pa.types.is_decimal) else float

    def parse(body: bytes) -> ParsedBody:
        try:
            value = json.loads(body, parse_float=number)
        except (ValueError, RecursionError) as error:
            return nothing(body, str(error))
        if not isinstance(value, dict):
            return nothing(body, "not a JSON object")
        found = ParsedBody(None)
        found.value = read(value, "", found)
        return found

    return parse


def _record(
    known: pa.StructType, wanted: pa.StructType
) -> Callable[[Mapping[str, Any], str, ParsedBody], dict[str, Any]]:
    """The fields that fit. The others are added to what is rescued, by their path."""
    fits: dict[str, Fit | None] = {each.name: None for each in known}
    inner: dict[str, Callable[[Mapping[str, Any], str, ParsedBody], dict[str, Any]]] = {}
    for each in wanted:
        kind = known.field(each.name).type
        fits[each.name] = _fit(kind, each.type)
        if pa.types.is_struct(kind):
            inner[each.name] = _record(kind, each.type)

    def read(value: Mapping[str, Any], path: str, found: ParsedBody) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for name, each in value.items():
            if name not in fits:
                found.rescued[path + name] = each
                continue
            fit = fits[name]
            if fit is None or each is None:
                continue
            if name in inner and isinstance(each, dict):
                fields[name] = inner[name](each, f"{path}{name}.", found)
                continue
            new: dict[str, Any] = {}
            try:
                fields[name] = fit(each, path + name, new)
            except MISFITS as error:
                found.rescued[path + name] = each
                found.errors.append(f"{path}{name}: {error}")
            else:
                found.rescued |= new
        return fields

    return read


def _fit(known: pa.DataType, wanted: pa.DataType) -> Fit:
    if pa.types.is_list(known):
        return _list_fit(_fit(known.value_type, wanted.value_type), known)
    if pa.types.is_map(known):
        return _map_fit(_fit(known.item_type, wanted.item_type), known)
    if pa.types.is_struct(known):
        return _struct_fit(_record(known, wanted), known)
    convert = next(convert for is_kind, convert in _SCALARS if is_kind(known))
    return lambda value, _path, _new: None if value is None else convert(value, known)


def _list_fit(item: Fit, kind: pa.DataType) -> Fit:
    def fit(value: Any, path: str, new: dict[str, Any]) -> Any:
        if value is None:
            return None
        if not isinstance(value, list):
            raise misfit(value, kind)
        return [item(each, f"{path}[{number}]", new) for number, each in enumerate(value)]

    return fit


def _map_fit(item: Fit, kind: pa.DataType) -> Fit:
    def fit(value: Any, path: str, new: dict[str, Any]) -> Any:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise misfit(value, kind)
        return [(_text(name, kind.key_type), item(each, f"{path}.{name}", new)) for name, each in value.items()]

    return fit


def _struct_fit(read: Callable[[Mapping[str, Any], str, ParsedBody], dict[str, Any]], kind: pa.DataType) -> Fit:
    def fit(value: Any, path: str, new: dict[str, Any]) -> Any:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise misfit(value, kind)
        inner = ParsedBody(None)
        fields = read(value, f"{path}.", inner)
        if inner.errors:
            raise Misfit(inner.errors[0])
        new |= inner.rescued
        return fields

    return fit


def _text(value: Any, kind: pa.DataType) -> str:
    if not isinstance(value, str):
        raise misfit(value, kind)
    value.encode()  # JSON may contain unpaired surrogates, which are no text: a ValueError
    return value


def _truth(value: Any, kind: pa.DataType) -> bool:
    if not isinstance(value, bool):
        raise misfit(value, kind)
    return value


def _whole(value: Any, kind: pa.DataType) -> int:
    bound = 1 << (kind.bit_width - 1)
    if isinstance(value, bool) or not isinstance(value, int) or not -bound <= value < bound:
        raise misfit(value, kind)
    return int(value)


def _number(value: Any, kind: pa.DataType) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise misfit(value, kind)
    return float(value)


def _time(value: Any, kind: pa.DataType) -> datetime:
    if isinstance(value, int) and not isinstance(value, bool):
        return EPOCH + timedelta(milliseconds=value)
    found = datetime.fromisoformat(_text(value, kind))
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _decimal(value: Any, kind: pa.DataType) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise misfit(value, kind)
    number = Decimal(value.text if isinstance(value, Number) else str(value))
    pa.scalar(number, kind)  # an error when it has too many digits
    return number


_SCALARS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any, pa.DataType], Any]], ...] = (
    (pa.types.is_string, _text),
    (pa.types.is_boolean, _truth),
    (pa.types.is_integer, _whole),
    (pa.types.is_floating, _number),
    (pa.types.is_binary, lambda value, kind: base64.b64decode(_text(value, kind), validate=True)),
    (pa.types.is_timestamp, _time),
    (pa.types.is_date, lambda value, kind: date.fromisoformat(_text(value, kind))),
    (pa.types.is_decimal, _decimal),
)


def _has(kind: pa.DataType, is_kind: Callable[[pa.DataType], bool]) -> bool:
    """Whether a type is of this kind or holds one that is."""
    if pa.types.is_nested(kind):
        return any(_has(kind.field(number).type, is_kind) for number in range(kind.num_fields))
    return is_kind(kind)


# ------------------------------------------------------------------------------------------------------- Many at a time


def _is_alike(kind: pa.DataType) -> bool:
    """Whether Arrow reads values of this type from JSON as `json_parser` does: not bytes, times, decimals, maps."""
    if pa.types.is_struct(kind) or pa.types.is_list(kind):
        return all(_is_alike(kind.field(number).type) for number in range(kind.num_fields))
    return any(is_kind(kind) for is_kind in (pa.types.is_string, pa.types.is_boolean, pa.types.is_integer)) or (
        pa.types.is_float64(kind)
    )


def together_parser(
    known: pa.StructType, wanted: pa.StructType, *, rescues: bool
) -> Callable[[pa.BinaryArray], pa.Array | None] | None:
    """Parses many bodies with Arrow, many times faster than one by one; None for types that it reads otherwise.

    Its result is None unless every body is an object with fields of their types, and if unknown ones are rescued, with
    no others.
    """
    read_as = known if rescues else wanted
    if not _is_alike(read_as) or not _can_cut(read_as, wanted):
        return None
    options = pj.ParseOptions(
        explicit_schema=pa.schema(list(read_as)),
        newlines_in_values=True,
        unexpected_field_behavior="error" if rescues else "ignore",
    )

    def parse(bodies: pa.BinaryArray) -> pa.Array | None:
        try:
            texts = pc.utf8_trim(bodies.cast(pa.string()), characters=" \t\r\n")
            # An object that a body begins and does not end can then not go on in the next one.
            if bodies.null_count or not pc.all(pc.starts_with(texts, "{")).as_py():
                return None
            data = "\n".join(texts.to_pylist()).encode()
            if len(data) >= BLOCK_MAX:
                return None
            reading = pj.ReadOptions(use_threads=False, block_size=len(data) + 1)
            table = pj.read_json(io.BytesIO(data), reading, options)
            if table.num_rows != len(bodies):
                return None
            values = table.to_struct_array().combine_chunks()
            values.validate(full=True)  # a half of a letter is no text
            return _cut(values, wanted)
        except pa.ArrowInvalid:
            return None

    return parse


def _can_cut(known: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether fields are left out of structs only, and not within lists."""
    if pa.types.is_struct(known):
        return all(_can_cut(known.field(each.name).type, each.type) for each in wanted)
    return bool(known == wanted)


def _cut(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The wanted fields."""
    if not pa.types.is_struct(wanted):
        return values.cast(wanted)
    fields = [_cut(values.field(each.name), each.type) for each in wanted]
    return pa.StructArray.from_arrays(fields, fields=list(wanted), mask=values.is_null())


# ------------------------------------------------------------------------------------------------------------- Writing

_ENCODER = msgspec.json.Encoder(decimal_format="number")


def json_writer() -> Callable[[dict[str, Any]], bytes]:
    """Encodes a value as an object that the parser reads back."""
    return _ENCODER.encode


# ------------------------------------------------------------------------------------------------------------ Inference

FIELDS_MAX = 1000  # of an inferred schema: with more of them, names are values, and a map is the type
INT64 = 1 << 63
DIGITS_MAX = 38


def inferred_type(bodies: Sequence[bytes]) -> pa.StructType | None:
    """The type of a sample of objects, fields in the order of their names; None without any object.

    Whole numbers are BIGINT, or DECIMAL(38,0) where some are larger; others DOUBLE. Where values of several types
    meet, and where all are null, it is STRING. ValueError for more than FIELDS_MAX fields.
    """
    found: _Seen | None = None
    for body in bodies:
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            found = found or _Seen()
            found.add(value, 0)
    kind = None if found is None else found.type()
    if kind is None or not pa.types.is_struct(kind):
        return None
    if (count := _count(kind)) > FIELDS_MAX:
        raise ValueError(f"the sample has {count} fields")
    return kind


DEPTH_MAX = 50  # levels that are looked into; what is deeper is rescued


class _Seen:
    """The types seen at one place."""

    def __init__(self) -> None:
        self._kinds: set[str] = set()
        self._fields: dict[str, _Seen] = {}
        self._items: _Seen | None = None

    def add(self, value: Any, depth: int) -> None:
        if value is None or depth > DEPTH_MAX:
            return
        if isinstance(value, dict):
            self._kinds.add("struct")
            for name, each in value.items():
                if len(self._fields) <= FIELDS_MAX:
                    self._fields.setdefault(name, _Seen()).add(each, depth + 1)
        elif isinstance(value, list):
            self._kinds.add("list")
            self._items = self._items or _Seen()
            for each in value:
                self._items.add(each, depth + 1)
        else:
            self._kinds.add(_scalar(value))

    def type(self) -> pa.DataType | None:
        """None for an object without fields, which no column can be."""
        if self._kinds == {"struct"}:
            kinds = ((name, self._fields[name].type()) for name in sorted(self._fields))
            fields = [(name, kind) for name, kind in kinds if kind is not None and _is_name(name)]
            return pa.struct(fields) if fields else None
        if self._kinds == {"list"}:
            assert self._items is not None, "a list makes it"
            item = self._items.type()
            return None if item is None else pa.list_(item)
        if self._kinds <= {"long", "big", "double"} and self._kinds:
            if "double" in self._kinds:
                return pa.float64()
            return pa.decimal128(DIGITS_MAX, 0) if "big" in self._kinds else pa.int64()
        return pa.bool_() if self._kinds == {"bool"} else pa.string()


def _scalar(value: bool | float | str) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        if -INT64 <= value < INT64:
            return "long"
        return "big" if abs(value) < 10**DIGITS_MAX else "double"
    return "double" if isinstance(value, float) else "string"


def _is_name(name: str) -> bool:
    """Whether a column can have this name: text that is not empty."""
    try:
        return bool(name.encode())
    except UnicodeEncodeError:
        return False


def _count(kind: pa.DataType) -> int:
    if not pa.types.is_nested(kind):
        return 0
    inner = sum(_count(kind.field(number).type) for number in range(kind.num_fields))
    return inner + (kind.num_fields if pa.types.is_struct(kind) else 0)
