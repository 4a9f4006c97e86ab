"""Java's string hash, which decides tag codes, index slots and queues picked by hash.

Pure arithmetic; knows nothing of messages.
"""

from __future__ import annotations

import sys
from functools import lru_cache

TAGS_REMEMBERED = 4096  # tags are few and come again with every message; the table stays below a MiB
NATIVE_UTF16 = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"


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
    """What a consume queue entry holds for a message: the hash of its whole tag text, 0 without one.

    Bytes are the text in UTF-8, as it lies in the properties.
    """
    if not tags:
        return 0
    return string_hash(tags if isinstance(tags, str) else tags.decode("utf-8", "replace"))
