"""Schemas of Protobuf: descriptors of a message, and the rules for readers of bodies of another version.

Protobuf reads any message of the same numbers and wire types; the rules are about what it would read wrongly.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from orbitmq.errors import SchemaIllegal
from orbitmq.schemas.model import PARSED_MAX, Schema, SchemaKind
from orbitmq.schemas.paths import Difference, joined

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

# By the number of a type in Protobuf's descriptors.
TYPE_NAMES: Final = {
    1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 6: "fixed64", 7: "fixed32", 8: "bool", 9: "string",
    10: "group", 11: "message", 12: "bytes", 13: "uint32", 14: "enum", 15: "sfixed32", 16: "sfixed64", 17: "sint32",
    18: "sint64",
}  # fmt: skip
OWN_FILES: Final = "google/protobuf/"
"""Of Protobuf itself, which need not be registered."""
READ_ALIKE: Final = (
    frozenset((3, 4, 5, 8, 13, 14)), frozenset((17, 18)), frozenset((7, 15)), frozenset((6, 16)), frozenset((9, 12)),
)  # fmt: skip
"""Types that are the same on the wire."""


def schema_of(descriptor: Descriptor) -> Schema:
    """The schema of a message: its file and all that it imports."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    files: dict[str, Any] = {}

    def add(file: Any) -> None:
        if file.name in files:
            return
        files[file.name] = None
        for needed in file.dependencies:
            add(needed)
        del files[file.name]  # what is imported goes first
        files[file.name] = file

    add(descriptor.file)
    found = FileDescriptorSet()
    for file in files.values():
        copied = found.file.add()
        file.CopyToProto(copied)
        copied.ClearField("source_code_info")
        for message in copied.message_type:
            _clear_json_names(message)
    text = base64.b64encode(found.SerializeToString(deterministic=True)).decode()
    return Schema(SchemaKind.PROTOBUF, text, descriptor.full_name)


def _clear_json_names(message: Any) -> None:
    """Protoc writes them into files of descriptors and not into classes, whose schema is the same."""
    for field in (*message.field, *message.extension):
        field.ClearField("json_name")
    for inner in message.nested_type:
        _clear_json_names(inner)


def schema_in(files: bytes, message: str) -> Schema:
    """The schema of a message in descriptors as protoc writes them, by its full or short name; without a name that of
    the only one in the last file. SchemaIllegal for invalid descriptors, or another number of such messages.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import DecodeError

    pool = DescriptorPool()
    try:
        found = FileDescriptorSet.FromString(files).file
        for file in found:
            pool.Add(file)
        declared = [pool.FindFileByName(file.name) for file in found]
    except (DecodeError, TypeError, KeyError) as error:
        raise SchemaIllegal(f"no descriptors of Protobuf, or not all that it imports: {str(error)[:300]}") from error
    own = list(declared[-1].message_types_by_name.values()) if declared else []
    every = [one for file in declared for one in file.message_types_by_name.values()]
    fitting = own if not message else [one for one in every if message in (one.full_name, one.name)]
    if len(fitting) != 1:
        names = ", ".join(sorted(one.full_name for one in own)) or "none"
        raise SchemaIllegal(f"{f'no message {message}' if message else 'name the message'}; the file has {names}")
    return schema_of(fitting[0])


def file_text(schema: Schema) -> str:
    """The file of the message as a registry takes it: its descriptor as base64. SchemaIllegal if it imports files that
    are not Protobuf's own: a registry keeps those under subjects of theirs.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = descriptor_of(schema).file
    imported = [one.name for one in file.dependencies if not one.name.startswith(OWN_FILES)]
    if imported:
        raise SchemaIllegal(
            f"{schema.message} imports {imported[0]}, which a registry keeps as a schema of its own: move the messages "
            "into one file"
        )
    found = FileDescriptorProto()
    file.CopyToProto(found)
    return base64.b64encode(found.SerializeToString(deterministic=True)).decode()


