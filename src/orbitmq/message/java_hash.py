"""Java's string hash, which decides tag codes, index slots and queues picked by hash.

Pure arithmetic; knows nothing of messages.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Final

TAGS_REMEMBERED: Final = 4096  # tags are few and come again with every message; the table stays below a MiB
CELLS: Final = 256  # texts hashed at once; enough that the work on the numbers outweighs that on the texts
CELL_SIZES: Final = (32, 64)
CELL_SIZE_MAX: Final = CELL_SIZES[-1]
PREFIXES_REMEMBERED: Final = 512  # some 5 KB each
WORD: Final = 0xFFFFFFFF
POWERS: Final = tuple(pow(31, exponent, 1 << 32) for exponent in range(CELL_SIZE_MAX + 1))
NATIVE_UTF16: Final = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"


def string_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 code units, as a signed 32-bit number."""
    value = 0
    for unit in code_units(text):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def code_units(text: str) -> bytes | memoryview:
    """The UTF-16 code units of `text`; a character beyond the basic plane counts as two."""
    if text.isascii():
        return text.encode("ascii")
    return memoryview(text.encode(NATIVE_UTF16, "surrogatepass")).cast("H")


@lru_cache(TAGS_REMEMBERED)
def tags_code(tags: str | bytes | None) -> int:
    """The code in a consume queue entry: the hash of the message's whole tag text, 0 without one.

    Bytes are the text in UTF-8, as in the properties.
    """
    if not tags:
        return 0
    return string_hash(tags if isinstance(tags, str) else tags.decode("utf-8", "replace"))


def string_hashes(prefixes: Sequence[bytes], joint: bytes, texts: Sequence[bytes]) -> list[int]:
    """The hashes of each prefix, the joint and a text, which is ASCII and has at most CELL_SIZE_MAX characters.

    A tenth of the time of `string_hash` for each: one large integer holds all texts, right-aligned in cells of equal
    size (zeros in front do not change a hash), and every step halves the number of values in all cells at once. What
    the prefixes add, a few that come again and again, is added to all cells at once, too.
    """
    hashes: list[int] = []
    for start in range(0, len(texts), CELLS):
        chunk, before = texts[start : start + CELLS], prefixes[start : start + CELLS]
        size = CELL_SIZES[max(map(len, chunk)) > CELL_SIZES[0]]
        cells = b"".join([text.rjust(size, b"\0") for text in chunk])
        number = int.from_bytes(cells, "big")
        for mask, shift, power in _steps(size):
            number = (number & mask) + (number >> shift & mask) * power
        shares = {prefix: _shares(prefix + joint, size) for prefix in set(before)}
        number += int.from_bytes(b"".join([shares[p][len(text)] for p, text in zip(before, chunk, strict=True)]), "big")
        hashes += _low_words(size, len(chunk)).unpack(number.to_bytes(len(cells), "big"))
    return hashes


@lru_cache(PREFIXES_REMEMBERED)
def _shares(prefix: bytes, cell_size: int) -> list[bytes]:
    """The share of a prefix in the hash, as a cell, by the number of characters that follow it."""
    value = string_hash(prefix.decode("utf-8", "replace"))
    return [(value * power & WORD).to_bytes(cell_size, "big") for power in POWERS[: cell_size + 1]]


@cache
def _steps(cell_size: int) -> list[tuple[int, int, int]]:
    """(mask, shift, power) for each step: hash(left + right) = hash(left) * 31 ** len(right) + hash(right).

    The mask picks the right one of two neighbouring lanes, modulo 2 ** 32 where a lane can hold more. Lanes never
    overflow: n characters have a hash below 128 * 31 ** n / 30, which n bytes hold up to n = 8; from there on the
    product of two 32-bit numbers has 16 bytes of room, and some to add another number.
    """
    steps = []
    lane = 1
    while lane < cell_size:
        low = (1 << 8 * min(lane, 4)) - 1
        lanes = low.to_bytes(2 * lane, "big") * (CELLS * cell_size // (2 * lane))
        steps.append((int.from_bytes(lanes, "big"), 8 * lane, POWERS[lane]))
        lane *= 2
    return steps


@lru_cache(2 * CELLS)
def _low_words(cell_size: int, count: int) -> struct.Struct:
    """Reads the hashes out of the cells."""
    return struct.Struct(">" + f"{cell_size - 4}xi" * count)
