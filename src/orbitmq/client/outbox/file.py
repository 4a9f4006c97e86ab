"""The files of an outbox: an LMDB environment, one thread that writes it, and a count of accepted messages.

    messages   number of the message, 8 bytes big endian -> the kept message
    history    the same number -> its attempts so far
    settled    (in the root table) the last number that was written
    accepted   (beside the database) the last assigned number, 8 bytes big endian, written through a map

A number is assigned in memory, without a system call of the caller. The map outlives the process, so the next start
knows how many messages a killed process had accepted and not written. Knows nothing of what the bytes mean.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import mmap
import os
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from orbitmq.errors import StoreDamaged, StoreError, StoreLocked

try:
    import lmdb
except ImportError as error:
    raise ImportError("an outbox needs LMDB: pip install 'orbitmq[outbox]'") from error

_log = logging.getLogger(__name__)

NUMBER = struct.Struct(">Q")
SETTLED = b"settled"
ROOM_FACTOR = 3  # LMDB keeps old pages while a transaction runs, and a value fills whole pages
ROOM_SLACK = 64 << 20
CLOSE_SECONDS = 10.0  # a disk that needs longer for the queued writes has failed

Done = Callable[[Exception | None], None]


@dataclass(slots=True)
class _Write:
    sequence: int
    message: bytes | None
    history: bytes | None
    size: int
    done: Done | None


class OutboxFile:
    """One directory, for one process. It is open until `close`.

    StoreLocked when another process has it, StoreError when it cannot be used.
    """

    def __init__(self, path: Path, *, bytes_max: int, deliver: Callable[[Callable[[], None]], object]) -> None:
        self.path = path
        self._deliver = deliver
        self._writes: list[_Write] = []
        self.waiting = 0
        """Writes that have not ended."""
        self.waiting_bytes = 0
        self._changed = threading.Condition()
        self._is_closing = False
        with _as_store_error(path), contextlib.ExitStack() as opened:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)  # messages are private
            self._lock = opened.enter_context((path / "owner").open("ab"))
            _lock(self._lock.fileno(), path)
            _check_not_emptied(path / "data.mdb", path / "accepted")
            self._env = lmdb.open(str(path), max_dbs=2, map_size=ROOM_FACTOR * bytes_max + ROOM_SLACK, metasync=True)
            opened.callback(self._env.close)
            _check_whole(self._env, path / "data.mdb")
            self._messages = self._env.open_db(b"messages")
            self._history = self._env.open_db(b"history")
            self._accepted = opened.enter_context(_counter(path / "accepted"))
            opened.pop_all()
        self._thread = threading.Thread(target=self._write_all, name="orbitmq-outbox", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------------------------------------------- numbers

    def next_number(self) -> int:
        """The number for a message that will be written. For the event loop's thread only."""
        number = self.accepted + 1
        NUMBER.pack_into(self._accepted, 0, number)
        return number

    @property
    def accepted(self) -> int:
        """The last assigned number, by this process or one before."""
        return int(NUMBER.unpack_from(self._accepted)[0])

    @property
    def settled(self) -> int:
        """The number up to which every message was written or reported as lost."""
        with self._env.begin() as transaction:
            data = transaction.get(SETTLED)
            return int(NUMBER.unpack(data)[0]) if data else 0

    # ------------------------------------------------------------------------------------------------------- reading

    def read(self, sequence: int) -> bytes | None:
        """The message with that number. Thread-safe; it may wait for the disk."""
        with self._env.begin(self._messages) as transaction:
            data: bytes | None = transaction.get(NUMBER.pack(sequence))
            return data

    def read_all(self) -> Iterator[tuple[int, bytes, bytes | None]]:
        """Number, message and history of all, the oldest first."""
        with self._env.begin() as transaction, transaction.cursor(self._messages) as cursor:
            for key, message in cursor:
                yield NUMBER.unpack(key)[0], message, transaction.get(key, db=self._history)

    # ------------------------------------------------------------------------------------------------------- writing

    def put(self, sequence: int, message: bytes, done: Done) -> None:
        """Queue a message to be written; `done` is called with None once it is on disk, or with the error."""
        self._queue(_Write(sequence, message, None, len(message), done))

    def put_history(self, sequence: int, history: bytes) -> None:
        """Queue a message's history to be written. Losing it costs one more attempt."""
        self._queue(_Write(sequence, None, history, len(history), None))

    def remove(self, sequence: int) -> None:
        """Queue the removal of a message and its history; without it the message is sent again after a start."""
        self._queue(_Write(sequence, None, None, 0, None))

    def barrier(self, done: Done) -> None:
        """Call `done` when everything queued before is written, with None or the error."""
        self._queue(_Write(0, None, None, 0, done))  # no message has this number

    def _queue(self, write: _Write) -> None:
        with self._changed:
            self._writes.append(write)
            self.waiting += 1
            self.waiting_bytes += write.size
            self._changed.notify()

    def _write_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._writes or self._is_closing)
                writes, self._writes = self._writes, []
            if not writes:
                return
            self._write(writes)
            with self._changed:
                self.waiting -= len(writes)
                self.waiting_bytes -= sum(write.size for write in writes)

    def _write(self, writes: list[_Write]) -> None:
        """Write all in one transaction, so that one sync serves many; if that fails, write one by one."""
        try:
            self._commit(writes)
        except (lmdb.Error, OSError) as error:
            if len(writes) > 1:
                for write in writes:
                    self._write([write])
                return
            _log.error("event=outbox_write_failed path=%s error=%s", self.path, error)
            self._call_back(writes, error)
        else:
            self._call_back(writes, None)

    def _commit(self, writes: list[_Write]) -> None:
        with self._env.begin(write=True) as transaction:
            for write in writes:
                key = NUMBER.pack(write.sequence)
                if write.message is not None:
                    transaction.put(key, write.message, db=self._messages)
                elif write.history is not None:
                    transaction.put(key, write.history, db=self._history)
                else:
                    transaction.delete(key, db=self._messages)
                    transaction.delete(key, db=self._history)
            highest = max((write.sequence for write in writes if write.message is not None), default=0)
            if highest:
                transaction.put(SETTLED, NUMBER.pack(highest))

    def _call_back(self, writes: list[_Write], error: Exception | None) -> None:
        callbacks = [write.done for write in writes if write.done is not None]

        def tell() -> None:
            for done in callbacks:
                try:
                    done(error)
                except Exception:  # the other writes have callers, too
                    _log.exception("event=outbox_callback_failed path=%s", self.path)

        if callbacks:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the writes that follow still count
                self._deliver(tell)

    def settle(self) -> None:
        """Mark all assigned numbers as settled. Call it before anything is queued."""
        with self._env.begin(write=True) as transaction:
            transaction.put(SETTLED, NUMBER.pack(self.accepted))

    def close(self) -> int:
        """Finish the queued writes, within a limit, and unlock the directory; the number of abandoned writes."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join(CLOSE_SECONDS)
        left = self.waiting
        if not self._thread.is_alive():  # a thread that hangs in a write still uses them
            self._env.close()
            self._accepted.close()
        self._lock.close()
        return left


@contextlib.contextmanager
def _as_store_error(path: Path) -> Iterator[None]:
    try:
        yield
    except (lmdb.Error, OSError) as error:
        raise StoreError(f"the outbox {path} cannot be used: {error}") from error


def _check_not_emptied(path: Path, accepted: Path) -> None:
    """StoreDamaged for an empty file where messages were accepted: it would count as a new one."""
    if path.is_file() and not path.stat().st_size and accepted.is_file() and any(accepted.read_bytes()):
        raise StoreDamaged(f"{path} is empty, but messages were stored there; restore it or move the directory away")


def _check_whole(env: lmdb.Environment, path: Path) -> None:
    """StoreDamaged for a truncated file: reading a page beyond its end would kill the process."""
    needed = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
    if (found := path.stat().st_size) < needed:
        raise StoreDamaged(f"{path} has {found} bytes and needs {needed}: it is truncated; restore it or move it away")


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StoreLocked(
            f"the outbox {path} belongs to another producer; use one directory for each producer"
        ) from None


def _counter(path: Path) -> mmap.mmap:
    with path.open("ab") as file:
        if os.fstat(file.fileno()).st_size < NUMBER.size:
            os.ftruncate(file.fileno(), NUMBER.size)
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), NUMBER.size)
