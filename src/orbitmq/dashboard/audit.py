"""The audit log: one JSON line for each login and each change, with user, address, action and outcome.

    {"at": "2026-11-22T10:00:00.000Z", "who": "anna", "role": "admin", "peer": "127.0.0.1", "cluster": "local",
     "what": "delete topic Orders", "outcome": "done", "steps": [...]}

It contains no secret: steps of accounts show that a secret changes, not its value. Must not know a page.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from orbitmq.admin.envelope import rfc3339
from orbitmq.errors import ConfigurationError
from orbitmq.runtime.clock import Clock

FILE_BYTES_MAX = 64 << 20  # then the file is renamed to `<name>.1`, replacing the previous one: two files at most
SHOWN_MAX = 500  # lines on a page
FIELDS = ("at", "who", "role", "peer", "what", "outcome")
STEPS_MAX = 200  # of one change in a line; `stepsInAll` has their number


class AuditLog:
    """Appends to `path`, which only the owner may read. If it is None, keeps the lines in memory, to try out a page."""

    def __init__(self, path: Path | None, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._latest: deque[dict[str, Any]] = deque(maxlen=SHOWN_MAX)
        self._writing = threading.Lock()

    def open(self) -> None:
        """Read the last lines. ConfigurationError if the file cannot be written: every change must be recorded."""
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with os.fdopen(os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600), "rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - (1 << 20)))
                lines = file.read().splitlines()[-SHOWN_MAX:]
        except OSError as error:
            raise ConfigurationError(f"audit log {self._path}: {error.strerror}") from error
        for line in lines:
            try:
                entry = json.loads(line)
            except ValueError:  # the first line may be cut, and after a full disk also the last one
                continue
            if isinstance(entry, dict) and set(FIELDS) <= set(entry):
                self._latest.append(entry)

    def write(self, who: str, role: str, peer: str, what: str, outcome: str, **more: Any) -> None:
        """Blocks until the line is in the file. On an OSError nothing must be changed."""
        line: dict[str, Any] = {
            "at": rfc3339(self._clock.now_ms()),
            "who": who,
            "role": role,
            "peer": peer,
            "what": what,
            "outcome": outcome,
            **more,
        }
        self._latest.append(line)
        if self._path is None:
            return
        data = (json.dumps(line, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")
        with self._writing:
            self._append(self._path, data)

    def _append(self, path: Path, data: bytes) -> None:
        with _opened(path) as file:
            file.write((b"\n" if _is_cut(file) else b"") + data)
            file.flush()
            os.fsync(file.fileno())
            if file.tell() > FILE_BYTES_MAX:
                os.replace(path, path.with_name(path.name + ".1"))

    def latest(self) -> list[Mapping[str, Any]]:
        """The newest first."""
        return list(reversed(self._latest))


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """The file of that name, opened to append and locked: several processes may share it."""
    while True:
        with os.fdopen(os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600), "ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is_current(path, file):
                yield file
                return


def _is_current(path: Path, file: BinaryIO) -> bool:
    """Whether it has not been renamed while waiting for the lock."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _is_cut(file: BinaryIO) -> bool:
    """Whether a full disk has cut off the last line."""
    size = file.seek(0, os.SEEK_END)
    return size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
