"""Limits the operating system sets a process. Knows nothing of what runs in it."""

from __future__ import annotations

import contextlib
import resource
import sys
from pathlib import Path

CONNECTIONS_SHARE = 3  # connections take one of so many files a process may open, mapped files of the store the others
# Share of the maps that log, key index and the process itself may use. Linux allows 65,530 by default: then 8,191 are
# left, of which libraries, threads and memory use some hundreds, and files of the log are a gigabyte each.
MAPS_SHARE = 8
MAPS_FILE = Path("/proc/sys/vm/max_map_count")
MAPS_USUAL = 65_530


def raise_open_files() -> int:
    """Allow as many open files as the administrator lets the process have, and return that number.

    Shells start processes with 1024 of them, and a broker needs one for each mapped file and for each connection.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # a system may have a limit of its own below "unlimited"
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return soft


def open_files() -> int:
    """How many files this process may have open; a very large number if there is no limit."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if allowed == resource.RLIM_INFINITY else allowed


def memory_maps() -> int:
    """How many maps the kernel allows a process, of which each mapped file is one; the default if it cannot be read:
    without /proc, or in a systemd unit with `ProcSubset=pid`.
    """
    try:
        return int(MAPS_FILE.read_text())
    except OSError:
        return MAPS_USUAL
