"""Idempotency keys: they identify a message when its write is repeated. Pure; knows no brokers.

A key is the first 16 bytes of BLAKE2b, as 32 hexadecimal digits, over fields joined by 0x00:

    "k", text of column idempotencyKey                       if the frame has that column and it is not null
    "c", topic, broker name, queue id, queue offset,         else if it has these four and none is null, so that rows
         checksum, number                                    keep their identity whichever task writes them, in
                                                             whatever order. A message may become several rows: the
                                                             checksum tells them apart, and the number counts equal
                                                             ones within the task (left out when it is 0)
    "p", job, batch, partition, number of the row, checksum  else; stable as long as a repeated task sees the same rows
                                                             in the same order
    "m", job, batch, partition                               the mark of a task, in KEYS of the first message it sends
                                                             to each broker of a topic; a look into the key index for
                                                             it tells whether the task was begun before

The checksum is the CRC-32 of what makes the message: body, keys, tag, properties, flag, sharding key and times of
delivery. Where rows are cut into partitions in another way, another message has another key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from orbitmq.message.checksum import crc32
from orbitmq.spark.sink_columns import SinkColumns

IDEMPOTENCY_KEY = "ORBIT_IK"  # the property
TASK_BROKERS = "ORBIT_BROKERS"  # with a mark: the brokers the task may write to, separated by commas
KEY_SIZE = 16
COORDINATES = ("topic", "brokerName", "queueId", "queueOffset")
SEPARATOR = "\x00"
PIECE = 64  # bodies converted at a time: few enough to stay in the CPU cache


@dataclass(frozen=True)
class TaskIdentity:
    """One partition of one batch of a job, the same when Spark repeats the task."""

    job: str
    batch: str
    partition: int

    @property
    def mark(self) -> str:
        return digest("m", self.job, self.batch, self.partition)


@dataclass(frozen=True)
class TaskMark:
    """The mark of a task: a word among the KEYS, and the brokers that the task may write to."""

    word: str
    brokers: frozenset[str]


def digest(*fields: object) -> str:
    """The key for these fields."""
    return _digest(SEPARATOR.join(map(str, fields)))


class RowKeys:
    """Makes the keys of a task's rows, one batch after another."""

    def __init__(self, columns: SinkColumns, task: TaskIdentity) -> None:
        self._columns = columns
        self._task = task
        self._rows = 0
        self._counts = KeyCounts()

    def of(self, batch: pa.RecordBatch) -> list[str]:
        """The key of each row of the next batch."""
        first_row, self._rows = self._rows, self._rows + batch.num_rows
        given = self._columns.text(batch, "idempotencyKey")
        if given is None:
            return self._others(batch, first_row)
        if not given.null_count:
            return _digests(pc.binary_join_element_wise("k", given, SEPARATOR))
        rows = zip(given.to_pylist(), self._others(batch, first_row), strict=True)
        return [other if own is None else digest("k", own) for own, other in rows]

    def _others(self, batch: pa.RecordBatch, first_row: int) -> list[str]:
        """The keys of rows without their own."""
        sums = _checksums(batch, self._columns)
        place = SEPARATOR.join(("p", self._task.job, self._task.batch, str(self._task.partition)))
        texts = [f"{place}{SEPARATOR}{row}{SEPARATOR}{sum_}" for row, sum_ in enumerate(sums, first_row)]
        if not all(name in self._columns for name in COORDINATES):
            return list(map(_digest, texts))
        by_message = _message_texts(batch, self._columns, sums)
        texts = [text if other is None else other for text, other in zip(texts, by_message, strict=True)]
        keys = list(map(_digest, texts))
        for row, number in self._counts.repeats(keys):
            keys[row] = _digest(f"{texts[row]}{SEPARATOR}{number}")
        return keys


