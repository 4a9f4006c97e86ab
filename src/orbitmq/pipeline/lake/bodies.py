"""Bodies as columns: JSON or Avro bodies are parsed by a schema into a column `value`, and what does not fit is kept as
JSON in a column `_rescued`. Knows no Spark or brokers.

The schema is an Avro schema for both. A body that is not a JSON object, or Avro of another schema, has no value and is
rescued as a whole. Of a JSON object, fields that fit are used and the others are rescued. Unknown fields are rescued as
well, but are no error: producers add fields.
"""

from __future__ import annotations

import base64
import io
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, DecimalException
from typing import Any

import pyarrow as pa

from orbitmq.errors import ConfigurationError, SourceError
from orbitmq.pipeline.lake.avro import arrow_type, parsed_schema
from orbitmq.pipeline.lake.lakes import Lake
from orbitmq.pipeline.lake.schemas import changes

LOG = logging.getLogger(__name__)

RAW, JSON, AVRO = MODES = ("raw", "json", "avro")
SUSPEND, SKIP, KEEP = ON_BAD = ("suspend", "skip", "log")
VALUE, RESCUED = "value", "_rescued"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SINGLE_OBJECT = b"\xc3\x01"  # Avro's marker before the fingerprint of the schema
BOUNDS = {pa.int32(): 1 << 31, pa.int64(): 1 << 63}


class Misfit(ValueError):
    """A value that the schema does not allow."""


