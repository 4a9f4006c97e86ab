"""Files on their way out: names first and one by one, memory and blocks in bites, readers unharmed."""

from __future__ import annotations

import os
import subprocess
import sys
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
    file, bites = made(tmp_path, "a"), []
    free = file.give_back

    def give_back(start: int, size: int) -> None:
        bites.append((start, size, (tmp_path / "a").exists()))
        free(start, size)

    monkeypatch.setattr(file, "give_back", give_back)
    out = Disposal(Files(), clock, RETRY_MS, PATIENCE_MS)
    out.add([file], named=True)
    assert not out.is_done
    out.work()
    assert out.is_done
    assert bites == [(start * 4096, 4 * 4096, False) for start in (0, 4, 8, 12)]
    assert file.read(0, 1) == b"", "its descriptor is closed, so the disk has it back"


def test_another_process_that_has_the_file_mapped_lives_on(tmp_path: Path, clock: ManualClock) -> None:
    """`orbitmq store dump` looks at a store while its broker removes files; it sees that there is no message."""
    file = made(tmp_path, "a")
    looker = """if True:
        import mmap, sys
        file = open(sys.argv[1], "rb")
        view = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        print(view[:1].decode(), flush=True)
        sys.stdin.read()
        print(sum(view[::4096]))
    """
    process = subprocess.Popen(
        [sys.executable, "-c", looker, tmp_path / "a"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "a\n"
        blocks = (tmp_path / "a").stat().st_blocks
        with (tmp_path / "a").open("rb") as held:
            out = Disposal(Files(), clock, RETRY_MS, PATIENCE_MS)
            out.add([file], named=True)
            out.work()
            assert os.fstat(held.fileno()).st_blocks < blocks / 2, "its blocks are free all the same"
        printed, _ = process.communicate("")
    assert (process.returncode, printed) == (0, "0\n")


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
    fs = Files()
    out = Disposal(fs, clock, RETRY_MS, PATIENCE_MS)
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
