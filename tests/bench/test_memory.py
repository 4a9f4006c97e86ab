"""Memory that a bench puts into use."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import memory

SIZE = 256 << 20  # far more than other tests take and give back meanwhile


def test_what_was_free_holds_a_file_that_takes_no_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_free_bytes", iter([memory.KEPT_FREE + SIZE, memory.KEPT_FREE]).__next__)
    assert memory.put_into_use(tmp_path) == SIZE
    (file,) = tmp_path.iterdir()
    assert (file.stat().st_size, file.stat().st_blocks) == (SIZE, 0)


def test_it_is_told_where_no_memory_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_free_bytes", lambda: memory.KEPT_FREE + SIZE)
    with pytest.raises(OSError, match="took no memory"):
        memory.put_into_use(tmp_path)


def test_where_little_is_free_nothing_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_free_bytes", lambda: memory.KEPT_FREE)
    assert memory.put_into_use(tmp_path) == 0
