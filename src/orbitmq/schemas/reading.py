"""Bodies as JSON, by the schema that they were written with: for people, who have no program that knows their type."""

from __future__ import annotations

from typing import Final

import msgspec

from orbitmq.errors import ConfigurationError, WrongBody
from orbitmq.schemas import avro, protobuf
from orbitmq.schemas.model import Schema, SchemaKind

BINARY: Final = frozenset((SchemaKind.AVRO, SchemaKind.PROTOBUF))
"""Kinds of bodies that people cannot read as they are."""


def json_of(body: bytes, schema: Schema) -> str:
    """A body of Avro or Protobuf as indented JSON: bytes as base64, times as ISO 8601. WrongBody if it is none of the
    schema, SchemaIllegal for an invalid schema, ConfigurationError without the library for Avro.
    """
    return _of_avro(body, schema) if schema.kind is SchemaKind.AVRO else _of_protobuf(body, schema)


def _of_avro(body: bytes, schema: Schema) -> str:
    try:
        avro.check(schema)
    except ImportError as error:
        raise ConfigurationError("bodies of Avro need fastavro: pip install 'orbitmq[avro]'") from error
    found = avro.datum(body, schema)
    try:
        text = msgspec.json.encode(found)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise WrongBody(f"no data that JSON can have: {type(error).__name__} {error}") from error
    return msgspec.json.format(text, indent=2).decode()


def _of_protobuf(body: bytes, schema: Schema) -> str:
    from google.protobuf.json_format import Error, MessageToJson
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass

    kind = GetMessageClass(protobuf.descriptor_of(schema))
    try:
        found: str = MessageToJson(kind.FromString(body), preserving_proto_field_name=True, ensure_ascii=False)
    except (DecodeError, Error, TypeError, ValueError, RecursionError) as error:
        raise WrongBody(f"no {schema.message}: {error}") from error
    return found
