"""Finds the hashes of the keys of messages in the bytes of the commit log. Pure: bytes in, columns out.

Where `index_loops` is compiled it walks byte by byte, which then costs least; interpreted, `key_scan` looks at hundreds
of messages at once. Both find the same.
"""

from __future__ import annotations

from orbitmq.message.unit import Buffer
from orbitmq.store.index_loops import IS_COMPILED, walk
from orbitmq.store.key_scan import FoundKeys, HashedKeys, key_hashes, scan, scan_one


def scan_hashes(data: bytes, offset: int, count_max: int) -> tuple[int, HashedKeys]:
    """`key_scan.scan`, with the hash of each key instead of its topic and itself."""
    if IS_COMPILED:
        return walk(data, offset, count_max)
    size, found = scan(data, offset, count_max)
    return size, hashed(found)


def scan_one_hashes(data: Buffer, offset: int) -> tuple[int, HashedKeys]:
    """The same of `key_scan.scan_one`. UnitError as there."""
    size, found = scan_one(data, offset)
    return size, hashed(found)


def hashed(found: FoundKeys) -> HashedKeys:
    return HashedKeys(key_hashes(found.topics, found.keys), found.offsets, found.timestamps)
