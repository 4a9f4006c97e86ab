"""Bodies in Protobuf: descriptors of a `.proto` file or of protoc, their types of Arrow, and messages of them.

A field that has presence and is not set is null; the others have Protobuf's default then. Numbers without a sign are
read as the next larger type. Maps keep their last entry of a key.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from orbitmq.spark.bodies.parsed import Misfit, Parse, ParsedBody, nothing
from orbitmq.spark.cluster_options import bad_option

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.message import Message

TIMESTAMP = "google.protobuf.Timestamp"
# Types of fields by their number in Protobuf's descriptors.
PLAIN = {
    1: pa.float64(), 2: pa.float32(), 3: pa.int64(), 4: pa.decimal128(20, 0), 5: pa.int32(), 6: pa.decimal128(20, 0),
    7: pa.int64(), 8: pa.bool_(), 9: pa.string(), 12: pa.binary(), 13: pa.int64(), 14: pa.string(), 15: pa.int32(),
    16: pa.int64(), 17: pa.int32(), 18: pa.int64(),
}  # fmt: skip
UNSIGNED_64 = frozenset((4, 6))
ENUM = 14
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECONDS_OF_A_DAY = 86_400
FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_799  # of the years 1 to 9999, which Protobuf allows
LENGTH_DELIMITED, GROUP = 2, 3  # wire types

Convert = Callable[[Any, str, ParsedBody], Any]  # value, its path, what is rescued -> value of a column; or Misfit


@cache
def message_descriptor(files: bytes, name: str) -> Descriptor:
    """The descriptor of a message by its full or short name; without a name of the only one. SourceError names those
    that there are."""
    try:
        from google.protobuf.descriptor_pb2 import FileDescriptorSet
        from google.protobuf.descriptor_pool import DescriptorPool
        from google.protobuf.message import DecodeError
    except ImportError as error:
        raise bad_option(f"bodies in Protobuf need a library: pip install 'orbitmq[protobuf]' ({error})") from error
    pool = DescriptorPool()
    try:
        found = FileDescriptorSet.FromString(files).file
        for each in found:
            pool.Add(each)
        declared = [pool.FindFileByName(each.name) for each in found]
    except (DecodeError, TypeError, KeyError) as error:
        raise bad_option(
            f"option bodySchema: no descriptors of Protobuf, or not all that it imports: {str(error)[:300]}"
        ) from error
    own = declared[-1].message_types_by_name if declared else {}  # protoc writes what a file imports before it
    every = {each.full_name: each for file in declared for each in _messages(file.message_types_by_name)}
    matching = [each for full, each in every.items() if name and (full == name or full.endswith(f".{name}"))]
    if not name:
        matching = list(own.values())
    if len(matching) == 1:
        return matching[0]
    names = ", ".join(sorted(each.full_name for each in own.values()))
    raise bad_option(f"option bodyMessage is {name!r}; use one of the messages {names}")


def _messages(named: Any) -> Iterator[Descriptor]:
    for each in named.values():
        yield each
        yield from _messages(each.nested_types_by_name)


def arrow_type(message: Descriptor) -> pa.StructType:
    """The type of a message. SourceError for a message that holds itself, or one without fields inside another."""
    return _record_type(message, ())


def _record_type(message: Descriptor, inside: tuple[str, ...]) -> pa.StructType:
    if message.full_name in inside:
        raise bad_option(f"option bodySchema: {message.full_name} holds itself, which no column can")
    if not message.fields:
        raise bad_option(f"option bodySchema: {message.full_name} has no fields, which no column can be")
    names = (*inside, message.full_name)
    return pa.struct([(field.name, _field_type(field, names)) for field in message.fields])


def _field_type(field: FieldDescriptor, inside: tuple[str, ...]) -> pa.DataType:
    entry = _map_entry(field)
    if entry is not None:
        return pa.map_(pa.string(), _single_type(entry[1], inside))
    kind = _single_type(field, inside)
    return pa.list_(kind) if field.is_repeated else kind


def _single_type(field: FieldDescriptor, inside: tuple[str, ...]) -> pa.DataType:
    if field.message_type is None:
        return PLAIN[field.type]
    if field.message_type.full_name == TIMESTAMP:
        return pa.timestamp("us", "UTC")
    return _record_type(field.message_type, inside)


def _map_entry(field: FieldDescriptor) -> tuple[FieldDescriptor, FieldDescriptor] | None:
    """The fields of key and value of a map."""
    if field.message_type is None or not field.message_type.GetOptions().map_entry:
        return None
    fields = field.message_type.fields_by_name
    return fields["key"], fields["value"]


# ------------------------------------------------------------------------------------------------------------- Reading


def protobuf_parser(files: bytes, name: str, wanted: pa.StructType, *, rescues: bool) -> Parse:
    """Parses a message. Only the wanted fields are converted; `rescues`: fields that it does not know are kept."""
    descriptor = message_descriptor(files, name)  # which says what to install
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass

    decode = GetMessageClass(descriptor).FromString
    convert = _record_reader(descriptor, wanted, rescues=rescues)

    def parse(body: bytes) -> ParsedBody:
        try:
            message = decode(body)
        except DecodeError as error:
            return nothing(body, f"no message {descriptor.full_name}: {error}")
        found = ParsedBody(None)
        found.value = convert(message, "", found)
        return found

    return parse


def _record_reader(descriptor: Descriptor, wanted: pa.StructType, *, rescues: bool) -> Convert:
    known = descriptor.fields_by_name
    fields = [(each.name, known[each.name], _reader(known[each.name], each.type, rescues=rescues)) for each in wanted]
    if rescues:
        from google.protobuf.unknown_fields import UnknownFieldSet

    def read(message: Message, path: str, found: ParsedBody) -> dict[str, Any]:
        value: dict[str, Any] = {}
        for name, field, convert in fields:
            if field.has_presence and not message.HasField(name):
                continue
            each = None
            try:
                each = getattr(message, name)  # an error for text that is not UTF-8, which proto2 does not check before
                value[name] = convert(each, f"{path}{name}", found)
            except ValueError as error:
                found.rescued[f"{path}{name}"] = _printed(each)
                found.errors.append(f"{path}{name}: {error}")
        if rescues:
            for unknown in UnknownFieldSet(message):
                found.rescued[f"{path}{unknown.field_number}"] = _unknown(unknown)
        return value

    return read


def _reader(field: FieldDescriptor, kind: pa.DataType, *, rescues: bool) -> Convert:
    entry = _map_entry(field)
    if entry is not None:
        key_text, item = _key_text(entry[0]), _single_reader(entry[1], kind.item_type, rescues=rescues)
        return lambda each, path, found: [(key_text(key), item(each[key], f"{path}.{key}", found)) for key in each]
    one = _single_reader(field, kind.value_type if field.is_repeated else kind, rescues=rescues)
    if field.is_repeated:
        return lambda each, path, found: [one(item, f"{path}[{at}]", found) for at, item in enumerate(each)]
    return one


def _single_reader(field: FieldDescriptor, kind: pa.DataType, *, rescues: bool) -> Convert:
    if field.message_type is not None:
        if field.message_type.full_name == TIMESTAMP:
            return lambda each, _path, _found: _time(each)
        read = _record_reader(field.message_type, kind, rescues=rescues)
        return lambda each, path, found: read(each, f"{path}.", found)
    if field.type == ENUM:
        names = {number: each.name for number, each in field.enum_type.values_by_number.items()}
        return lambda each, _path, _found: _enum_name(each, names, field)
    if field.type in UNSIGNED_64:
        return lambda each, _path, _found: Decimal(each)
    return lambda each, _path, _found: each


def _enum_name(number: int, names: dict[int, str], field: FieldDescriptor) -> str:
    if number not in names:
        raise Misfit(f"{number} is no value of {field.enum_type.full_name}")
    return names[number]


def _time(message: Any) -> int:
    """Microseconds since the epoch."""
    if not (FIRST_SECOND <= message.seconds <= LAST_SECOND and 0 <= message.nanos < 1_000_000_000):
        raise Misfit(f"{message.seconds} s and {message.nanos} ns since 1970 is no timestamp")
    return int(message.seconds) * 1_000_000 + int(message.nanos) // 1000


def _key_text(field: FieldDescriptor) -> Callable[[Any], str]:
    """Keys of maps as JSON has them."""
    if PLAIN[field.type] == pa.bool_():
        return lambda key: "true" if key else "false"
    return str


def _printed(value: Any) -> Any:
    """A value that did not fit, as JSON can have it."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value if isinstance(value, (int, float, str, bool)) or value is None else str(value)


