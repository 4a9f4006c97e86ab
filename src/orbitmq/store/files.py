"""All access to the file system: mapped files, small whole files, directories, the lock.

Everything the store does to a disk passes through `Files`, so that tests can hand it a disk that loses pages,
fails to flush or is full. This module knows nothing of messages.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import logging
import math
import mmap
import os
import re
import shutil
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from orbitmq.errors import StoreDamaged, StoreError, StoreLocked
from orbitmq.runtime.files import sync_directory
from orbitmq.runtime.limits import CONNECTIONS_SHARE, MAPS_SHARE, memory_maps, open_files
from orbitmq.runtime.refusals import Refusals
from orbitmq.store import memory

_log = logging.getLogger(__name__)
_libc = ctypes.CDLL(None, use_errno=True)  # one for all: each is a ring of objects that only a collection frees

PAGE: Final = 4096
READ_STEP: Final = 1 << 20
WARM_STEP: Final = 1 << 18  # the kernel clears it in some 0.3 ms, in which it runs nothing else on that core
AT_FDCWD: Final = -100
RENAME_EXCHANGE: Final = 2
FALLOC_FL_KEEP_SIZE: Final = 1
FALLOC_FL_PUNCH_HOLE: Final = 2
TMPFS_MAGIC: Final = 0x01021994
STATFS_SIZE_MAX: Final = 512  # struct statfs has 120 bytes on 64-bit Linux
LONG: Final = struct.Struct("l")  # its first field, which identifies the file system
EXT_MAGIC: Final = 0xEF53
XFS_MAGIC: Final = 0x58465342
TELLING: Final = 5, 8  # the first Linux whose syncfs reports failed writes
MANY: Final = 64  # files; fewer take some 20 ms one by one, and do not flush what other programs wrote
FILES_SPARE: Final = 100  # for the log, the index, and what workers open for a moment
FLOCK: Final = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, length, process


class _Count:
    """A number that several threads change."""

    def __init__(self) -> None:
        self.value = 0
        self._guard = threading.Lock()

    def add(self, more: int) -> None:
        with self._guard:
            self.value += more


_mapped = _Count()  # files that are open
_refusals = Refusals()  # one is logged once in a while: other queues work, so it may occur with every message


def check_spare_files() -> None:
    """BlockingIOError when a further file would take what connections and the work on other files need: without a
    descriptor for its directory a flush fails, and with it the store; without a map the log cannot go on.
    """
    mapped, allowed = _mapped.value, open_files()
    if mapped >= allowed - allowed // CONNECTIONS_SHARE - FILES_SPARE:
        text = "event=too_many_open_files mapped=%d limit=%d (raise it: `ulimit -Hn`, LimitNOFILE of systemd)"
        _refusals.log(_log, text, mapped, allowed, level=logging.ERROR)
        raise BlockingIOError(errno.EMFILE, f"{mapped} files are mapped, of {allowed} that may be open")
    allowed = memory_maps()
    if mapped >= allowed - allowed // MAPS_SHARE:
        text = "event=too_many_maps mapped=%d limit=%d (raise it: vm.max_map_count of sysctl)"
        _refusals.log(_log, text, mapped, allowed, level=logging.ERROR)
        raise BlockingIOError(errno.ENOMEM, f"{mapped} files are mapped, of {allowed} maps that there may be")


class MappedFile:
    """One file of fixed size, mapped into memory.

    Write through `data`, read through `view`. Slices of `view` stay valid after `close`, even if the file is removed:
    the memory is freed with the last of them.
    """

    def __init__(self, path: Path, size: int, *, create: bool, writable: bool) -> None:
        self.path = path
        self.size = size
        if create:
            _new_names.make_directory(path.parent)
        self._descriptor = _open(path, size, create=create, writable=writable)
        self.device = os.fstat(self._descriptor).st_dev  # of the file system that holds it
        self._is_closed = False
        self._users = 1  # the owner, and threads inside sync or read: the last one closes the descriptor
        self._users_guard = threading.Lock()
        self.name_synced = not create  # whether its name is on disk, and those of the directories that lead there
        try:
            self.data = memory.map_file(self._descriptor, size, writable=writable)
        except (OSError, ValueError) as error:
            os.close(self._descriptor)
            if create:  # a name that stayed behind would keep the file from being made later
                path.unlink()
            raise _not_mapped(path, error, create=create) from error
        self.view = memoryview(self.data).toreadonly()
        _mapped.add(1)

    @property
    def filled(self) -> memoryview:
        """`view` up to the last byte ever written, on a file system in memory; elsewhere `view`. Zeros after it must
        not be read through the map there: each access needs a block, and without one kills the process.
        """
        return self.view[: _written_end(self._descriptor, self.size)] if _is_in_memory(self._descriptor) else self.view

    def reserve(self, start: int, size: int) -> None:
        """Claim disk blocks. A page without one kills the process when the disk is full at its first write."""
        os.posix_fallocate(self._descriptor, start, min(size, self.size - start))

    def warm(self, start: int, size: int) -> None:
        """Load pages on a worker: the first write to a missing page takes ten times as long as the write itself."""
        buffer = bytearray(WARM_STEP)
        # Reading ahead would load many times as much at once: 8 MiB stop a core for 20 ms.
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        for position in range(start, min(start + size, self.size), WARM_STEP):
            os.preadv(self._descriptor, [buffer], position)
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_NORMAL)

    def populate(self, start: int, size: int) -> None:
        """The same for pages that will be written; also maps them."""
        try:
            memory.populate(self.data, start, min(size, self.size - start))
        except OSError:  # an older kernel
            self.warm(start, size)

    def lock_memory(self) -> None:
        """Keep the whole file in memory. OSError when the limit of locked memory forbids it."""
        memory.lock(self.data)
        self.data.madvise(mmap.MADV_WILLNEED)

    def unlock_memory(self) -> None:
        if not self.data.closed:
            memory.unlock(self.data)

    def sync(self) -> None:
        """Return when everything written before the call is on disk.

        `mmap.flush` would hold the interpreter lock for the whole write; fdatasync writes the same pages without.
        """
        if not self._enter():
            return
        try:
            os.fdatasync(self._descriptor)
            if not self.name_synced:
                _new_names.sync(self.path.parent)
                self.name_synced = True
        finally:
            self._leave()

    def read(self, start: int, size: int) -> bytes:
        """A copy of the bytes, fewer at the end of the file, none once it is closed. For any thread.

        Unlike `view` it never waits for the disk with the interpreter lock held: the way to read what may be cold.
        """
        if not self._enter():
            return b""
        try:
            return os.pread(self._descriptor, size, start)
        finally:
            self._leave()

    def read_at_once(self, start: int, size: int) -> bytes:
        """The same of bytes that are in memory; BlockingIOError when one of them is not. For the event loop."""
        if not self._enter():
            return b""
        try:
            data = bytearray(max(0, min(size, self.size - start)))
            if os.preadv(self._descriptor, [data], start, os.RWF_NOWAIT) < len(data):
                raise BlockingIOError(errno.EAGAIN, "some of the bytes are not in memory")
            return bytes(data)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            raise BlockingIOError(errno.EAGAIN, "the file system cannot tell what is in memory") from error
        finally:
            self._leave()

    def resident_end(self, start: int, size: int) -> int:
        """Up to where the map can be read from `start` on without the disk: `start + size` at the most, which is also
        the answer if the kernel does not tell.
        """
        first = start - start % mmap.PAGESIZE
        try:
            pages = memory.resident_pages(self.data, first, start + size - first)
        except OSError:
            return start + size
        return min(first + pages * mmap.PAGESIZE, start + size)

    def fetch(self, start: int, size: int, ahead: int) -> None:
        """Bring these bytes into memory, and have the kernel begin with `ahead` more. For any thread; waits for the
        disk without the interpreter lock. OSError when the disk fails.
        """
        if not self._enter():
            return
        try:
            os.posix_fadvise(self._descriptor, start, size + ahead, os.POSIX_FADV_WILLNEED)
            buffer = bytearray(min(size, READ_STEP))
            for position in range(start, start + size, READ_STEP):
                os.preadv(self._descriptor, [buffer], position)
        finally:
            self._leave()

    def write(self, start: int, data: mmap.mmap | memoryview | bytes | bytearray) -> None:
        """Write past the map; readers of `view` see it. OSError when the disk fails, or the file is closed."""
        if not self._enter():
            raise OSError(errno.EBADF, f"{self.path} is closed")
        try:
            rest = memoryview(data).cast("B")
            while rest:
                written = os.pwrite(self._descriptor, rest, start)
                start, rest = start + written, rest[written:]
        finally:
            self._leave()

    def clear_from(self, position: int) -> None:
        """Zero everything after `position`. Until that is synced a crash may restore bytes that look valid.

        No other thread may read or write the file during the call. It keeps its size: a crash between truncating and
        extending it would leave a file that no start accepts.
        """
        if not _punch_hole(self._descriptor, position, self.size - position):
            for start in range(position, self.size, READ_STEP):
                self.write(start, bytes(min(READ_STEP, self.size - start)))

    def modified_ms(self) -> int:
        """When the file was last written."""
        return os.fstat(self._descriptor).st_mtime_ns // 1_000_000

    def set_modified_ms(self, time_ms: int) -> None:
        """Set the modification time."""
        os.utime(self._descriptor, ns=(time_ms * 1_000_000, time_ms * 1_000_000))

    def expect_reads(self, *, is_likely: bool) -> None:
        """Whether a page that is missed may bring its neighbours along, as it does at first. In a file that is only
        begun these are holes: a device that reads megabytes ahead has the first write fill as many with zeros.
        """
        self.data.madvise(mmap.MADV_NORMAL if is_likely else mmap.MADV_RANDOM)

    def forget_pages(self, start: int, size: int) -> None:
        """Take pages out of the map, not out of the file: a map that holds few is let go in no time."""
        self.data.madvise(mmap.MADV_DONTNEED, start, min(size, self.size - start))

    def unmap(self) -> bool:
        """Release the memory; False while a slice of it is held."""
        self.view.release()
        try:
            self.data.close()
        except BufferError:
            return False
        return True

    def give_back(self, start: int, size: int) -> None:
        """Free the disk blocks of these bytes, where the file system can; maps of them read zeros. The size stays:
        another process with a map of the file would be killed if it shrank.
        """
        _punch_hole(self._descriptor, start, size)

    def close(self) -> None:
        """Close the file; slices handed out keep its memory."""
        if not self._is_closed:
            self._is_closed = True
            self._leave()
        self.unmap()

    def _enter(self) -> bool:
        with self._users_guard:
            if self._is_closed:
                return False
            self._users += 1
            return True

    def _leave(self) -> None:
        with self._users_guard:
            self._users -= 1
            if self._users == 0:
                os.close(self._descriptor)
                _mapped.add(-1)


class Disk:
    """The file system of a directory, which flushes many files at once.

    Flushed one by one, each file needs a commit of the journal, which delays every writer, and a switch of the
    interpreter lock. Ten thousand new files took 8.5 s that way, and a third of a core; one call takes 0.5 s.

    Its descriptor reports writes that failed since it was opened: open it before any file is written.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor: int | None = None
        self._device = -1  # of which files come to disk together
        with contextlib.suppress(OSError):  # a file system that has no files without a name, or is full
            self._descriptor = os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
            if _linux() >= TELLING and _file_system(self._descriptor) in (EXT_MAGIC, XFS_MAGIC):
                self._device = os.fstat(self._descriptor).st_dev

    def sync(self, files: Sequence[MappedFile]) -> bool:
        """Return when everything written to the files before the call is on disk, and their names. OSError if it is
        not. Returns whether the whole file system was flushed, removed files included. Thread-safe.
        """
        now = _new_names.now
        if len(files) >= MANY and all(file.device == self._device for file in files) and self._sync_all():
            new = [file for file in files if not file.name_synced]
            _new_names.came((file.path.parent for file in new), now)
            for file in new:
                file.name_synced = True
            return True
        for file in files:
            file.sync()
        return False

    def _sync_all(self) -> bool:
        """False if a write failed, of any program; each file reports its own, a second call would report nothing."""
        assert self._descriptor is not None, "it has a device"
        if not _syncfs(self._descriptor):
            self._device = -1
            _log.error("event=page_not_written directory=%s (of any program on its file system)", self._directory)
            return False
        # Before 5.17 syncfs does not report a stopped journal, and with an empty log XFS leaves pages in the drive's
        # cache. This call reports it, and leaves none there.
        os.fdatasync(self._descriptor)
        return True

    def close(self) -> None:
        self._device = -1
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


