"""The checkpoint file: the store times up to which everything is known to be on disk.

    offset | size | field
         0 |    8 | store time up to which the commit log is flushed
         8 |    8 | store time up to which the consume queues are flushed
        16 |    8 | store time up to which the index is flushed

4096 bytes; further fields of newer versions are kept unchanged.
"""

from __future__ import annotations

import struct
from pathlib import Path

from orbitmq.runtime.files import keep_aside
from orbitmq.store.files import PAGE, Files

FIELDS = struct.Struct(">qqq")
SAFETY_MS = 3000  # flushes are not atomic with the times taken of them


class Checkpoint:
    """Store times in milliseconds; 0 is unknown."""

    def __init__(self, fs: Files, path: Path) -> None:
        self.log_timestamp = 0
        self.queue_timestamp = 0
        self.index_timestamp = 0
        self._fs = fs
        self._path = path

    @property
    def safe_timestamp(self) -> int:
        """Recovery after a crash can skip messages stored before this."""
        return max(0, min(self.log_timestamp, self.queue_timestamp) - SAFETY_MS)

    def load(self) -> None:
        """A missing or short file is no checkpoint; its times are 0 then, and a short one is kept aside."""
        data = self._fs.read(self._path)
        if data is not None and len(data) >= FIELDS.size:
            self.log_timestamp, self.queue_timestamp, self.index_timestamp = FIELDS.unpack_from(data)
            return
        if data is not None:
            keep_aside(self._path, f"has {len(data)} bytes")
        self._fs.write(self._path, bytes(PAGE))

    def save(self) -> None:
        """Return when the times are on disk. OSError when they are not."""
        self._fs.write(self._path, FIELDS.pack(self.log_timestamp, self.queue_timestamp, self.index_timestamp))
