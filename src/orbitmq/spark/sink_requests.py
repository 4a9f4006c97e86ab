"""Encodes rows of a frame as requests to a broker: properties and batch bodies, column by column.

The layout of a batch is that of `orbitmq.message.batch`. Arrow joins its items from columns, so that the unique id is
the only Python work for each message. Knows no routes, connections or tasks of Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from orbitmq.message.batch import ITEM_OVERHEAD
from orbitmq.message.properties import (
    DELAY,
    EXPIRES_AT_MS,
    KEYS,
    NAME_END,
    ORIGIN_MESSAGE_ID,
    PAIR_END,
    PROPERTIES_SIZE_MAX,
    RESERVED,
    RETRY_TOPIC,
    SHARDING_KEY,
    START_DELIVER_TIME,
    TAGS,
    UNIQ_KEY,
    WAIT,
)
from orbitmq.message.topics import RETRY_PREFIX
from orbitmq.spark.sink_columns import SinkColumns, bad_row
from orbitmq.spark.sink_keys import IDEMPOTENCY_KEY, TASK_BROKERS, TaskMark
from orbitmq.spark.sink_options import WriteOptions

TIMER_DELIVER = "TIMER_DELIVER_MS"  # the deliver time for brokers of RocketMQ 5; 4.x of the cloud reads the older name
OWN = frozenset({IDEMPOTENCY_KEY, TASK_BROKERS, TIMER_DELIVER, START_DELIVER_TIME})
OF_COLUMNS = {EXPIRES_AT_MS: "expiryTime", SHARDING_KEY: "shardingKey"}  # a column replaces the property
OF_RETRIES = frozenset({RETRY_TOPIC, ORIGIN_MESSAGE_ID})  # consumers use these to find the topic of a retried message
TEXT_SIZE_MAX = PROPERTIES_SIZE_MAX - 512  # brokers add their cluster, the client's zone and others
ANY_QUEUE = -1

ITEM = np.dtype([("size", ">i4"), ("magic", ">i4"), ("crc", ">i4"), ("flag", ">i4"), ("body_size", ">i4")])
TEXT_SIZE = np.dtype(">i2")


@dataclass(frozen=True, slots=True)
class SendRequest:
    """One request: `count` messages for one queue, whose index in the route is `queue`."""

    topic: str
    queue: int
    count: int
    batch: bool
    body: bytes
    properties: str
    flag: int
    born_ms: int | None
    keys: tuple[str, ...]
    """The idempotency keys of its messages, empty unless effectively-once."""
    marked: bool
    """Whether its messages carry the mark of the task."""


@dataclass(frozen=True)
class SinkRows:
    """Rows of one topic with their idempotency keys, if any."""

    batch: pa.RecordBatch
    keys: Sequence[str]

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def where(self, wanted: NDArray[np.bool_]) -> SinkRows:
        if wanted.all():
            return self
        keys = [self.keys[row] for row in np.flatnonzero(wanted).tolist()] if self.keys else []
        return SinkRows(self.batch.filter(pa.array(wanted)), keys)

    def cut(self, start: int, end: int) -> SinkRows:
        return SinkRows(self.batch.slice(start, end - start), self.keys[start:end])


class EncodedRows:
    """The encoded rows of one topic, which are then split into requests. All rows carry `mark`.

    SourceError ORBITMQ_BAD_ROW when a row cannot be a message, whatever its size.
    """

    def __init__(
        self,
        rows: SinkRows,
        columns: SinkColumns,
        options: WriteOptions,
        topic: str,
        new_id: Callable[[], str],
        mark: TaskMark | None = None,
    ) -> None:
        self._rows = rows
        self._options = options
        self._topic = topic
        self._columns = columns
        batch = rows.batch
        self._bodies = columns.body(batch)
        self._delays = columns.numbers(batch, "delayLevel")
        self._deliver_at = columns.numbers(batch, "deliverTime")
        self._expires_at = columns.numbers(batch, "expiryTime")
        self._mark = mark
        self._texts = self._properties(batch, new_id)
        self._body_sizes = _int32(pc.binary_length(self._bodies))
        self._text_sizes = _int32(pc.binary_length(self._texts))

    def __len__(self) -> int:
        return len(self._rows)

    def fits(self) -> NDArray[np.bool_]:
        """Which rows are small enough to be sent."""
        wanted: NDArray[np.bool_] = (self._body_sizes <= self._options.size_max) & (self._text_sizes <= TEXT_SIZE_MAX)
        return wanted

    def size_of(self, row: int) -> tuple[int, int]:
        """Bytes of body and of properties."""
        return int(self._body_sizes[row]), int(self._text_sizes[row])

    def requests(self, queues: NDArray[np.int64]) -> Iterator[SendRequest]:
        """The requests for all rows, each to its queue. The order within a queue is kept."""
        order = np.argsort(queues, kind="stable") if (queues[1:] < queues[:-1]).any() else None
        alone = self._alone()
        sizes = ITEM_OVERHEAD + self._body_sizes.astype(np.int64) + self._text_sizes
        items = None if alone.all() else self._items(sizes)
        if order is not None:
            alone, sizes, queues = alone[order], sizes[order], queues[order]
            items = items if items is None else items.take(pa.array(order))
        for start, end in _cuts(queues, alone, sizes, self._options.batch_size, self._options.rate_max or len(self)):
            if alone[start]:
                yield self._single(int(start if order is None else order[start]), int(queues[start]))
            else:
                places = range(start, end) if order is None else order[start:end].tolist()
                yield self._batch(items, start, end, int(queues[start]), places)

    # ---------------------------------------------------------------------------------------------------------------

    def _properties(self, batch: pa.RecordBatch, new_id: Callable[[], str]) -> pa.StringArray:
        """The properties of each row. The unique id comes last, so that the text ends without 0x02."""
        columns, row_count = self._columns, batch.num_rows
        keys = columns.keys(batch)
        tags = columns.text(batch, "tags")
        kept = {KEYS} if keys is None else set()
        kept |= {TAGS} if tags is None else set()
        kept |= OF_RETRIES if self._topic.startswith(RETRY_PREFIX) else set()
        texts = [_user_properties(batch, columns, kept)]
        if self._mark or self._options.key_place == "keys":
            texts.append(self._keys_with(keys, texts[0]))
        elif keys is not None:
            texts.append(_pairs(KEYS, keys))
        if tags is not None:
            texts.append(_pairs(TAGS, tags))
        if self._options.key_place != "none":
            texts.append(_pairs(IDEMPOTENCY_KEY, pa.array(self._rows.keys, pa.string())))
        if self._mark:
            texts.append(_pairs(TASK_BROKERS, pa.array([",".join(sorted(self._mark.brokers))] * row_count)))
        texts += [_pairs(name, values) for name, values in self._times()]
        sharding = columns.text(batch, "shardingKey")
        if sharding is not None:
            texts.append(_pairs(SHARDING_KEY, sharding))
        ids = pa.array([new_id() for _ in range(row_count)], pa.string())
        return pc.binary_join_element_wise(*[t for t in texts if t is not None], UNIQ_KEY + NAME_END, ids, "")

    def _times(self) -> Iterator[tuple[str, pa.StringArray]]:
        if self._delays is not None:
            yield DELAY, pc.if_else(pc.greater(self._delays, 0), self._delays, None).cast(pa.string())
        if self._deliver_at is not None:
            yield TIMER_DELIVER, self._deliver_at.cast(pa.string())
            yield START_DELIVER_TIME, self._deliver_at.cast(pa.string())
        if self._expires_at is not None:
            yield EXPIRES_AT_MS, self._expires_at.cast(pa.string())

    def _keys_with(self, keys: pa.StringArray | None, user: pa.StringArray | None) -> pa.StringArray:
        """KEYS of the row, followed by the idempotency key and the mark."""
        if keys is None:  # the properties may contain KEYS
            found = [] if user is None else [_value_of(text, KEYS) for text in user.to_pylist()]
            keys = pa.array(found or [None] * len(self._rows), pa.string())
        more = [self._mark.word] if self._mark else []
        if self._options.key_place == "keys":
            return _pairs(KEYS, _spaced(keys, pa.array(self._rows.keys, pa.string()), *more))
        return _pairs(KEYS, _spaced(keys, *more))

    def _alone(self) -> NDArray[np.bool_]:
        """Which rows need a request of their own."""
        if self._options.send_mode == "single" or self._topic.startswith(RETRY_PREFIX):
            return np.ones(len(self._rows), np.bool_)
        alone = self._body_sizes + self._text_sizes + ITEM_OVERHEAD > self._options.batch_size
        if self._delays is not None:
            alone |= pc.fill_null(pc.greater(self._delays, 0), False).to_numpy(False)
        if self._deliver_at is not None:
            alone |= pc.is_valid(self._deliver_at).to_numpy(False)
        return alone

    def _flags(self) -> NDArray[np.int64]:
        flags = self._columns.numbers(self._rows.batch, "flag")
        if flags is None:
            return np.zeros(len(self._rows), np.int64)
        return np.asarray(pc.fill_null(flags, 0).to_numpy(False))

    def _items(self, sizes: NDArray[np.int64]) -> pa.BinaryArray:
        """The items of a batch body, one a row."""
        heads = np.zeros(len(self._rows), ITEM)
        heads["size"], heads["flag"], heads["body_size"] = sizes, self._flags(), self._body_sizes
        texts = self._texts.cast(pa.binary())
        text_sizes = _fixed(self._text_sizes.astype(TEXT_SIZE))
        return pc.binary_join_element_wise(_fixed(heads), self._bodies, text_sizes, texts, pa.scalar(b"", pa.binary()))

    def _batch(
        self, items: pa.BinaryArray, start: int, end: int, queue: int, places: Sequence[int] | range
    ) -> SendRequest:
        offsets = np.frombuffer(items.buffers()[1], np.int32)[items.offset :]
        body = items.buffers()[2][int(offsets[start]) : int(offsets[end])].to_pybytes()
        keys = tuple(self._rows.keys[row] for row in places) if self._options.effectively_once else ()
        marked = self._mark is not None
        return SendRequest(self._topic, queue, end - start, True, body, self._wait, 0, None, keys, marked)

    def _single(self, row: int, queue: int) -> SendRequest:
        rows, batch = self._rows, self._rows.batch
        born = self._columns.numbers(batch, "bornTimestamp")
        text = f"{self._texts[row].as_py()}{PAIR_END}{self._wait}"
        keys = (rows.keys[row],) if self._options.effectively_once else ()
        body, flag = self._bodies[row].as_py(), int(self._flags()[row])
        born_ms = None if born is None else born[row].as_py()
        return SendRequest(self._topic, queue, 1, False, body, text, flag, born_ms, keys, self._mark is not None)

    @property
    def _wait(self) -> str:
        return f"{WAIT}{NAME_END}{'true' if self._options.wait_store_ok else 'false'}"


def _user_properties(batch: pa.RecordBatch, columns: SinkColumns, kept_names: set[str]) -> pa.StringArray | None:
    """The application's properties of each row, each pair with its separator. Reserved and empty ones are dropped."""
    found = columns.pairs(batch)
    if found is None:
        return None
    counts, names, values = found
    of_columns = {name for name, column in OF_COLUMNS.items() if column in columns}
    left_out = pa.array(sorted((RESERVED | OWN | of_columns) - kept_names), pa.string())
    wanted = pc.and_(pc.greater(pc.binary_length(names), 0), pc.greater(pc.binary_length(values), 0))
    wanted = pc.fill_null(pc.and_not(wanted, pc.is_in(names, left_out)), False)
    row_of_pair = np.repeat(np.arange(batch.num_rows), counts.to_numpy(False))[wanted.to_numpy(False)]
    names, values = names.filter(wanted), values.filter(wanted)
    _require_no_separators("properties", names, values)
    offsets = np.zeros(batch.num_rows + 1, np.int32)
    np.cumsum(np.bincount(row_of_pair, minlength=batch.num_rows), out=offsets[1:])
    joined = pc.binary_join_element_wise(names, pc.binary_join_element_wise(values, "", PAIR_END), NAME_END)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), joined), "")


