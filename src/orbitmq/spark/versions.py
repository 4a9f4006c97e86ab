"""What the versions of Spark differ in. Other modules take Spark's classes from here, and know no version.

| Spark | lacks |
|---|---|
| 4.1 | admission control: a stream must give the end of its next batch without the start of that batch |
| 4.0 | in addition, conditions pushed to sources, and a class for streams that write Arrow batches |
| 3.5 | Python data sources: `mapInArrow` reads and writes batches instead |
"""

from __future__ import annotations

import inspect
import pickle
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, make_dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyspark
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas import types
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import DataType, StructType

from orbitmq.errors import SourceError

SPARK = tuple(map(int, pyspark.__version__.split(".")[:2]))
HAS_SOURCES = SPARK >= (4, 0)
PUSHES_FILTERS = SPARK >= (4, 1)
ADMITS = SPARK >= (4, 2)

# Classes that a version lacks are empty, for the modules that derive from them; Spark never sees one.

if TYPE_CHECKING or HAS_SOURCES:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
        InputPartition,
        WriterCommitMessage,
    )
else:

    @dataclass
    class DataSource:
        options: dict[str, str]

    class DataSourceArrowWriter: ...

    class DataSourceReader: ...

    class DataSourceStreamReader: ...

    class DataSourceStreamWriter: ...

    class DataSourceWriter: ...

    class InputPartition: ...

    class WriterCommitMessage: ...


if TYPE_CHECKING or PUSHES_FILTERS:
    from pyspark.sql.datasource import (
        DataSourceStreamArrowWriter,
        EqualNullSafe,
        EqualTo,
        Filter,
        GreaterThan,
        GreaterThanOrEqual,
        In,
        LessThan,
        LessThanOrEqual,
    )
else:

    class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
        """Spark 4.0 passes Arrow batches to every writer of the second class, and has none for streams."""

    EqualNullSafe = EqualTo = Filter = GreaterThan = GreaterThanOrEqual = In = LessThan = LessThanOrEqual = type(None)

if TYPE_CHECKING or ADMITS:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:

    class SupportsTriggerAvailableNow: ...

    ReadLimit = object
    ReadAllAvailable = make_dataclass("ReadAllAvailable", [])
    ReadMaxRows = make_dataclass("ReadMaxRows", ["max_rows"])
    ReadMaxBytes = make_dataclass("ReadMaxBytes", ["max_bytes"])
    ReadMinRows = make_dataclass("ReadMinRows", ["min_rows"])

__all__ = [
    "DataSource", "DataSourceArrowWriter", "DataSourceReader", "DataSourceStreamArrowWriter", "DataSourceStreamReader",
    "DataSourceStreamWriter", "DataSourceWriter", "EqualNullSafe", "EqualTo", "Filter", "GreaterThan",
    "GreaterThanOrEqual", "In", "InputPartition", "LessThan", "LessThanOrEqual", "ReadAllAvailable", "ReadLimit",
    "ReadMaxBytes", "ReadMaxRows", "ReadMinRows", "SupportsTriggerAvailableNow", "WriterCommitMessage", "admitted",
    "arrow_schema", "arrow_type", "lacking", "read_batch", "register_sources", "start_until_now", "write_batch",
]  # fmt: skip


def register_sources(spark: SparkSession, *kinds: type[DataSource]) -> None:
    """Register data sources with the session, if this version has them."""
    for kind in kinds if HAS_SOURCES else ():
        try:
            spark.dataSource.register(kind)
        except PySparkException as error:
            if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):  # 4.0 refuses one that Spark has found by itself
                raise


def lacking(what: str, since: str, remedy: str) -> SourceError:
    """The error for what this version of Spark cannot do."""
    return SourceError("ORBITMQ_SPARK_VERSION", f"{what} needs Spark {since}, this is {pyspark.__version__}; {remedy}")


# ---------------------------------------------------------------------------------------------------------- types

_UTC: dict[str, Any] = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(types.to_arrow_type).parameters else {}
)  # else always


