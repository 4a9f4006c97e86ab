"""Keeps log files until their messages are archived, and counts those that expired unarchived. Knows no archive, only
the offsets of its consumer group: messages before them are archived.

The positions of all queues are updated in rounds, in turns of the event loop. Between two rounds the result errs on the
safe side: archived offsets only grow, and new messages are at the end of the log.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator
from fnmatch import fnmatchcase

from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.broker.options import BrokerOptions
from orbitmq.broker.topics import Topics
from orbitmq.message.topics import is_system_topic
from orbitmq.runtime.turns import in_turns
from orbitmq.store.engine import MessageStore

_log = logging.getLogger(__name__)

LOOK_SECONDS = 10.0  # how long a file stays after its last message was archived; as often as the cleaner looks
EVERYTHING = sys.maxsize
SPECIAL = "%"  # first letter of topics that the broker makes for groups: retries and dead letters


class ArchiveGuard:
    """Keeps the log of `store` until it is archived.

    `archived` is a physical offset: every guarded message below it is archived. It is 0 before the first round. `lost`
    counts the messages that were removed unarchived since the start because the disk was full.
    """

    def __init__(self, store: MessageStore, topics: Topics, offsets: ConsumerOffsets, options: BrokerOptions) -> None:
        self.archived = 0
        self.lost = 0
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._options = options
        self._next: dict[tuple[str, int], int] = {}  # the first unarchived offset of each queue, as of the last round

    def keeps_from(self) -> int:
        """Place of the log from which on it must stay. For any thread."""
        return self.archived if self._options.archive_guard else EVERYTHING

    async def look(self) -> None:
        """One round over the guarded queues; nothing while the guard is off."""
        if not self._options.archive_guard:
            self.archived = 0
            self._next.clear()
            return
        store = self._store
        archived: int = store.commit_log_max_offset
        seen: dict[tuple[str, int], int] = {}
        async for topic, queue_id in self._queues(store):
            offset = self._first_unarchived(store, topic, queue_id)
            seen[topic, queue_id] = offset
            for place, _size, _code in store.entries(topic, queue_id, offset, 1):
                archived = min(archived, place)
        self._next = seen
        self.archived = archived

    async def _queues(self, store: MessageStore) -> AsyncIterator[tuple[str, int]]:
        patterns = self._options.archive_guard_topics.split(";")
        async for topic in in_turns(list(self._topics.table)):
            if is_guarded(topic, patterns):
                async for queue_id in in_turns(store.queue_ids(topic)):
                    yield topic, queue_id

    def _first_unarchived(self, store: MessageStore, topic: str, queue_id: int) -> int:
        """The queue's next offset to archive; where the queue begins later, what lies between is lost."""
        begin = store.min_offset(topic, queue_id)
        committed = self._offsets.query(self._options.archive_guard_group, topic, queue_id)
        known = max(committed or 0, self._next.get((topic, queue_id), begin if committed is None else 0))
        if known < begin:
            self.lost += begin - known
            _log.error(
                "event=unarchived_messages_lost topic=%s queue=%d from=%d to=%d count=%d", topic, queue_id, known,
                begin - 1, begin - known,
            )  # fmt: skip
        return max(known if committed is None else committed, begin)


def is_guarded(topic: str, patterns: list[str]) -> bool:
    """Whether one of the patterns matches the topic. `*` does not match the leading % of retry and dead letter topics,
    which must be named: `%DLQ%*`. System topics are never guarded.
    """
    if is_system_topic(topic):
        return False
    return any(fnmatchcase(topic, pattern) for pattern in patterns if pattern[:1] == SPECIAL or topic[:1] != SPECIAL)