Read = Callable[[MappedFile, int, int], bytes]  # `MappedFile.read`, or what reads in another way


class DirectoryLock:
    """The claim on a store directory; an fcntl record lock, so that a Java broker and this one exclude each other."""

    # Record locks belong to the process and vanish when it closes any descriptor of the file, so two stores of one
    # process must be kept apart before the second one opens it.
    _held: Final[set[Path]] = set()

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()
        if self._path in self._held:
            raise StoreLocked(f"the store directory {path.parent} is in use by this process")
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            os.close(self._descriptor)
            raise StoreLocked(f"the store directory {path.parent} is in use by another process") from error
        self._held.add(self._path)
        os.pwrite(self._descriptor, b"lock", 0)
        os.fdatasync(self._descriptor)

    @classmethod
    def is_locked(cls, path: Path) -> bool:
        """Whether this process or another one has the lock."""
        if path.resolve() in cls._held:  # opening the file here and closing it would give the lock up
            return True
        if not path.is_file():
            return False
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            asked = FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 1, 0)
            return bool(FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))[0] != fcntl.F_UNLCK)
        finally:
            os.close(descriptor)

    def release(self) -> None:
        self._held.discard(self._path)
        os.close(self._descriptor)


class Files:
    """The file system."""

    def make_directory(self, directory: Path) -> None:
        """Make a directory, and what leads to it; return when the names are on disk."""
        _new_names.make_directory(directory)
        _new_names.sync(directory.parent)

    def names(self, directory: Path) -> list[str]:
        """Names in `directory`, sorted; none when it does not exist."""
        return sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []

    def is_directory(self, path: Path) -> bool:
        return path.is_dir()

    def size(self, path: Path) -> int:
        """Size of a regular file, -1 for anything else."""
        return path.stat().st_size if path.is_file() else -1

    def used_ratio(self, path: Path) -> float:
        """Usage of the disk of `path`, from 0 to 1 in whole percents, rounded up as RocketMQ does; -1 if unknown."""
        disk = _disk_of(path)
        if disk is None:
            return -1.0
        used = disk.f_blocks - disk.f_bfree
        return math.ceil(100 * used / (used + disk.f_bavail)) / 100 if used + disk.f_bavail > 0 else -1.0

    def space(self, path: Path) -> tuple[int, int]:
        """Size and free space in bytes of the disk that `path` is or will be on; zeros when they are unknown."""
        disk = _disk_of(path)
        if disk is None:
            return 0, 0
        return disk.f_frsize * disk.f_blocks, disk.f_frsize * disk.f_bfree

    def create(self, path: Path, size: int) -> MappedFile:
        """A new zero-filled file of its full size, in a directory that is made if missing. OSError when the disk has no
        room, BlockingIOError when the system has no map; no file stays then.
        """
        return MappedFile(path, size, create=True, writable=True)

    def open(self, path: Path, size: int, *, writable: bool) -> MappedFile:
        """An existing file, which must have exactly `size` bytes."""
        return MappedFile(path, size, create=False, writable=writable)

    def disk(self, directory: Path) -> Disk:
        """Flushes many files at once; open it before any of them is written. To be closed."""
        return Disk(directory)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def sync_directory(self, directory: Path) -> None:
        """Return when the names in `directory` are on disk."""
        sync_directory(directory)

    def set_modified_ms(self, path: Path, time_ms: int) -> None:
        """The modification time of a file."""
        os.utime(path, ns=(time_ms * 1_000_000, time_ms * 1_000_000))

    def swap(self, new: Path, old: Path) -> None:
        """Exchange two directories in one step, or move `new` to where no `old` is. Returns when that is on disk."""
        if not old.exists():
            new.rename(old)
        elif not _exchange(new, old):
            # Where the file system cannot: a crash between these steps leaves no directory `old`.
            beside = old.with_name(old.name + ".old")
            old.rename(beside)
            new.rename(old)
            beside.rename(new)
        sync_directory(new.parent)
        sync_directory(old.parent)

    def remove_tree(self, directory: Path) -> None:
        """Remove a directory with all content; no error if it does not exist."""
        if directory.exists():
            shutil.rmtree(directory)

    def sync_names(self, directory: Path) -> None:
        """Return when the directory's own name is on disk, and all names below; at once if it does not exist."""
        if directory.is_dir():
            sync_directory(directory.parent)
        for path, _, _ in os.walk(directory):
            sync_directory(Path(path))

    def remove_directory(self, directory: Path) -> None:
        """Remove a directory that has become empty; one with content stays."""
        try:
            directory.rmdir()
        except OSError:
            return

    def read(self, path: Path) -> bytes | None:
        """All bytes of a small file; None if it does not exist."""
        return path.read_bytes() if path.is_file() else None

    def write(self, path: Path, data: bytes) -> None:
        """Overwrite the beginning of a small file, made if missing, and return when that is on disk."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(descriptor, data, 0)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
        sync_directory(path.parent)

    def lock(self, path: Path) -> DirectoryLock:
        """StoreLocked when another process, or another store of this one, holds it."""
        return DirectoryLock(path)

    def is_locked(self, path: Path) -> bool:
        """Whether this or another process holds the lock; does not take it."""
        return DirectoryLock.is_locked(path)


def _exchange(first: Path, second: Path) -> bool:
    """Linux's renameat2, which Python does not offer; False where kernel, C library or file system have none."""
    renameat2 = getattr(_libc, "renameat2", None)
    names = os.fsencode(first), os.fsencode(second)
    return renameat2 is not None and renameat2(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE) == 0


