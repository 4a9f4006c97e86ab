"""Writes frames into topics: the tasks that send Arrow batches, and the report of the driver.

A task returns when all its messages are stored, or fails. With effectively-once it first checks whether it was started
before. The first message it sends to each broker of a topic carries the task's mark among its KEYS, and is acknowledged
before any other message goes there. So one query to the key index of each broker is enough. Only if the mark is found,
the task lists the keys stored since then, and skips the rows with those keys. Knows nothing of reads.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark import TaskContext

from orbitmq.client.core.identity import address_bytes, client_address
from orbitmq.client.core.selection import position_of_key
from orbitmq.client.machine import own_addresses
from orbitmq.errors import SourceError
from orbitmq.message.ids import UniqueIds
from orbitmq.spark.cluster_options import bad_option
from orbitmq.spark.sink_brokers import NO_BROKERS, KnownBrokers
from orbitmq.spark.sink_columns import SinkColumns, bad_row
from orbitmq.spark.sink_keys import KeyCounts, RowKeys, TaskIdentity, TaskMark
from orbitmq.spark.sink_options import WriteOptions, require_topic
from orbitmq.spark.sink_report import WriteReport, merged
from orbitmq.spark.sink_requests import ANY_QUEUE, EncodedRows, SinkRows
from orbitmq.spark.sink_sender import SinkSender, TopicRoute
from orbitmq.spark.sink_stored import StoredKeys, StoredPlaces
from orbitmq.spark.versions import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

LOG = logging.getLogger(__name__)

Places = NDArray[np.int64]  # of each row: the index of its queue in the route, or ANY_QUEUE
OVERSIZE_KEPT = 64 << 10  # bytes of an oversize body that go to the dead letter topic: enough to recognise it
QUERY_AND_BATCH = (
    "sql.streaming.queryId",
    "streaming.sql.batchId",
)  # local properties in which Spark gives a task its query and batch
SPECULATION = "spark.speculation"  # Spark gives the settings of the session to the tasks of each query in this way, too
OVERSIZE_COLUMNS = SinkColumns({"body": 0, "keys": 1, "properties": 2})


@dataclass
class TopicProgress:
    """The state of a task for one topic: what it stored before, and the mark of its first messages, if any."""

    route: TopicRoute
    stored: StoredPlaces
    mark: TaskMark | None
    given: KeyCounts
    """Of the keys of its rows, which must be unique where the frame has a column for them."""


class SinkTask:
    """One task: sends the rows of one partition."""

    def __init__(
        self, options: WriteOptions, columns: SinkColumns, task: TaskIdentity, known: KnownBrokers = NO_BROKERS
    ) -> None:
        self._options = options
        self._columns = columns
        self._task = task
        self._known = known
        self._topics: dict[str, TopicProgress] = {}
        self._keys = RowKeys(columns, task)
        self._ids = UniqueIds(address_bytes(client_address(own_addresses())), os.getpid(), os.urandom(4))
        self._sender: SinkSender
        self.written = WriteReport()

    async def run(self, batches: Iterator[pa.RecordBatch]) -> WriteReport:
        """Send all rows. Returns when all are stored. SourceError says what could not be sent."""
        batches = map(self._columns.encoded, batches)
        try:
            async with SinkSender(self._options, self.written) as self._sender:
                # A thread waits for the next batch, so that the event loop handles responses and timeouts.
                while (batch := await asyncio.to_thread(next, batches, None)) is not None:
                    await self._write(batch)
                await self._sender.drain()
        except SourceError as error:
            if not self.written.messages:
                raise
            raise SourceError(error.name, f"{error.text}; stored before: {self.written.summary()}") from error
        return self.written

    async def _write(self, batch: pa.RecordBatch) -> None:
        keys = self._keys.of(batch) if self._options.key_place != "none" else []
        for topic, rows in self._by_topic(SinkRows(batch, keys)):
            await self._write_topic(topic, rows, self._columns)

    def _by_topic(self, rows: SinkRows) -> Iterator[tuple[str, SinkRows]]:
        """The rows of each topic, in their order. Topics have their full names."""
        wrap = self._options.names.wrap
        if self._options.topic or not len(rows):
            yield from [(wrap(self._options.topic), rows)] if len(rows) else []
            return
        topics = self._columns.text(rows.batch, "topic")
        if topics is None or topics.null_count:
            raise bad_row("a row has no topic; fill the column topic or set the option topic")
        encoded = topics.dictionary_encode()
        codes = encoded.indices.to_numpy(False)
        for code, topic in enumerate(encoded.dictionary.to_pylist()):
            require_topic("column topic", topic)
            yield wrap(topic), rows.where(codes == code)

    async def _write_topic(self, topic: str, rows: SinkRows, columns: SinkColumns) -> None:
        progress = self._topics.get(topic)
        if progress is None:
            progress = self._topics[topic] = await self._open(topic)
        if self._options.effectively_once and "idempotencyKey" in self._columns:
            _require_unique(topic, rows, columns, progress.given)
        if progress.stored:
            new = np.array([key not in progress.stored for key in rows.keys], np.bool_)
            self.written.skipped += len(rows) - int(new.sum())
            rows = rows.where(new)
        if not len(rows):
            return
        places = self._queues(progress.route, rows.batch, columns)
        if progress.mark is not None and self._sender.to_mark(topic, places).any():
            rows, places = await self._send_marked(topic, rows, places, columns, progress.mark)
        await self._send(topic, rows, places, columns)

    async def _open(self, topic: str) -> TopicProgress:
        """The progress of a topic, after a check whether this task was started before."""
        if not self._options.effectively_once:
            return TopicProgress(await self._sender.route(topic), {}, None, KeyCounts())
        found = await self._sender.find_marks(topic, self._task.mark, self._known)
        route = await self._sender.route(topic)
        mark = TaskMark(self._task.mark, frozenset(route.masters))
        if found.since_ms is None:
            return TopicProgress(route, {}, mark, KeyCounts())
        stored = await asyncio.to_thread(StoredKeys(self._options).since, topic, found.since_ms, list(route.masters))
        LOG.info("event=task_resumed topic=%s stored=%d", topic, len(stored))
        return TopicProgress(route, stored, mark, KeyCounts())

    async def _send_marked(
        self, topic: str, rows: SinkRows, places: Places, columns: SinkColumns, mark: TaskMark
    ) -> tuple[SinkRows, Places]:
        """Send the first row for each broker without a mark, and wait until all are stored. Returns the other rows."""
        fits = await self._fitting(topic, rows, self._encoded(topic, rows, columns))
        rows, places = rows.where(fits), places[fits]
        marked = self._sender.to_mark(topic, places)
        for row in np.flatnonzero(marked).tolist():
            encoded = self._encoded(topic, rows.cut(row, row + 1), columns, mark)
            for request in encoded.requests(places[row : row + 1]):
                await self._sender.submit(request)
        await self._sender.drain()
        return rows.where(~marked), places[~marked]

    async def _send(self, topic: str, rows: SinkRows, places: Places, columns: SinkColumns) -> None:
        if not len(rows):
            return
        encoded = self._encoded(topic, rows, columns)
        fits = await self._fitting(topic, rows, encoded)
        if not fits.all():
            rows, places = rows.where(fits), places[fits]
            if not len(rows):
                return
            encoded = self._encoded(topic, rows, columns)
        for request in encoded.requests(places):
            await self._sender.submit(request)

    def _encoded(self, topic: str, rows: SinkRows, columns: SinkColumns, mark: TaskMark | None = None) -> EncodedRows:
        now_ms = int(time.time() * 1000)
        return EncodedRows(rows, columns, self._options, topic, lambda: self._ids.create(now_ms), mark)

    async def _fitting(self, topic: str, rows: SinkRows, encoded: EncodedRows) -> NDArray[np.bool_]:
        """Which rows are small enough. The others are sent to the dead letter topic."""
        fits = encoded.fits()
        if not fits.all():
            await self._divert(topic, encoded, rows, fits)
        return fits

    async def _divert(self, topic: str, encoded: EncodedRows, rows: SinkRows, fits: NDArray[np.bool_]) -> None:
        """Send oversize rows, truncated and described, to the dead letter topic; or fail."""
        first = int(np.argmin(fits))
        elsewhere = self._options.names.wrap(self._options.dead_letter_topic)
        if not elsewhere or elsewhere == topic:
            body, properties = encoded.size_of(first)
            raise SourceError(
                "ORBITMQ_OVERSIZE",
                f"a message to topic {topic} has {body} bytes of body and {properties} of properties; the "
                f"limits are {self._options.size_max} and 32,255; onOversize=dlq:<topic> sends such messages there",
            )
        cut = [self._cut(topic, encoded, rows, row) for row in np.flatnonzero(~fits).tolist()]
        names = ["body", "keys", "properties"]
        types = [pa.binary(), pa.string(), pa.map_(pa.string(), pa.string())]
        arrays = [pa.array(column, type_) for column, type_ in zip(zip(*cut, strict=True), types, strict=True)]
        diverted = SinkRows(pa.RecordBatch.from_arrays(arrays, names), rows.where(~fits).keys)
        self.written.oversize += len(diverted)
        await self._write_topic(elsewhere, diverted, OVERSIZE_COLUMNS)

    def _cut(
        self, topic: str, encoded: EncodedRows, rows: SinkRows, row: int
    ) -> tuple[bytes, str | None, dict[str, str]]:
        body = self._columns.body(rows.batch)[row].as_py()
        keys = self._columns.keys(rows.batch)
        size, properties_size = encoded.size_of(row)
        about = {
            "ORBIT_ORIGIN_TOPIC": topic,
            "ORBIT_BODY_SIZE": str(size),
            "ORBIT_PROPERTIES_SIZE": str(properties_size),
            "ORBIT_BODY_SHA256": sha256(body).hexdigest(),
        }
        return (
            body[: min(OVERSIZE_KEPT, self._options.size_max)],
            None if keys is None else (keys[row].as_py() or "")[:1024],
            about,
        )

    def _queues(self, route: TopicRoute, batch: pa.RecordBatch, columns: SinkColumns) -> Places:
        """The index of each row's queue in the route, ANY_QUEUE for any."""
        if self._options.selector == "keyHash":
            keys = columns.text(batch, "queueKey" if "queueKey" in columns else "shardingKey")
            return _hashed(columns.keys(batch) if keys is None else keys, batch.num_rows, len(route.queues))
        queue_ids = columns.numbers(batch, "queueId")
        if self._options.selector == "fixed" and queue_ids is not None:
            return _fixed(route, queue_ids.to_pylist(), columns.text(batch, "brokerName"))
        return np.full(batch.num_rows, ANY_QUEUE)


