"""Codecs: values as bodies and back, and the schema of the bodies. Knows no topic and no client."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar, cast, overload

import msgspec
from google.protobuf.message import DecodeError, EncodeError
from google.protobuf.message import Message as ProtobufMessage

from orbitmq.errors import ConfigurationError, MessageIllegal, WrongBody
from orbitmq.schemas import avro, protobuf
from orbitmq.schemas.compatibility import check
from orbitmq.schemas.model import Schema, SchemaKind, json_text

T = TypeVar("T")
P = TypeVar("P", bound=ProtobufMessage)

AVRO_TYPES = (bytes, dt.datetime, dt.date, dt.time, decimal.Decimal, uuid.UUID)
"""What fastavro writes for logical types."""


class Codec(ABC, Generic[T]):
    """Bodies of values of one type. Derive from it for a format of your own."""

    reads_by_writer: ClassVar[bool] = False
    """Whether `decode` needs the schema that a body was written with."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        """The schema of the bodies that it writes."""

    @abstractmethod
    def encode(self, value: T) -> bytes:
        """The body of a value. MessageIllegal for a value that has none."""

    @abstractmethod
    def decode(self, body: bytes, written: Schema) -> T:
        """The value of a body that was written with the schema `written`. WrongBody if it is none."""


class _Msgspec(Codec[T]):
    def __init__(self, kind: type[T]) -> None:
        try:
            schema = msgspec.json.schema(kind)
        except TypeError as error:
            raise ConfigurationError(f"{kind!r} has no JSON Schema: {error}") from error
        super().__init__(Schema(SchemaKind.JSON, json_text(schema)))
        self._decoder = msgspec.json.Decoder(kind)
        self._encoder = msgspec.json.Encoder()

    def encode(self, value: T) -> bytes:
        try:
            body = self._encoder.encode(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise MessageIllegal(f"the value cannot be written as JSON: {error}") from error
        return _readable(self, body)

    def decode(self, body: bytes, written: Schema) -> T:  # noqa: ARG002 - of the base
        try:
            return self._decoder.decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise WrongBody(f"no {_name(self._decoder.type)}: {error}") from error


def _readable(codec: Codec[T], body: bytes) -> bytes:
    """The body. MessageIllegal if it would be a wrong one: libraries for JSON write wrong fields of a value as well,
    and NaN as null.
    """
    try:
        codec.decode(body, codec.schema)
    except Exception as error:  # also of a type of the application
        raise MessageIllegal(f"the value has a wrong body: {error}") from error
    return body


def msgspec_codec(kind: type[T]) -> Codec[T]:
    """JSON of a type that msgspec knows: a Struct, a dataclass, a TypedDict and others. The schema is the type's JSON
    Schema. ConfigurationError for a type without one.
    """
    return _Msgspec(kind)


class _Pydantic(Codec[T]):
    def __init__(self, kind: type[T]) -> None:
        try:
            from pydantic import TypeAdapter, ValidationError
            from pydantic.errors import PydanticUserError
            from pydantic_core import PydanticSerializationError
        except ImportError as error:
            raise ConfigurationError("this codec needs pydantic: pip install 'orbitmq[pydantic]'") from error
        try:
            self._adapter = TypeAdapter(kind)
            schema = self._adapter.json_schema()
        except PydanticUserError as error:
            raise ConfigurationError(f"{kind!r} has no JSON Schema: {error}") from error
        super().__init__(Schema(SchemaKind.JSON, json_text(schema)))
        self._kind = kind
        self._wrong, self._unwritable = ValidationError, PydanticSerializationError

    def encode(self, value: T) -> bytes:
        try:
            body = self._adapter.dump_json(value, by_alias=True, warnings="error")
        except (self._unwritable, ValueError) as error:
            raise MessageIllegal(f"the value is no {_name(self._kind)}: {error}") from error
        return _readable(self, body)

    def decode(self, body: bytes, written: Schema) -> T:  # noqa: ARG002 - of the base
        try:
            return self._adapter.validate_json(body)
        except self._wrong as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            text = f"field {where}: {first['msg']}" if where else first["msg"]
            raise WrongBody(f"no {_name(self._kind)}: {text}") from error


def pydantic_codec(kind: type[T]) -> Codec[T]:
    """JSON of a model of pydantic, or of another type that it validates; needs `orbitmq[pydantic]`. ConfigurationError
    for a type without a JSON Schema.
    """
    return _Pydantic(kind)


class _Avro(Codec[T]):
    reads_by_writer = True

    def __init__(self, schema: str | Mapping[str, object], kind: type[T]) -> None:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        try:
            super().__init__(Schema(SchemaKind.AVRO, json_text(json.loads(text))))
            check(self.schema)
        except ImportError as error:
            raise ConfigurationError("this codec needs fastavro: pip install 'orbitmq[avro]'") from error
        except ValueError as error:
            raise ConfigurationError(f"no schema of Avro: {error}") from error
        self._kind = kind

    def encode(self, value: T) -> bytes:
        import fastavro

        out = io.BytesIO()
        try:
            fastavro.schemaless_writer(out, self._parsed(self.schema), _plain(value), strict_allow_default=True)
        except Exception as error:  # the library's errors for values have no common base
            raise MessageIllegal(f"the value does not fit the schema: {type(error).__name__} {error}") from error
        return out.getvalue()

    def decode(self, body: bytes, written: Schema) -> T:
        found = avro.datum(body, written, None if written == self.schema else self.schema)
        try:
            return msgspec.convert(found, self._kind, builtin_types=AVRO_TYPES)
        except msgspec.ValidationError as error:
            raise WrongBody(f"no {_name(self._kind)}: {error}") from error

    @staticmethod
    def _parsed(schema: Schema) -> Any:
        return avro.parsed(schema.text)


def _plain(value: object) -> object:
    return value if isinstance(value, dict) else msgspec.to_builtins(value, builtin_types=AVRO_TYPES)


@overload
def avro_codec(schema: str | Mapping[str, object]) -> Codec[dict[str, object]]: ...


@overload
def avro_codec(schema: str | Mapping[str, object], kind: type[T]) -> Codec[T]: ...


def avro_codec(
    schema: str | Mapping[str, object], kind: type[T | dict[str, object]] = dict
) -> Codec[T] | Codec[dict[str, object]]:
    """Data of Avro, bare, by a schema as JSON or as a mapping; needs `orbitmq[avro]`. Values are dictionaries, or a
    Struct of msgspec, a dataclass or a TypedDict with the fields of the record. A body of another version is resolved
    with the schema that wrote it. ConfigurationError without fastavro, SchemaIllegal for an invalid schema.
    """
    return cast("Codec[T]", _Avro(schema, kind))


class _Protobuf(Codec[P]):
    def __init__(self, kind: type[P]) -> None:
        super().__init__(protobuf.schema_of(kind.DESCRIPTOR))
        self._kind = kind

    def encode(self, value: P) -> bytes:
        if not isinstance(value, self._kind):
            raise MessageIllegal(f"the value is {type(value).__name__}, not {_name(self._kind)}")
        try:
            return cast("bytes", value.SerializeToString(deterministic=True))
        except EncodeError as error:
            raise MessageIllegal(f"the value cannot be written: {error}") from error

    def decode(self, body: bytes, written: Schema) -> P:  # noqa: ARG002 - of the base
        try:
            return cast("P", self._kind.FromString(body))
        except DecodeError as error:
            raise WrongBody(f"no {_name(self._kind)}: {error}") from error


def protobuf_codec(kind: type[P]) -> Codec[P]:
    """Messages of a class that protoc has generated. The schema is the class's file with all that it imports.
    MessageIllegal and WrongBody as of `Codec`.
    """
    return _Protobuf(kind)


def _name(kind: object) -> str:
    return getattr(kind, "__name__", None) or str(kind)
