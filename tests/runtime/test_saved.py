"""A saved file ends up with the last content whatever happens while it is written, and says when it could not."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitmq.errors import StoreError
from orbitmq.runtime import saved
from orbitmq.runtime.files import save_with_backup
from orbitmq.runtime.saved import SavedFile
from tests.support.loops import settle, until


class Disk:
    """Writes files when let; counts them."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.full = False
        self.writers = 0
        self.on_write: Callable[[], object] = lambda: None

    def write(self, path: Path, text: str) -> None:
        self.writers += 1
        assert self.writers == 1, "two writers of one file"
        try:
            self.gate.wait(10)
            if self.full:
                raise OSError(28, "No space left on device")
            save_with_backup(path, text)
            self.texts.append(text)
            self.on_write()
        finally:
            self.writers -= 1


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    found = Disk()
    monkeypatch.setattr(saved, "save_with_backup", found.write)
    return found


def counting(path: Path) -> tuple[SavedFile, Callable[[int], None]]:
    """A file that holds the number last told."""
    value = 0

    def tell(number: int) -> None:
        nonlocal value
        value = number
        file.mark()

    file = SavedFile(path, lambda: str(value))
    return file, tell


async def test_a_change_is_on_disk_after_flush(tmp_path: Path, disk: Disk) -> None:
    file, tell = counting(tmp_path / "n")
    tell(7)
    await file.flush()
    assert file.path.read_text() == "7"
    await file.flush()
    assert disk.texts == ["7"]


async def test_changes_during_a_write_share_the_next_one(tmp_path: Path, disk: Disk) -> None:
    file, tell = counting(tmp_path / "n")
    disk.gate.clear()
    tell(1)
    await until(lambda: disk.writers == 1)
    for number in range(2, 50):
        tell(number)
    disk.gate.set()
    await file.flush()
    assert disk.texts == ["1", "49"]
    assert file.path.read_text() == "49"


async def test_a_flush_waits_for_the_changes_made_before_it(tmp_path: Path, disk: Disk) -> None:
    file, tell = counting(tmp_path / "n")
    disk.gate.clear()
    tell(1)
    await until(lambda: disk.writers == 1)
    tell(2)
    waiting = [asyncio.create_task(file.flush()) for _ in range(3)]
    await settle()
    assert not any(task.done() for task in waiting)
    disk.gate.set()
    await asyncio.gather(*waiting)
    assert file.path.read_text() == "2"


async def test_a_flush_does_not_wait_for_changes_that_come_after_it(tmp_path: Path, disk: Disk) -> None:
    """Else a broker on which topics are made all the time would answer none of those who make them."""
    file, tell = counting(tmp_path / "n")
    disk.gate.clear()
    tell(1)
    flushing = asyncio.create_task(file.flush())
    await until(lambda: disk.writers == 1)
    tell(2)
    disk.on_write = disk.gate.clear  # once the first is done
    disk.gate.set()
    await flushing
    await until(lambda: disk.writers == 1)
    assert disk.texts == ["1"]
    disk.gate.set()
    await file.flush()
    assert disk.texts == ["1", "2"]


async def test_each_who_waits_in_vain_gets_an_error_of_its_own(tmp_path: Path, disk: Disk) -> None:
    file, tell = counting(tmp_path / "n")
    disk.full = True
    tell(1)
    first, second = await asyncio.gather(file.flush(), file.flush(), return_exceptions=True)
    assert isinstance(first, StoreError)
    assert isinstance(second, StoreError)
    assert first is not second
    assert str(first) == str(second) == f"{file.path} cannot be written: No space left on device"


async def test_an_error_in_what_is_to_be_written_is_told(tmp_path: Path, disk: Disk) -> None:
    def render() -> str:
        raise ValueError("no text")

    file = SavedFile(tmp_path / "n", render)
    file.mark()
    with pytest.raises(ValueError, match="no text"):
        await file.flush()


@pytest.mark.parametrize("turns", range(8))
async def test_a_change_is_never_lost_at_the_moment_a_write_ends(tmp_path: Path, disk: Disk, turns: int) -> None:
    """The end of a write takes a few turns of the loop; a change and a flush may come in each of them."""
    file, tell = counting(tmp_path / "n")
    for number in range(0, 40, 2):
        tell(number)
        await until_written(disk, str(number))
        await settle(turns)
        tell(number + 1)
        await asyncio.wait_for(file.flush(), 10)
        assert file.path.read_text() == str(number + 1)


async def until_written(disk: Disk, text: str) -> None:
    """Return in the turn in which the writing thread is done."""
    while not (disk.texts and disk.texts[-1] == text and disk.writers == 0):  # noqa: ASYNC110 - the very turn counts
        await asyncio.sleep(0)


async def test_one_waiting_caller_that_gives_up_does_not_stop_the_write(tmp_path: Path, disk: Disk) -> None:
    file, tell = counting(tmp_path / "n")
    disk.gate.clear()
    tell(1)
    impatient = asyncio.create_task(file.flush())
    await until(lambda: disk.writers == 1)
    impatient.cancel()
    disk.gate.set()
    await file.flush()
    assert file.path.read_text() == "1"


async def test_what_a_full_disk_kept_from_being_written_is_written_later(tmp_path: Path, disk: Disk) -> None:
    file, tell = counting(tmp_path / "n")
    disk.full = True
    tell(1)
    await until(lambda: file._writing is None)
    disk.full = False
    file.retry()
    await until(lambda: disk.texts == ["1"])
    await until(lambda: file._writing is None)
    file.retry()
    await settle()
    assert disk.texts == ["1"], "nothing is written twice"


async def test_a_full_disk_is_told_to_those_who_wait_and_the_change_is_tried_again(
    tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    file, tell = counting(tmp_path / "n")
    disk.full = True
    tell(1)
    with caplog.at_level(logging.ERROR), pytest.raises(StoreError, match="No space"):
        await file.flush()
    with pytest.raises(StoreError, match="No space"):
        await file.flush()
    assert all("n" in record.message for record in caplog.records)
    disk.full = False
    await file.flush()
    assert file.path.read_text() == "1"


async def test_a_failure_nobody_waits_for_is_one_log_line(
    tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    file, tell = counting(tmp_path / "n")
    disk.full = True
    with caplog.at_level(logging.ERROR):
        tell(1)
        await until(lambda: caplog.records)
    (record,) = caplog.records
    assert str(file.path) in record.message
