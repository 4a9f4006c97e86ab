"""The schema of bodies as the options give it: read on the driver, sent to tasks. Knows no Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from orbitmq.errors import ConfigurationError
from orbitmq.runtime.protoc import descriptors
from orbitmq.schemas.model import SchemaKind, decode_version
from orbitmq.schemas.protobuf import files_of
from orbitmq.spark.bodies import avro, json_schema, protobuf
from orbitmq.spark.bodies.ddl import parse_ddl
from orbitmq.spark.bodies.options import AVRO, JSON, PROTOBUF, RAW, BodyFormat
from orbitmq.spark.cluster_options import bad_option

TOPIC = "topic"
"""As option bodySchema: the schema that is kept with the topic."""
OF_TOPIC = "topic:"
"""Begins the option once the driver has looked the versions up; they follow as JSON."""
SCHEMA_SIZE_MAX = 16 << 20  # bytes of a schema; a larger file is some other file


@dataclass(frozen=True)
class BodySchema:
    """The contents of bodies as a type of Arrow, and as their format declares them: Avro's schema as JSON, or the
    descriptors of Protobuf and the name of a message."""

    format: str
    type: pa.StructType
    avro: str = ""
    descriptors: bytes = b""
    message: str = ""
    writers: tuple[tuple[str, str], ...] = ()
    """Of Avro: the ids that messages may have, and the schemas that their bodies were written with."""
    of_registry: bool = False
    """Whether bodies begin with the id of a registry, as Confluent's serializers write them."""

    @property
    def is_named_by_property(self) -> bool:
        """Whether messages have the id of the writer's schema as SCHEMA_ID."""
        return bool(self.writers) and not self.of_registry


def body_schema(options: BodyFormat) -> BodySchema | None:
    """The schema of the options; None without one, which only JSON can do without. SourceError names the option."""
    if options.body_format == RAW:
        if options.body_schema or options.body_message:
            raise bad_option("options bodySchema and bodyMessage need bodyFormat")
        return None
    if options.body_message and options.body_format != PROTOBUF:
        raise bad_option("option bodyMessage is for bodyFormat protobuf")
    if not options.body_schema:
        if options.body_format == JSON:
            return None
        raise bad_option(f"option bodySchema is missing; bodyFormat {options.body_format} needs it")
    if options.body_schema == TOPIC:
        raise bad_option(
            "option bodySchema=topic is for reads of a topic of brokers; give the schema itself, or a file"
        )
    if options.body_schema.startswith(OF_TOPIC):
        return _of_topic(options)
    return _LOADERS[options.body_format](options)


def _of_topic(options: BodyFormat) -> BodySchema:
    versions = [decode_version(text) for text in json.loads(options.body_schema.removeprefix(OF_TOPIC))]
    schema = versions[-1].schema
    if schema.kind != options.body_format:
        raise bad_option(f"option bodyFormat is {options.body_format}, and the schema of the topic is of {schema.kind}")
    of_registry = versions[-1].registry_id is not None
    if options.body_message and not of_registry:
        raise bad_option("option bodyMessage is named by the schema of the topic; leave it out")
    if schema.kind is SchemaKind.JSON:
        return BodySchema(JSON, json_schema.arrow_type(schema.text), of_registry=of_registry)
    if schema.kind is SchemaKind.AVRO:
        writers = tuple(
            (one.schema.id if one.registry_id is None else str(one.registry_id), one.schema.text)
            for one in versions
            if one.schema.kind is SchemaKind.AVRO
        )
        return BodySchema(AVRO, _avro_type(schema.text), avro=schema.text, writers=writers, of_registry=of_registry)
    files, message = files_of(schema), options.body_message or schema.message
    kind = protobuf.arrow_type(protobuf.message_descriptor(files, message))
    return BodySchema(PROTOBUF, kind, descriptors=files, message=message, of_registry=of_registry)


def _json(options: BodyFormat) -> BodySchema:
    text = _text(options.body_schema)
    kind = _avro_type(text) if text.lstrip().startswith("{") else parse_ddl(text)
    return BodySchema(JSON, kind)


def _avro(options: BodyFormat) -> BodySchema:
    text = _text(options.body_schema)
    return BodySchema(AVRO, _avro_type(text), avro=text)


def _protobuf(options: BodyFormat) -> BodySchema:
    try:
        files = descriptors(Path(options.body_schema).expanduser())
    except (OSError, ValueError, ConfigurationError) as error:
        raise bad_option(f"option bodySchema: {error}") from error
    kind = protobuf.arrow_type(protobuf.message_descriptor(files, options.body_message))
    return BodySchema(PROTOBUF, kind, descriptors=files, message=options.body_message)


_LOADERS: dict[str, Callable[[BodyFormat], BodySchema]] = {JSON: _json, AVRO: _avro, PROTOBUF: _protobuf}


def _avro_type(text: str) -> pa.StructType:
    kind = avro.arrow_type(avro.parsed_schema(text))
    if not pa.types.is_struct(kind):
        raise bad_option("option bodySchema: use a record, whose fields become those of the column value")
    return kind


def _text(given: str) -> str:
    """A schema as it is given, or the contents of a file. What has neither braces nor blanks can only be a file."""
    if given.lstrip().startswith("{"):
        return given
    try:
        path = Path(given).expanduser()
        if any(letter in given for letter in " <") and not path.is_file():
            return given
        if path.stat().st_size > SCHEMA_SIZE_MAX:
            raise bad_option(f"option bodySchema: {path} is larger than {SCHEMA_SIZE_MAX >> 20} MiB")
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise bad_option(f"option bodySchema: {error}") from error
