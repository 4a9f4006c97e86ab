"""Recovers topics, groups and progress after a start that found a table damaged, before anything is served.

Queue directories list topics; offsets and retry topics list groups; a slave of this broker may have all of it. Known
entries are not changed, except that progress advances, never beyond the end of a queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from orbitmq.broker.delay import DelayedDelivery
from orbitmq.broker.groups import Groups
from orbitmq.broker.offsets import SEPARATOR, ConsumerOffsets
from orbitmq.broker.topics import Topics
from orbitmq.errors import OrbitMQError, RequestRejected
from orbitmq.message.config import SubscriptionGroup
from orbitmq.message.topics import RETRY_PREFIX, SCHEDULE_TOPIC, TRANSACTION_GROUP, is_lmq, is_system_topic
from orbitmq.net.remoting import Remoting
from orbitmq.operations.routes import cluster_info
from orbitmq.operations.statistics import runtime_info
from orbitmq.operations.tables import all_consumer_offsets, all_delay_offsets, all_groups
from orbitmq.operations.topics import all_topics
from orbitmq.runtime.files import DAMAGED, damaged_files
from orbitmq.runtime.saved import SavedFile
from orbitmq.runtime.turns import in_turns
from orbitmq.store.engine import MessageStore

_log = logging.getLogger(__name__)

TIMEOUT_MS = 3000  # for a name server or a slave: one that is down must not delay the start
TOPICS_A_TURN = 50  # written and logged, before other work gets its turn: some 4 ms
SLAVES_MAX = 10  # slaves asked at a start; all have the same tables


class TableRecovery:
    """Restores lost entries of the tables in `files`, and reports them."""

    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        groups: Groups,
        offsets: ConsumerOffsets,
        delayed: DelayedDelivery,
        files: Sequence[SavedFile],
        remoting: Remoting,
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._delayed = delayed
        self._files = files
        self._remoting = remoting

    @property
    def is_progress_lost(self) -> bool:
        """Whether groups may have lost progress, until the kept copy is removed. Thread-safe; reads the disk."""
        path = self._offsets.file.path
        return any(name.startswith(path.name) for name in damaged_files(path.parent))

    def damage(self) -> list[str]:
        """The damages of state files whose kept copies have not been removed. Reads the disk."""
        root = self._store.options.root
        told = {file.path.name: file.damage for file in self._files if file.damage}
        lines = []
        for name in damaged_files(root / "config") + damaged_files(root):
            path = name.partition(DAMAGED)[0].removesuffix(".bak")
            line = told.get(path, f"{name} was kept by an earlier start")
            if path == self._offsets.file.path.name:
                line += ", known groups without an offset begin at the first message"
            lines.append(line)
        return list(dict.fromkeys(lines))

    async def restore(self, name: str, name_servers: Sequence[str]) -> None:
        """Fill the tables that were damaged, and write them before anything else can happen: from slaves of the broker
        `name` first, which know topics as they were. A slave gives no name servers; it soon copies its master's tables.
        """
        damaged = [file for file in self._files if file.damage]
        if damaged:
            for address in await self._slaves(name, name_servers):
                try:
                    await self._from_slave(address)
                except OrbitMQError as error:
                    _log.warning("event=state_not_restored slave=%s error=%s", address, error)
        if self._topics.file.damage:
            await find_topics(self._topics, await asyncio.to_thread(self._store.consume_queues.counts))
        if self._groups.file.damage:
            retried = [topic for topic in self._topics.table if topic.startswith(RETRY_PREFIX)]
            names = [topic.removeprefix(RETRY_PREFIX) for topic in retried]
            await self._add_groups(map(SubscriptionGroup, [*names, *(group for _, group in self._offsets.pairs())]))
        if await asyncio.to_thread(lambda: self.is_progress_lost):
            self._offsets.lost_groups = frozenset(self._groups.table)
        for file in damaged:
            file.mark()
        await asyncio.gather(*(file.flush() for file in damaged), return_exceptions=True)  # a failure is logged there

    async def _slaves(self, name: str, name_servers: Sequence[str]) -> list[str]:
        found: dict[str, None] = {}
        for server in name_servers:
            try:
                known = (await cluster_info(self._remoting, server, timeout_ms=TIMEOUT_MS)).brokers.get(name)
            except OrbitMQError:
                continue  # one that does not respond has no entries to offer
            found |= {address: None for number, address in known.addresses.items() if number} if known else {}
        return list(found)[:SLAVES_MAX]

    async def _from_slave(self, address: str) -> None:
        figures = await runtime_info(self._remoting, address, timeout_ms=TIMEOUT_MS)
        if figures.get("replicationRefusal"):
            _log.warning("event=state_not_restored slave=%s error=its log is not this broker's", address)
            return
        steps: tuple[tuple[str, Callable[[str], Awaitable[None]]], ...] = (
            (self._topics.file.damage, self._topics_of),
            (self._groups.file.damage, self._groups_of),
            (self._offsets.file.damage, self._offsets_of),
            (self._delayed.file.damage, self._delays_of),
        )
        for damage, step in steps:
            if damage:
                await step(address)
        _log.warning("event=state_restored slave=%s", address)

    async def _topics_of(self, address: str) -> None:
        found = await all_topics(self._remoting, address, timeout_ms=TIMEOUT_MS)
        async for config in in_turns(list(found.topics.values())):
            if config.name not in self._topics.table:
                self._topics.put(config)

    async def _groups_of(self, address: str) -> None:
        found = await all_groups(self._remoting, address, timeout_ms=TIMEOUT_MS)
        await self._add_groups(found.groups.values())

    async def _add_groups(self, groups: Iterable[SubscriptionGroup]) -> None:
        async for group in in_turns(list(groups)):
            if group.name not in self._groups.table and group.name != TRANSACTION_GROUP:
                try:
                    self._groups.put(group)
                except RequestRejected as error:  # as many as there may be
                    _log.warning("event=group_not_restored group=%.300s error=%s", group.name, error)
                    return

    async def _offsets_of(self, address: str) -> None:
        found = await all_consumer_offsets(self._remoting, address, timeout_ms=TIMEOUT_MS)
        async for key, offsets in in_turns(list(found.items())):
            topic, _, group = key.partition(SEPARATOR)
            for queue_id, offset in offsets.items():
                offset = min(offset, self._store.max_offset(topic, queue_id))
                self._offsets.commit(group, topic, queue_id, offset, only_forward=True)

    async def _delays_of(self, address: str) -> None:
        table = await all_delay_offsets(self._remoting, address, timeout_ms=TIMEOUT_MS)
        known, found = self._delayed.offsets, dict(table.offset_table)
        for level, offset in found.items():
            found[level] = max(known.get(level, 0), min(offset, self._store.max_offset(SCHEDULE_TOPIC, level - 1)))
        self._delayed.take({**known, **found})


async def find_topics(topics: Topics, queues: dict[str, int]) -> None:
    """Add topics that have `queues` on disk, with their number, to the table: without an entry they cannot be read, and
    the cleanup of unused topics would delete them.
    """
    async for topic, count in in_turns(list(queues.items()), TOPICS_A_TURN):
        if topics.get(topic) is None and not is_system_topic(topic) and not is_lmq(topic):
            _log.warning("event=topic_found topic=%s queues=%d", topic, count)
            topics.add_found(topic, count)
