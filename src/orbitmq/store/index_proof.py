"""Which entries of an index file can be believed after a crash. Pure: bytes in, a number and the slots out.

Pages of a mapped file reach the disk in any order, so a crash may have cost the file any of them; a lost page reads as
zeros, or as what it was a while ago. The entries prove one another: each names the previous entry of its slot, which
follows from the hashes of all entries before it, and physical offsets never decrease. Slots and counts are not asked,
for they follow from the entries.

An entry across the edge of a lost page may still look right. One whose beginning was lost has the hash 0, which is not
believed (a real one only costs reading the log from there); one whose end was lost is the last before zeros, so the
last one is not believed either.
"""

from __future__ import annotations

from array import array

from orbitmq.store.index_file import ENTRY, NUMBER, IndexShape

BLOCK = 1 << 16  # entries looked at with one view


def proven_entries(view: memoryview, shape: IndexShape, log_end: int) -> tuple[int, array[int]]:
    """Every entry below the number that comes first is as it was written and points below `log_end`; second come the
    slots that lead to them.
    """
    heads = array("i", bytes(NUMBER.size * shape.slots))
    assert heads.itemsize == NUMBER.size, "a C int has four bytes wherever Python 3.11 runs"
    number = _follow(view, shape, log_end, heads)
    if number > 1:
        number -= 1
        key_hash, _, _, previous = ENTRY.unpack_from(view, shape.entry_position(number))
        heads[key_hash % shape.slots] = previous
    return number, heads


def _follow(view: memoryview, shape: IndexShape, log_end: int, heads: array[int]) -> int:
    """The number of the first entry that does not fit those before it, whose slots are `heads` then."""
    number, last, slots = 1, 0, shape.slots
    while number < shape.entries:
        start = shape.entry_position(number)
        stop = shape.entry_position(min(number + BLOCK, shape.entries))
        for key_hash, offset, _, previous in ENTRY.iter_unpack(view[start:stop]):
            slot = key_hash % slots
            if key_hash <= 0 or not last <= offset < log_end or heads[slot] != previous:
                return number
            heads[slot] = number
            number += 1
            last = offset
    return number