def _require_unique(topic: str, rows: SinkRows, columns: SinkColumns, earlier: KeyCounts) -> None:
    """SourceError when two rows have one key: a repeated task would take the second for stored once the first is."""
    repeats = earlier.repeats(rows.keys)
    if repeats:
        row = repeats[0][0]
        texts = columns.text(rows.batch, "idempotencyKey")
        key = rows.keys[row] if texts is None else texts[row].as_py()
        raise bad_row(
            f"two rows for topic {topic} have the idempotencyKey {key!r:.200}; a repeated task would omit one of them. "
            'Keep one, e.g. with dropDuplicates(["idempotencyKey"]), or add to the key what tells them apart, such as '
            "the position of posexplode"
        )


def _hashed(keys: pa.StringArray | None, count: int, queues: int) -> Places:
    """Queues by the hash selector of Java. Rows without a key go to any queue."""
    if keys is None:
        return np.full(count, ANY_QUEUE)
    encoded = keys.dictionary_encode()
    places = [position_of_key(key, queues) if key else ANY_QUEUE for key in encoded.dictionary.to_pylist()]
    codes = pc.fill_null(encoded.indices, len(places)).to_numpy(False)
    return np.asarray(np.array([*places, ANY_QUEUE], np.int64)[codes])


def _fixed(route: TopicRoute, ids: Sequence[int | None], names: pa.StringArray | None) -> Places:
    places: dict[tuple[object, object], int] = {
        (queue.broker_name, queue.queue_id): place for place, queue in enumerate(route.queues)
    }
    brokers = sorted({queue.broker_name for queue in route.queues})
    if names is None and len(brokers) > 1:
        raise bad_row(f"the topic is on {', '.join(brokers)}; add the column brokerName")
    wanted = zip([brokers[0]] * len(ids) if names is None else names.to_pylist(), ids, strict=True)
    found = [places.get(place, len(places)) for place in wanted]
    if len(places) in found:
        row = found.index(len(places))
        raise bad_row(f"queue {ids[row]} of broker {brokers[0] if names is None else names[row]} is not writable")
    return np.array(found, np.int64)


