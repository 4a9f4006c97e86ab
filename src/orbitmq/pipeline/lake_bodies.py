"""Bodies as columns of a lake. What parses them is the stream that the archive reads."""

from __future__ import annotations

import pyarrow as pa

from orbitmq.errors import ConfigurationError
from orbitmq.lake.lakes import Lake
from orbitmq.lake.schemas import changes
from orbitmq.spark.bodies.options import RAW, BodyFormat
from orbitmq.spark.bodies.reader import VALUE
from orbitmq.spark.bodies.schema import body_schema


def check_fit(bodies: BodyFormat, lake: Lake) -> None:
    """ConfigurationError when the lake has columns but the bodies are raw, or the reverse. LakeError for a field whose
    type the lake cannot change to that of the schema. Fields that it does not have come with the next batch.
    """
    columns = lake.schema()
    if columns is None:
        return
    has_columns = VALUE in columns.names
    if has_columns != (bodies.body_format != RAW):
        began = "with columns" if has_columns else RAW
        raise ConfigurationError(
            f"option bodyFormat is {bodies.body_format}, but the lake was created {began}, which cannot change"
        )
    schema = body_schema(bodies)
    if schema is not None:
        changes(columns, pa.schema([(VALUE, schema.type)]), widens=lake.widens)