class NewNames:
    """New directories whose names may not be on disk yet.

    Losing a directory loses everything in it. The thread that makes the directory of a new queue must not wait for a
    disk, so the first flush of a file below it syncs these names as well.
    """

    def __init__(self) -> None:
        self._holders: dict[Path, int] = {}  # directories with such names, and when the last one was added
        self._guard = threading.Lock()
        self._now = 0

    def make_directory(self, directory: Path) -> None:
        missing = [path for path in (directory, *directory.parents) if not path.exists()]
        directory.mkdir(parents=True, exist_ok=True)
        with self._guard:
            self._now += 1
            self._holders.update((path.parent, self._now) for path in missing)

    @property
    def now(self) -> int:
        """Grows with each name."""
        return self._now

    def came(self, directories: Iterable[Path], now: int) -> None:
        """The names that lead into these directories, and were made until `now`, are on disk."""
        seen = set()
        for path in directories:
            while path not in seen:
                seen.add(path)
                with self._guard:
                    if self._holders.get(path, now + 1) <= now:
                        del self._holders[path]
                path = path.parent

    def sync(self, directory: Path) -> None:
        """Return when the names in `directory` are on disk, and that of every new directory that leads there."""
        for path in (directory, *directory.parents):
            came = self._holders.get(path)
            if came is None and path != directory:
                continue
            # A queue may be removed while it is synced for the first time.
            with contextlib.suppress(FileNotFoundError):
                sync_directory(path)
            with self._guard:
                if self._holders.get(path) == came:
                    self._holders.pop(path, None)


