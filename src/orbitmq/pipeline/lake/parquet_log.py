"""A lake of plain Parquet files with a log of its own, on a mounted file system.

    _orbit_log/lake.json                          {"format": 1}
    _orbit_log/batches/<query>/<batch>.json       {"added": [LakeFile...]}: one batch of one archive
    _orbit_log/changes/<number>.json              {"removed": [path...], "added": [LakeFile...], "at_ms": ...}
    _orbit_log/folds/<number>.json                what all entries before came to; the last one counts

An entry is created atomically and once: written under a temporary name, flushed, and linked to its final name, which
fails when that exists. This is the whole commit protocol. Object stores have no such step, so they need a table format.

Entries accumulate, so they are folded into one from time to time. The originals stay until the fold is older than any
job that may have started before it. Later jobs see the fold, and a batch or change made meanwhile has a higher number
than those in it.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from orbitmq.errors import LakeConflict, LakeError
from orbitmq.pipeline.lake.lakes import GRACE_MS
from orbitmq.pipeline.lake.layout import LOG_FOLDER
from orbitmq.pipeline.lake.manifest import LakeFile
from orbitmq.pipeline.lake.storage import StorageLocation

FORMAT = 1
DIGITS = 12
FOLDED_FROM = 1000  # entries: reading them takes some 10 ms
LOOKS_MAX = 10  # at a log that is folded each time meanwhile


class _Head(msgspec.Struct, frozen=True):
    format: int


class _Batch(msgspec.Struct, frozen=True):
    added: list[LakeFile]


class _Change(msgspec.Struct, frozen=True):
    removed: list[str]
    added: list[LakeFile]
    at_ms: int


class _Fold(msgspec.Struct, frozen=True):
    """`batches` has the last batch of each query that is in it, `change` the number of the last change."""

    batches: dict[str, int]
    change: int
    files: list[LakeFile]
    at_ms: int


@dataclass(frozen=True)
class _State:
    """The content of the log: the number of the fold it begins with, -1 for none, and the entries after that fold."""

    fold: int
    batches: dict[str, int]
    change: int
    files: dict[str, LakeFile]
    entries: int


NOTHING = _Fold({}, -1, [], 0)


class ParquetLake:
    """`now_ms` returns epoch milliseconds. LakeError unless a directory, or for a log of a later format."""

    def __init__(self, place: StorageLocation, now_ms: Callable[[], int]) -> None:
        if not place.is_local:
            raise LakeError(
                f"a plain Parquet lake needs a folder, and {place.root} is not one: object stores cannot create a "
                "file only if it does not exist; use the format delta or iceberg"
            )
        self.place = place
        self._now_ms = now_ms
        self._log = place.folder / LOG_FOLDER
        self._check_format()

    def last_batch(self, query_id: str) -> int:
        folded = self._newest_fold()[1].batches.get(query_id, -1)
        return max((int(path.stem) for path in self._log.glob(f"batches/{query_id}/*.json")), default=folded)

    def commit(self, query_id: str, batch_id: int, files: Sequence[LakeFile]) -> bool:
        self._make_head()
        if batch_id <= self._newest_fold()[1].batches.get(query_id, -1):
            return False
        path = self._log / "batches" / query_id / f"{batch_id:0{DIGITS}d}.json"
        return _create(path, _Batch(list(files)))

    def replace(self, removed: Sequence[LakeFile], added: Sequence[LakeFile]) -> None:
        state = self._state()
        missing = {file.path for file in removed} - state.files.keys()
        if missing:
            raise LakeConflict(f"another compaction has replaced {min(missing)}")
        change = _Change([file.path for file in removed], list(added), self._now_ms())
        if not _create(self._log / "changes" / f"{state.change + 1:0{DIGITS}d}.json", change):
            raise LakeConflict(f"another compaction has made the change {state.change + 1}")

    def files(self) -> list[LakeFile]:
        found = self._state().files
        return [found[path] for path in sorted(found)]

    def settle(self, now_ms: int) -> Collection[str]:
        state = self._state()  # first: a change that comes meanwhile has its grace as well
        changes = filter(None, [_read_if_there(path, _Change) for path in self._changes()])
        recent = [change for change in changes if change.at_ms + GRACE_MS > now_ms]
        if state.entries >= FOLDED_FROM:
            self._fold(state, now_ms)
        return set(state.files) | {path for change in recent for path in change.removed}

    # ------------------------------------------------------------------------------------------------------- the log

    def _state(self) -> _State:
        for _ in range(LOOKS_MAX):
            number, fold = self._newest_fold()
            try:
                state = self._state_from(number, fold)
            except LakeError:
                if self._newest_fold()[0] == number:
                    raise
                continue
            if self._newest_fold()[0] == number:  # otherwise entries may be removed while they are read
                return state
        raise LakeError(f"the log {self._log} is folded again and again while it is read; try once more")

    def _state_from(self, number: int, fold: _Fold) -> _State:
        batches, files = dict(fold.batches), {file.path: file for file in fold.files}
        changes = [(int(path.stem), path) for path in self._changes()]
        changes = [(place, path) for place, path in changes if place > fold.change]
        entries = len(changes)
        made = [_read(path, _Change) for _, path in changes]  # before the batches: files that it removes exist in these
        for path in sorted(self._log.glob("batches/*/*.json")):
            query, batch = path.parent.name, int(path.stem)
            if batch > fold.batches.get(query, -1):
                files |= {file.path: file for file in _read(path, _Batch).added}
                batches[query] = batch
                entries += 1
        files |= {file.path: file for change in made for file in change.added}
        for change in made:
            for removed in change.removed:
                files.pop(removed, None)
        return _State(number, batches, changes[-1][0] if changes else fold.change, files, entries)

    def _fold(self, state: _State, now_ms: int) -> None:
        """Fold all entries into one, and remove those of the previous fold once no reader can need them."""
        before = self._newest_fold()[1]
        fold = _Fold(state.batches, state.change, list(state.files.values()), now_ms)
        if before.at_ms + GRACE_MS > now_ms or not _create(self._fold_path(state.fold + 1), fold):
            return
        for path in self._log.glob("batches/*/*.json"):
            if int(path.stem) <= before.batches.get(path.parent.name, -1):
                path.unlink(missing_ok=True)
        for path in self._changes():
            if int(path.stem) <= before.change:
                path.unlink(missing_ok=True)
        for number in range(state.fold - 1, -1, -1):
            if not self._fold_path(number).exists():
                break
            self._fold_path(number).unlink(missing_ok=True)

    def _newest_fold(self) -> tuple[int, _Fold]:
        for _ in range(LOOKS_MAX):
            newest = max(self._log.glob("folds/*.json"), default=None)
            if newest is None:
                return -1, NOTHING
            if (fold := _read_if_there(newest, _Fold)) is not None:
                return int(newest.stem), fold
        raise LakeError(f"the log {self._log} is folded again and again while it is read; try once more")

    def _fold_path(self, number: int) -> Path:
        return self._log / "folds" / f"{number:0{DIGITS}d}.json"

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


def _read_if_there(path: Path, kind: type[T]) -> T | None:
    """None for an entry that was folded and removed since it was listed."""
    try:
        return _read(path, kind)
    except LakeError:
        if path.exists():
            raise
        return None


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
