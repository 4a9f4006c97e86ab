"""The memory that all connections of a server may take together: incomplete frames, requests that are worked on, and
answers that are not taken.

Each connection has its own limits, but a thousand peers that all go to theirs would hold more than most machines have.
Who holds most when there is too much is cut off, so that a peer with one large message does not pay for others. Knows
of a connection only that it can be ended.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

from orbitmq.runtime.refusals import Limit, Refusals

_log = logging.getLogger(__name__)

MEMORY_MAX: Final = 1 << 30  # bytes of each kind: 64 of the largest frames, and more than is under way in any calm hour
COUNTED_FROM: Final = 64 << 10  # bytes of one kind: less is what any connection may hold between two reads


class Holder(Protocol):
    """Who holds memory."""

    @property
    def address(self) -> str: ...
    def abort(self) -> None: ...


class Budget:
    """What is taken of one kind, of what may be."""

    def __init__(self, limit: int, kind: Limit, refusals: Refusals) -> None:
        self._limit = limit
        self.kind = kind
        self._refusals = refusals
        self._held: dict[Holder, int] = {}  # who has changed least recently comes first
        self.taken = 0

    @property
    def is_tight(self) -> bool:
        """Whether more than half is taken: time to take no more from those who have much, before anybody is cut off."""
        return self.taken > self._limit // 2

    def hold(self, holder: Holder, size: int) -> None:
        """`holder` has `size` bytes now, instead of what it had. Those who hold most are cut off while it is too much:
        `holder` may be one of them.
        """
        self.taken += size - self._held.pop(holder, 0)
        if size:
            self._held[holder] = size
        while self.taken > self._limit:
            self._cut_off(max(self._held, key=self._held.__getitem__))

    def _cut_off(self, holder: Holder) -> None:
        size = self._held.pop(holder)
        text = "event=cut_off peer=%s holds=%s bytes=%d all=%d limit=%d"
        self._refusals.note(self.kind, _log, text, holder.address, self.kind, size, self.taken, self._limit)
        self.taken -= size
        holder.abort()


class Budgets:
    """One of each kind, `limit` bytes each."""

    def __init__(self, limit: int = MEMORY_MAX, refusals: Refusals | None = None) -> None:
        refusals = refusals or Refusals()
        self.incomplete = Budget(limit, Limit.INCOMPLETE_BYTES, refusals)
        self.open = Budget(limit, Limit.OPEN_BYTES, refusals)
        self.unread = Budget(limit, Limit.UNREAD_BYTES, refusals)