@dataclass
class ParsedBody:
    """The result of parsing one body. `errors` say what did not fit."""

    value: Mapping[str, Any] | None
    rescued: dict[str, Any] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Bodies:
    """Adds the columns to batches; it travels to tasks. `schema` is Avro's, as JSON."""

    mode: str
    schema: str
    on_bad: str

    def __post_init__(self) -> None:
        """ConfigurationError for an invalid schema, or one that is not a record."""
        if self.mode != RAW and not pa.types.is_struct(self._type()):
            raise ConfigurationError("option bodySchema: use a record, whose fields become the columns")

    def check_fit(self, lake: Lake) -> None:
        """ConfigurationError when the lake has columns but the bodies are raw, or the reverse. LakeError for a field
        whose type the lake cannot change to that of the schema. Fields that it does not have come with the next batch.
        """
        columns = lake.schema()
        if columns is None:
            return
        has_columns = VALUE in columns.names
        if has_columns != (self.mode != RAW):
            began = "with columns" if has_columns else RAW
            raise ConfigurationError(
                f"option bodyMode is {self.mode}, but the lake was created {began}, which cannot change"
            )
        if has_columns:
            changes(columns, pa.schema([(VALUE, self._type())]), widens=lake.widens)

    def add(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with both columns. SourceError for a body that does not fit, if that stops the archive."""
        if self.mode == RAW:
            return batch
        read = json_reader(self._type()) if self.mode == JSON else avro_reader(self.schema)
        found = [read(body or b"") for body in batch.column("body").to_pylist()]
        bad = [number for number, each in enumerate(found) if each.errors]
        if bad:
            self._log_rescued(batch, bad, found)
        whole = batch.append_column(VALUE, pa.array([each.value for each in found], self._type()))
        texts = [_as_json(each.rescued) if each.rescued else None for each in found]
        whole = whole.append_column(RESCUED, pa.array(texts, pa.string()))
        return whole.filter(pa.array([not each.errors for each in found])) if bad and self.on_bad == SKIP else whole

    def _log_rescued(self, batch: pa.RecordBatch, bad: list[int], found: list[ParsedBody]) -> None:
        names = ("topic", "brokerName", "queueId", "queueOffset")
        place = "/".join(str(batch.column(name)[bad[0]].as_py()) for name in names)
        if self.on_bad == SUSPEND:
            text = f"the body of {place} does not fit the schema: {found[bad[0]].errors[0]}"
            raise SourceError("ORBITMQ_BAD_BODY", text)
        LOG.warning(
            "event=bodies_do_not_fit count=%d action=%s first=%s error=%s",
            len(bad), self.on_bad, place, found[bad[0]].errors[0],
        )  # fmt: skip

    def _type(self) -> pa.DataType:
        return arrow_type(parsed_schema(self.schema))


def _as_json(rescued: Mapping[str, Any]) -> str:
    try:
        return json.dumps(rescued)
    except RecursionError:  # a value may be too deeply nested to be written; the column `body` has it
        return json.dumps(dict.fromkeys(rescued))


# ---------------------------------------------------------------------------------------------------------------- Avro


def avro_reader(schema: str) -> Callable[[bytes], ParsedBody]:
    """Reads a datum of exactly this schema, bare or with the schema's fingerprint before it."""
    import fastavro
    from fastavro.schema import fingerprint, to_parsing_canonical_form

    parsed = parsed_schema(schema)
    known = SINGLE_OBJECT + bytes.fromhex(fingerprint(to_parsing_canonical_form(parsed), "CRC-64-AVRO"))[::-1]

    def read(body: bytes) -> ParsedBody:
        data = io.BytesIO(body.removeprefix(known))
        try:
            value = fastavro.schemaless_reader(data, parsed)
        except Exception as error:  # the library's errors for bytes of another schema have no common base
            return _nothing(body, f"{type(error).__name__}: {error}")
        rest = len(data.getbuffer()) - data.tell()
        return _nothing(body, f"{rest} bytes too many") if rest else ParsedBody(value)  # type: ignore[arg-type]

    return read


def _nothing(body: bytes, error: str) -> ParsedBody:
    try:
        return ParsedBody(None, {"": body.decode()}, [error])
    except UnicodeDecodeError:
        return ParsedBody(None, {"": base64.b64encode(body).decode()}, [error])


# ---------------------------------------------------------------------------------------------------------------- JSON


def json_reader(kind: pa.StructType) -> Callable[[bytes], ParsedBody]:
    """Reads an object, field by field."""

    def read(body: bytes) -> ParsedBody:
        try:
            value = json.loads(body)
        except (ValueError, RecursionError) as error:
            return _nothing(body, str(error))
        if not isinstance(value, dict):
            return _nothing(body, "not a JSON object")
        found = ParsedBody(None)
        found.value = _record(value, kind, "", found)
        return found

    return read


def _record(value: Mapping[str, Any], kind: pa.StructType, path: str, found: ParsedBody) -> dict[str, Any]:
    """The fields that fit. The others are added to `found` by their path."""
    known = {kind.field(number).name: kind.field(number).type for number in range(kind.num_fields)}
    fields: dict[str, Any] = {}
    for name, each in value.items():
        if name not in known:
            found.rescued[path + name] = each
            continue
        if isinstance(each, dict) and pa.types.is_struct(known[name]):
            fields[name] = _record(each, known[name], f"{path}{name}.", found)
            continue
        new: dict[str, Any] = {}
        try:
            fields[name] = _fit(each, known[name], path + name, new)
        except (ValueError, TypeError, OverflowError, DecimalException) as error:
            found.rescued[path + name] = each
            found.errors.append(f"{path}{name}: {error}")
        else:
            found.rescued |= new
    return fields


def _fit(value: Any, kind: pa.DataType, path: str, new: dict[str, Any]) -> Any:
    """The value as a field of this type has it; names that no schema has go into `new`. Misfit, or an error of a
    conversion, when it cannot be one: of a list or a map all fits, or nothing."""
    if value is None:
        return None
    if pa.types.is_list(kind) and isinstance(value, list):
        return [_fit(each, kind.value_type, f"{path}[{number}]", new) for number, each in enumerate(value)]
    if pa.types.is_map(kind) and isinstance(value, dict):
        pairs = ((_text(name, kind.key_type), each) for name, each in value.items())
        return [(name, _fit(each, kind.item_type, f"{path}.{name}", new)) for name, each in pairs]
    if pa.types.is_struct(kind) and isinstance(value, dict):
        inner = ParsedBody(None)
        fields = _record(value, kind, f"{path}.", inner)
        if inner.errors:
            raise Misfit(inner.errors[0])
        new |= inner.rescued
        return fields
    for is_kind, convert in _SCALARS:
        if is_kind(kind):
            return convert(value, kind)
    raise _misfit(value, kind)


def _text(value: Any, kind: pa.DataType) -> str:
    if not isinstance(value, str):
        raise _misfit(value, kind)
    value.encode()  # JSON may contain unpaired surrogates, which are no text: a ValueError
    return value


def _truth(value: Any, kind: pa.DataType) -> bool:
    if not isinstance(value, bool):
        raise _misfit(value, kind)
    return value


def _whole(value: Any, kind: pa.DataType) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -BOUNDS[kind] <= value < BOUNDS[kind]:
        raise _misfit(value, kind)
    return int(value)


def _number(value: Any, kind: pa.DataType) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _misfit(value, kind)
    return float(value)


def _time(value: Any, kind: pa.DataType) -> datetime:
    """ISO 8601, without an offset in UTC; or milliseconds since the epoch."""
    if isinstance(value, int) and not isinstance(value, bool):
        return EPOCH + timedelta(milliseconds=value)
    found = datetime.fromisoformat(_text(value, kind))
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _decimal(value: Any, kind: pa.DataType) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise _misfit(value, kind)
    number = Decimal(str(value))
    pa.scalar(number, kind)  # an error when it has too many digits
    return number


def _misfit(value: Any, kind: pa.DataType) -> Misfit:
    return Misfit(f"{_as_json({'': value})[5:-1][:100]} is no {kind}")


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
