"""Flow control of one connection: whether to read more from its peer. Pure: knows no socket, event loop or clock.

Three reasons hold the reading of a connection that serves requests:

    the peer does not read the bytes sent to it
    requests that were read are not handled yet
    too many requests are open, or their bodies take too much memory

Only the last one holds a connection that sends requests: it keeps reading while the peer does not, otherwise two full
buffers would wait for each other forever. The effect of a hold is in `TRANSITIONS`.
"""

from __future__ import annotations

import math
from typing import Final

from orbitmq.net.budget import COUNTED_FROM

OPEN_REQUESTS_MAX = 1024  # of one connection
OPEN_COUNTED_FROM: Final = 1 << 20  # bytes of open requests that any connection may have without being counted
OPEN_BYTES_MAX = 64 << 20  # their bodies: a thousand sends of 64 KiB that wait for a flush, 16 of the largest

READING: Final = True
STOPPED: Final = False

# (state, whether there is a reason to hold) -> (next state, whether the timeout of an incomplete frame restarts: while
# reading was stopped, the delay was not the peer's)
TRANSITIONS: Final[dict[tuple[bool, bool], tuple[bool, bool]]] = {
    (READING, False): (READING, False),
    (READING, True): (STOPPED, False),
    (STOPPED, True): (STOPPED, False),
    (STOPPED, False): (READING, True),
}


class Flow:
    """The load of one peer. Times are seconds of the caller's clock, sizes are bytes."""

    def __init__(self, *, serving: bool) -> None:
        self.serving = serving
        self.state = READING
        self.is_unread = False  # the peer does not take the bytes it was sent
        self.frame_bytes = 0  # of an incomplete frame, as far as they count
        self.frame_since: float | None = None  # when the incomplete frame began
        self.open_requests = 0
        self.open_bytes = 0  # bodies of the open requests

    def regulate(self, has_unserved: bool, is_tight: bool, now: float) -> bool:
        """Whether to read from now on. `has_unserved`: requests were read that are not served yet. `is_tight`: the open
        requests of all connections take much of the memory they may take together.
        """
        held = (self.serving and (self.is_unread or has_unserved)) or self.is_full(is_tight)
        self.state, restarts_frame = TRANSITIONS[self.state, held]
        if restarts_frame and self.frame_since is not None:
            self.frame_since = now
        return self.state

    # ------------------------------------------------------------------------------------------------- open requests

    def is_full(self, is_tight: bool) -> bool:
        """Whether so much of this peer is open that no more is read. Less is enough when memory is tight: a slow disk
        holds up honest senders, and a peer that is not read from loses nothing.
        """
        if self.open_requests >= OPEN_REQUESTS_MAX or self.open_bytes >= OPEN_BYTES_MAX:
            return True
        return is_tight and self.counted_bytes > 0

    @property
    def counted_bytes(self) -> int:
        """The bytes of open requests that count against the memory of all connections."""
        return self.open_bytes if self.open_bytes > OPEN_COUNTED_FROM else 0

    def begin(self, size: int) -> bool:
        """A request with a body of this size is open now; returns whether the limits must be checked."""
        self.open_requests += 1
        self.open_bytes += size
        return self.open_bytes > OPEN_COUNTED_FROM or self.open_requests >= OPEN_REQUESTS_MAX

    def end(self, size: int) -> bool:
        """The request is no longer open; whether limits must be checked."""
        was_counted = self.open_bytes > OPEN_COUNTED_FROM
        self.open_requests -= 1
        self.open_bytes -= size
        return was_counted or self.state is STOPPED

    # --------------------------------------------------------------------------------------------- incomplete frames

    def receive(self, pending: int, *, is_new: bool, now: float) -> bool:
        """`pending` bytes of an incomplete frame are here, `is_new` if it follows another; 0 if there is none. Whether
        `frame_bytes` has changed.
        """
        if not pending:
            self.frame_since = None
        elif is_new or self.frame_since is None:
            self.frame_since = now
        before, self.frame_bytes = self.frame_bytes, pending if pending > COUNTED_FROM else 0
        return self.frame_bytes != before

    @property
    def awaits_frame_since(self) -> float:
        """When the frame began whose rest the peer has not sent; infinite without one, or while nothing is read."""
        return math.inf if self.frame_since is None or self.state is STOPPED else self.frame_since
