"""Which files of the commit log have expired, and whether the disk is too full for more messages. Pure.

The caller passes the time, the hour, the use of the disks and the modification times of the files. `cleaner` executes
the decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orbitmq.store.options import StoreOptions

HOUR_MS = 3_600_000
PERCENT = 100
DISK_NEARLY_FULL = "disk_nearly_full"  # the reason that overrides every other rule


@dataclass(frozen=True, slots=True)
class DiskUse:
    """Part of the disk in use, from 0 to 1, below the commit log, the queues and the index; -1 is unknown."""

    log: float
    queues: float
    index: float

    def __str__(self) -> str:
        """As RocketMQ puts it into refusals."""
        return f"CL: {self.log:5.2f} CQ: {self.queues:5.2f} INDEX: {self.index:5.2f}"


@dataclass(frozen=True, slots=True)
class Unread:
    """The unread message with the lowest physical offset: its offset, topic and group."""

    place: int
    text: str


FindUnread = Callable[[], Unread | None]


def nothing_unread() -> Unread | None:
    """No group is known."""
    return None


@dataclass(frozen=True)
class Rules:
    """An operator's settings. Ratios are from 0 to 1 and must be exceeded to take effect."""

    reserved_ms: int
    hours: frozenset[int]
    full_ratio: float  # expired files go at once, not only in their hour
    forcible_ratio: float  # the oldest files go, expired or not, as far as `force` and `force_unread` allow
    refuse_ratio: float  # and no message is taken
    force: bool
    force_unread: bool  # also files that hold messages a known group has not read

    @classmethod
    def of(cls, options: StoreOptions) -> Rules:
        return cls(
            reserved_ms=options.file_reserved_time_hours * HOUR_MS,
            hours=frozenset(int(hour) for hour in options.delete_when.split(";") if hour.strip().isdecimal()),
            full_ratio=min(max(options.disk_max_used_space_ratio, 10), 95) / PERCENT,
            forcible_ratio=options.disk_clean_forcibly_ratio,
            refuse_ratio=options.disk_warning_ratio,
            force=options.clean_file_forcibly_enable,
            force_unread=options.clean_unread_file_forcibly_enable,
        )

    def refuses(self, use: DiskUse) -> bool:
        """Whether no message may be stored."""
        return max(use.log, use.queues) > self.refuse_ratio


@dataclass(frozen=True, slots=True)
class Decision:
    """How many of the oldest files should go, and why. `is_forced`: the first of them has not expired."""

    count: int
    reason: str
    is_forced: bool = False


def decide(
    rules: Rules, now_ms: int, hour: int, use: DiskUse, modified_ms: Sequence[int], *, asked: bool = False
) -> Decision:
    """Which files to remove of a log whose files, oldest first, were last written at `modified_ms`. `hour` is local
    time; `asked` says that an operator requested the removal of expired files now.

    The last file always stays. An unknown disk counts as full, as in RocketMQ, but then nothing is removed by force.
    """
    used = max(use.log, use.queues)
    candidates = modified_ms[:-1]
    expired = 0
    while expired < len(candidates) and candidates[expired] + rules.reserved_ms <= now_ms:
        expired += 1
    if rules.force and used > rules.forcible_ratio:
        return Decision(len(candidates), DISK_NEARLY_FULL, is_forced=not expired)
    if asked:
        reason = "asked"
    elif hour in rules.hours:
        reason = "expired"
    elif used > rules.full_ratio or min(use.log, use.queues) < 0:
        reason = "disk_full"
    else:
        return Decision(0, "")
    return Decision(expired, reason)