def arrow_type(kind: DataType) -> pa.DataType:
    """The type of Arrow, with times in UTC."""
    return types.to_arrow_type(kind, **_UTC)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The schema of Arrow, with times in UTC."""
    return types.to_arrow_schema(schema, **_UTC)


# -------------------------------------------------------------------------------------------------------- streams


class AdmittedStream(Protocol):
    """A stream that limits its batches."""

    def initialOffset(self) -> dict[str, Any]: ...  # noqa: N802 - Spark's names
    def getDefaultReadLimit(self) -> ReadLimit: ...  # noqa: N802
    def prepareForTriggerAvailableNow(self) -> None: ...  # noqa: N802
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]: ...  # noqa: N802
    def reportLatestOffset(self) -> dict[str, Any] | None: ...  # noqa: N802
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]: ...
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]: ...


def admitted(stream: AdmittedStream) -> DataSourceStreamReader:
    """The reader for Spark."""
    return stream if ADMITS else PositionedStream(stream)  # type: ignore[return-value]


class PositionedStream(DataSourceStreamReader):
    """A stream that does not get the start of its next batch, and remembers the end of the last one.

    Spark plans each batch with `partitions`, and begins with that also after a restart: with the end of the last batch
    of the checkpoint as start and end, then with a batch that was not finished. Only a query without a checkpoint asks
    for an end first.

    So does the trigger availableNow where its wrapper is enabled, whatever the checkpoint has: it would repeat messages
    or skip them. That shows in a second question, or in what is planned next, before anything is in the checkpoint.
    """

    def __init__(self, stream: AdmittedStream) -> None:
        self._stream = stream
        self._planned: dict[str, Any] | None = None  # the end of the last batch
        self._answer: dict[str, Any] | None = None  # the first one, given without knowing the checkpoint

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._stream.initialOffset()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
        """The end of the next batch."""
        start = self._planned or self.initialOffset()
        if self._answer not in (None, start):
            raise _available_now()
        end = self._stream.latestOffset(start, self._stream.getDefaultReadLimit())
        if self._planned is None:
            self._answer = end
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        if self._answer is not None and (end != self._answer or start == end != self.initialOffset()):
            raise _available_now()
        self._planned, self._answer = end, None
        return self._stream.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._stream.read(partition)


def _available_now() -> SourceError:
    setting = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"
    return lacking(f"the trigger availableNow with {setting}", "4.2", "leave that setting out")


def start_until_now(writer: DataStreamWriter) -> StreamingQuery:
    """Start a query that ends when it has read what exists now. Its source has the option availableNow=true."""
    if ADMITS:
        return writer.trigger(availableNow=True).start()
    query = writer.start()

    def end() -> None:
        with suppress(PySparkException, Py4JError):  # raised for the caller who awaits the query
            query.processAllAvailable()
            query.stop()

    threading.Thread(target=end, name="orbitmq-until-now", daemon=True).start()
    return query


# ---------------------------------------------------------------------------------------------------- both, by 3.5


def read_batch(
    spark: SparkSession, source: type[DataSource], options: Mapping[str, str], schema: StructType | None = None
) -> DataFrame:
    """A batch read. Without Python data sources it is planned now, not by each query."""
    if HAS_SOURCES:
        reading = spark.read.format(source.name()).options(**options)
        return (reading if schema is None else reading.schema(schema)).load()
    made = source({name.lower(): value for name, value in options.items()})
    schema = schema or made.schema()  # type: ignore[assignment]
    assert isinstance(schema, StructType), "as our sources have it"
    reader = made.reader(schema)
    partitions = reader.partitions()

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from reader.read(partitions[number])

    return spark.range(len(partitions), numPartitions=len(partitions) or 1).mapInArrow(read, schema)


def write_batch(frame: DataFrame, source: type[DataSource], options: Mapping[str, str]) -> None:
    """A batch write, which appends."""
    if HAS_SOURCES:
        frame.sparkSession.createDataFrame([], "nothing INT")  # makes it this thread's session, where a write looks
        frame.write.format(source.name()).options(**options).mode("append").save()
        return
    writer = source({name.lower(): value for name, value in options.items()}).writer(frame.schema, overwrite=False)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"message": [pickle.dumps(writer.write(batches))]})

    try:
        rows = frame.mapInArrow(write, "message BINARY").collect()
    except BaseException:
        writer.abort([])
        raise
    writer.commit([pickle.loads(row.message) for row in rows])  # noqa: S301 - written by our own tasks
