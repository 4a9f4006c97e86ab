"""Disables consumer groups that are so far behind that reading for them evicts recent messages from memory.

Old messages are no longer in memory; reading them costs disk for this group and page cache for all. The operator
enables this protection, and enables a disabled group again. RocketMQ measures at each pull; orbitmq checks the offsets
of groups with members every few minutes.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import msgspec

from orbitmq.broker.clients import Consumers
from orbitmq.broker.groups import Groups
from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.broker.options import BrokerOptions
from orbitmq.runtime.turns import in_turns
from orbitmq.store.engine import MessageStore

_log = logging.getLogger(__name__)

LOOK_SECONDS = 180.0  # as in RocketMQ


class SlowGroups:
    """Checks the progress of every group that has members."""

    def __init__(
        self,
        store: MessageStore,
        offsets: ConsumerOffsets,
        consumers: Consumers,
        groups: Groups,
        options: BrokerOptions,
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._consumers = consumers
        self._groups = groups
        self._options = options

    async def look(self) -> None:
        """Stop the groups that are further behind than the options allow; none while the protection is off."""
        if not self._options.disable_consume_if_consumer_read_slowly:
            return
        limit = self._options.consumer_fallbehind_threshold
        async for group, topic, queue_id, offset in self._positions():
            behind = self._bytes_behind(topic, queue_id, offset)
            if behind > limit:
                self._stop(group, topic, queue_id, behind)

    async def _positions(self) -> AsyncIterator[tuple[str, str, int, int]]:
        async for group in in_turns(list(self._consumers.groups)):
            async for topic in in_turns(self._offsets.topics_of(group)):
                async for queue_id, offset in in_turns(list(self._offsets.of(group, topic).items())):
                    yield group, topic, queue_id, offset

    def _bytes_behind(self, topic: str, queue_id: int, offset: int) -> int:
        """How much of the log lies between the group's next message and the end; 0 when it has read everything."""
        first = max(offset, self._store.min_offset(topic, queue_id))
        for place, _size, _code in self._store.entries(topic, queue_id, first, 1):
            return self._store.commit_log_max_offset - place
        return 0

    def _stop(self, name: str, topic: str, queue_id: int, behind: int) -> None:
        group = self._groups.table.get(name)
        if group is not None and group.consume_enabled:
            _log.warning(
                "event=group_stopped group=%s topic=%s queue=%d bytes_behind=%d limit=%d",
                name, topic, queue_id, behind, self._options.consumer_fallbehind_threshold,
            )  # fmt: skip
            self._groups.put(msgspec.structs.replace(group, consume_enabled=False))