class Reporting:
    """Reports a batch on the driver: a line in the log, and one in the file of the option reportPath."""

    def __init__(self, options: WriteOptions) -> None:
        self._path = options.report_path

    def committed(self, messages: Sequence[WriterCommitMessage | None], batch: int | None) -> None:
        total = merged(message for message in messages if isinstance(message, WriteReport))
        LOG.info("event=committed%s %s", _named(batch), total.summary())
        self._append(total.line("commit", batch))

    def aborted(self, messages: Sequence[WriterCommitMessage | None], batch: int | None) -> None:
        """Messages that tasks stored before the failure stay. The error of a failed task says what it had stored."""
        failed = sum(message is None for message in messages)
        total = merged(message for message in messages if isinstance(message, WriteReport))
        text = "event=aborted%s failed_tasks=%d already_stored=%s"
        LOG.warning(text, _named(batch), failed, total.summary())
        self._append(total.line("abort", batch, failed))

    def _append(self, line: str) -> None:
        if self._path:
            try:
                with Path(self._path).open("a", encoding="utf-8") as file:
                    file.write(line + "\n")
            except OSError as error:  # all messages are stored: a missing report must not fail the write
                LOG.warning("event=report_failed path=%s error=%s", self._path, error)


def _named(batch: int | None) -> str:
    """The batch of a stream, for the log."""
    return "" if batch is None else f" batch={batch}"