def _unknown(field: Any) -> Any:
    """A field without a name: a number, bytes as base64, or for a group its fields."""
    if field.wire_type == GROUP:
        return {str(each.field_number): _unknown(each) for each in field.data}
    return base64.b64encode(field.data).decode() if field.wire_type == LENGTH_DELIMITED else field.data


# ------------------------------------------------------------------------------------------------------------- Writing


def protobuf_writer(files: bytes, name: str) -> Callable[[dict[str, Any]], bytes]:
    """Encodes a value. ValueError and TypeError for what the message does not allow."""
    descriptor = message_descriptor(files, name)
    from google.protobuf.message_factory import GetMessageClass

    build = _builder(descriptor, GetMessageClass(descriptor))
    return lambda value: build(value).SerializeToString(deterministic=True)


def _builder(descriptor: Descriptor, kind: Callable[..., Any]) -> Callable[[dict[str, Any]], Any]:
    from google.protobuf.message_factory import GetMessageClass

    def single(field: FieldDescriptor) -> Callable[[Any], Any]:
        message = field.message_type
        if message is None:
            return int if field.type in UNSIGNED_64 else lambda each: each
        made = GetMessageClass(message)
        return (lambda each: made(**_since_epoch(each))) if message.full_name == TIMESTAMP else _builder(message, made)

    def whole(field: FieldDescriptor) -> Callable[[Any], Any]:
        entry = _map_entry(field)
        if entry is not None:
            key, item = _key_of(entry[0]), single(entry[1])
            return lambda given: {key(name): item(each) for name, each in given.items()}
        one = single(field)
        return (lambda items: [one(each) for each in items]) if field.is_repeated else one

    fields = {field.name: whole(field) for field in descriptor.fields}

    def build(value: dict[str, Any]) -> Any:
        if value is None:
            raise ValueError("a null in a list or a map")
        message = kind()
        for field, each in value.items():
            if each is not None:
                try:
                    message.MergeFrom(kind(**{field: fields[field](each)}))
                except (ValueError, TypeError, ArithmeticError) as error:
                    raise ValueError(f"field {field}: {error}") from error
        return message

    return build


def _key_of(field: FieldDescriptor) -> Callable[[str], Any]:
    kind = PLAIN[field.type]
    if kind == pa.bool_():
        return lambda text: {"true": True, "false": False}[text]
    return str if kind == pa.string() else int


def _since_epoch(time: datetime) -> dict[str, int]:
    passed = (time if time.tzinfo else time.replace(tzinfo=UTC)) - EPOCH
    return {
        "seconds": passed.days * SECONDS_OF_A_DAY + passed.seconds,
        "nanos": (passed // timedelta(microseconds=1)) % 1_000_000 * 1000,
    }
