"""Queue locks of orderly consumers: one owner per queue and group, renewed every 20 s, free 60 s after the last
renewal.

Pure: the caller passes the time. Locks live in memory only; after a restart the first client to request one owns it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from orbitmq.message.model import MessageQueue
from orbitmq.runtime.refusals import Limit, Refusals

_log = logging.getLogger(__name__)

LOCKS_MAX = 1_000_000  # 3,000 groups with 300 queues each, some 300 MB; the names come from the network unchecked
NAMES_SIZE_MAX = 4096  # characters of group, client, topic and broker: more than the longest allowed names
NEVER = -1 << 62  # the renewal of a lock that is not there


class LockTable:
    """Group -> queue -> (owner's client id, time of the last renewal). A lock expires `expiry_ms` after its renewal."""

    def __init__(self, expiry_ms: int = 60_000, limit: int = LOCKS_MAX, refusals: Refusals | None = None) -> None:
        self._refusals = refusals or Refusals()
        self._expiry_ms = expiry_ms
        self._limit = limit
        self._count = 0
        self._table: dict[str, dict[MessageQueue, tuple[str, int]]] = {}

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue], now_ms: int) -> list[MessageQueue]:
        """Lock queues that are free, expired, or already its own, for `client_id`. Returns those that it owns now."""
        held = self._table.setdefault(group, {})
        owned, refused = [], 0
        for queue in queues:
            owner, renewed_ms = held.get(queue, ("", NEVER))
            if renewed_ms == NEVER and (self._count >= self._limit or _size(group, client_id, queue) > NAMES_SIZE_MAX):
                refused += 1
            elif owner == client_id or now_ms - renewed_ms > self._expiry_ms:
                self._count += renewed_ms == NEVER
                held[queue] = (client_id, now_ms)
                owned.append(queue)
        if refused:
            text = "event=lock_refused group=%.300s client=%.300s queues=%d limit=%d"
            self._refusals.note(Limit.LOCKS, _log, text, group, client_id, refused, self._limit)
        if not held:
            del self._table[group]
        return owned

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Free the queues that `client_id` owns."""
        held = self._table.get(group, {})
        for queue in queues:
            if queue in held and held[queue][0] == client_id:
                del held[queue]
                self._count -= 1
        if not held:
            self._table.pop(group, None)

    def sweep(self, now_ms: int) -> None:
        """Remove expired locks, so that groups that no longer exist hold no memory."""
        for group, held in list(self._table.items()):
            for queue in [queue for queue, (_, renewed_ms) in held.items() if now_ms - renewed_ms > self._expiry_ms]:
                del held[queue]
                self._count -= 1
            if not held:
                del self._table[group]


def _size(group: str, client_id: str, queue: MessageQueue) -> int:
    return len(group) + len(client_id) + len(queue.topic) + len(queue.broker_name)
