"""Encodes a column of structs as bodies, for writes into topics. Runs in tasks; knows no Spark and no brokers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa

from orbitmq.errors import SourceError
from orbitmq.spark.bodies.avro import avro_writer
from orbitmq.spark.bodies.json_text import json_writer
from orbitmq.spark.bodies.options import AVRO, JSON
from orbitmq.spark.bodies.protobuf import protobuf_writer
from orbitmq.spark.bodies.schema import BodySchema

Plain = Callable[[Any], Any]


@dataclass(frozen=True)
class BodyWriter:
    """Encodes bodies in a format. `schema` is None for JSON, which needs none."""

    format: str
    schema: BodySchema | None

    def encode(self, values: pa.StructArray) -> pa.BinaryArray:
        """The bodies; null where the struct is null. SourceError ORBITMQ_BAD_ROW names the row and the field."""
        encode, plain = _encoder(self), plain_of(values.type, nulls=self.format == AVRO)
        bodies: list[bytes | None] = []
        for row, value in enumerate(values.to_pylist()):
            try:
                bodies.append(None if value is None else encode(plain(value)))
            except Exception as error:  # the libraries' errors for values have no common base
                text = f"row {row} of a batch of {len(values)} is no body in {self.format}: {error}"
                raise SourceError("ORBITMQ_BAD_ROW", text[:1000]) from error
        return pa.array(bodies, pa.binary())


@cache
def _encoder(writer: BodyWriter) -> Callable[[dict[str, Any]], bytes]:
    schema = writer.schema
    if schema is None or schema.format == JSON:
        return json_writer()
    if schema.format == AVRO:
        return avro_writer(schema.avro)
    return protobuf_writer(schema.descriptors, schema.message)


def plain_of(kind: pa.DataType, *, nulls: bool) -> Plain:
    """From a value as Arrow gives it to dictionaries for structs and maps; `nulls`: with the fields that are null."""
    if pa.types.is_struct(kind):
        fields = {each.name: plain_of(each.type, nulls=nulls) for each in kind}
        return lambda value: None if value is None else {
            name: fields[name](each) for name, each in value.items() if nulls or each is not None
        }  # fmt: skip
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        item = plain_of(kind.value_type, nulls=nulls)
        return lambda value: None if value is None else [item(each) for each in value]
    if pa.types.is_map(kind):
        of_map = plain_of(kind.item_type, nulls=nulls)
        return lambda value: None if value is None else {name: of_map(each) for name, each in value}
    return lambda value: value
