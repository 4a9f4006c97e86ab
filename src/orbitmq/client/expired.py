"""Counts the messages of one consumer that had expired before they could be delivered."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

from orbitmq.message.model import MessageExt
from orbitmq.runtime.clock import Clock

_log = logging.getLogger(__name__)

LOG_MS = 60_000  # between two lines of the log: messages expire in crowds


class ExpiredMessages:
    """`counts` has the number by topic, since the consumer was made."""

    def __init__(self, group: str, clock: Clock) -> None:
        self.counts: Counter[str] = Counter()
        self._group = group
        self._clock = clock
        self._log_due_ms = 0

    def skipped(self, messages: Sequence[MessageExt]) -> None:
        """These were not delivered; not empty."""
        self.counts.update(message.topic for message in messages)
        now_ms = self._clock.now_ms()
        if now_ms >= self._log_due_ms:
            self._log_due_ms = now_ms + LOG_MS
            _log.warning(
                "event=messages_expired group=%s topic=%s message=%s since_start=%d; they were not delivered",
                self._group, messages[0].topic, messages[0].msg_id, self.counts.total(),
            )  # fmt: skip
