"""Access to the storage of a lake: a folder, or a URI of a file system of Arrow (`s3://`, `gs://`, `hdfs://`).

Knows no messages. Files are read only after a commit names them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from orbitmq.errors import LakeError
from orbitmq.lake.s3 import SCHEME, S3Address, s3_address

OBJECT_STORES = (SCHEME, "gs://", "gcs://", "abfs://", "abfss://")  # they have no folders to make


@dataclass(frozen=True)
class Listed:
    """A file below the root: relative path, size in bytes, time of the last change in milliseconds since the epoch."""

    path: str
    size: int
    changed_ms: int


class StorageLocation:
    """The root folder of a lake. It is sent to tasks, so it opens the file system on use."""

    def __init__(self, root: str) -> None:
        if not root:
            raise LakeError("the location is empty; use a folder, or a URI such as s3://bucket/lake")
        self.root = root if "://" in root else str(Path(root).expanduser().absolute())

    @property
    def is_local(self) -> bool:
        """A local or mounted directory."""
        return "://" not in self.root or self.root.startswith("file://")

    @property
    def is_object_store(self) -> bool:
        """Whether these jobs read and write it themselves: Spark needs a connector of Hadoop for it."""
        return self.root.startswith(OBJECT_STORES)

    @property
    def s3(self) -> S3Address:
        """Where the store is, by the environment of this process; empty for what is not S3."""
        return s3_address(os.environ) if self.root.startswith(SCHEME) else S3Address()

    @property
    def folder(self) -> Path:
        """The root as a directory. LakeError if it is none."""
        if not self.is_local:
            raise LakeError(f"{self.root} is not a folder of a mounted file system")
        return Path(self.root.removeprefix("file://"))

    def uri(self, path: str) -> str:
        """The full name of a file, as Spark and table formats need it. A URI is its own."""
        return path if "://" in path else f"{self.root.rstrip('/')}/{path}"

    def open(self, path: str) -> pa.NativeFile:
        """A new file for writing; its folder is made."""
        system, base = self._opened()
        whole = f"{base}/{path}"
        if not self.is_object_store:
            system.create_dir(whole.rpartition("/")[0], recursive=True)
        return system.open_output_stream(whole)

    def read(self, path: str) -> pa.NativeFile:
        """A file for reading from any position, elsewhere by its URI. LakeError if it does not exist."""
        system, whole = self._found(path)
        try:
            return system.open_input_file(whole)
        except OSError as error:
            raise LakeError(f"{self.uri(path)} cannot be read: {error}") from error

    def remove(self, path: str) -> None:
        """Remove a file; no error if it does not exist."""
        system, base = self._opened()
        try:
            system.delete_file(f"{base}/{path}")
        except FileNotFoundError:
            return

    def has_folder(self, path: str) -> bool:
        """Whether there is a folder of that name; on an object store, whether it contains a file."""
        system, base = self._opened()
        try:
            return bool(system.get_file_info(f"{base}/{path}").type is fs.FileType.Directory)
        except OSError as error:
            raise LakeError(f"{self.root} cannot be read: {error}") from error

    def files(self) -> Iterator[Listed]:
        """Every file below the root, in no order."""
        system, base = self._opened()
        for found in system.get_file_info(fs.FileSelector(base, recursive=True, allow_not_found=True)):
            if found.type is fs.FileType.File:
                changed_ms = (found.mtime_ns or 0) // 1_000_000
                yield Listed(found.path[len(base) + 1 :], found.size, changed_ms)

    def _found(self, path: str) -> tuple[fs.FileSystem, str]:
        scheme, is_uri, rest = path.partition("://")
        if not is_uri:
            system, base = self._opened()
            return system, f"{base}/{path}"
        host, _, name = rest.partition("/")
        system, base = _opened(f"{scheme}://{host}/")  # the rest is a name: table formats escape nothing in it
        return system, f"{base}/{name}"

    def _opened(self) -> tuple[fs.FileSystem, str]:
        return _opened(self.root)


def _opened(root: str) -> tuple[fs.FileSystem, str]:
    try:
        address = s3_address(os.environ) if root.startswith(SCHEME) else S3Address()
        if address != S3Address():
            return _s3(address), root.removeprefix(SCHEME).rstrip("/")
        system, base = fs.FileSystem.from_uri(root)
    except (OSError, pa.ArrowInvalid) as error:
        raise LakeError(f"{root} cannot be opened: {error}") from error
    return system, base.rstrip("/")


@lru_cache(maxsize=4)
def _s3(address: S3Address) -> fs.S3FileSystem:
    """One client a process: it keeps connections, and credentials that it has fetched."""
    return fs.S3FileSystem(**address.arrow)
