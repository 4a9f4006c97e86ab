"""Small files that are replaced atomically, with a backup. Knows nothing of their content.

The steps of `save_with_backup` are those of Apache RocketMQ's configuration files, so that either broker reads what the
other wrote: `<file>.tmp` is written, the old content is copied to `<file>.bak`, the new file is renamed. A full disk
leaves file and backup unchanged.

An unreadable file is never treated as a missing one. `load_with_backup` refuses it, `recover` keeps a copy under
another name and returns what can be restored.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar

from orbitmq.errors import OrbitMQError, StoreDamaged

_log = logging.getLogger(__name__)
T = TypeVar("T")

DAMAGED: Final = ".damaged-"  # and a number, behind the name of a file that was kept aside
DAMAGED_MAX = 5  # of one file: a disk that damages it at each start must not fill the directory
SALVAGED_DEPTH: Final = 2  # members of tables inside the outermost object: what lies deeper is one entry
CLOSING: Final = {"{": "}", "[": "]"}


class Recovered(NamedTuple, Generic[T]):
    """What `recover` restored. `damage` says what happened to an unreadable file, empty if there was none."""

    value: T | None
    damage: str


def save_with_backup(path: Path, text: str) -> None:
    """Replace `path` by `text` (UTF-8) so that a crash at any moment leaves the file or its backup whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary, backup = path.with_name(path.name + ".tmp"), backup_of(path)
    _write_synced(temporary, text.encode())
    if path.exists():
        shutil.copymode(path, temporary)  # an operator's file may contain confidential values
        spare = path.with_name(path.name + ".bak.tmp")
        _write_synced(spare, path.read_bytes())
        shutil.copymode(path, spare)
        os.replace(spare, backup)
    os.replace(temporary, path)
    sync_directory(path.parent)  # else a power cut brings the old names back


def remove_with_backup(path: Path) -> None:
    """Remove the files of `save_with_backup`, the backup first: alone, it would be used as the file. OSError."""
    for place in (backup_of(path), path):
        place.unlink(missing_ok=True)


def replace_text(path: Path, text: str) -> None:
    """Replace a user's own file by `text` (UTF-8), readable by its owner only. Readers see the old or the new file, and
    several processes may write at the same time. Creates the directory. OSError leaves the file unchanged.
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
        sync_directory(path.parent)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def sync_directory(directory: Path) -> None:
    """Return when the names in `directory` are on disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def load_with_backup(path: Path, parse: Callable[[str], T]) -> T | None:
    """The parsed content of `path`, else of its backup; None if neither exists.

    StoreDamaged if one exists and none can be read: an empty table would silently lose the file's content.
    """
    backup = backup_of(path)
    if not (path.is_file() or backup.is_file()):  # asked first: a file that its owner saves meanwhile is not damaged
        return None
    for place in (path, backup):
        value = _parsed(place, parse)
        if value is not None:
            if place is backup:
                _log.error("event=state_file_replaced path=%s by=%s reason=%s", path, backup, _fault(path))
            return value
    raise StoreDamaged(f"{path} cannot be read; repair or remove it, and its backup {backup.name}")


def recover(path: Path, parse: Callable[[str], T]) -> Recovered[T]:
    """The content of `path`, else of its backup, else of the complete entries of a truncated file. An unreadable file
    is logged as an error and kept under another name, so that it is never overwritten. For the owner of the file.
    """
    value = _parsed(path, parse)
    backup = backup_of(path)
    if value is not None or not (path.is_file() or backup.is_file()):
        return Recovered(value, "")
    fault = _fault(path)
    kept = [_keep_aside(path)] if path.is_file() else []
    value = _parsed(backup, parse)
    source = "the backup"
    if value is None:
        kept += [_keep_aside(backup)] if backup.is_file() else []
        candidates = [found for place in kept if (found := _salvaged(place, parse)) is not None]
        value, source = (candidates[0], "what stood before the damage") if candidates else (None, "nothing")
    names = ", ".join(place.name for place in kept)
    damage = f"{path.name} {fault}, {source} is used" + (f", kept as {names}" if names else "")
    _log.error("event=state_file_damaged path=%s fault=%r used=%r kept_as=%s", path, fault, source, names)
    return Recovered(value, damage)


def backup_of(path: Path) -> Path:
    """Where `save_with_backup` leaves the content before the last."""
    return path.with_name(path.name + ".bak")


def damaged_files(directory: Path) -> list[str]:
    """Names of damaged files that were kept aside in a directory and still exist."""
    return sorted(path.name for path in directory.glob(f"*{DAMAGED}*"))


def keep_aside(path: Path, fault: str) -> None:
    """Move a file of any kind that cannot be read out of the way, with an error line."""
    kept = _keep_aside(path)
    _log.error("event=state_file_damaged path=%s fault=%r used=nothing kept_as=%s", path, fault, kept.name)


def _keep_aside(path: Path) -> Path:
    found = sorted(path.parent.glob(f"{path.name}{DAMAGED}*"), key=_number)
    for old in found[: max(0, len(found) - DAMAGED_MAX + 1)]:
        old.unlink()
    kept = path.with_name(f"{path.name}{DAMAGED}{_number(found[-1]) + 1 if found else 1}")
    path.rename(kept)
    sync_directory(path.parent)
    return kept


def _number(kept: Path) -> int:
    text = kept.name.rpartition(DAMAGED)[2]
    return int(text) if text.isdecimal() else 0


def _fault(path: Path) -> str:
    if not path.is_file():
        return "is missing"
    return "cannot be read" if path.stat().st_size else "is empty"


def _salvaged(path: Path, parse: Callable[[str], T]) -> T | None:
    """The complete entries of a truncated file."""
    text = whole_entries(path.read_bytes().decode("utf-8", "ignore"))
    try:
        return parse(text) if text else None
    except (OrbitMQError, ValueError):
        return None


def whole_entries(text: str) -> str:
    """The beginning of a JSON object that was cut off, closed behind its last entry that is surely whole."""
    opened: list[str] = []
    good, closing = 0, ""
    is_text = is_escaped = False
    for position, letter in enumerate(text):
        if is_text:
            is_text = is_escaped or letter != '"'
            is_escaped = letter == "\\" and not is_escaped
        elif letter == '"':
            is_text = True
        elif letter in CLOSING:
            opened.append(CLOSING[letter])
        elif letter in CLOSING.values() and (not opened or opened.pop() != letter):
            break
        if not is_text and letter in ",}]" and len(opened) <= SALVAGED_DEPTH:
            good = position if letter == "," else position + 1
            closing = "".join(reversed(opened))
    return text[:good] + closing


def _parsed(path: Path, parse: Callable[[str], T]) -> T | None:
    if not path.is_file() or path.stat().st_size == 0:
        return None
    try:
        return parse(path.read_text(encoding="utf-8"))
    except (OrbitMQError, UnicodeError):
        return None


def _write_synced(path: Path, data: bytes) -> None:
    try:
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fdatasync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)  # it would take the last blocks of a full disk
        raise
