"""Which member of an election a store is, and the epochs that its log has: `config/member.json`.

A member has all that it has ever reported. A store of which that is not certain is another member: one that was
emptied, and, unless each message is flushed before it is reported, one whose machine has stopped without closing it.
"""

from __future__ import annotations

import logging
import threading
import uuid
from pathlib import Path
from typing import Final

import msgspec

from orbitmq.errors import StoreDamaged
from orbitmq.failover.agreed import Agreed, Boundary, common_end, reached
from orbitmq.runtime.files import replace_text
from orbitmq.store.options import StoreOptions

_log = logging.getLogger(__name__)

BOOT_FILE: Final = Path("/proc/sys/kernel/random/boot_id")


class _Content(msgspec.Struct, frozen=True):
    member: str
    boot: str
    at_least: int
    history: tuple[Boundary, ...]
    directory: int = 0
    """The number that the file system has for it: a copy has another one."""


class Member:
    """The file and its content. StoreDamaged if it cannot be read: another identity could be elected by mistake."""

    def __init__(self, options: StoreOptions, boot: str | None = None) -> None:
        self._options = options
        self._changing = threading.Lock()  # several steps of an election save, each on a thread
        self._boot = boot if boot is not None else BOOT_FILE.read_text().strip()
        self.path = options.root / "config" / "member.json"
        self._known = _load(self.path)

    @property
    def name(self) -> str:
        """The identity; "" before `identify`."""
        return self._known.member if self._known is not None else ""

    @property
    def history(self) -> tuple[Boundary, ...]:
        """The epochs of the log, and later ones that it has not reached; empty before its first election."""
        return self._known.history if self._known is not None else ()

    def identify(self, log_end: int, *, was_killed: bool) -> str:
        """The member that the store is from now on. `was_killed` says that its last user has not closed it."""
        known = self._known
        directory = self._options.root.stat().st_ino
        reason = ""
        if known is None:
            reason = "it is new"
        elif known.directory != directory:
            reason = "its directory is a copy of another one"
        elif log_end < known.at_least:
            reason = f"its log ends at {log_end}, and had {known.at_least} bytes"
        elif was_killed and known.boot != self._boot and not self._options.flushes_each:
            reason = "its machine has stopped without closing it, and messages are not flushed one by one"
        name = uuid.uuid4().hex[:12] if reason or known is None else known.member
        if reason:
            _log.warning("event=member_named member=%s directory=%s reason=%s", name, self._options.root, reason)
        with self._changing:
            self._save(_Content(name, self._boot, log_end, self.history, directory))
        return name

    def note_end(self, log_end: int) -> None:
        """The log has ended there or behind; a store that ends before that has lost something."""
        self._change(at_least=log_end)

    def parts(self, agreed: Agreed, log_end: int) -> int | None:
        """Up to where the log is the beginning of the agreed one. None if it is not known to be that at all."""
        return common_end(reached(self.history, log_end), log_end, agreed.history)

    def follow(self, agreed: Agreed, log_end: int) -> None:
        """The log is the beginning of the agreed one, and ends there. To be called before anything is appended."""
        self._change(history=agreed.history, at_least=log_end)

    def _change(self, **changes: object) -> None:
        with self._changing:
            assert self._known is not None, "identified before"
            self._save(msgspec.structs.replace(self._known, **changes))

    def _save(self, content: _Content) -> None:
        """OSError if the disk refuses."""
        if content != self._known:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            replace_text(self.path, msgspec.json.encode(content).decode())
            self._known = content


def _load(path: Path) -> _Content | None:
    """None for a new store. There is no backup: with an older record, what is acknowledged would be cut off."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Content)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise StoreDamaged(
            f"{path} is no record of a member ({error}); remove it, and the store counts as a new replica"
        ) from error
