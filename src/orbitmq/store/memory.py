"""What Python's own calls do not offer of memory that is mapped, through the C library: maps without a descriptor of
their own, and pages that are brought in, or kept, without the interpreter lock.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import sys
from collections.abc import Callable

POPULATE_WRITE = 23  # of madvise, Linux 5.14
MAP_FIXED = 0x10
MAP_NORESERVE = 0x4000

_libc = ctypes.CDLL(None, use_errno=True)
for _call in (_libc.mlock, _libc.munlock):
    _call.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
_libc.mmap.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
]  # fmt: skip
_libc.mmap.restype = ctypes.c_void_p


def map_file(descriptor: int, size: int, *, writable: bool) -> mmap.mmap:
    """A memory map of a file of this size. OSError or ValueError if that fails.

    Python's map keeps a copy of the descriptor, so a broker would need two for each file of its queues. Before 3.13,
    which can avoid that, the file is mapped over an anonymous map.
    """
    access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
    if sys.version_info >= (3, 13):
        return mmap.mmap(descriptor, size, access=access, trackfd=False)
    if not writable:  # there are few of these
        return mmap.mmap(descriptor, size, access=access)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
    how = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | MAP_FIXED
    # At a fixed place it succeeds there or fails: then the address is no place at all, and the map of nothing is left.
    error = _on(memory, lambda address: _libc.mmap(address, size, *how, descriptor, 0) != address)
    if error:
        memory.close()
        _check(error)
    return memory


def populate(memory: mmap.mmap, start: int, size: int) -> None:
    """Map pages for writing without changing them. OSError if the kernel cannot do that."""
    _check(_on(memory, lambda address: _libc.madvise(address + start, size, POPULATE_WRITE)))


def resident_pages(memory: mmap.mmap, start: int, size: int) -> int:
    """How many of the pages of a file's map from `start` on are in memory, up to the first that is not: reading them
    does not wait for the disk. `start` is a multiple of the page size. OSError if the kernel does not tell.
    """
    pages = ctypes.create_string_buffer(-(-size // mmap.PAGESIZE))
    _check(_on(memory, lambda address: _libc.mincore(address + start, size, pages)))
    first_absent = pages.raw.find(0)
    return len(pages) if first_absent < 0 else first_absent


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
    """The error number of a call with the address of the memory; 0 on success."""
    held = ctypes.c_char.from_buffer(memory)  # while it exists the memory cannot be closed
    return ctypes.get_errno() if call(ctypes.addressof(held)) else 0
