"""Keeps memory in memory, through the C library: Python's own calls would hold the interpreter lock meanwhile."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
from collections.abc import Callable

POPULATE_WRITE = 23  # of madvise, Linux 5.14

_libc = ctypes.CDLL(None, use_errno=True)
for _call in (_libc.mlock, _libc.munlock):
    _call.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def populate(memory: mmap.mmap, start: int, size: int) -> None:
    """Bring in pages, ready to be written, and change nothing in them. OSError where the kernel cannot do that."""
    _check(_on(memory, lambda address: _libc.madvise(address + start, size, POPULATE_WRITE)))


def lock(memory: mmap.mmap) -> None:
    """Never let the system take these pages away. OSError when the limit of locked memory forbids it."""
    _check(_on(memory, lambda address: _libc.mlock(address, len(memory))))


def unlock(memory: mmap.mmap) -> None:
    _on(memory, lambda address: _libc.munlock(address, len(memory)))


def lock_limit() -> str:
    """The limit of locked memory of this process, in words."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return "unlimited" if soft == resource.RLIM_INFINITY else f"{soft} bytes"


def _check(error: int) -> None:
    if error:
        raise OSError(error, os.strerror(error))


def _on(memory: mmap.mmap, call: Callable[[int], int]) -> int:
    """The error number of a call with the address of the memory, 0 when it went well."""
    held = ctypes.c_char.from_buffer(memory)  # while it lives the memory cannot be closed
    return ctypes.get_errno() if call(ctypes.addressof(held)) else 0
