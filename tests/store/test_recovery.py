"""Where recovery looks and what it repairs. Random crashes are in test_model.py, RocketMQ's own in tests/golden."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from orbitmq.runtime.clock import ManualClock
from orbitmq.store import progress
from orbitmq.store.engine import MessageStore
from tests.support.disk import FaultyDisk
from tests.support.stores import abandon, bodies, open_store, record

WALKED = "event=recovered clean=%s walked_from=%d "


def fill(store: MessageStore, clock: ManualClock, count: int = 12) -> None:
    """Three messages a file, a second apart."""
    for number in range(count):
        store.put(record(b"%04d" % number + bytes(1000)))
        clock.advance(1000)


def crashed(root: Path, clock: ManualClock, *, checkpoint: bool) -> int:
    disk = FaultyDisk()
    store = open_store(root, clock, disk)
    fill(store, clock)
    if checkpoint:
        store.flushes.log_flusher.flush()
        store.flushes.queue_flusher.flush()
    end = store.commit_log_max_offset
    abandon(store)
    disk.kill()
    return end


@pytest.fixture(autouse=True)
def _verbose(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")


def test_a_clean_start_looks_at_the_last_message_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    store = open_store(tmp_path, clock)
    fill(store, clock)
    last = store.entries("T", 0, 11, 1)[0][0]
    store.close()
    open_store(tmp_path, clock).close()
    assert WALKED % (True, last) in caplog.text


@pytest.mark.parametrize(("checkpoint", "first"), [(False, 0), (True, 2 * 4096)])
def test_a_crash_is_walked_from_the_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, checkpoint: bool, first: int
) -> None:
    """The last file that began at least three seconds before the last full flush."""
    clock = ManualClock()
    end = crashed(tmp_path, clock, checkpoint=checkpoint)
    store = open_store(tmp_path, clock)
    assert WALKED % (False, first) in caplog.text
    assert store.commit_log_max_offset == store.flushed_offset == end
    assert len(bodies(store)) == 12
    store.close()


def test_queues_that_are_gone_are_built_anew(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_store(tmp_path, clock)
    fill(store, clock)
    before = bodies(store)
    store.close()
    shutil.rmtree(tmp_path / "consumequeue")
    store = open_store(tmp_path, clock)
    assert bodies(store) == before
    store.close()


def test_without_a_log_there_are_no_queues(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_store(tmp_path, clock)
    fill(store, clock)
    store.close()
    shutil.rmtree(tmp_path / "commitlog")
    store = open_store(tmp_path, clock)
    assert store.max_offset("T", 0) == 0
    assert list((tmp_path / "consumequeue").rglob("0*")) == []
    assert store.put(record()).physical_offset == 0
    store.close()


def test_a_log_that_lost_its_end_takes_its_queues_with_it(tmp_path: Path) -> None:
    """Even after a clean exit: somebody restored an older copy of the log."""
    clock = ManualClock()
    store = open_store(tmp_path, clock)
    fill(store, clock)
    store.close()
    (tmp_path / "commitlog" / f"{3 * 4096:020d}").unlink()
    store = open_store(tmp_path, clock)
    assert [body[:4] for body in bodies(store)] == [b"%04d" % number for number in range(9)]
    assert store.put(record(b"next")).queue_offset == 9
    store.close()


def test_messages_behind_the_damage_do_not_come_back(tmp_path: Path) -> None:
    """A unit that is cut off must not return when a later one of the same size ends where it began."""
    clock = ManualClock()
    store = open_store(tmp_path, clock)
    fill(store, clock, 3)
    second = store.entries("T", 0, 1, 1)[0][0]
    store.close()
    (tmp_path / "abort").touch()
    path = tmp_path / "commitlog" / ("0" * 20)
    data = bytearray(path.read_bytes())
    data[second + 100] ^= 1
    path.write_bytes(data)
    store = open_store(tmp_path, clock)
    assert len(bodies(store)) == 1
    store.put(record(b"new1" + bytes(1000)))
    abandon(store)
    store._release()
    store = open_store(tmp_path, clock)
    assert [body[:4] for body in bodies(store)] == [b"0000", b"new1"]
    store.close()


def test_a_file_made_ahead_is_no_damage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    disk = FaultyDisk()
    store = open_store(tmp_path, clock, disk)
    fill(store, clock, 2)
    store._log.reserve_ahead()
    assert len(list((tmp_path / "commitlog").iterdir())) == 3
    abandon(store)
    disk.kill()
    store = open_store(tmp_path, clock)
    assert len(bodies(store)) == 2
    assert len(list((tmp_path / "commitlog").iterdir())) == 1
    assert "event=log_damaged" not in caplog.text
    store.close()


def test_a_long_recovery_reports_how_far_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every five seconds, with its rate; here each look at the clock takes two."""
    clock = ManualClock()
    crashed(tmp_path, clock, checkpoint=False)

    class Ticking(ManualClock):
        def now_ms(self) -> int:
            self.advance(2000)
            return super().now_ms()

    monkeypatch.setattr(progress, "LOOK_BYTES", 4096)
    open_store(tmp_path, Ticking()).close()
    reports = [line for line in caplog.messages if line.startswith("event=recovering")]
    assert re.fullmatch(
        r"event=recovering position=(8192|12288) goal=\d+ percent=\d\d ms=[5-9]\d{3} mb_per_s=\d+", reports[0]
    )
    assert "mb_per_s=" in caplog.text.split("event=recovered ")[1]
