"""Small files that are replaced whole: written beside, backed up, renamed. Knows nothing of their content.

The steps of `save_with_backup` are those of Apache RocketMQ's configuration files, so that either broker finds what the
other left: `<file>.tmp` is written, the old content is copied to `<file>.bak`, the new file takes the name. A full disk
leaves file and backup as they were.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from orbitmq.errors import OrbitMQError, StoreDamaged

T = TypeVar("T")


def save_with_backup(path: Path, text: str) -> None:
    """Replace `path` by `text` (UTF-8) so that a crash at any moment leaves the file or its backup whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary, backup = path.with_name(path.name + ".tmp"), path.with_name(path.name + ".bak")
    _write_synced(temporary, text.encode())
    if path.exists():
        shutil.copymode(path, temporary)  # an operator's file may hold what not everybody should read
        spare = path.with_name(path.name + ".bak.tmp")
        _write_synced(spare, path.read_bytes())
        shutil.copymode(path, spare)
        os.replace(spare, backup)
    os.replace(temporary, path)


def replace_text(path: Path, text: str) -> None:
    """Replace a user's own file by `text` (UTF-8), readable by its owner alone: no half file is ever read, and several
    processes may do so at the same time. Its directory is made where there is none. OSError leaves it as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def load_with_backup(path: Path, parse: Callable[[str], T]) -> T | None:
    """The parsed content of `path`, else of its backup; None when there is neither.

    StoreDamaged when the file is unusable and its backup does not parse: starting with an empty table would
    silently lose what the file held.
    """
    value = _parsed(path, parse)
    if value is not None:
        return value
    backup = path.with_name(path.name + ".bak")
    value = _parsed(backup, parse)
    if value is None and _has_content(backup):
        raise StoreDamaged(f"{backup}: neither this backup nor {path.name} can be read; repair or remove both")
    return value


def _parsed(path: Path, parse: Callable[[str], T]) -> T | None:
    if not _has_content(path):
        return None
    try:
        return parse(path.read_text(encoding="utf-8"))
    except (OrbitMQError, UnicodeError):
        return None


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _write_synced(path: Path, data: bytes) -> None:
    try:
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fdatasync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)  # it would take the last blocks of a full disk
        raise
