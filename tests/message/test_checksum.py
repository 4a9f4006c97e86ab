"""The checksum of bodies: the fast library and zlib say the same, and either is enough."""

from __future__ import annotations

import runpy
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.message import checksum


def test_the_fast_library_is_used_where_it_is_installed() -> None:
    isal_zlib = pytest.importorskip("isal.isal_zlib", reason="isal has no build for this machine")
    assert checksum.crc32 is isal_zlib.crc32


@given(st.binary(max_size=5000), st.integers(0, 20))
def test_either_library_gives_the_same_number(body: bytes, start: int) -> None:
    assert checksum.crc32(body) == zlib.crc32(body)
    assert checksum.crc32(memoryview(body)[start:]) == zlib.crc32(body[start:])
    assert checksum.crc32(bytearray(body)) == zlib.crc32(body)


def test_zlib_serves_where_the_library_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "isal", None)
    monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
    assert runpy.run_path(checksum.__file__)["crc32"] is zlib.crc32
