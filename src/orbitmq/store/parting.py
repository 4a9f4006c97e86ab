"""Cuts the log of a closed store, and keeps what was behind the cut: messages of a former master that its successor
never had, and that were never acknowledged.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from orbitmq.errors import StoreError
from orbitmq.runtime.files import sync_directory
from orbitmq.store.files import Files
from orbitmq.store.numbered import NumberedFiles, file_name
from orbitmq.store.options import StoreOptions
from orbitmq.store.walk import Walk

_log = logging.getLogger(__name__)

CHUNK = 4 << 20
PARTED = "parted"  # an empty file beside what was kept, which begins anywhere in a file of the log


def cut_log(options: StoreOptions, end: int, kept: Path, fs: Files | None = None) -> list[Path]:
    """Cut the log at `end`, and return the directories below `kept` that have what was behind it: for each file of the
    log one that `orbitmq store dump` reads as it reads a store.

    The store must not be open; its next start recovers it as after a crash, which cuts the queues. StoreLocked if it
    is open, StoreError if the disk refuses. Nothing is cut before what is kept is on the disk.
    """
    fs = fs or Files()
    first, *more = (*options.commit_log_directories, *options.read_only_commit_log_directories)
    lock = fs.lock(options.root / "lock")
    files = NumberedFiles(fs, first, options.mapped_file_size_commit_log, more=more)
    try:
        files.load()
        made = [path for start in _starts(files, end) if (path := _keep(files, max(start, end), kept)) is not None]
        fs.write(options.root / "abort", b"")
        sync_directory(options.root)
        files.cut(end)
    except OSError as error:
        raise StoreError(f"the log below {options.root} cannot be cut at {end}: {error}") from error
    finally:
        files.close()
        lock.release()
    _log.warning("event=log_cut directory=%s end=%d kept=%s", options.root, end, ",".join(map(str, made)) or "nothing")
    return made


def _starts(files: NumberedFiles, end: int) -> range:
    return range(files.start_of(max(end, files.start)), files.end, files.file_size)


def _keep(files: NumberedFiles, start: int, kept: Path) -> Path | None:
    """Copy the whole units from `start` to the end of its file; None if there are none."""
    file, file_start = files.find(start), files.start_of(start)
    assert file is not None, "files follow one another without gaps"
    position = start - file_start
    walk = Walk(file.filled, file_start, position, check_crc=False)
    for _ in walk:
        pass
    if walk.position == position:
        return None
    directory = kept / str(start)
    path = directory / "commitlog" / file_name(start)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as copy:
        for place in range(position, walk.position, CHUNK):
            copy.write(file.view[place : min(place + CHUNK, walk.position)])
        copy.flush()
        os.fsync(copy.fileno())
    (directory / PARTED).touch()
    for one in (path.parent, directory, kept, kept.parent):
        sync_directory(one)
    return directory