def schema_of_text(text: str) -> Schema:
    """The schema of the first message of a file, as a registry returns it: its descriptor as base64. SchemaIllegal for
    what is none.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (DecodeError, ValueError) as error:
        raise SchemaIllegal(f"no descriptor of a file of Protobuf: {error}") from error
    if not file.message_type:
        raise SchemaIllegal("no descriptor of a file of Protobuf with a message")
    content = FileDescriptorSet(file=[file]).SerializeToString(deterministic=True)
    name = ".".join(filter(None, (file.package, file.message_type[0].name)))
    return Schema(SchemaKind.PROTOBUF, base64.b64encode(content).decode(), name)


def indexes_of(schema: Schema) -> list[int]:
    """Where the message is in its file, from the outside in."""
    found: list[int] = []
    one = descriptor_of(schema)
    while one is not None:
        outer = one.containing_type
        names = [each.name for each in outer.nested_types] if outer else list(one.file.message_types_by_name)
        found.insert(0, names.index(one.name))
        one = outer
    return found


def shown_text(schema: Schema) -> str:
    """The fields of a message, as a `.proto` file has them."""
    descriptor = descriptor_of(schema)
    lines = [
        f"  {'repeated ' if field.is_repeated else ''}{_shown_type(field)} {field.name} = {field.number};"
        for field in descriptor.fields
    ]
    return "\n".join([f"message {descriptor.name} {{", *lines, "}"])


def _shown_type(field: FieldDescriptor) -> str:
    named = field.message_type or field.enum_type
    return str(named.full_name) if named is not None else TYPE_NAMES[field.type]


def check(schema: Schema) -> None:
    """SchemaIllegal for invalid descriptors, or without the message."""
    descriptor_of(schema)


def files_of(schema: Schema) -> bytes:
    """The descriptors as protoc writes them. SchemaIllegal for what is no base64."""
    try:
        return base64.b64decode(schema.text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise SchemaIllegal(f"no descriptors of Protobuf: {error}") from error


@lru_cache(PARSED_MAX)
def descriptor_of(schema: Schema) -> Descriptor:
    """The message. SchemaIllegal for invalid descriptors, or without it."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import DecodeError

    pool = DescriptorPool()
    try:
        for file in FileDescriptorSet.FromString(files_of(schema)).file:
            pool.Add(file)
        found: Descriptor = pool.FindMessageTypeByName(schema.message)
    except (DecodeError, TypeError) as error:
        raise SchemaIllegal(f"no descriptors of Protobuf: {str(error)[:300]}") from error
    except KeyError as error:
        raise SchemaIllegal(f"the descriptors have no message {schema.message!r}") from error
    return found


def unreadable(reader: Schema, writer: Schema) -> Iterator[Difference]:
    """What a reader would read wrongly of messages of the writer."""
    yield from _differences(descriptor_of(reader), descriptor_of(writer), "", set())


def _differences(reader: Descriptor, writer: Descriptor, path: str, seen: set[tuple[str, str]]) -> Iterator[Difference]:
    if (reader.full_name, writer.full_name) in seen:
        return
    seen.add((reader.full_name, writer.full_name))
    written = {field.number: field for field in writer.fields}
    names = {field.name: field for field in writer.fields}
    for field in reader.fields:
        where, was = joined(path, field.name), written.get(field.number)
        if was is None:
            renumbered = names.get(field.name)
            if renumbered is not None:
                yield Difference(where, f"has number {field.number}, and had {renumbered.number}")
            if field.is_required:
                yield Difference(where, "is required, and is new")
            continue
        if was.name != field.name:
            yield Difference(where, f"reuses number {field.number}, which was {was.name}")
        if was.is_repeated != field.is_repeated:
            yield Difference(where, "is repeated, and was not" if field.is_repeated else "is not repeated, and was")
        elif field.is_required and not was.is_required:
            yield Difference(where, "is required, and was optional")
        if not _is_alike(field, was):
            yield Difference(where, f"is {_name(field)}, and was {_name(was)}")
        elif field.message_type is not None:
            yield from _differences(field.message_type, was.message_type, where, seen)
        elif field.enum_type is not None and was.enum_type is not None:
            yield from _symbols(field, was, where)
    yield from _choices(reader, written, path)


def _choices(reader: Descriptor, written: dict[int, FieldDescriptor], path: str) -> Iterator[Difference]:
    """Of the fields of a oneof a reader keeps the last one."""
    for choice in reader.oneofs:
        fields = [written[field.number] for field in choice.fields if field.number in written]
        homes = {field.containing_oneof.name if field.containing_oneof else None for field in fields}
        if len(fields) > 1 and (len(homes) > 1 or None in homes):
            names = " and ".join(field.name for field in fields)
            yield Difference(joined(path, choice.name), f"has one of {names}, and bodies had both")


def _symbols(field: FieldDescriptor, was: FieldDescriptor, where: str) -> Iterator[Difference]:
    own, earlier = _names_of(field), _names_of(was)
    for number in sorted(own.keys() & earlier.keys()):
        if own[number].isdisjoint(earlier[number]):
            names, were = " and ".join(sorted(own[number])), " and ".join(sorted(earlier[number]))
            yield Difference(where, f"has {names} for number {number}, which was {were}")


def _names_of(field: FieldDescriptor) -> dict[int, set[str]]:
    """The names of each number, which has several if aliases are allowed."""
    found: dict[int, set[str]] = {}
    for value in field.enum_type.values:
        found.setdefault(value.number, set()).add(value.name)
    return found


def _is_alike(field: FieldDescriptor, was: FieldDescriptor) -> bool:
    return field.type == was.type or any(field.type in alike and was.type in alike for alike in READ_ALIKE)


def _name(field: FieldDescriptor) -> str:
    named = field.message_type or field.enum_type
    return f"{TYPE_NAMES[field.type]} {named.name}" if named is not None else TYPE_NAMES[field.type]
