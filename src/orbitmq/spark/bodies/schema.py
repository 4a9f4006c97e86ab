"""The schema of bodies as the options give it: read on the driver, sent to tasks. Knows no Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from orbitmq.spark.bodies import avro, protobuf
from orbitmq.spark.bodies.ddl import parse_ddl
from orbitmq.spark.bodies.options import AVRO, JSON, PROTOBUF, RAW, BodyFormat
from orbitmq.spark.cluster_options import bad_option

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
    return _LOADERS[options.body_format](options)


def _json(options: BodyFormat) -> BodySchema:
    text = _text(options.body_schema)
    kind = _avro_type(text) if text.lstrip().startswith("{") else parse_ddl(text)
    return BodySchema(JSON, kind)


def _avro(options: BodyFormat) -> BodySchema:
    text = _text(options.body_schema)
    return BodySchema(AVRO, _avro_type(text), avro=text)


def _protobuf(options: BodyFormat) -> BodySchema:
    try:
        path = Path(options.body_schema)
        if path.stat().st_size > SCHEMA_SIZE_MAX:
            raise bad_option(f"option bodySchema: {path} is larger than {SCHEMA_SIZE_MAX >> 20} MiB")
        files = protobuf.descriptors(path)
    except (OSError, ValueError) as error:
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
        path = Path(given)
        if any(letter in given for letter in " <") and not path.is_file():
            return given
        if path.stat().st_size > SCHEMA_SIZE_MAX:
            raise bad_option(f"option bodySchema: {path} is larger than {SCHEMA_SIZE_MAX >> 20} MiB")
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise bad_option(f"option bodySchema: {error}") from error
