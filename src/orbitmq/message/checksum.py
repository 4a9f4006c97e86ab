"""CRC-32 over bodies, the costliest step of storing one. Pure.

Intel's library computes it in a sixth of zlib's time. Where it has no build, or a worker that orbitmq was carried to
lacks it, zlib gives the same number.
"""

from __future__ import annotations

try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["CRC_MASK", "crc32"]

CRC_MASK = 0x7FFFFFFF  # RocketMQ stores the checksum without its highest bit
