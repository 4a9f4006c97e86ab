"""A schema, its versions, and the texts in which name servers keep them. Knows no kind of schema in particular."""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum
from typing import Final

import msgspec
from msgspec import Struct

from orbitmq.errors import SchemaIllegal

SCHEMA_ID: Final = "SCHEMA_ID"
"""The property of a message that names the schema of its body."""
TEXT_LENGTH_MAX: Final = 64 << 10  # characters of a schema: a name server keeps all pairs in one file of 4 MiB
VERSIONS_MAX: Final = 100  # of a topic: each registration compares with all of them
PARSED_MAX: Final = 1000  # schemas that are kept ready, of each kind: those of ten topics with all their versions
ID_DIGITS: Final = 16  # 64 bits: among a million schemas two are alike once in 37 million tries


class SchemaKind(StrEnum):
    """The language of a schema."""

    JSON = "json"
    """JSON Schema, of bodies in JSON."""
    AVRO = "avro"
    """A schema of Avro, of bodies that are one datum."""
    PROTOBUF = "protobuf"
    """A message of Protobuf."""


class Compatibility(StrEnum):
    """What a new version of a schema must be able to do, with every version before it."""

    BACKWARD = "backward"
    """Consumers with the new version read bodies of the earlier ones."""
    FORWARD = "forward"
    """Consumers with an earlier version read bodies of the new one."""
    FULL = "full"
    """Both."""
    NONE = "none"
    """Nothing is checked."""


class Schema(Struct, frozen=True):
    """A schema of bodies. Equal schemas have equal ids, wherever they were made."""

    kind: SchemaKind
    """Its language."""
    text: str
    """JSON Schema and Avro: the schema as JSON. Protobuf: the descriptors of the file and of all it imports, as base64.
    """
    message: str = ""
    """Protobuf: the full name of the message."""

    @property
    def id(self) -> str:
        """16 hexadecimal digits that depend on the kind and the text alone."""
        content = f"{self.kind}\n{self.message}\n{self.text}"
        return hashlib.sha256(content.encode()).hexdigest()[:ID_DIGITS]


def json_text(schema: object) -> str:
    """The text of a schema of JSON or Avro. The same schema has the same text, however its file was formatted."""
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False)


class SchemaVersion(Struct, frozen=True, omit_defaults=True):
    """A registered schema."""

    number: int
    """1 and up, in the order of registration."""
    schema: Schema
    registered_at_ms: int
    """By the clock of the program that registered it; milliseconds since the epoch. 0 with a registry, which does not
    say.
    """
    registry_id: int | None = None
    """Its id in bodies, if a registry keeps it."""


class Refusal(Struct, frozen=True):
    """Why a schema is not compatible with an earlier version."""

    version: int
    """The earlier version."""
    field: str
    """The path of the field, such as `order.lines.amount`; empty for the whole body."""
    rule: str
    """What is wrong with it."""

    def __str__(self) -> str:
        return f"version {self.version}: {f'field {self.field}' if self.field else 'the body'} {self.rule}"


def encode_version(version: SchemaVersion) -> str:
    """The text that a name server keeps."""
    return msgspec.json.encode(version).decode()


def decode_version(text: str) -> SchemaVersion:
    """SchemaIllegal for a text that is none of those."""
    try:
        return msgspec.json.decode(text, type=SchemaVersion)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise SchemaIllegal(f"no version of a schema: {error}") from error
