"""A lake of plain Parquet files with a log of its own: nothing but files, on a file system that is mounted here.

    _orbit_log/lake.json                          {"format": 1}
    _orbit_log/batches/<query>/<batch>.json       {"added": [LakeFile...]}: one batch of one archive
    _orbit_log/changes/<number>.json              {"removed": [path...], "added": [LakeFile...], "at_ms": ...}

An entry comes into being whole and once: written under another name, flushed, and linked to its own, which fails where
that exists. That is the whole of the commit protocol; object stores have no such step, so they need a table format.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from orbitmq.errors import LakeConflict, LakeError
from orbitmq.pipeline.lake.lakes import GRACE_MS
from orbitmq.pipeline.lake.layout import LOG_FOLDER
from orbitmq.pipeline.lake.manifest import LakeFile
from orbitmq.pipeline.lake.places import Place

FORMAT = 1
DIGITS = 12


class _Head(msgspec.Struct, frozen=True):
    format: int


class _Batch(msgspec.Struct, frozen=True):
    added: list[LakeFile]


class _Change(msgspec.Struct, frozen=True):
    removed: list[str]
    added: list[LakeFile]
    at_ms: int


class ParquetLake:
    """`now_ms` gives milliseconds since the epoch. LakeError for a place that is no folder, or a log of a later
    format."""

    def __init__(self, place: Place, now_ms: Callable[[], int]) -> None:
        if not place.is_local:
            raise LakeError(
                f"a plain Parquet lake must lie in a folder, and {place.root} is none: object stores cannot make a "
                "file only where there is none; use the format delta or iceberg"
            )
        self.place = place
        self._now_ms = now_ms
        self._log = place.folder / LOG_FOLDER
        self._check_format()

    def last_batch(self, query_id: str) -> int:
        return max((int(path.stem) for path in self._batches(query_id)), default=-1)

    def commit(self, query_id: str, batch_id: int, files: Sequence[LakeFile]) -> bool:
        self._make_head()
        path = self._log / "batches" / query_id / f"{batch_id:0{DIGITS}d}.json"
        return _create(path, _Batch(list(files)))

    def replace(self, removed: Sequence[LakeFile], added: Sequence[LakeFile]) -> None:
        changes = self._changes()
        missing = {file.path for file in removed} - {file.path for file in self.files()}
        if missing:
            raise LakeConflict(f"another compaction has replaced {min(missing)}")
        number = int(changes[-1].stem) + 1 if changes else 0
        change = _Change([file.path for file in removed], list(added), self._now_ms())
        if not _create(self._log / "changes" / f"{number:0{DIGITS}d}.json", change):
            raise LakeConflict(f"another compaction has made the change {number}")

    def files(self) -> list[LakeFile]:
        changes = [_read(path, _Change) for path in self._changes()]
        found = {file.path: file for path in self._batches("*") for file in _read(path, _Batch).added}
        found.update({file.path: file for change in changes for file in change.added})
        for change in changes:
            for removed in change.removed:
                found.pop(removed, None)
        return [found[path] for path in sorted(found)]

    def settle(self, now_ms: int) -> Collection[str]:
        published = {file.path for file in self.files()}  # first: a change that comes meanwhile has its grace as well
        recent = [change for path in self._changes() if (change := _read(path, _Change)).at_ms + GRACE_MS > now_ms]
        return published | {path for change in recent for path in change.removed}

    # ------------------------------------------------------------------------------------------------------- the log

    def _batches(self, query_id: str) -> list[Path]:
        return sorted(self._log.glob(f"batches/{query_id}/*.json"))

    def _changes(self) -> list[Path]:
        return sorted(self._log.glob("changes/*.json"))

    def _check_format(self) -> None:
        head = self._log / "lake.json"
        if head.exists() and _read(head, _Head).format > FORMAT:
            raise LakeError(f"{head} is of a later format than {FORMAT}; use the orbitmq that made it, or a newer one")

    def _make_head(self) -> None:
        head = self._log / "lake.json"
        if not head.exists():
            _create(head, _Head(FORMAT))


T = TypeVar("T", bound=msgspec.Struct)


def _read(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        raise LakeError(f"the lake's log entry {path} cannot be read: {error}") from error


def _create(path: Path, entry: msgspec.Struct) -> bool:
    """Make the file, on disk with its name; False when it exists."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.parent / f".{uuid.uuid4().hex}"
        with draft.open("wb") as file:
            file.write(msgspec.json.encode(entry))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        _sync_names(path.parent)
        return True
    except OSError as error:
        raise LakeError(f"the lake's log entry {path} cannot be written: {error}") from error


def _sync_names(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
