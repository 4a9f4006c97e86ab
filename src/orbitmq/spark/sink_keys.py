"""Idempotency keys: they identify a message when its write is repeated. Pure; knows no brokers.

A key is the first 16 bytes of BLAKE2b, as 32 hexadecimal digits, over fields joined by 0x00:

    "k", text of column idempotencyKey                       if the frame has that column and it is not null
    "c", topic, broker name, queue id, queue offset          else if it has these four, so that rows keep their identity
                                                             whichever task writes them
    "p", job, batch, partition, number of the row, checksum  else; stable as long as a repeated task sees the same rows
                                                             in the same order. The CRC-32 is of what makes the message
                                                             (body, keys, tag, properties): where rows are cut into
                                                             partitions in another way, another message has another key
    "m", job, batch, partition                               the mark of a task, in KEYS of the first message it sends
                                                             to each broker of a topic; a look into the key index for
                                                             it tells whether the task was begun before
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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


def row_keys(batch: pa.RecordBatch, columns: SinkColumns, task: TaskIdentity, first_row: int) -> list[str]:
    """The key of each row; `first_row` is the number of the batch's first row in its partition."""
    given = columns.text(batch, "idempotencyKey")
    if given is None:
        return _by_place(batch, columns, task, first_row)
    if not given.null_count:
        return _digests(pc.binary_join_element_wise("k", given, SEPARATOR))
    others = _by_place(batch, columns, task, first_row)
    rows = zip(given.to_pylist(), others, strict=True)
    return [other if own is None else digest("k", own) for own, other in rows]


def _by_place(batch: pa.RecordBatch, columns: SinkColumns, task: TaskIdentity, first_row: int) -> list[str]:
    if all(name in columns for name in COORDINATES):
        topic, broker = columns.text(batch, "topic"), columns.text(batch, "brokerName")
        queue, offset = (columns.numbers(batch, name) for name in COORDINATES[2:])
        numbers = [pc.cast(numbers, pa.string()) for numbers in (queue, offset)]
        return _digests(pc.binary_join_element_wise("c", topic, broker, *numbers, SEPARATOR, null_handling="replace"))
    before = SEPARATOR.join(("p", task.job, task.batch, str(task.partition), ""))
    return [
        _digest(f"{before}{row}{SEPARATOR}{sum_}") for row, sum_ in enumerate(_checksums(batch, columns), first_row)
    ]


def _checksums(batch: pa.RecordBatch, columns: SinkColumns) -> list[int]:
    """A checksum over the content of each row."""
    body = columns.body(batch)
    pieces = (body.slice(start, PIECE).to_pylist() for start in range(0, len(body), PIECE))
    sums = [crc32(text) for piece in pieces for text in piece]
    others = [columns.keys(batch), columns.text(batch, "tags"), _pairs(batch, columns)]
    others = [part for part in others if part is not None]
    if not others:
        return sums
    said = pc.binary_join_element_wise("", *others, SEPARATOR, null_handling="replace").cast(pa.binary())
    return list(map(crc32, said.to_pylist(), sums))


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