def _pairs(name: str, values: pa.StringArray) -> pa.StringArray:
    """`name` 0x01 value 0x02 for each row, nothing where the value is null or empty."""
    _require_no_separators(name, values)
    there = pc.fill_null(pc.greater(pc.binary_length(values), 0), False)
    return pc.if_else(there, pc.binary_join_element_wise(name + NAME_END, pc.fill_null(values, ""), PAIR_END, ""), "")


def _spaced(keys: pa.StringArray, *more: pa.StringArray | str) -> pa.StringArray:
    return pc.utf8_trim_whitespace(
        pc.binary_join_element_wise(keys, *more, " ", null_handling="replace", null_replacement="")
    )


def _value_of(text: str, name: str) -> str | None:
    """The value of a property in a text whose pairs all end with the separator."""
    return next((pair[len(name) + 1 :] for pair in text.split(PAIR_END) if pair.startswith(name + NAME_END)), None)


def _require_no_separators(what: str, *texts: pa.StringArray) -> None:
    for text in texts:
        for separator in (NAME_END, PAIR_END):
            if pc.any(pc.match_substring(text, separator)).as_py():
                raise bad_row(
                    f"{what}: the character {ord(separator):#04x} is not allowed, since it separates properties"
                )


def _cuts(
    queues: NDArray[np.int64], alone: NDArray[np.bool_], sizes: NDArray[np.int64], size_max: int, count_max: int
) -> Iterator[tuple[int, int]]:
    """Start and end of the rows of each request: of one queue, within `size_max` bytes and `count_max` rows."""
    count = len(queues)
    ends = np.cumsum(sizes)
    borders = np.flatnonzero(np.concatenate(((queues[1:] != queues[:-1]) | alone[1:] | alone[:-1], [True]))) + 1
    start = 0
    while start < count:
        border = int(borders[np.searchsorted(borders, start, "right")])
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, min(border, start + count_max, int(np.searchsorted(ends, before + size_max, "right"))))
        yield start, end
        start = end


def _int32(values: pa.Array) -> NDArray[np.int32]:
    return np.asarray(values.to_numpy(False), np.int32)


def _fixed(records: NDArray[Any]) -> pa.BinaryArray:
    """The bytes of each record as one binary value."""
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(records.dtype.itemsize), len(records), [None, pa.py_buffer(np.ascontiguousarray(records))]
    )
    return fixed.cast(pa.binary())
