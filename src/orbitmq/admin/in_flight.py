"""Tracks numbered messages from send to first delivery, to time deliveries and to count lost messages. Pure.

Redeliveries, and deliveries of messages whose send failed, must not be counted in place of a lost message.
"""

from __future__ import annotations

IN_FLIGHT_MAX = 1_000_000
"""Limit of tracked messages, some 100 MB: a listener with such a lag is overrun, its latency means nothing."""


class InFlight:
    """Messages in flight. A message is removed when it is both acknowledged and received, or when its send failed."""

    def __init__(self) -> None:
        self._next = 0
        self._sending: dict[int, float | None] = {}
        """Not acknowledged yet -> when it was received, or None."""
        self._stored: dict[int, float] = {}
        """Acknowledged and not received -> when it was due."""

    @property
    def is_full(self) -> bool:
        return len(self._sending) + len(self._stored) >= IN_FLIGHT_MAX

    @property
    def is_empty(self) -> bool:
        return not self._stored

    def begin(self) -> int:
        """Begin a send; returns its number."""
        self._next += 1
        self._sending[self._next] = None
        return self._next

    def stored(self, number: int, due: float) -> float | None:
        """The send was acknowledged. Returns when the message was received, None if not yet."""
        arrived = self._sending.pop(number)
        if arrived is None:
            self._stored[number] = due
        return arrived

    def failed(self, number: int) -> None:
        """The send failed, so the message may or may not be stored: it counts neither as lost nor as received."""
        del self._sending[number]

    def arrived(self, number: int, now: float) -> float | None:
        """Returns when the message was due, if this is the first delivery of an acknowledged message."""
        if number in self._sending and self._sending[number] is None:
            self._sending[number] = now
        return self._stored.pop(number, None)

    def missing(self, since: float) -> int:
        """Number of messages due at `since` or later that were acknowledged and not received."""
        return sum(due >= since for due in self._stored.values())
