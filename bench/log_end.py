"""Where the log of a store ends, read from its consume queues: the same for both systems. Knows neither of them."""

from __future__ import annotations

import struct
from pathlib import Path

ENTRY = struct.Struct(">qiq")  # physical offset, size, hash of the tags


def log_end(consume_queues: Path) -> int:
    """Behind the last message of any queue; 0 without one."""
    return max((_file_end(path) for path in consume_queues.glob("*/*/*")), default=0)


def _file_end(path: Path) -> int:
    data = path.read_bytes()
    return max((offset + size for offset, size, _ in ENTRY.iter_unpack(data)), default=0)
