"""Small file systems of their own, mounted for a test and gone after it. Needs the right to mount."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BLOCK = 4096
KINDS = ("tmpfs", "ext4")


class CannotMount(Exception):
    """This machine does not let us; the text says why."""


@contextmanager
def mounted(kind: str, directory: Path, size: int) -> Iterator[Path]:
    """An empty file system of about `size` bytes at `directory`."""
    directory.mkdir()
    image = directory.with_name(directory.name + ".image")
    if kind == "tmpfs":
        _run("mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(directory))
    else:
        with image.open("wb") as file:
            file.truncate(size)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", str(image))  # no blocks kept for root: tests often are root
        _run("mount", "-o", "loop", str(image), str(directory))
    try:
        yield directory
    finally:
        # Lazily: a process that a failed test has left must not keep it.
        subprocess.run(["umount", "-l", str(directory)], check=False)
        image.unlink(missing_ok=True)


@contextmanager
def after_power_cut(disk: Path) -> Iterator[Path]:
    """What a machine would find that loses its power now and starts again, of an ext4 of `mounted`."""
    image, place = disk.with_name("copy.image"), disk.with_name("copy")
    shutil.copy(disk.with_name(disk.name + ".image"), image)
    place.mkdir()
    _run("mount", "-o", "loop", str(image), str(place))
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False)
        image.unlink()


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise CannotMount(f"there is no {command[0]}") from error
    if done.returncode:
        raise CannotMount(f"{' '.join(command)}: {done.stderr.strip()}")


class Ballast:
    """A file that takes room on a disk."""

    def __init__(self, disk: Path) -> None:
        self._path = disk / "ballast"

    def fill(self) -> None:
        """Take every block that is left."""
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for piece in (1 << 20, BLOCK):
            with contextlib.suppress(OSError):
                while True:
                    os.write(descriptor, b"\xff" * piece)
        os.close(descriptor)

    def take(self, size: int) -> None:
        """Take so many bytes, no more and no less."""
        with self._path.open("ab") as file:
            if size > file.tell():
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)

    def fill_to(self, percent: int) -> None:
        """Have so many percent of the disk in use, rounded up; what others use counts."""
        self.take(0)
        disk = os.statvfs(self._path)
        self.take(disk.f_frsize * (disk.f_blocks * percent // 100 - (disk.f_blocks - disk.f_bfree)))

    def drop(self) -> None:
        self._path.unlink(missing_ok=True)