_new_names = NewNames()


def _punch_hole(descriptor: int, start: int, size: int) -> bool:
    """Make bytes zero and give their blocks back, which Python does not offer; False where the file system cannot."""
    fallocate = getattr(_libc, "fallocate", None)
    mode = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
    offsets = ctypes.c_int64(start), ctypes.c_int64(size)
    return size == 0 or (fallocate is not None and fallocate(descriptor, mode, *offsets) == 0)


def _syncfs(descriptor: int) -> bool:
    """Flush the file system of a file, for all programs; returns whether that succeeded."""
    syncfs = getattr(_libc, "syncfs", None)
    return syncfs is not None and syncfs(descriptor) == 0


def _file_system(descriptor: int) -> int | None:
    """The magic number of the file system of a file, by the C library since Python has no call for it."""
    found = ctypes.create_string_buffer(STATFS_SIZE_MAX)
    fstatfs = getattr(_libc, "fstatfs", None)
    is_known = fstatfs is not None and fstatfs(descriptor, found) == 0
    return int(LONG.unpack_from(found)[0]) if is_known else None


def _disk_of(path: Path) -> os.statvfs_result | None:
    """The file system of the path or of the nearest directory above it that exists."""
    try:
        return os.statvfs(path)
    except FileNotFoundError:
        return _disk_of(path.parent)
    except OSError:
        return None


