"""Messages as columns of Arrow, with the names and types of the Spark source. Knows no broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from orbitmq.errors import ConfigurationError
from orbitmq.message.model import MessageExt

_TIME = pa.timestamp("us", tz="UTC")
_TIME_MAX_MS: Final = ((1 << 63) - 1) // 1000


class _Column(NamedTuple):
    type: pa.DataType
    value: Callable[[MessageExt], object]


def _time(ms: int) -> int | None:
    """Microseconds. None for a time that no column has: a producer says when it has made a message."""
    return ms * 1000 if abs(ms) <= _TIME_MAX_MS else None


COLUMNS = {
    "topic": _Column(pa.string(), lambda message: message.topic),
    "brokerName": _Column(pa.string(), lambda message: message.broker_name),
    "queueId": _Column(pa.int32(), lambda message: message.queue_id),
    "queueOffset": _Column(pa.int64(), lambda message: message.queue_offset),
    "msgId": _Column(pa.string(), lambda message: message.msg_id),
    "tags": _Column(pa.string(), lambda message: message.tags),
    "keys": _Column(pa.string(), lambda message: message.keys or None),
    "body": _Column(pa.binary(), lambda message: message.body),
    "properties": _Column(pa.map_(pa.string(), pa.string()), lambda message: list(message.properties.items())),
    "bornTimestamp": _Column(_TIME, lambda message: _time(message.born_timestamp)),
    "storeTimestamp": _Column(_TIME, lambda message: _time(message.store_timestamp)),
    "bornHost": _Column(pa.string(), lambda message: message.born_host),
    "storeHost": _Column(pa.string(), lambda message: message.store_host),
    "reconsumeTimes": _Column(pa.int32(), lambda message: message.reconsume_times),
    "sysFlag": _Column(pa.int32(), lambda message: message.sys_flag),
    "flag": _Column(pa.int32(), lambda message: message.flag),
    "bodyCrc": _Column(pa.int32(), lambda message: message.body_crc),
    "physOffset": _Column(pa.int64(), lambda message: message.commit_log_offset),
    "preparedTransactionOffset": _Column(pa.int64(), lambda message: message.prepared_transaction_offset),
    "offsetMsgId": _Column(pa.string(), lambda message: message.offset_msg_id),
    "size": _Column(pa.int32(), lambda message: message.store_size),
}
DEFAULT = tuple(COLUMNS)[: tuple(COLUMNS).index("bornHost") + 1]


class MessageTable:
    """A table that grows. Messages wait as they are until their bodies have `batch_bytes`, then only their columns are
    kept. ConfigurationError for a column that there is not.
    """

    def __init__(self, columns: Sequence[str] | None, batch_bytes: int) -> None:
        names = DEFAULT if columns is None else columns
        if unknown := [name for name in names if name not in COLUMNS]:
            raise ConfigurationError(f"there is no column {', '.join(unknown)}; use some of {', '.join(COLUMNS)}")
        self._schema = pa.schema([(name, COLUMNS[name].type) for name in names])
        self._batch_bytes = batch_bytes
        self._waiting: list[MessageExt] = []
        self._bytes = 0
        self._batches: list[pa.RecordBatch] = []

    def add(self, messages: Iterable[MessageExt]) -> None:
        """Further rows."""
        for message in messages:
            self._waiting.append(message)
            self._bytes += message.store_size + len(message.body)
        if self._bytes >= self._batch_bytes:
            self._make_batch()

    def finished(self) -> pa.Table:
        """All rows."""
        if self._waiting:
            self._make_batch()
        return pa.Table.from_batches(self._batches, self._schema)

    def _make_batch(self) -> None:
        values = [
            pa.array(map(COLUMNS[field.name].value, self._waiting), field.type, size=len(self._waiting))
            for field in self._schema
        ]
        self._batches.append(pa.RecordBatch.from_arrays(values, schema=self._schema))
        self._waiting, self._bytes = [], 0