class TopicWriter(DataSourceArrowWriter):
    """A batch write. It is sent to the executors."""

    def __init__(self, options: WriteOptions, columns: SinkColumns, known: KnownBrokers) -> None:
        self._options = options
        self._columns = columns
        self._known = known
        self._job = options.job_id or uuid.uuid4().hex
        self._reporting = Reporting(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteReport:
        task = TaskIdentity(self._job, "", _task_context(self._options).partitionId())
        return asyncio.run(SinkTask(self._options, self._columns, task, self._known).run(iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._reporting.committed(messages, None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._reporting.aborted(messages, None)


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write. It is sent to the executors."""

    def __init__(self, options: WriteOptions, columns: SinkColumns, known: KnownBrokers) -> None:
        self._options = options
        self._columns = columns
        self._known = known
        self._reporting = Reporting(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteReport:
        context = _task_context(self._options)
        query, batch = (context.getLocalProperty(name) or "" for name in QUERY_AND_BATCH)
        assert batch, "Spark names it; without, all batches would have the same keys"
        task = TaskIdentity(self._options.job_id or query, batch, context.partitionId())
        return asyncio.run(SinkTask(self._options, self._columns, task, self._known).run(iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        self._reporting.committed(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        self._reporting.aborted(messages, batchId)


def _task_context(options: WriteOptions) -> TaskContext:
    """The task. SourceError when a second attempt of it may run now: neither would see what the other one sends."""
    context = TaskContext.get()
    assert context is not None, "writes run in tasks"
    if options.effectively_once and (context.getLocalProperty(SPECULATION) or "").lower() == "true":
        raise bad_option(
            f"option deliveryGuarantee: with {SPECULATION}=true two attempts of a task run at the same time, and both "
            f"send its rows; start the session with {SPECULATION}=false, or write with at-least-once"
        )
    return context
