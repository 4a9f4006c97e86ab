"""Messages by key: the index, the indexer, and the queries, for the engine.

The index knows hashes only. Messages of another key with the same hash are returned too, and clients, who know the key,
filter them, as with RocketMQ.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from itertools import islice

import msgspec

from orbitmq.runtime.clock import Clock
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.files import Files, MappedFile, Read
from orbitmq.store.index.file import IndexShape
from orbitmq.store.index.indexer import Indexer
from orbitmq.store.index.key_index import KeyIndex
from orbitmq.store.index.key_scan import key_hash
from orbitmq.store.index.log_keys import LogKeys
from orbitmq.store.options import StoreOptions

# Of a query that does not wait. More of them, or larger ones, are no matter for one turn of the event loop: these take
# half a millisecond.
READS_AT_ONCE_MAX = 200
READ_AT_ONCE_BYTES = 256 << 10
QUERY_WAIT_MS = 1000  # maximum time a query waits for the index to catch up; then it uses what is indexed


class QueryResult(msgspec.Struct):
    """`buffers` are units of the log, oldest first, uncopied unless read at once. If messages were found, the end of
    the index is returned: store time and physical offset of its last message, else 0.
    """

    buffers: list[memoryview]
    index_last_update_timestamp: int = 0
    index_last_update_offset: int = 0


class KeySearch:
    """The index of one store. With `messageIndexEnable` off its files are left alone and nothing is found."""

    def __init__(
        self,
        fs: Files,
        log: CommitLog,
        checkpoint: Checkpoint,
        options: StoreOptions,
        clock: Clock,
        dispose: Callable[[MappedFile], object],
    ) -> None:
        shape = IndexShape(options.max_hash_slot_num, options.max_index_num)
        self.index = KeyIndex(fs, options.root / "index", shape, checkpoint, clock, dispose)
        self._keys = LogKeys(log, clock)
        self.indexer = Indexer(log, self._keys, self.index, clock, options.flush_consume_queue_thorough_interval_ms)
        self._log = log
        self._options = options

    @property
    def is_enabled(self) -> bool:
        return self._options.message_index_enable

    def load(self, *, clean: bool) -> None:
        """Map the files; the log must have been recovered. StoreDamaged for a file of another size."""
        if self.is_enabled:
            self.index.load(self._keys, clean=clean, keep_unproven=not self._options.message_index_safe)

    def query(
        self, topic: str, key: str, max_count: int, begin: int, end: int, *, at_once: bool = False
    ) -> QueryResult:
        """Up to `max_count` messages with the key, the newest of those stored from `begin` to `end` (milliseconds, both
        included). Thread-safe. `at_once` does not wait: BlockingIOError if the index lags, if data is not in memory, or
        if there is too much to read.

        RocketMQ queries its index up to three times, further back each time, while no message can be read; if newer
        messages have expired so have older ones, so once is enough.
        """
        if not self.is_enabled:
            return QueryResult([])
        if not at_once:
            self.indexer.catch_up(self._log.readable, QUERY_WAIT_MS)
        elif self.indexer.position < self._log.readable:
            raise BlockingIOError(errno.EAGAIN, "the index is behind")
        read = _AtOnce().read if at_once else MappedFile.read
        count = max(0, min(max_count, self._options.max_msgs_num_batch))
        wanted = key_hash(topic.encode("utf-8", "replace"), key.encode("utf-8", "replace"))
        offsets = set(islice(self.index.find(wanted, begin, end, read), count))  # a message may name a key twice
        newest = self.index.newest
        if not offsets or newest is None:
            return QueryResult([])
        units = [unit for offset in sorted(offsets) if (unit := self._unit(offset, read, at_once=at_once)) is not None]
        return QueryResult(units, newest.end_timestamp, newest.end_offset)

    def _unit(self, offset: int, read: Read, *, at_once: bool) -> memoryview | None:
        """A copy, because the event loop uses it: reading a page of the map could block it."""
        if not at_once:
            return self._log.unit_at(offset)
        unit = self._log.copy_of_unit(offset, read)
        return memoryview(unit) if unit is not None else None

    def finish(self) -> None:
        """Before a close: everything in the index, the index on disk. OSError when the disk failed."""
        if self.is_enabled:
            self.indexer.finish()

    def close(self) -> None:
        self.index.close()


class _AtOnce:
    """Reads what is in memory, as much as fits into a turn; BlockingIOError for anything else."""

    def __init__(self) -> None:
        self._reads, self._bytes = READS_AT_ONCE_MAX, READ_AT_ONCE_BYTES

    def read(self, file: MappedFile, start: int, size: int) -> bytes:
        self._reads -= 1
        self._bytes -= size
        if self._reads < 0 or self._bytes < 0:
            raise BlockingIOError(errno.EAGAIN, "too much for one turn")
        return file.read_at_once(start, size)
