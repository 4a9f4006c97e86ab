"""An endless byte stream cut into files of one size, each named after the offset of its first byte.

Commit log and consume queues are such streams. This module knows nothing of what the bytes mean; where the written
part ends is the owner's knowledge, for every file has its full size from the beginning.
"""

from __future__ import annotations

from pathlib import Path

from orbitmq.errors import StoreDamaged
from orbitmq.store.files import Files, MappedFile

NAME_DIGITS = 20


def file_name(start: int) -> str:
    """The name of the file whose first byte is at `start`."""
    return f"{start:0{NAME_DIGITS}d}"


class NumberedFiles:
    """The files of one directory, without gaps; `start` is the offset of the first byte that still exists."""

    def __init__(self, door: Files, directory: Path, file_size: int) -> None:
        self.directory = directory
        self.file_size = file_size
        self.files: list[MappedFile] = []
        self.start = 0
        self._door = door

    @property
    def end(self) -> int:
        """Behind the last byte of the last file."""
        return self.start + len(self.files) * self.file_size

    def load(self, *, writable: bool = True) -> None:
        """Map every file of the directory. StoreDamaged when one does not belong there, is missing or has another size.

        RocketMQ refuses to start on such a directory as well, so nothing else may ever be put there.
        """
        for name in self._door.names(self.directory):
            path = self.directory / name
            if not (len(name) == NAME_DIGITS and name.isdecimal()) or self._door.size(path) < 0:
                raise StoreDamaged(f"{path}: does not belong into the store; move it away")
            if not self.files:
                self.start = int(name)
            elif int(name) != self.end:
                raise StoreDamaged(f"{path}: follows a gap, {file_name(self.end)} is missing")
            self.files.append(self._door.open(path, self.file_size, writable=writable))

    def find(self, offset: int) -> MappedFile | None:
        """The file that holds the byte at `offset`."""
        index = (offset - self.start) // self.file_size
        return self.files[index] if 0 <= index < len(self.files) else None

    def start_of(self, offset: int) -> int:
        """Where the file that holds `offset` begins."""
        return offset - offset % self.file_size

    def create(self, start: int) -> MappedFile:
        """A file that is to follow the last one; `add` takes it into the stream."""
        return self._door.create(self.directory / file_name(start), self.file_size)

    def add(self, file: MappedFile) -> None:
        """Take a file made by `create` as the last one."""
        if not self.files:
            self.start = int(file.path.name)
        assert file.path.name == file_name(self.end), "files follow one another without gaps"
        self.files.append(file)

    def cut(self, end: int) -> None:
        """Remove every byte from `end` on: later files go, the rest of the file that holds it becomes zero.

        Returns when that is on disk.
        """
        if self.files and self.end - self.file_size >= end:
            while self.files and self.end - self.file_size >= end:
                self._remove(self.files.pop())
            self._door.sync_directory(self.directory)
        if self.files and end < self.end:
            self.files[-1].clear_from(end - (self.end - self.file_size))

    def destroy(self) -> None:
        """Remove all files and the directory."""
        while self.files:
            self._remove(self.files.pop())
        self.start = 0
        self._door.remove_directory(self.directory)

    def sync(self, start: int, end: int) -> None:
        """Return when the bytes from `start` to `end` are on disk. Any thread may call it."""
        first = max(0, (start - self.start) // self.file_size)
        last = max(0, (end - 1 - self.start) // self.file_size)
        for file in self.files[first : last + 1]:
            file.sync()

    def close(self) -> None:
        for file in self.files:
            file.close()
        self.files.clear()

    def _remove(self, file: MappedFile) -> None:
        file.close()
        self._door.remove(file.path)
