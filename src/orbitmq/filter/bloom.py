"""Which bits of a message's bitmap a subscription owns: a Bloom filter over subscriptions. Pure.

A broker may note with each message which SQL filters of its topic take it, as a bitmap in the queue's extension: the
bits of every filter that does are set. A pull then leaves out messages that lack a bit of its filter without reading
them; too many set bits cost a look, never a message. Sizes, positions and the hash are RocketMQ's, for the bitmaps
are on disk.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass

BLOCK = struct.Struct("<QQ")
C1, C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
WORD64 = (1 << 64) - 1
WORD32 = (1 << 32) - 1


@dataclass(frozen=True)
class BloomFilter:
    """`bit_count` bits, a multiple of 8, of which each subscription owns `hash_count`, some perhaps twice."""

    hash_count: int
    bit_count: int

    @classmethod
    def sized(cls, error_percent: int, subscriptions: int) -> BloomFilter:
        """Size for this many subscriptions, of which a message that matches none seems to match in `error_percent` of
        cases.

        `error_percent` is between 1 and 99, `subscriptions` at least 1.
        """
        hash_count = math.ceil(math.log(error_percent / 100) / math.log(0.5))
        bits = math.ceil(subscriptions * math.log2(100 / error_percent) * math.log2(math.e))
        return cls(hash_count, -(-bits // 8) * 8)

    def positions(self, group: str, topic: str) -> list[int]:
        """The bits of a group's subscription to a topic."""
        return self.positions_of(f"{group}#{topic}")

    def positions_of(self, text: str) -> list[int]:
        """The bits of a text, by signed 32-bit arithmetic on the two halves of its hash."""
        value = murmur3_low64(text.encode())
        low, high = value & WORD32, value >> 32
        positions = []
        for number in range(1, self.hash_count + 1):
            combined = (low + number * high) & WORD32
            if combined >> 31:
                combined ^= WORD32
            positions.append(combined % self.bit_count)
        return positions

    def bitmap(self, subscriptions: Iterable[Iterable[int]]) -> bytes:
        """The bitmap of a message that the subscriptions with these bits match."""
        bits = bytearray(self.bit_count // 8)
        for positions in subscriptions:
            for position in positions:
                bits[position >> 3] |= 1 << (position & 7)
        return bytes(bits)

    def may_want(self, positions: Iterable[int], bitmap: bytes) -> bool:
        """Whether all these bits are set. A bitmap of another size, or none, is no evidence, so the result is true."""
        if len(bitmap) * 8 != self.bit_count:
            return True
        return all(bitmap[position >> 3] >> (position & 7) & 1 for position in positions)


def murmur3_low64(data: bytes) -> int:
    """The first 64 bits of MurmurHash3 x64 128 (Austin Appleby, public domain) with seed 0, unsigned."""
    h1 = h2 = 0
    blocks = len(data) // BLOCK.size
    for k1, k2 in BLOCK.iter_unpack(data[: blocks * BLOCK.size]):
        h1 = ((_rotated(h1 ^ _mixed1(k1), 27) + h2) * 5 + 0x52DCE729) & WORD64
        h2 = ((_rotated(h2 ^ _mixed2(k2), 31) + h1) * 5 + 0x38495AB5) & WORD64
    tail = data[blocks * BLOCK.size :]
    if tail:
        k1, k2 = BLOCK.unpack(tail.ljust(BLOCK.size, b"\0"))
        h1, h2 = h1 ^ _mixed1(k1), h2 ^ _mixed2(k2)  # a word of zeros mixes to zero
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = (h1 + h2) & WORD64
    h2 = (h2 + h1) & WORD64
    return (_finished(h1) + _finished(h2)) & WORD64


def _mixed1(k: int) -> int:
    return _rotated(k * C1 & WORD64, 31) * C2 & WORD64


def _mixed2(k: int) -> int:
    return _rotated(k * C2 & WORD64, 33) * C1 & WORD64


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & WORD64


def _finished(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & WORD64
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & WORD64
    return value ^ value >> 33
