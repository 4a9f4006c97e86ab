"""A disk for tests: it can lose power, fill up, or fail to flush. It works on real files below a directory."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

from orbitmq.store.files import DirectoryLock, Disk, Files, MappedFile

SECTOR = 512  # what a disk writes as a whole


class FaultyFile(MappedFile):
    """A mapped file that remembers what is on disk for certain."""

    def __init__(self, path: Path, size: int, *, create: bool, writable: bool, disk: FaultyDisk) -> None:
        super().__init__(path, size, create=create, writable=writable)
        self.synced = bytes(self.view)
        self._disk = disk

    def reserve(self, start: int, size: int) -> None:
        claimed = min(size, self.size - start)
        if self._disk.room is not None:
            if self._disk.room < claimed:
                raise OSError(errno.ENOSPC, "the disk is full")
            self._disk.room -= claimed
        super().reserve(start, size)

    def give_back(self, start: int, size: int) -> None:
        super().give_back(start, size)
        if self._disk.room is not None:
            self._disk.room += size

    def sync(self) -> None:
        if self._disk.fails_to_sync:
            raise OSError(errno.EIO, "the disk failed")
        super().sync()
        if not self.data.closed:
            self.synced = bytes(self.view)


class FaultyDisk(Files):
    """`room`: bytes that can still be claimed, None for no end. `fails_to_sync`: every flush fails. `used`: what
    `used_ratio` says, of all directories or of those it names.
    """

    def __init__(self) -> None:
        self.room: int | None = None
        self.fails_to_sync = False
        self.used: float | dict[str, float] = 0.1
        self._files: list[FaultyFile] = []
        self._lock: DirectoryLock | None = None

    def create(self, path: Path, size: int) -> MappedFile:
        self.make_directory(path.parent)
        return self._remember(FaultyFile(path, size, create=True, writable=True, disk=self))

    def open(self, path: Path, size: int, *, writable: bool) -> MappedFile:
        return self._remember(FaultyFile(path, size, create=False, writable=writable, disk=self))

    def disk(self, directory: Path) -> Disk:
        """One that has each file come to disk by itself, as they know how to fail."""
        disk = super().disk(directory)
        disk.close()
        return disk

    def used_ratio(self, path: Path) -> float:
        return self.used if isinstance(self.used, float) else self.used.get(path.name, 0.1)

    def lock(self, path: Path) -> DirectoryLock:
        self._lock = super().lock(path)
        return self._lock

    def kill(self) -> None:
        """The process dies: nothing is flushed, everything written is still there."""
        for file in self._files:
            file.close()
        self._files.clear()
        if self._lock is not None:
            self._lock.release()

    def lose_power(self, survives: Callable[[], bool]) -> None:
        """The machine dies: of each sector that was written and not flushed, `survives` says whether it is on disk."""
        contents = [(file.path, file.synced, bytes(file.view)) for file in self._files if not file.data.closed]
        self.kill()
        for path, synced, written in contents:
            if path.exists():
                path.write_bytes(_mixed(synced, written, survives))

    def _remember(self, file: FaultyFile) -> FaultyFile:
        self._files.append(file)
        return file


def _mixed(synced: bytes, written: bytes, survives: Callable[[], bool]) -> bytes:
    result = bytearray(synced)
    for start in range(0, len(written), SECTOR):
        sector = slice(start, start + SECTOR)
        if written[sector] != synced[sector] and survives():
            result[sector] = written[sector]
    return bytes(result)
