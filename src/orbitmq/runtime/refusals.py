"""Refusals because of limits: each one counts, but the log gets one line of a kind per interval.

A client that is refused once is often refused a million times, and must not fill the disk with lines. The counters go
to `/metrics`. Knows only the names of the limits.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

LOG_SECONDS = 10.0  # between two lines of one kind: soon enough for an operator, few enough for a year of abuse


class Limit(StrEnum):
    """Every limit that a peer can meet, by the name it has in `/metrics`."""

    CONNECTIONS = "connections"
    HOST_CONNECTIONS = "connections_of_one_host"
    MALFORMED = "malformed"
    FRAME_TIME = "frame_time"
    HANDSHAKE_TIME = "handshake_time"
    INCOMPLETE_BYTES = "incomplete_bytes"
    OPEN_BYTES = "open_bytes"
    UNREAD_BYTES = "unread_bytes"
    TOPICS = "topics"
    GROUPS = "groups"
    OFFSETS = "offsets"
    MEMBERSHIPS = "memberships"
    BODIES = "bodies"
    HELD_PULLS = "held_pulls"
    EXPRESSIONS = "expressions"
    LOCKS = "locks"
    SIGNATURES = "signatures"
    ROUTES = "routes"
    SETTINGS = "settings"
    DISK = "disk"


@dataclass(slots=True)
class _Lines:
    """Of one text: how many it has had since a moment, and how often it was kept from having one."""

    until: float = -math.inf
    told: int = 0
    untold: int = 0


class Refusals:
    """One for each daemon. `clock` returns seconds since any fixed point."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lines: dict[tuple[Limit | None, str], _Lines] = {}  # by the texts of the program: they are few
        self.counts = dict.fromkeys(Limit, 0)
        """Since the start."""

    def note(self, limit: Limit, log: logging.Logger, text: str, *arguments: object) -> None:
        """Count one refusal. `text` and its arguments become a line of `log`, unless this text was logged for this
        limit within the interval; the line ends with the number of refusals since then.
        """
        self.counts[limit] += 1
        untold = self._due(limit, text, 1)
        if untold:
            log.warning(f"{text} refused=%d", *arguments, untold)  # noqa: G004 - the text is the caller's, not a value

    def log(
        self,
        log: logging.Logger,
        text: str,
        *arguments: object,
        level: int = logging.WARNING,
        lines: int = 1,
        fault: BaseException | None = None,
    ) -> None:
        """Log an event that peers may cause at any rate and that is no refusal: at most `lines` of one text per
        interval. `times=` follows if the line stands for several, and the traceback of `fault`.
        """
        untold = self._due(None, text, lines)
        if untold > 1:
            log.log(level, f"{text} times=%d", *arguments, untold, exc_info=fault)  # noqa: G004 - as above
        elif untold:
            log.log(level, text, *arguments, exc_info=fault)

    def _due(self, limit: Limit | None, text: str, lines: int) -> int:
        """The number of events that a line must report now; 0 for no line."""
        state, now = self._lines.setdefault((limit, text), _Lines()), self._clock()
        state.untold += 1
        if now >= state.until:
            state.until, state.told = now + LOG_SECONDS, 0
        if state.told >= lines:
            return 0
        state.told += 1
        untold, state.untold = state.untold, 0
        return untold