def _is_in_memory(descriptor: int) -> bool:
    """Whether the file lies on a tmpfs."""
    return _file_system(descriptor) == TMPFS_MAGIC


def _linux() -> tuple[int, int]:
    """The version of the kernel; zeros for another one."""
    found = re.match(r"(\d+)\.(\d+)", os.uname().release) if sys.platform == "linux" else None
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _written_end(descriptor: int, size: int) -> int:
    """Behind the last part of a file that has data."""
    end = 0
    with contextlib.suppress(OSError):  # end of file
        while end < size:
            end = os.lseek(descriptor, os.lseek(descriptor, end, os.SEEK_DATA), os.SEEK_HOLE)
    return end


def _not_mapped(path: Path, error: OSError | ValueError, *, create: bool) -> Exception:
    """StoreError; BlockingIOError if the system has no map for a new file: existing files still work, and it may
    succeed later. The system does not say that the limit of maps is the reason, so the text has both numbers.
    """
    text = f"{path}: cannot be mapped: {error}"
    if not isinstance(error, OSError) or error.errno != errno.ENOMEM:
        return StoreError(text)
    mapped, allowed = _mapped.value, memory_maps()
    if not create:
        return StoreError(f"{text}: {mapped} files are mapped already; raise vm.max_map_count of sysctl, now {allowed}")
    line = "event=map_refused path=%s mapped=%d limit=%d (raise it when they are close: vm.max_map_count of sysctl)"
    _refusals.log(_log, line, path, mapped, allowed, level=logging.ERROR)
    return BlockingIOError(errno.ENOMEM, f"{text}, {mapped} files are mapped, of {allowed} maps that there may be")


def _open(path: Path, size: int, *, create: bool, writable: bool) -> int:
    flags = os.O_RDWR if writable else os.O_RDONLY
    descriptor = os.open(path, flags | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0), 0o644)
    if create:
        try:
            os.ftruncate(descriptor, size)
        except OSError:  # a name that stayed behind would keep the file from being made later
            os.close(descriptor)
            path.unlink()
            raise
    elif os.fstat(descriptor).st_size != size:
        found = os.fstat(descriptor).st_size
        os.close(descriptor)
        raise StoreDamaged(
            f"{path}: has {found} bytes, not {size}; a store keeps the file sizes it began with: set "
            "mappedFileSizeCommitLog, mappedFileSizeConsumeQueue, maxHashSlotNum or maxIndexNum back"
        )
    return descriptor
