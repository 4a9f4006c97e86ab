# cython: wraparound=False, boundscheck=False, annotation_typing=False
"""The two loops of `units` over every message: one finds where units begin, one splits their properties. Pure.

In the platform wheel Cython compiles them, with the types of the `.pxd` next to this file. Interpreted they serve tests
only: `units` does the same with `struct` and numpy there.
"""

from __future__ import annotations

from array import array
from typing import Any, Final

from orbitmq.message.unit import MAGIC, MAGIC_LONG_TOPIC, UNIT_OVERHEAD

IS_COMPILED: Final = not __file__.endswith(".py")

# Constants of this module, inlined where it is compiled.
_MAGIC = MAGIC
_MAGIC_LONG_TOPIC = MAGIC_LONG_TOPIC
_OVERHEAD = UNIT_OVERHEAD
_NAME_END = 1
_PAIR_END = 2
_NAMES_MAX = 62  # distinct names, each a bit of one 64-bit number


def walk(data: Any, limit: int, found: Any) -> tuple[int, int]:
    """The result of `units.unit_run`: the number of starts that were put into `found`, and the end of the last unit.
    `found` has room for a unit of the smallest size at each place of `data`.
    """
    bytes_ = data
    starts = found
    length = len(data)
    position = 0
    count = 0
    while position < limit and length - position >= 8:
        size = _int32(bytes_, position)
        magic = _int32(bytes_, position + 4)
        if (magic != _MAGIC and magic != _MAGIC_LONG_TOPIC) or size < _OVERHEAD:
            break
        if size > length - position:
            break
        starts[count] = position
        count += 1
        position += size
    return count, position


def split(
    data: Any, texts_at: Any, texts_end: Any, codes: Any, rows: Any, values_at: Any, values_end: Any
) -> tuple[int, list[bytes]] | None:
    """Split the properties of each row, the bytes of `data` from `texts_at` to `texts_end`.

    Returns the number of pairs and their distinct names. Of each pair the number of its name, its row, and start and
    end of its value are put into the last four, which have room for a pair in every four bytes and one more a row.
    None when a row has a name twice, or there are more than 62 names: that is for `units.UnitProperties`.
    """
    bytes_ = data
    starts = texts_at
    ends = texts_end
    out_codes = codes
    out_rows = rows
    out_at = values_at
    out_end = values_end
    names_at = array("q", bytes(8 * _NAMES_MAX))
    names_size = array("q", bytes(8 * _NAMES_MAX))
    row_count = len(texts_at)
    known = 0
    count = 0
    row = 0
    while row < row_count:
        at = starts[row]
        end = ends[row]
        seen = 0
        code = -1
        while at < end:
            name_end = at
            while name_end < end and bytes_[name_end] != _NAME_END and bytes_[name_end] != _PAIR_END:
                name_end += 1
            pair_end = name_end
            while pair_end < end and bytes_[pair_end] != _PAIR_END:
                pair_end += 1
            if at < name_end and name_end + 1 < pair_end:
                # Rows of a topic mostly have the same names in the same order: look at the next one first.
                code = _code(bytes_, at, name_end - at, names_at, names_size, known, code + 1)
                if code == known:
                    if known == _NAMES_MAX:
                        return None
                    names_at[known] = at
                    names_size[known] = name_end - at
                    known += 1
                bit = 1
                bit <<= code
                if seen & bit:
                    return None
                seen |= bit
                out_codes[count] = code
                out_rows[count] = row
                out_at[count] = name_end + 1
                out_end[count] = pair_end
                count += 1
            at = pair_end + 1
        row += 1
    return count, [bytes(data[names_at[code] : names_at[code] + names_size[code]]) for code in range(known)]


def _code(bytes_: Any, at: int, size: int, names_at: Any, names_size: Any, known: int, guess: int) -> int:
    """The number of the name at `at`, `known` if it is new. Looks at number `guess` first."""
    if guess < known and names_size[guess] == size and _are_equal(bytes_, names_at[guess], at, size):
        return guess
    code = 0
    while code < known and not (names_size[code] == size and _are_equal(bytes_, names_at[code], at, size)):
        code += 1
    return code


def _are_equal(bytes_: Any, one: int, other: int, size: int) -> bool:
    at = 0
    while at < size and bytes_[one + at] == bytes_[other + at]:
        at += 1
    return at == size


def _int32(bytes_: Any, at: int) -> int:
    value: int = bytes_[at]
    value = value << 24 | bytes_[at + 1] << 16 | bytes_[at + 2] << 8 | bytes_[at + 3]
    return value - ((value >> 31) << 32)
