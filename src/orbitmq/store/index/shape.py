"""The shape of an index file that was written with unknown options.

A file does not record how many slots it has: that follows from where its last entry ends.
"""

from __future__ import annotations

from pathlib import Path

from orbitmq.store.index.file import ENTRY, HEADER, NUMBER, IndexShape
from orbitmq.store.pieces import written_parts

DEFAULT_RATIO = 84  # bytes a slot in a file of RocketMQ's shape, four entries a slot


def shape_of(view: memoryview, path: Path) -> IndexShape | None:
    """The shape of an index file with entries; None if they are not where its header says."""
    count = HEADER.unpack_from(view)[5]
    rest = len(view) - HEADER.size
    if rest % DEFAULT_RATIO == 0:
        shape = IndexShape(rest // DEFAULT_RATIO, rest // DEFAULT_RATIO * 4)
        if _fits(view, shape, count):
            return shape
    last = _last_written(view, path)
    for end in range(last + 1, last + 1 + ENTRY.size):  # an entry may end with zeros
        slots, odd = divmod(end - HEADER.size - ENTRY.size * count, NUMBER.size)
        entries, left = divmod(rest - NUMBER.size * slots, ENTRY.size)
        if slots > 0 and odd == left == 0 and _fits(view, IndexShape(slots, entries), count):
            return IndexShape(slots, entries)
    return None


def _fits(view: memoryview, shape: IndexShape, count: int) -> bool:
    """Whether the newest entry is where its slot points."""
    position = shape.entry_position(count - 1)
    if count > shape.entries or position + ENTRY.size > len(view):
        return False
    key_hash = ENTRY.unpack_from(view, position)[0]
    slot: int = NUMBER.unpack_from(view, shape.slot_position(key_hash))[0] if key_hash >= 0 else 0
    return slot == count - 1


def _last_written(view: memoryview, path: Path) -> int:
    """Position of the last byte that is not zero."""
    last = 0
    for start, end in written_parts(path, 0):
        for block in range(start, end, 1 << 20):
            kept = bytes(view[block : min(end, block + (1 << 20))]).rstrip(b"\0")
            last = block + len(kept) - 1 if kept else last
    return last
