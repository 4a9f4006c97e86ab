"""What is refused because a limit is reached: each refusal counts, but the log gets one line a while for each limit.

Whoever is refused once is often refused a million times, and must not fill the disk with lines. The counters go to
`/metrics`. Knows the names of the limits, and neither what they are nor who meets them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from enum import StrEnum

LOG_SECONDS = 10.0  # between two lines of one limit: soon enough for who watches, few enough for a year of abuse


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
    ROUTES = "routes"
    SETTINGS = "settings"


class Refusals:
    """One for each daemon. `clock` tells seconds, from any point on."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._untold = dict.fromkeys(Limit, 0)
        self._quiet_until: dict[Limit, float] = {}
        self.counts = dict.fromkeys(Limit, 0)
        """Since the start."""

    def note(self, limit: Limit, log: logging.Logger, text: str, *arguments: object) -> None:
        """Count one refusal. `text` and its arguments become a line of `log`, unless this limit has had one just now;
        behind them stands how many were refused since the last line.
        """
        self.counts[limit] += 1
        self._untold[limit] += 1
        now = self._clock()
        if now < self._quiet_until.get(limit, now):
            return
        self._quiet_until[limit] = now + LOG_SECONDS
        untold, self._untold[limit] = self._untold[limit], 0
        log.warning(f"{text} refused=%d", *arguments, untold)  # noqa: G004 - the text is the caller's, not a value
