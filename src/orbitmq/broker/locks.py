"""Queue locks of orderly consumers: one owner a queue and group, renewed every 20 s, free 60 s after the last renewal.

Pure: the time comes in. Locks live in memory only; after a restart the first to ask owns the queue.
"""

from __future__ import annotations

from collections.abc import Iterable

from orbitmq.message.model import MessageQueue


class QueueLocks:
    """Group -> queue -> (owner's client id, time of the last renewal). What is not renewed for `expiry_ms` is free."""

    def __init__(self, expiry_ms: int = 60_000) -> None:
        self._expiry_ms = expiry_ms
        self._table: dict[str, dict[MessageQueue, tuple[str, int]]] = {}

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue], now_ms: int) -> list[MessageQueue]:
        """The asked queues that `client_id` owns now: those that were free, expired, or its own already."""
        held = self._table.setdefault(group, {})
        owned = []
        for queue in queues:
            owner, renewed_ms = held.get(queue, (client_id, now_ms))
            if owner == client_id or now_ms - renewed_ms > self._expiry_ms:
                held[queue] = (client_id, now_ms)
                owned.append(queue)
        return owned

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Free the queues that `client_id` owns."""
        held = self._table.get(group, {})
        for queue in queues:
            if queue in held and held[queue][0] == client_id:
                del held[queue]
        if not held:
            self._table.pop(group, None)

    def sweep(self, now_ms: int) -> None:
        """Forget expired locks, so that groups long gone hold no memory."""
        for group, held in list(self._table.items()):
            for queue in [queue for queue, (_, renewed_ms) in held.items() if now_ms - renewed_ms > self._expiry_ms]:
                del held[queue]
            if not held:
                del self._table[group]
