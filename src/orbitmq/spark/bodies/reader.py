"""Parses the bodies of a batch into the columns `value` and `_rescued`. Runs in tasks; knows no Spark or brokers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import pyarrow as pa

from orbitmq.errors import SourceError, WrongBody
from orbitmq.schemas.registry_format import registry_id, value
from orbitmq.spark.bodies.avro import avro_parser
from orbitmq.spark.bodies.json_text import json_parser, together_parser
from orbitmq.spark.bodies.options import AVRO, DROP_MALFORMED, FAIL_FAST, JSON, PROTOBUF
from orbitmq.spark.bodies.parsed import Parse, ParsedBody, as_json, nothing
from orbitmq.spark.bodies.protobuf import protobuf_parser
from orbitmq.spark.bodies.schema import BodySchema

LOG = logging.getLogger(__name__)

VALUE, RESCUED = "value", "_rescued"
ALONE_MAX = 64  # bodies that are parsed one by one when one of them does not fit; more are halved first


class ReadBodies(NamedTuple):
    """The columns of a batch, and which rows to keep: None for all."""

    columns: dict[str, pa.Array]
    kept: pa.BooleanArray | None


@dataclass(frozen=True)
class BodyReader:
    """Parses bodies. `wanted` are the fields of column `value`, some of those of the schema: no others are converted.
    `rescues`: whether column `_rescued` is read."""

    schema: BodySchema
    wanted: pa.StructType
    mode: str
    rescues: bool

    def read(
        self, bodies: pa.BinaryArray, place: Callable[[int], str], schema_ids: pa.StringArray | None = None
    ) -> ReadBodies:
        """The columns. `place` says where a row is, for errors; `schema_ids` names the schemas that wrote the bodies,
        if that of the reader has `writers`. SourceError ORBITMQ_BAD_BODY for a body that does not fit, if that is not
        allowed."""
        parse, together = _parsers(self)
        values, rescued = [], []
        bad: list[int] = []
        first = ""
        for portion in _portions(bodies, together):
            if isinstance(portion, pa.StructArray):
                values.append(portion)
                rescued.append(pa.nulls(len(portion), pa.string()))
                continue
            begin = sum(map(len, values))
            found = self._parsed(parse, portion, schema_ids)
            values.append(self._array(found, portion))
            texts = [as_json(each.rescued) if each.rescued and self.rescues else None for each in found]
            rescued.append(pa.array(texts, pa.string()))
            misfits = [number for number, each in enumerate(found) if each.errors]
            if misfits and not bad:
                first = (
                    f"the body of {place(begin + misfits[0])} does not fit the schema: {found[misfits[0]].errors[0]}"
                )
            bad += [begin + number for number in misfits]
            if bad and self.mode == FAIL_FAST:
                raise SourceError("ORBITMQ_BAD_BODY", first)
        if bad:
            LOG.warning("event=bodies_do_not_fit count=%d action=%s text=%s", len(bad), self.mode, first)
        columns = {VALUE: _joined(values, self.wanted), RESCUED: _joined(rescued, pa.string())}
        return ReadBodies(columns, _all_but(bad, len(bodies)) if bad and self.mode == DROP_MALFORMED else None)

    def _parsed(self, parse: Parse, bodies: pa.BinaryArray, schema_ids: pa.StringArray | None) -> list[ParsedBody]:
        if schema_ids is None:
            return [parse(body or b"") for body in bodies.to_pylist()]
        parsers = {None: parse, **_writers_parsers(self)}
        return [
            parsers[schema_id](body or b"")
            if schema_id in parsers
            else nothing(body or b"", f"it was written with the schema {schema_id}, which is not registered")
            for body, schema_id in zip(bodies.to_pylist(), schema_ids.to_pylist(), strict=True)
        ]

    def _array(self, found: list[ParsedBody], bodies: pa.BinaryArray) -> pa.Array:
        """The values as one array. A value that the parser lets pass and no column can have is rescued as a whole, such
        as a decimal of Avro with more digits than its schema says."""
        try:
            return pa.array([each.value for each in found], self.wanted)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            for number, each in enumerate(found):
                try:
                    pa.scalar(each.value, self.wanted)
                except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
                    found[number] = nothing(bodies[number].as_py() or b"", str(error))
            return pa.array([each.value for each in found], self.wanted)


Together = Callable[[pa.BinaryArray], "pa.Array | None"]


@cache
def _parsers(reader: BodyReader) -> tuple[Parse, Together | None]:
    """Parsers of one body and, where there is one, of many at a time. A process has those of few readers."""
    schema, wanted = reader.schema, reader.wanted
    if schema.format == JSON:
        parse, together = json_parser(schema.type, wanted), together_parser(schema.type, wanted, rescues=reader.rescues)
    elif schema.format == AVRO:
        parse, together = avro_parser(schema.avro, wanted), None
    else:
        parse = protobuf_parser(schema.descriptors, schema.message, wanted, rescues=reader.rescues)
        together = None
    return (_registry_parser(reader, parse), None) if schema.of_registry else (parse, together)


def _registry_parser(reader: BodyReader, parse: Parse) -> Parse:
    """Parses bodies that begin with an id of a registry."""
    by_id, indexed = _writers_parsers(reader), reader.schema.format == PROTOBUF

    def parse_rest(body: bytes) -> ParsedBody:
        try:
            number, content = str(registry_id(body)), value(body, indexed=indexed)
        except WrongBody as error:
            return nothing(body, str(error))
        if by_id and number not in by_id:
            return nothing(body, f"it was written with the schema {number}, which the subject does not have")
        return by_id.get(number, parse)(content)

    return parse_rest


@cache
def _writers_parsers(reader: BodyReader) -> dict[str | None, Parse]:
    """Of Avro: the parser of bodies that each version has written."""
    schema = reader.schema
    return {schema_id: avro_parser(schema.avro, reader.wanted, text) for schema_id, text in schema.writers}


def _portions(bodies: pa.BinaryArray, together: Together | None) -> Sequence[Any]:
    """Values, where a portion could be parsed together, and bodies to parse one by one, in order."""
    if together is None or not len(bodies):
        return [bodies]
    values = together(bodies)
    if values is not None:
        return [values]
    if len(bodies) <= ALONE_MAX:
        return [bodies]
    middle = len(bodies) // 2
    return [*_portions(bodies[:middle], together), *_portions(bodies[middle:], together)]


def _joined(parts: list[pa.Array], kind: pa.DataType) -> pa.Array:
    return parts[0] if len(parts) == 1 else pa.concat_arrays([part.cast(kind) for part in parts])


def _all_but(rows: list[int], count: int) -> pa.BooleanArray:
    kept = [True] * count
    for row in rows:
        kept[row] = False
    return pa.array(kept)
