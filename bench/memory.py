"""Puts free memory into use, as on a machine that has run for a while, where the page cache fills it.

A hypervisor may take back what is free. Getting such a page again costs a virtual machine some 8 us, several times what
a broker spends to fill it with messages, and would dominate a measurement that starts with free memory.
"""

from __future__ import annotations

import os
from pathlib import Path

KEPT_FREE = 1 << 30  # bytes; the system itself begins to make room at some hundred MiB
STEP = 1 << 20
NAME = "memory"


def put_into_use(directory: Path) -> int:
    """Have the system keep a file without content, which it makes in `directory`, in what is free; how many bytes that
    are. They give way to any other use of memory. The file takes no blocks of the disk, and what it holds in memory
    goes with it. OSError where files without content take no memory.
    """
    free = _free_bytes()
    size = max(0, free - KEPT_FREE)
    path = directory / NAME
    piece = bytearray(STEP)
    with path.open("w+b", buffering=0) as file:
        os.truncate(file.fileno(), size)
        while file.readinto(piece):
            pass
    if free - _free_bytes() < size // 4:  # some systems make room for a file's end with its beginning
        raise OSError(
            f"{path} took no memory: its file system keeps none of a file without content; name a --directory"
        )
    return size


def _free_bytes() -> int:
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemFree:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/meminfo has no MemFree")
