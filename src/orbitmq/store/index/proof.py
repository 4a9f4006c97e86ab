"""Which entries of an index file are valid after a crash. Knows one file, neither the log nor other files.

Pages of a mapped file reach the disk in any order, so a crash may have cost the file any of them; a lost page reads as
zeros, or as its content of a while ago. The entries prove one another: each names the previous entry of its slot, which
follows from the hashes of all entries before it, and physical offsets never decrease. Slots and counts are not checked:
they follow from the entries.

An entry across the edge of a lost page may still look right. One that lost its beginning has the hash 0, which is
treated as invalid (a real one only costs reading the log from there); one that lost its end is the last before zeros,
so the last one is treated as invalid as well.

A file that was on disk before the crash does not need this proof, which reads all of its 420 MB. Entries sampled from
all over it show whether a part of it has been lost or overwritten since.
"""

from __future__ import annotations

from array import array

from orbitmq.store.index.file import ENTRY, NUMBER, IndexFile, IndexShape

BLOCK = 1 << 16  # entries checked with one view
SAMPLES = 256  # one in 1.6 MB; with their slots and predecessors a thousand reads of one page


def proven_entries(view: memoryview, shape: IndexShape, log_end: int) -> tuple[int, array[int]]:
    """Every entry below the number that comes first is as it was written and points below `log_end`; second come the
    slots that lead to them. `view` may end before the file: behind what was written there is none.
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
    entries = min(shape.entries, (len(view) - shape.entry_position(0)) // ENTRY.size)
    while number < entries:
        start = shape.entry_position(number)
        stop = shape.entry_position(min(number + BLOCK, entries))
        for key_hash, offset, _, previous in ENTRY.iter_unpack(view[start:stop]):
            slot = key_hash % slots
            if key_hash <= 0 or not last <= offset < log_end or heads[slot] != previous:
                return number
            heads[slot] = number
            number += 1
            last = offset
    return number


def samples(count: int, most: int) -> range:
    """Numbers of entries from all over a file with entries below `count`, up to `most` and the last one."""
    last = count - 1
    return range(last, 0, -max(1, last // most))[::-1]


def looks_whole(file: IndexFile) -> bool:
    """Whether the head of a file, some of its entries, and the slots that lead to these agree."""
    numbers = samples(file.count, SAMPLES)
    if file.is_empty or (file.entry(1)[1], file.entry(numbers[-1])[1]) != (file.begin_offset, file.end_offset):
        return False
    last = file.begin_offset
    for number in numbers:
        key_hash, offset, _, previous = _entry(file, number)
        if key_hash <= 0 or not last <= offset <= file.end_offset or not 0 <= previous < number:
            return False
        last = offset
        (head,) = NUMBER.unpack(file.file.read(file.shape.slot_position(key_hash), NUMBER.size))
        if not number <= head < file.count:
            return False
        chained = (other for other in (head, previous) if other)
        if any(_entry(file, other)[0] % file.shape.slots != key_hash % file.shape.slots for other in chained):
            return False
    return True


def _entry(file: IndexFile, number: int) -> tuple[int, int, int, int]:
    """Read past the map, which would bring in what lies around as well."""
    return ENTRY.unpack(file.file.read(file.shape.entry_position(number), ENTRY.size))
