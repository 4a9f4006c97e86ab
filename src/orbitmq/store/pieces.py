"""The files of a stream as they are on disk, intact or not, for tools that must read a damaged store.

`NumberedFiles` refuses a directory with an unknown file, a gap or a wrong size; here each is reported and skipped, and
the rest can be read. Writes nothing, and keeps nothing open.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from orbitmq.store.files import Files
from orbitmq.store.numbered import NAME_DIGITS, file_name

Tell = Callable[[Path, int, str], None]  # file, position in it, problem


class Pieces:
    """`starts` are the offsets at which usable files begin, in order; `file_size` is the size of most files.

    An empty file is reported unless `is_live`: a running broker may be about to preallocate it. `begins_anywhere` is
    for what was cut off a file (`store.parting`).
    """

    def __init__(
        self,
        fs: Files,
        directories: Sequence[Path],
        tell: Tell,
        *,
        is_live: bool = False,
        begins_anywhere: bool = False,
    ) -> None:
        self._directories = directories
        self._paths: dict[int, Path] = {}
        self.starts: list[int] = []
        found = sorted((name, directory / name) for directory in directories for name in fs.names(directory))
        sizes = {path: fs.size(path) for _, path in found if path.exists()}  # it may have been removed meanwhile
        if is_live:
            sizes = {path: size for path, size in sizes.items() if size != 0}
        known = [path for path, size in sizes.items() if _is_file_name(path.name) and size >= 0]
        for path in sizes.keys() - set(known):
            tell(path, 0, "does not belong here; a broker refuses to start on this directory")
        counted = Counter(sizes[path] for path in known if sizes[path] > 0)
        self.file_size = counted.most_common(1)[0][0] if counted else 0
        self._phase = int(known[0].name) if begins_anywhere and known else 0
        for path in known:
            self._take(path, sizes[path], tell)

    def _take(self, path: Path, size: int, tell: Tell) -> None:
        start = int(path.name)
        if size != self.file_size:
            tell(path, 0, f"has {size} bytes where the other files have {self.file_size}")
        elif (start - self._phase) % size:
            tell(path, 0, f"begins at no multiple of {size}, the size of the files")
        elif start in self._paths:
            tell(path, 0, f"is the same part as {self._paths[start]}")
        else:
            if self.starts and start != self.end:
                tell(path, 0, f"follows a gap: {file_name(self.end)} is missing")
            self.starts.append(start)
            self._paths[start] = path

    @property
    def start(self) -> int:
        return self.starts[0] if self.starts else 0

    @property
    def end(self) -> int:
        """Behind the last byte of the last file."""
        return self.starts[-1] + self.file_size if self.starts else 0

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return len(self.starts) * self.file_size

    def path(self, start: int) -> Path:
        """Of the file that begins there, or should."""
        return self._paths.get(start, self._directories[0] / file_name(start))

    def start_of(self, offset: int) -> int:
        """Where the file that should hold `offset` begins."""
        return offset - (offset - self._phase) % self.file_size if self.file_size else 0

    def read(self, offset: int, size: int) -> bytes:
        """Bytes at an offset; fewer at the end of a file, none if there is no file."""
        start = self.start_of(offset)
        return read_at(self.path(start), offset - start, size) if start in self._paths else b""


def read_at(path: Path, position: int, size: int) -> bytes:
    """Bytes of a file; fewer where it ends, none when it has been removed meanwhile."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    try:
        return os.pread(descriptor, size, position)
    finally:
        os.close(descriptor)


def written_parts(path: Path, position: int) -> Iterator[tuple[int, int]]:
    """(start, end) of the parts of a file from `position` on that have disk blocks; the others are zeros."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        while position < size:
            start = os.lseek(descriptor, position, os.SEEK_DATA)
            position = os.lseek(descriptor, start, os.SEEK_HOLE)
            yield start, position
    except OSError:  # no data behind `position`
        return
    finally:
        os.close(descriptor)


def _is_file_name(name: str) -> bool:
    return len(name) == NAME_DIGITS and name.isascii() and name.isdecimal()
