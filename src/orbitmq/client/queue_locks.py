"""The locks that give one member of a group exclusive use of a queue: acquired at the brokers, renewed, released.

Knows no message. At a broker a lock expires 60 s after it was renewed, here after 30 s, so that two members never own a
queue at the same time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable

from orbitmq.client.instance import Instance
from orbitmq.errors import OrbitMQError
from orbitmq.message.model import MessageQueue
from orbitmq.operations import membership

_log = logging.getLogger(__name__)

RENEW_S = 20.0
VALID_S = 30.0
LOCK_AGAIN_S = 3.0  # after a lock expired because its broker did not respond: the queue pauses until it is locked again
TIMEOUT_MS = 1000  # half the time between two renewals must be left when a broker does not respond


class OwnedQueues:
    """The locks of one consumer."""

    def __init__(self, instance: Instance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._since: dict[MessageQueue, float] = {}  # loop time at which the last request for the lock began
        self._requested: set[MessageQueue] = set()
        """Queues that a broker may have locked for this client, also when its response was lost or not awaited."""
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """One request at a time per broker, so that no renewal overtakes the release of a lock."""

    def owns(self, queue: MessageQueue) -> bool:
        """Whether the queue may be consumed now."""
        since = self._since.get(queue)
        return since is not None and asyncio.get_running_loop().time() - since < VALID_S

    async def lock(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Acquire or renew locks; returns queues locked by other members. A silent broker changes nothing."""
        queues = list(queues)
        self._requested.update(queues)
        found = await asyncio.gather(
            *(self._lock_at(address, requested) for address, requested in (await self._by_broker(queues)).items())
        )
        return set().union(*found)

    async def _by_broker(self, queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
        requested: defaultdict[str, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            try:
                requested[await self._instance.routes.master(queue)].append(queue)
            except OrbitMQError as error:
                _log.warning("event=queue_not_locked group=%s queue=%s error=%s", self._group, queue, error)
        return requested

    async def _lock_at(self, address: str, queues: list[MessageQueue]) -> set[MessageQueue]:
        async with self._turns[address]:
            wanted = [queue for queue in queues if queue in self._requested]  # the others were released meanwhile
            return await self._request(address, wanted) if wanted else set()

    async def _request(self, address: str, queues: list[MessageQueue]) -> set[MessageQueue]:
        began = asyncio.get_running_loop().time()
        remoting, client_id = self._instance.remoting, self._instance.client_id
        try:
            owned = await membership.lock_queues(
                remoting, address, client_id, self._group, queues, timeout_ms=TIMEOUT_MS
            )
        except OrbitMQError as error:
            _log.warning("event=queues_not_locked group=%s broker=%s error=%s", self._group, address, error)
            return set()
        for queue in queues:
            if queue in owned and queue in self._requested:
                self._since[queue] = began
            else:
                self._since.pop(queue, None)
                self._requested.discard(queue)
        return set(queues) - owned

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Release locks. At a broker that cannot be reached they expire."""
        mine = [queue for queue in queues if queue in self._requested]
        self._requested.difference_update(mine)
        for queue in mine:
            self._since.pop(queue, None)
        requested = await self._by_broker(mine)
        await asyncio.gather(*(self._unlock_at(address, part) for address, part in requested.items()))

    async def unlock_all(self, but: Collection[MessageQueue]) -> None:
        """Release every lock except these, including those of a cancelled request."""
        await self.unlock(self._requested.difference(but))

    async def _unlock_at(self, address: str, queues: list[MessageQueue]) -> None:
        remoting, client_id = self._instance.remoting, self._instance.client_id
        try:
            async with self._turns[address]:
                await membership.unlock_queues(remoting, address, client_id, self._group, queues, timeout_ms=TIMEOUT_MS)
        except OrbitMQError as error:
            _log.info("event=queues_not_unlocked group=%s broker=%s error=%s", self._group, address, error)
