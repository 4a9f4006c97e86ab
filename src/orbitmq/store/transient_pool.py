"""Messages on their way through private memory into the log's files: RocketMQ's TransientStorePool.

Appends go to a locked buffer as large as a file; a worker copies what is new to the file, and from there on it is
flushed and read as ever. So appends never touch a page the system is writing out. The price: readers see a message a
commit later, and a process that is killed loses what was not copied yet.
"""

from __future__ import annotations

import logging
import mmap
from collections import deque
from dataclasses import dataclass

from orbitmq.store import memory
from orbitmq.store.files import MappedFile
from orbitmq.store.positions import PhysicalOffset

_log = logging.getLogger(__name__)


class BufferPool:
    """Buffers of one file's size each."""

    def __init__(self, count: int, size: int) -> None:
        self._free = deque(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(count))
        try:
            for buffer in self._free:
                memory.lock(buffer)
        except OSError as error:
            _log.warning(
                "event=memory_not_locked size=%d limit=%s error=%s (raise the limit of locked memory, `ulimit -l`)",
                count * size, memory.lock_limit(), error,
            )  # fmt: skip

    @property
    def available(self) -> int:
        return len(self._free)

    def borrow(self) -> mmap.mmap | None:
        """A buffer with anything in it, None when all are in use."""
        return self._free.popleft() if self._free else None

    def give_back(self, buffer: mmap.mmap) -> None:
        self._free.append(buffer)


@dataclass
class _Stage:
    """A file that is written through `buffer`, or directly without one. `stop` is where its units end, once known."""

    file: MappedFile
    start: int
    buffer: mmap.mmap | None
    stop: int | None = None


class Staging:
    """`committed`: up to here the files hold the log. One thread appends, one commits."""

    def __init__(self, pool: BufferPool, *, must_have_buffer: bool = False) -> None:
        self.committed = PhysicalOffset(0)
        self._pool = pool
        self._must_have_buffer = must_have_buffer
        self._stages: deque[_Stage] = deque()

    @property
    def is_exhausted(self) -> bool:
        """Whether no buffer is free."""
        return not self._pool.available

    @property
    def available_buffers(self) -> int:
        """Buffers that wait for a file."""
        return self._pool.available

    @property
    def has_full_file(self) -> bool:
        """Whether a commit would set a buffer free."""
        return len(self._stages) > 1

    @property
    def lacks_buffer(self) -> bool:
        """Whether a next file must not begin now."""
        return self._must_have_buffer and self.is_exhausted

    def begin_at(self, file: MappedFile | None, start: int, end: int) -> None:
        """The file a start goes on with is written directly: what it holds is not in any buffer."""
        self.committed = PhysicalOffset(end)
        if file is not None:
            self._stages.append(_Stage(file, start, None))

    def begin(self, file: MappedFile, start: int) -> mmap.mmap:
        """Where to write the units of a new file."""
        buffer = self._pool.borrow()
        self._stages.append(_Stage(file, start, buffer))
        return file.data if buffer is None else buffer

    def leave(self, stop: int) -> None:
        """The current file ends at `stop`, its blank record included."""
        if self._stages:
            self._stages[-1].stop = stop

    def commit(self, end: int) -> PhysicalOffset:
        """Copy what was appended up to `end` into the files. OSError when that fails."""
        while self._stages:
            stage = self._stages[0]
            stop = stage.stop
            upto = min(end, stage.start + stage.file.size) if stop is None else stop
            if upto > self.committed and stage.buffer is not None:
                self._copy(stage, stage.buffer, max(self.committed, stage.start), upto)
            if stop is None:
                self.committed = PhysicalOffset(max(self.committed, upto))
                break
            self.committed = PhysicalOffset(stage.start + stage.file.size)
            self._stages.popleft()
            if stage.buffer is not None:
                self._pool.give_back(stage.buffer)
        return self.committed

    @staticmethod
    def _copy(stage: _Stage, buffer: mmap.mmap, start: int, stop: int) -> None:
        with memoryview(buffer) as view, view[start - stage.start : stop - stage.start] as part:
            stage.file.write(start - stage.start, part)
