"""Files on their way out: names first and one by one, memory and blocks in bites, readers unharmed."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.runtime.clock import ManualClock
from orbitmq.store import disposal
from orbitmq.store.disposal import Disposal
from orbitmq.store.files import Files, MappedFile

SIZE = 16 * 4096
RETRY_MS, PATIENCE_MS = 100, 1000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def made(directory: Path, name: str) -> MappedFile:
    file = Files().create(directory / name, SIZE)
    file.reserve(0, SIZE)
    file.data[:] = name[:1].encode() * SIZE
    return file


def test_a_file_goes_name_first_and_its_blocks_in_bites(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disposal, "FREE_STEP", 4 * 4096)
    file, sizes = made(tmp_path, "a"), []
    shrink = file.shrink
    monkeypatch.setattr(file, "shrink", lambda size: (sizes.append((size, (tmp_path / "a").exists())), shrink(size)))
    out = Disposal(Files(), clock, RETRY_MS, PATIENCE_MS)
    out.add([file], named=True)
    assert not out.is_done
    out.work()
    assert out.is_done
    assert sizes == [(12 * 4096, False), (8 * 4096, False), (4 * 4096, False), (0, False)]
    assert file.read(0, 1) == b"", "its descriptor is closed, so the disk has it back"


def test_a_file_without_a_name_only_gives_its_blocks_back(tmp_path: Path, clock: ManualClock) -> None:
    """Its name may be another file's by now."""
    file = made(tmp_path, "a")
    (tmp_path / "a").unlink()
    again = made(tmp_path, "a")
    out = Disposal(Files(), clock, RETRY_MS, PATIENCE_MS)
    out.add([file], named=False)
    out.work()
    assert bytes(again.view[:1]) == b"a"
    assert (tmp_path / "a").stat().st_size == SIZE
    again.close()


def test_a_held_file_is_looked_at_again_and_in_the_end_left_to_its_reader(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    files = [made(tmp_path, "a"), made(tmp_path, "b")]
    slices = [file.view[:10] for file in files]
    out = Disposal(Files(), clock, RETRY_MS, PATIENCE_MS)
    out.add(files, named=True)
    out.work()
    assert list(tmp_path.iterdir()) == [], "the names do not wait"
    del slices[0]
    clock.advance(RETRY_MS - 1)
    out.work()
    assert not files[0].data.closed
    clock.advance(1)
    out.work()
    assert (files[0].data.closed, out.is_done) == (True, False)
    clock.advance(PATIENCE_MS)
    out.work()
    assert out.is_done
    assert "event=file_held" in caplog.text
    assert bytes(slices[0]) == b"b" * 10


def test_a_name_that_stays_keeps_the_later_ones(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    door = Files()
    out = Disposal(door, clock, RETRY_MS, PATIENCE_MS)
    out.add([made(tmp_path, "a"), made(tmp_path, "b")], named=True)
    with monkeypatch.context() as broken:
        broken.setattr(Path, "unlink", lambda *_, **__: (_ for _ in ()).throw(PermissionError("not yours")))
        for _ in range(2):
            with pytest.raises(PermissionError):
                out.work()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
    out.work()
    assert (out.is_done, list(tmp_path.iterdir())) == (True, [])


def test_a_close_removes_the_names_of_all(tmp_path: Path, clock: ManualClock) -> None:
    held, waiting = made(tmp_path, "a"), made(tmp_path, "b")
    piece = held.view[:1]
    out = Disposal(Files(), clock, RETRY_MS, PATIENCE_MS)
    out.add([held], named=True)
    out.work()
    out.add([waiting], named=True)
    out.close()
    assert (out.is_done, list(tmp_path.iterdir()), bytes(piece)) == (True, [], b"a")
