"""The interface of all lakes, and the removal of old files. Knows no table format.

A batch is published once: a second `commit` of the same query and batch does nothing, so a failed job can repeat its
last batch. `sweep` removes files of unpublished batches, and those of old versions. The commit that publishes files
also says how far their queues are archived, so a reader of one version knows exactly which messages are in it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar

import pyarrow as pa

from orbitmq.errors import LakeConflict, LakeError
from orbitmq.lake.manifest import LakeFile, Reached
from orbitmq.lake.storage import StorageLocation
from orbitmq.lake.versions import DAY_MS, HOUR_MS
from orbitmq.runtime.clock import Clock, SystemClock

LOG = logging.getLogger(__name__)

T = TypeVar("T")
Failures = tuple[type[Exception], ...]

TASK_MS_MAX = DAY_MS  # no task runs as long: older files that are not published never will be
SWEEP_INTERVAL_MS = 6 * HOUR_MS  # listing a large lake takes a while, and what goes is days old anyway
COMMIT_TRIES = 20  # each change that another writer makes at the same time costs one


@dataclass(frozen=True)
class Snapshot:
    """The table at one version, which names it to `Lake.snapshot`: its columns, in plain types, and its files."""

    version: str
    schema: pa.Schema
    files: list[LakeFile]


@dataclass(frozen=True)
class Versions:
    """Relative paths of files, as of `Lake.owns`: those of the current version of a table, and those of older versions
    that are kept."""

    current: Collection[str] = ()
    older: Collection[str] = ()


@dataclass(frozen=True)
class Swept:
    """What a sweep did: the files it removed, how many it kept that the current version does not have, and how many it
    could not remove."""

    removed: Sequence[str] = ()
    kept: int = 0
    stuck: int = 0


class Lake(Protocol):
    """Published message files at one place. Errors are LakeError, or LakeConflict when another job was faster."""

    place: StorageLocation
    widens: bool  # whether a column can get a wider type

    def schema(self) -> pa.Schema | None:
        """The columns of the files, in plain types; None before the first batch."""
        ...

    def last_batch(self, query_id: str) -> int:
        """The number of the last published batch of a query, -1 for none."""
        ...

    def commit(self, query_id: str, batch_id: int, files: Sequence[LakeFile], reached: Sequence[Reached] = ()) -> bool:
        """Publish the files of a batch, all or none, with the progress that the archive `reached` by them, and add
        columns to the table that it does not have. The files of a batch have the same columns. False when that batch is
        published already. LakeError when another batch of that number or a later one is, see `check_repeated`, and for
        a column that the table cannot take, see `schemas.changes`."""
        ...

    def replace(self, removed: Sequence[LakeFile], added: Sequence[LakeFile]) -> None:
        """Replace some files by others with the same messages. LakeConflict if one of them no longer exists."""
        ...

    def files(self) -> list[LakeFile]:
        """The published files, in the order of the paths."""
        ...

    def snapshot(self, version: str = "") -> Snapshot:
        """A version of the table, the newest without one. LakeError when it does not exist, or not any more."""
        ...

    def version_at(self, time_ms: int) -> str:
        """The version that was the newest at a time. LakeError when there was none, or it does not exist any more."""
        ...

    def reached(self, version: str, topics: Collection[str]) -> list[Reached]:
        """How far the queues of these topics are archived in a version: before `next`, every message that the archive
        was to keep is in its files; from there on none is. Sorted. LakeError for a version that does not tell."""
        ...

    def keep_ms(self) -> int:
        """For how long a version is kept after another one replaced it, in milliseconds. A property of the table."""
        ...

    def set_keep_ms(self, keep_ms: int) -> None:
        """Change it, for all jobs and engines that use the table."""
        ...

    def owns(self, path: str) -> bool:
        """Whether a file of this relative path is removed when no version has it."""
        ...

    def settle(self, since_ms: int) -> Versions:
        """Drop versions that were replaced before `since_ms`, milliseconds since the epoch. Returns the files of those
        that are kept. Without a table there are none. `older` need not have files that are younger than `since_ms`."""
        ...


@contextmanager
def changing(table: str, conflicts: Failures, failures: Failures) -> Iterator[None]:
    """Errors of a format's library while it changes a table, which is named in the message: `conflicts` with another
    writer are LakeConflict, other `failures` LakeError."""
    try:
        yield
    except conflicts as error:
        raise LakeConflict(f"{table} was changed by another job: {error}") from error
    except failures as error:
        raise LakeError(f"{table} cannot be written: {error}") from error


def repeated(change: Callable[[], T], tries: int = COMMIT_TRIES) -> T:
    """The result of a change that begins with the newest state of a table. It is repeated when another writer was
    faster, until there were so many tries."""
    for _ in range(tries - 1):
        with suppress(LakeConflict):
            return change()
    return change()


def check_repeated(table: str, published: int, batch_id: int, *, is_reached: bool) -> None:
    """Check that a batch is the last one that its query published, repeated after a crash. Its offsets are the same
    then, so the progress of the table includes them (`is_reached`). LakeError for any other batch: a checkpoint that
    was restored from a backup counts from an older batch, and its batches have other messages."""
    if published > batch_id or not is_reached:
        raise LakeError(
            f"{table} already has batch {published} of this checkpoint, and cannot add its batch {batch_id}: the "
            "checkpoint is older than the lake; use a new --checkpoint, and for an archive from brokers also "
            "--starting-offsets group"
        )


def sweep(lake: Lake, now_ms: int) -> Swept:
    """Remove files that no version has that is kept, and that no task may still publish. Removes nothing when nothing
    is published: the catalog may be the wrong one. Files that cannot be removed are logged."""
    listed = [found for found in lake.place.files() if lake.owns(found.path)]
    since_ms = now_ms - lake.keep_ms()
    versions = lake.settle(since_ms)  # after the listing, so that files published meanwhile are known
    if not versions.current:
        return Swept()
    old = [found for found in listed if found.path not in versions.current]
    gone = [
        found.path for found in old if found.path not in versions.older and found.changed_ms + TASK_MS_MAX <= since_ms
    ]
    removed: list[str] = []
    stuck: list[tuple[str, Exception]] = []
    for path in sorted(gone):
        try:
            lake.place.remove(path)
            removed.append(path)
        except (LakeError, OSError) as error:
            stuck.append((path, error))
    if stuck:
        first, reason = stuck[0]
        text = "event=old_files_not_removed files=%d first=%s error=%s; let this account delete files of the lake"
        LOG.warning(text, len(stuck), lake.place.uri(first), reason)
    return Swept(removed, len(old) - len(gone), len(stuck))


class Sweeper:
    """Sweeps one lake at the end of a job, and at intervals while a job runs. `removed` counts files."""

    def __init__(self, lake: Lake, clock: Clock | None = None) -> None:
        self.removed = 0
        self._lake = lake
        self._clock = clock or SystemClock()
        self._swept_ms = self._clock.now_ms()

    def sweep(self) -> Swept:
        """Sweep now. An error is logged: leftover files stop no job, and the next sweep removes them."""
        self._swept_ms = self._clock.now_ms()
        try:
            swept = sweep(self._lake, self._swept_ms)
        except (LakeError, OSError) as error:
            LOG.warning("event=sweep_failed error=%s", error)
            return Swept()
        self.removed += len(swept.removed)
        return swept

    def sweep_if_due(self) -> None:
        """Sweep when SWEEP_INTERVAL_MS have passed."""
        if self._clock.now_ms() - self._swept_ms >= SWEEP_INTERVAL_MS:
            self.sweep()
