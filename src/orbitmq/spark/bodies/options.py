"""Options for typed bodies of reads, of writes and of the archive. Knows no schema."""

from __future__ import annotations

from dataclasses import dataclass

from orbitmq.runtime.options import Options, option

RAW, JSON, AVRO, PROTOBUF = FORMATS = ("raw", "json", "avro", "protobuf")
PERMISSIVE, FAIL_FAST, DROP_MALFORMED = MODES = ("permissive", "failfast", "dropmalformed")


@dataclass(frozen=True)
class BodyFormat(Options):
    """What bodies contain."""

    body_format: str = option(
        "bodyFormat",
        RAW,
        "What bodies contain: bytes (raw), or json, avro or protobuf, which the struct column `value` has as fields.",
        choices=FORMATS,
    )
    body_schema: str = option(
        "bodySchema",
        "",
        "The schema of the bodies, or a file on the driver with it. json: fields as in SQL, such as `id BIGINT, tags "
        "ARRAY<STRING>`, or an Avro record as JSON. avro: an Avro record as JSON. protobuf: a `.proto` file, or a set "
        "of descriptors as protoc writes it with --include_imports. In reads of one topic of brokers, `topic` is the "
        "schema that is registered for it; bodies of earlier versions are read with theirs.",
    )
    body_message: str = option(
        "bodyMessage",
        "",
        "With protobuf: name of the message, `shop.Order` or `Order`. Needed if the file declares several.",
    )


@dataclass(frozen=True)
class BodyOptions(BodyFormat):
    """How bodies are read."""

    body_mode: str = option(
        "bodyMode",
        PERMISSIVE,
        "What to do with a body that does not fit the schema: keep what fits in `value` and the rest in `_rescued` "
        "(permissive), fail with its place and field (failfast), or leave the message out (dropmalformed). permissive "
        "and dropmalformed log how many. Fields that the schema does not have are rescued, and are no error.",
        choices=MODES,
    )
