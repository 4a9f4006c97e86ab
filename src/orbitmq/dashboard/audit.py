"""The audit log: one JSON line for each login and each change, with who, from where, what, and what became of it.

    {"at": "2026-11-22T10:00:00.000Z", "who": "anna", "role": "admin", "peer": "127.0.0.1", "cluster": "local",
     "what": "delete topic Orders", "outcome": "done", "steps": [...]}

No secret is in it: steps of accounts tell that a secret changes, not which. Must not know a page.
"""

from __future__ import annotations

import json
import logging
import os
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orbitmq.admin.envelope import rfc3339
from orbitmq.errors import ConfigurationError
from orbitmq.runtime.clock import Clock

_log = logging.getLogger(__name__)

FILE_BYTES_MAX = 64 << 20  # then the file becomes `<name>.1`, and what was that goes: two files at most
SHOWN_MAX = 500  # lines a page shows
STEPS_MAX = 200  # of one change in a line; the number of all of them is told beside


class AuditLog:
    """Appends to `path`, readable by its owner only; None keeps the lines in memory, for a page that is tried out."""

    def __init__(self, path: Path | None, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._latest: deque[dict[str, Any]] = deque(maxlen=SHOWN_MAX)

    def open(self) -> None:
        """Take in the last lines. ConfigurationError when the file cannot be written: no change goes unrecorded."""
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
                told = json.loads(line)
            except ValueError:  # the first may be cut, and a full disk may have cut the last
                continue
            if isinstance(told, dict):
                self._latest.append(told)

    def write(self, who: str, role: str, peer: str, what: str, outcome: str, **more: Any) -> None:
        """Blocks until it is in the file; OSError when it cannot be, and then nothing must be changed."""
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
        with os.fdopen(os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600), "ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        if size > FILE_BYTES_MAX:
            os.replace(self._path, self._path.with_name(self._path.name + ".1"))

    def latest(self) -> list[Mapping[str, Any]]:
        """The newest first."""
        return list(reversed(self._latest))
