"""A disk that loses its power at any moment, sector by sector and name by name. It works on real files.

What is certain to be on disk is kept beside the files. Between two calls the disk may write back any sector on its
own, in any order. When the power goes, each sector that is not certain is old or new, and of the changes of a
directory that were not synced only a beginning has happened: file systems keep those in order. A file whose name
has survived as the last change may still have no size.

    disk = PowerDisk(directory, random)
    disk.calls_left = 17            # the 18th call that changes the disk raises PowerLost
    ...
    disk.lose_power()               # what a machine would find that starts again
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TypeAlias
from unittest import mock

from orbitmq.store import files
from orbitmq.store.files import DirectoryLock, Disk, Files, MappedFile

SECTOR = 512  # what a disk writes as a whole


class PowerLost(BaseException):
    """The machine is off; no error that anybody could handle."""


@dataclass(eq=False)
class Inode:
    """The bytes of a file that are on disk for certain, whatever its name is."""

    data: bytearray
    has_size: bool = False


@dataclass(eq=False)
class Directory:
    """Names that are on disk for certain, and changes that are not, in order; None is a removal."""

    names: dict[str, Node] = field(default_factory=dict)
    changes: list[tuple[str, Node | None]] = field(default_factory=list)

    def settle(self, count: int) -> None:
        """The first `count` changes reach the disk."""
        for name, node in self.changes[:count]:
            if node is None:
                self.names.pop(name, None)
            else:
                self.names[name] = node
        del self.changes[:count]


Node: TypeAlias = Inode | Directory


class PowerFile(MappedFile):
    """A mapped file that tells its disk what is synced."""

    def __init__(self, path: Path, size: int, *, create: bool, disk: PowerDisk) -> None:
        super().__init__(path, size, create=create, writable=True)
        self._disk = disk

    def sync(self) -> None:
        self._disk.spend()
        super().sync()
        self._disk.keep(self.path)

    def clear_from(self, position: int) -> None:
        """Without power in the middle some sectors are cleared, others are not."""
        self._disk.spend()
        super().clear_from(position)


class PowerWhole(Disk):
    """One call that brings all to disk, whoever wrote it."""

    def __init__(self, directory: Path, disk: PowerDisk) -> None:
        super().__init__(directory)
        self._device = directory.stat().st_dev  # whatever the test lies on
        self._disk = disk

    def _sync_all(self) -> bool:
        self._disk.spend()
        self._disk.keep_all()
        self._disk.spend()
        return True


class PowerDisk(Files):
    """`directory` itself, which must exist and be empty, never gets lost."""

    file = PowerFile

    def __init__(self, directory: Path, random: Random) -> None:
        self.directory = directory
        self.random = random
        self.calls_left: int | None = None
        self._root = Directory()
        self._nodes: dict[Path, Node] = {directory: self._root}  # as the running machine sees them
        self._files: list[PowerFile] = []
        self._wholes: list[PowerWhole] = []
        self._lock: DirectoryLock | None = None

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Files sync their directory by a function of their module, not through `Files`. One file is as good as many
        for syncing the whole disk, sometimes.
        """
        many = self.random.choice((1, files.MANY))
        with mock.patch.object(files, "sync_directory", self.sync_directory), mock.patch.object(files, "MANY", many):
            yield

    # ---------------------------------------------------------------------------------------------- what the store does

    def make_directory(self, directory: Path) -> None:
        self._name_missing(directory)
        super().make_directory(directory)

    def _name_missing(self, directory: Path) -> None:
        for path in reversed([path for path in (directory, *directory.parents) if not path.exists()]):
            self._name(path, Directory())

    def create(self, path: Path, size: int) -> MappedFile:
        self.spend()
        self._name_missing(path.parent)
        file = self.file(path, size, create=True, disk=self)
        self._name(path, Inode(bytearray(size)))
        return self._remember(file)

    def open(self, path: Path, size: int, *, writable: bool) -> MappedFile:
        return self._remember(self.file(path, size, create=False, disk=self))

    def disk(self, directory: Path) -> Disk:
        self._wholes.append(PowerWhole(directory, self))
        return self._wholes[-1]

    def remove(self, path: Path) -> None:
        self.spend()
        if path.exists():
            super().remove(path)
            self._name(path, None)

    def remove_directory(self, directory: Path) -> None:
        self.spend()
        existed = directory.exists()
        super().remove_directory(directory)
        if existed and not directory.exists():
            self._name(directory, None)

    def sync_directory(self, directory: Path) -> None:
        self.spend()
        node = self._nodes[directory]
        assert isinstance(node, Directory)
        node.settle(len(node.changes))

    def write(self, path: Path, data: bytes) -> None:
        self.spend()
        if not path.exists():
            path.touch()
            self._name(path, Inode(bytearray(), has_size=True))
            self.spend()
        super().write(path, data)
        self.keep(path)

    def lock(self, path: Path) -> DirectoryLock:
        self._lock = super().lock(path)
        return self._lock

    # ----------------------------------------------------------------------------------------------- what the disk does

    def spend(self) -> None:
        """One call less until the power goes."""
        if self.calls_left is not None:
            self.calls_left -= 1
            if self.calls_left < 0:
                raise PowerLost

    def keep(self, path: Path) -> None:
        """The file is on disk as it is now."""
        node = self._nodes.get(path)
        if isinstance(node, Inode):
            node.data[:] = path.read_bytes()
            node.has_size = True

    def keep_all(self) -> None:
        """Everything is on disk as it is now, names included."""
        for path, node in self._nodes.items():
            if isinstance(node, Directory):
                node.settle(len(node.changes))
            else:
                self.keep(path)

    def write_back(self) -> None:
        """Write some of what was not synced."""
        share = self.random.random()
        for path, node in self._nodes.items():
            if isinstance(node, Inode) and self.random.random() < share:
                self._write_back(node, path.read_bytes(), share)

    def kill(self) -> None:
        """The process dies: all it has written is there, whether synced or not."""
        for file in self._files:
            file.close()
        self._files.clear()
        for whole in self._wholes:
            whole.close()
        self._wholes.clear()
        if self._lock is not None:
            with contextlib.suppress(OSError):  # the store has let it go itself
                self._lock.release()
            self._lock = None
        self.calls_left = None

    def lose_power(self) -> None:
        """The machine dies, and starts again: the files are those that were on disk."""
        share = self.random.choice((0, 0.1, 0.5, 0.9, 1))  # how much of what is not certain has been written
        for path, node in self._nodes.items():
            if isinstance(node, Inode):
                self._write_back(node, path.read_bytes(), share)
        self.kill()
        for path in self.directory.iterdir():
            shutil.rmtree(path)
        self._nodes = {self.directory: self._root}
        self._bring_back(self.directory, self._root)

    def _bring_back(self, path: Path, directory: Directory) -> None:
        last = self._settle_some(directory)
        directory.changes.clear()
        for name, node in directory.names.items():
            self._nodes[path / name] = node
            if isinstance(node, Directory):
                (path / name).mkdir()
                self._bring_back(path / name, node)
                continue
            if node is last and not node.has_size and self.random.random() < 0.2:
                node.data.clear()
            node.has_size = True
            (path / name).write_bytes(node.data)

    def _settle_some(self, directory: Directory) -> Node | None:
        """Some changes of the directory have reached the disk; what the last of them brought."""
        changes = directory.changes
        count = self.random.choice((0, len(changes), self.random.randint(0, len(changes))))
        last = changes[count - 1][1] if count else None
        directory.settle(count)
        return last

    def _write_back(self, inode: Inode, current: bytes, share: float) -> None:
        if len(inode.data) != len(current):  # cut short or grown, and not synced
            inode.data[:] = inode.data[: len(current)].ljust(len(current), b"\0")
        for start in range(0, len(current), SECTOR):
            sector = slice(start, start + SECTOR)
            if current[sector] != inode.data[sector] and self.random.random() < share:
                inode.data[sector] = current[sector]

    def _name(self, path: Path, node: Node | None) -> None:
        parent = self._nodes[path.parent]
        assert isinstance(parent, Directory)
        parent.changes.append((path.name, node))
        if node is None:
            del self._nodes[path]
        else:
            self._nodes[path] = node

    def _remember(self, file: PowerFile) -> PowerFile:
        self._files.append(file)
        return file
