"""Promises of what reads files: the key index after a start, and extensions of consume queues.

A disk may hold anything after a crash, and a store may be brought from elsewhere.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fuzz.promise import Target
from orbitmq.store.checkpoint import FIELDS, Checkpoint
from orbitmq.store.extended_queue import HEAD, read_unit
from orbitmq.store.index.file import IndexFile, IndexShape
from orbitmq.store.index.key_index import KeyIndex
from orbitmq.store.index.proof import proven_entries

SHAPE = IndexShape(slots=5, entries=8)
FOLDER = Path("index")
LOG_END = 1000
STEP = 10  # bytes of a message of the log below
NOW_MS = 1_700_000_000_000
EVER = 1 << 62


class MemoryFile:
    """A file of fixed size that no disk knows; for one thread."""

    def __init__(self, path: Path, content: bytes, size: int) -> None:
        self.path = path
        self.size = size
        self.data = bytearray(content[:size].ljust(size, b"\0"))
        self.view = self.filled = memoryview(self.data).toreadonly()

    def read(self, start: int, size: int) -> bytes:
        assert start >= 0
        return bytes(self.data[start : start + size])

    def reserve(self, start: int, size: int) -> None:
        assert 0 <= start <= self.size
        assert size > 0

    def clear_from(self, position: int) -> None:
        self.data[position:] = bytes(self.size - position)

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass


class MemoryFiles:
    """A directory of such files."""

    def __init__(self, contents: dict[Path, bytes]) -> None:
        self.contents = contents

    def names(self, directory: Path) -> list[str]:
        return sorted(path.name for path in self.contents if path.parent == directory)

    def size(self, path: Path) -> int:
        return len(self.contents[path])

    def open(self, path: Path, size: int, *, writable: bool) -> MemoryFile:
        assert writable
        return MemoryFile(path, self.contents[path], size)

    def create(self, path: Path, size: int) -> MemoryFile:
        assert path not in self.contents
        self.contents[path] = b""
        return MemoryFile(path, b"", size)

    def remove(self, path: Path) -> None:
        del self.contents[path]

    def sync_directory(self, directory: Path) -> None:
        pass

    def read(self, path: Path) -> bytes | None:
        return self.contents.get(path)

    def write(self, path: Path, data: bytes) -> None:
        self.contents[path] = data


class Log:
    """A log of messages of ten bytes, each with one key."""

    start = 0
    end = LOG_END

    def store_time(self, offset: int) -> int:
        return NOW_MS + offset if self.hashes_at(offset) else -1

    def hashes_at(self, offset: int) -> list[int] | None:
        return [offset // STEP % 7 + 1] if 0 <= offset < LOG_END and offset % STEP == 0 else None

    def first_with_keys(self, start: int, end: int) -> int | None:
        first = -(-start // STEP) * STEP
        return first if first < end else None

    def behind(self, offset: int) -> int:
        return offset + STEP if self.hashes_at(offset) else offset


class StoppedClock:
    """It is always the same time."""

    def now_ms(self) -> int:
        return NOW_MS

    def monotonic_ms(self) -> int:
        return NOW_MS


LOG = Log()


def check_index(data: bytes) -> None:
    """The first byte says how the process ended, and what the checkpoint knows; then come one or two files."""
    mode, content = data[0] if data else 0, data[1:]
    size = SHAPE.file_size
    files = {FOLDER / "20240101000000000": content[:size] or b"\0"}
    if len(content) > size:
        files[FOLDER / "20240101000000001"] = content[size : 2 * size]
    checkpoint = Path("checkpoint")
    files[checkpoint] = FIELDS.pack(0, 0, EVER if mode & 4 else 0)
    fs: Any = MemoryFiles(files)
    clock: Any = StoppedClock()
    known = Checkpoint(fs, checkpoint)
    known.load()
    index = KeyIndex(fs, FOLDER, SHAPE, known, clock)
    index.load(LOG, clean=bool(mode & 1), keep_unproven=bool(mode & 2))
    _check_loaded(index, is_clean=bool(mode & 1))


def _check_loaded(index: KeyIndex, *, is_clean: bool) -> None:
    read: Any = MemoryFile.read
    offset, hashes = index.newest_rows()
    assert offset < LOG_END
    assert len(hashes) <= 2 * SHAPE.entries
    for key_hash in range(1, 8):
        found = list(index.find(key_hash, 0, EVER, read))
        assert len(found) <= 2 * SHAPE.entries
        assert is_clean or all(place < LOG_END for place in found)
    following = max(offset, 0) + STEP
    index.add([3] * SHAPE.entries, [following] * SHAPE.entries, [NOW_MS + following] * SHAPE.entries)
    assert index.newest_rows()[0] == following
    assert following in index.find(3, 0, EVER, read) or is_clean
    index.flush()


def check_proof(data: bytes) -> None:
    view = memoryview(data.ljust(SHAPE.file_size, b"\0")[: SHAPE.file_size])
    count, heads = proven_entries(view, SHAPE, LOG_END)
    assert 1 <= count <= SHAPE.entries
    assert isinstance(heads, array)
    assert len(heads) == SHAPE.slots
    assert all(0 <= head < count for head in heads)


def _index_seeds() -> Iterator[bytes]:
    for count in (1, 6, 7, 12):
        files: list[IndexFile] = []
        for number in range(count):
            if not files or files[-1].is_full:
                file: Any = MemoryFile(FOLDER, b"", SHAPE.file_size)
                files.append(IndexFile(file, SHAPE))
            offset = STEP * number
            files[-1].add(LOG.hashes_at(offset) or [], [offset], [NOW_MS + offset])
        content = b"".join(bytes(file.file.data) for file in files)
        for mode in range(8):
            yield bytes([mode]) + content


def check_extension(data: bytes) -> None:
    view = memoryview(data)
    position = 0
    while (unit := read_unit(view, position)) is not None:
        position += HEAD.size + len(unit.bitmap)
        assert position <= len(data)


def _extension_seeds() -> Iterator[bytes]:
    yield HEAD.pack(24, 5, NOW_MS, 4) + b"bits" + HEAD.pack(20, -5, 0, 0) + b"\xff\xff"


TARGETS = (
    Target(
        "index", "a start keeps what can be believed; it can be searched, and goes on", check_index, _index_seeds, 3,
        (),
        2 * SHAPE.file_size + 1,
    ),
    Target("index-proof", "entries that prove one another, and the slots that lead to them", check_proof,
           lambda: [seed[1:] for seed in _index_seeds()], 40, (), SHAPE.file_size),
    Target("extension", "units of a queue's extension, or none", check_extension, _extension_seeds, 33, (), 256),
)  # fmt: skip