class KeyCounts:
    """Counts how often each key occurs among all that it is given.

    It remembers 8 bytes of a key, so that a task of ten million rows needs 80 MB. Keys that share these are as good as
    impossible.
    """

    def __init__(self) -> None:
        self._runs: list[NDArray[np.uint64]] = []
        """Sorted, each more than twice as long as the next: a batch searches few, and a key moves rarely."""
        self._several: dict[int, int] = {}
        """Of the keys that occurred more than once."""

    def repeats(self, keys: Sequence[str]) -> list[tuple[int, int]]:
        """The places among `keys` of those that occurred before, here or earlier, and how often they did."""
        heads = np.frombuffer(bytes.fromhex("".join(keys)), np.uint64)[:: KEY_SIZE // 8]
        distinct, counts = np.unique(heads, return_counts=True)
        known = self._known(distinct)
        self._remember(distinct[~known])
        again = known | (counts > 1)
        for head, was_known in zip(distinct[again].tolist(), known[again].tolist(), strict=True):
            self._several.setdefault(head, int(was_known))
        found: list[tuple[int, int]] = []
        for place in np.flatnonzero(np.isin(heads, distinct[again])).tolist():
            before = self._several[int(heads[place])]
            self._several[int(heads[place])] = before + 1
            if before:
                found.append((place, before))
        return found

    def _known(self, heads: NDArray[np.uint64]) -> NDArray[np.bool_]:
        known = np.zeros(len(heads), np.bool_)
        for run in self._runs:
            places = np.minimum(np.searchsorted(run, heads), len(run) - 1)
            known |= run[places] == heads
        return known

    def _remember(self, heads: NDArray[np.uint64]) -> None:
        if len(heads):
            self._runs.append(heads)
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            self._runs[-2:] = [np.sort(np.concatenate(self._runs[-2:]))]


def _message_texts(batch: pa.RecordBatch, columns: SinkColumns, sums: Sequence[int]) -> list[str | None]:
    """The fields of the key of each row that is made of a message, None where the message is not known."""
    topic, broker = columns.text(batch, "topic"), columns.text(batch, "brokerName")
    queue, offset = (_text_of(columns.numbers(batch, name)) for name in COORDINATES[2:])
    checksums = pa.array(map(str, sums), pa.string())
    texts: list[str | None] = pc.binary_join_element_wise(
        "c", topic, broker, queue, offset, checksums, SEPARATOR
    ).to_pylist()
    return texts


def _checksums(batch: pa.RecordBatch, columns: SinkColumns) -> list[int]:
    """A checksum over the content of each row."""
    body = columns.body(batch)
    pieces = (body.slice(start, PIECE).to_pylist() for start in range(0, len(body), PIECE))
    sums = [crc32(text) for piece in pieces for text in piece]
    others = [columns.keys(batch), columns.text(batch, "tags"), _pairs(batch, columns)]
    others.append(columns.text(batch, "shardingKey"))
    others += [_text_of(columns.numbers(batch, name)) for name in ("flag", "delayLevel", "deliverTime", "expiryTime")]
    others = [part for part in others if part is not None]
    if not others:
        return sums
    said = pc.binary_join_element_wise("", *others, SEPARATOR, null_handling="replace").cast(pa.binary())
    return list(map(crc32, said.to_pylist(), sums))


def _text_of(numbers: pa.Int64Array | None) -> pa.StringArray | None:
    return None if numbers is None else numbers.cast(pa.string())


def _pairs(batch: pa.RecordBatch, columns: SinkColumns) -> pa.StringArray | None:
    """The properties of each row in one text."""
    found = columns.pairs(batch)
    if found is None:
        return None
    counts, names, values = found
    offsets = np.zeros(batch.num_rows + 1, np.int32)
    np.cumsum(counts.to_numpy(False), out=offsets[1:])
    pairs = pc.binary_join_element_wise(names, values, SEPARATOR, null_handling="replace")
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), pairs), SEPARATOR)


def _digests(texts: pa.StringArray) -> list[str]:
    return [_digest(text) for text in texts.to_pylist()]


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=KEY_SIZE).hexdigest()
