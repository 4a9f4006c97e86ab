"""An endless byte stream cut into files of one size, each named after the offset of its first byte.

Commit log and consume queues are such streams. This module does not interpret the bytes; the owner knows where the
written part ends, since every file has its full size from the beginning.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from orbitmq.errors import StoreDamaged
from orbitmq.store.files import Files, MappedFile

_log = logging.getLogger(__name__)

NAME_DIGITS: Final = 20


def file_name(start: int) -> str:
    """The name of the file whose first byte is at `start`."""
    return f"{start:0{NAME_DIGITS}d}"


class NumberedFiles:
    """The files of one stream, without gaps; `start` is the offset of the first byte that still exists.

    They are in `directory`, or also in `more`; `choose` then returns the directory for the file with a number. One
    thread adds and removes, any thread may read.
    """

    def __init__(
        self,
        fs: Files,
        directory: Path,
        file_size: int,
        *,
        more: Sequence[Path] = (),
        choose: Callable[[int], Path] | None = None,
    ) -> None:
        self.directories = (directory, *more)
        self.file_size = file_size
        self._choose = choose or (lambda _number: directory)
        # One value, replaced as a whole: a thread that saw a new start with old files would take the wrong one.
        self._stream: tuple[int, list[MappedFile]] = (0, [])
        self._fs = fs

    @property
    def start(self) -> int:
        return self._stream[0]

    @property
    def files(self) -> list[MappedFile]:
        return self._stream[1]

    @property
    def stream(self) -> tuple[int, list[MappedFile]]:
        """`start` and `files` as they belong together."""
        return self._stream

    @property
    def end(self) -> int:
        """Behind the last byte of the last file."""
        start, files = self._stream
        return start + len(files) * self.file_size

    def load(self, *, writable: bool = True) -> None:
        """Map all files. StoreDamaged if one does not belong there, is missing or has another size.

        RocketMQ refuses to start on such a directory as well, so nothing else may ever be put there.
        """
        for path in self._found(remove_unborn=writable):
            self._load(path, writable=writable)

    def load_up_to_gap(self) -> bool:
        """The same for files that can be made anew: what follows a missing one is removed. Whether there was none."""
        found = self._found(remove_unborn=True)
        while found:
            if self.files and int(found[0].name) > self.end:
                _log.warning("event=file_missing path=%s", self.directories[0] / file_name(self.end))
                for path in reversed(found):
                    self._fs.remove(path)
                return False
            self._load(found.pop(0), writable=True)
        return True

    def _found(self, *, remove_unborn: bool) -> list[Path]:
        """The files in order. The last one is left out if a crash came between its creation and its preallocation."""
        names = [(name, directory) for directory in self.directories for name in self._fs.names(directory)]
        found = [directory / name for name, directory in sorted(names)]
        for path in found:
            if not (len(path.name) == NAME_DIGITS and path.name.isdecimal()) or self._fs.size(path) < 0:
                raise StoreDamaged(f"{path}: does not belong into the store; move it away")
        while found and self._fs.size(found[-1]) == 0:
            unborn = found.pop()
            if remove_unborn:
                self._fs.remove(unborn)
        return found

    def _load(self, path: Path, *, writable: bool) -> None:
        start = int(path.name)
        if not self.files:
            self._stream = (start, [])
        elif start == self.end - self.file_size:
            raise StoreDamaged(f"{path}: {self.files[-1].path} is the same part of the log")
        elif start != self.end:
            raise StoreDamaged(f"{path}: follows a gap, {file_name(self.end)} is missing")
        self.files.append(self._fs.open(path, self.file_size, writable=writable))

    def find(self, offset: int) -> MappedFile | None:
        """The file that holds the byte at `offset`."""
        start, files = self._stream
        index = (offset - start) // self.file_size
        return files[index] if 0 <= index < len(files) else None

    def start_of(self, offset: int) -> int:
        """Where the file that holds `offset` begins."""
        return offset - offset % self.file_size

    def create(self, start: int) -> MappedFile:
        """A file that is to follow the last one; `add` takes it into the stream."""
        file = self._fs.create(self._choose(start // self.file_size) / file_name(start), self.file_size)
        if len(self.directories) > 1:
            try:
                file.sync()  # each directory has its own order of changes: a crash must not keep a later one alone
            except OSError:
                self.discard(file)
                raise
        return file

    def create_with(self, start: int, size: int) -> MappedFile:
        """The same with disk blocks for its first `size` bytes. OSError when the disk has no room; no file stays then:
        some file systems need blocks even for zeros that are read, and would kill the process that starts next.
        """
        file = self.create(start)
        try:
            file.reserve(0, size)
        except OSError:
            self.discard(file)
            raise
        return file

    def add(self, file: MappedFile) -> None:
        """Take a file made by `create` as the last one."""
        if not self.files:
            self._stream = (int(file.path.name), [])
        assert file.path.name == file_name(self.end), "files follow one another without gaps"
        self.files.append(file)

    def remove_first(self) -> MappedFile:
        """Take the first file out of the stream, which must have another one; on disk it stays until disposed of."""
        start, files = self._stream
        assert len(files) > 1, "the last file stays"
        self._stream = (start + self.file_size, files[1:])
        return files[0]

    def cut(self, end: int) -> None:
        """Remove every byte from `end` on: later files go, the rest of the file that holds it becomes zero.

        Returns when that is on disk.
        """
        if self.files and self.end - self.file_size >= end:
            while self.files and self.end - self.file_size >= end:
                self._remove(self.files.pop())
            for directory in filter(self._fs.is_directory, self.directories):
                self._fs.sync_directory(directory)
        if self.clear(end):
            self.files[-1].sync()

    def clear(self, end: int) -> bool:
        """The same, but the file that begins at `end` stays, for it will be overwritten, and the disk is not awaited.
        Returns whether the last file was cleared: that is on disk once it is synced.
        """
        while len(self.files) > 1 and self.end - self.file_size > end:
            self._remove(self.files.pop())
        is_inside = bool(self.files) and end < self.end
        if is_inside:
            self.files[-1].clear_from(max(0, end - (self.end - self.file_size)))
        return is_inside

    def forget(self, more: Iterable[MappedFile] = ()) -> None:
        """Remove the names of all files, and of `more` that never became part of the stream. Readers keep a file's
        memory until they release it.
        """
        for file in (*self.files, *more):
            self._fs.remove(file.path)
        self._stream = (0, [])

    def destroy(self) -> None:
        """Remove all files and the directory."""
        while self.files:
            self._remove(self.files.pop())
        self._stream = (0, [])
        for directory in self.directories:
            self._fs.remove_directory(directory)

    def between(self, start: int, end: int) -> list[MappedFile]:
        """The files that hold the bytes from `start` to `end`."""
        origin, files = self._stream
        first = max(0, (start - origin) // self.file_size)
        last = max(0, (end - 1 - origin) // self.file_size)
        return files[first : last + 1]

    def sync(self, start: int, end: int) -> None:
        """Return when the bytes from `start` to `end` are on disk. Any thread may call it."""
        for file in self.between(start, end):
            file.sync()

    def discard(self, file: MappedFile) -> None:
        """Remove a file made by `create` that never became part of the stream."""
        self._remove(file)

    def close(self) -> None:
        for file in self.files:
            file.close()
        self.files.clear()

    def _remove(self, file: MappedFile) -> None:
        file.close()
        self._fs.remove(file.path)
        if len(self.directories) > 1:
            self._fs.sync_directory(file.path.parent)  # before another one is removed, for the same reason
