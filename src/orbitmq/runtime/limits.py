"""Limits the operating system sets a process. Knows nothing of what runs in it."""

from __future__ import annotations

import contextlib
import resource
import sys

CONNECTIONS_SHARE = 3  # connections take one of so many files a process may open, mapped files of the store the others


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
    """How many files this process may have open; a number nobody reaches where there is no limit."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if allowed == resource.RLIM_INFINITY else allowed
