"""Files brought into memory and locked there."""

from __future__ import annotations

import mmap
import resource
from pathlib import Path

import pytest

from orbitmq.runtime.clock import ManualClock
from orbitmq.store import memory
from orbitmq.store.files import WARM_STEP, Files, MappedFile
from orbitmq.store.options import SYNC_FLUSH
from tests.support.disk import FaultyDisk, FaultyFile
from tests.support.stores import bodies, open_store, record

PAGE = mmap.PAGESIZE


def locked_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmLck:"))


def test_memory_is_locked_and_let_go() -> None:
    before = locked_bytes()
    block = mmap.mmap(-1, 4 * PAGE)
    memory.lock(block)
    assert locked_bytes() == before + 4 * PAGE
    memory.unlock(block)
    assert locked_bytes() == before
    block.close()


def test_pages_come_in_as_they_are(tmp_path: Path) -> None:
    file = Files().create(tmp_path / "f", 8 * PAGE)
    file.data[5 * PAGE] = 7
    file.populate(0, 1 << 30)
    assert file.data[5 * PAGE] == 7
    assert bytes(file.view) == bytes(5 * PAGE) + b"\7" + bytes(3 * PAGE - 1)
    file.close()


def test_no_more_is_loaded_than_was_asked_for(tmp_path: Path) -> None:
    file = Files().create(tmp_path / "f", 64 * WARM_STEP)
    file.reserve(0, file.size)
    file.warm(0, 4 * WARM_STEP)
    assert file.resident_end(0, file.size) == 4 * WARM_STEP
    file.close()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is done to which file's memory."""
    done: list[tuple[str, str]] = []
    for name in ("populate", "lock_memory", "unlock_memory"):
        monkeypatch.setattr(
            MappedFile, name, lambda file, *_, name=name: done.append((name, file.path.name.lstrip("0")))
        )
    return done


def test_the_next_file_is_ready_and_the_last_one_let_go(tmp_path: Path, calls: list[tuple[str, str]]) -> None:
    store = open_store(tmp_path, warm_mapped_file_enable=True)
    store._reserve_worker.stop()
    for _ in range(4):
        store.put(record(bytes(3000)))
        store._log.reserve_ahead()
    assert calls == [
        ("populate", "4096"), ("lock_memory", "4096"),
        ("populate", "8192"), ("lock_memory", "8192"),
        ("unlock_memory", "4096"), ("populate", "12288"), ("lock_memory", "12288"),
        ("unlock_memory", "8192"), ("populate", "16384"), ("lock_memory", "16384"),
    ]  # fmt: skip
    store.close()


def test_nothing_is_locked_unless_asked_for(tmp_path: Path, calls: list[tuple[str, str]]) -> None:
    store = open_store(tmp_path)
    for _ in range(4):
        store.put(record(bytes(3000)))
        store._log.reserve_ahead()
    assert calls == []
    store.close()


def test_a_limit_that_forbids_it_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_memory: mmap.mmap) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(memory, "lock", refuse)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (65536, 65536))
    store = open_store(tmp_path, warm_mapped_file_enable=True)
    store._reserve_worker.stop()
    for _ in range(4):
        store.put(record(bytes(3000)))
        store._log.reserve_ahead()
    assert caplog.text.count("event=memory_not_locked size=4096 limit=65536 bytes") == 1
    assert len(bodies(store)) == 4
    store.close()


def test_with_synchronous_flush_a_warmed_file_is_on_disk(tmp_path: Path) -> None:
    """Else the first flush of a message would have to write all its zeros."""
    disk = FaultyDisk()
    store = open_store(
        tmp_path, ManualClock(), disk, warm_mapped_file_enable=True, flush_disk_type=SYNC_FLUSH
    )  # fmt: skip
    store._reserve_worker.stop()
    store.put(record())
    synced: list[str] = []
    original = FaultyFile.sync

    def sync(file: FaultyFile) -> None:
        synced.append(file.path.name.lstrip("0"))
        original(file)

    FaultyFile.sync = sync  # type: ignore[method-assign]
    try:
        store._log.reserve_ahead()
    finally:
        FaultyFile.sync = original  # type: ignore[method-assign]
    assert "4096" in synced
    store.close()
