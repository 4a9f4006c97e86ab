"""Which entries of an index file can be believed after a crash. Pure: bytes in, a number and the slots out.

Pages of a mapped file reach the disk in any order, so a file may have lost any of them. Its entries prove one
another: each names the previous entry of its slot, which follows from the hashes of all entries before it, and
physical offsets never decrease. Up to the first entry that does not fit everything is as it was written, for lost
pages read as zeros. Slots and counts are not asked; they follow from the entries.
"""

from __future__ import annotations

from array import array

from orbitmq.store.index_file import ENTRY, NUMBER, IndexShape

BLOCK = 1 << 16  # entries looked at with one view


def proven_entries(view: memoryview, shape: IndexShape, log_end: int) -> tuple[int, array[int]]:
    """The number of the first entry that does not fit or points behind the log, and the slots of those before it."""
    heads = array("i", bytes(NUMBER.size * shape.slots))
    assert heads.itemsize == NUMBER.size, "a C int has four bytes wherever Python 3.11 runs"
    number, last = 1, 0
    while number < shape.entries:
        start = shape.entry_position(number)
        stop = shape.entry_position(min(number + BLOCK, shape.entries))
        for key_hash, offset, seconds, previous in ENTRY.iter_unpack(view[start:stop]):
            slot = key_hash % shape.slots
            never_written = key_hash == offset == seconds == previous == 0
            if never_written or key_hash < 0 or not last <= offset < log_end or heads[slot] != previous:
                return number, heads
            heads[slot] = number
            number += 1
            last = offset
    return number, heads
