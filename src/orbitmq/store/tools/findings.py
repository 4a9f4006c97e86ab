"""The findings of a check of a store directory. Pure: values and their texts, no file is read here."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path


class Level(Enum):
    """Damage is what no stopped broker leaves; a remark is worth knowing and needs no repair."""

    DAMAGE = "damage"
    REMARK = "remark"


class State(Enum):
    """How the last broker left the directory."""

    STOPPED = "stopped"  # a broker that has stopped cleanly
    CRASHED = "crashed"  # killed: its abort file is there
    LIVE = "live"  # running, with the lock


@dataclass(frozen=True)
class Finding:
    """One finding. `path` is relative to the store directory, `position` a byte of the file (0 for all of it)."""

    level: Level
    path: str
    position: int
    text: str


@dataclass
class Report:
    """All findings. `messages` are whole messages of the log, `queued` those that belong into queues."""

    directory: Path
    state: State
    log_start: int = 0
    log_end: int = 0
    messages: int = 0
    queued: int = 0
    queues: int = 0
    entries: int = 0
    index_files: int = 0
    index_entries: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        return not any(finding.level is Level.DAMAGE for finding in self.findings)

    @property
    def is_live(self) -> bool:
        return self.state is State.LIVE

    @property
    def may_be_unfinished(self) -> bool:
        """Whether the broker had no chance to bring everything to its end."""
        return self.state is not State.STOPPED

    def damage(self, path: Path, position: int, text: str) -> None:
        self._add(Level.DAMAGE, path, position, text)

    def remark(self, path: Path, position: int, text: str) -> None:
        self._add(Level.REMARK, path, position, text)

    def _add(self, level: Level, path: Path, position: int, text: str) -> None:
        relative = path.relative_to(self.directory) if path.is_relative_to(self.directory) else path
        self.findings.append(Finding(level, str(relative), position, text))


def counted(count: int, one: str, many: str = "") -> str:
    """`1 message`, `1,234 messages`; pass the plural of words like `queue entry`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
