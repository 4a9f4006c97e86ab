"""How far each group has consumed each queue: the next offset to consume, saved every few seconds.

Neither topic nor group is checked when an offset comes in, as in RocketMQ; the number of entries is bounded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from orbitmq.message.javajson import dumps_pretty
from orbitmq.runtime.files import load_with_backup
from orbitmq.runtime.saved import SavedFile
from orbitmq.wire.bodies import ConsumerOffsetTable
from orbitmq.wire.objects import decode, plain

_log = logging.getLogger(__name__)

SEPARATOR = "@"
ENTRIES_MAX = 1_000_000  # offsets, some 300 MB in the worst case; they are accepted unchecked, so a bound must be here
KEY_LENGTH_MAX = 1024  # more than a topic and a group of the longest allowed names; for the same reason
CORRECTIONS_TOLD = 20  # one by one; thousands of them have one reason


class ConsumerOffsets:
    """`topic@group` -> queue id -> next offset to consume."""

    def __init__(self, directory: Path) -> None:
        self.table: dict[str, dict[int, int]] = {}
        self._count = 0
        self.file = SavedFile(directory / "consumerOffset.json", self._text)
        self._changed = False

    def load(self) -> None:
        saved = load_with_backup(self.file.path, lambda text: decode(ConsumerOffsetTable, text))
        if saved is not None:
            self._take({key: dict(offsets) for key, offsets in saved.offset_table.items()})

    def correct(self, max_offset: Callable[[str, int], int]) -> None:
        """After a crash: move back what lies beyond the end of its queue, which `max_offset` tells.

        The log may have lost messages that consumers had seen, when they are not flushed one by one. With the old
        progress a consumer would miss the messages that take their place, as one of RocketMQ does.
        """
        count = 0
        for key, offsets in self.table.items():
            topic, _, _ = key.partition(SEPARATOR)
            for queue_id, offset in offsets.items():
                end = max_offset(topic, queue_id)
                if offset > end:
                    offsets[queue_id] = end
                    count += 1
                    if count <= CORRECTIONS_TOLD:
                        _log.warning("event=offset_corrected key=%s queue=%d from=%d to=%d", key, queue_id, offset, end)
        if count:
            self._changed = True
            _log.warning("event=offsets_corrected count=%d", count)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Take an offset as it is, also a smaller one: a reset is a commit."""
        key = topic + SEPARATOR + group
        offsets = self.table.get(key)
        if offsets is None or queue_id not in offsets:
            if self._count >= ENTRIES_MAX or len(key) > KEY_LENGTH_MAX:
                _log.warning("event=offset_refused key=%.100s limit=%d", key, ENTRIES_MAX)
                return
            self._count += 1
            offsets = self.table.setdefault(key, {})
        offsets[queue_id] = offset
        self._changed = True

    def query(self, group: str, topic: str, queue_id: int) -> int | None:
        offsets = self.table.get(topic + SEPARATOR + group)
        return None if offsets is None else offsets.get(queue_id)

    def of(self, group: str, topic: str) -> Mapping[int, int]:
        """Queue id -> offset of one group in one topic."""
        return self.table.get(topic + SEPARATOR + group, {})

    def topics_of(self, group: str) -> list[str]:
        """Topics the group has offsets for."""
        return [topic for topic, owner in self.pairs() if owner == group]

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have offsets for the topic."""
        return [group for name, group in self.pairs() if name == topic]

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Every topic and group that have offsets together."""
        for key in self.table:
            topic, _, group = key.partition(SEPARATOR)
            yield topic, group

    def copy(self, source: str, group: str, topic: str) -> None:
        """Give `group` the offsets that `source` has of a topic, instead of its own."""
        copied = dict(self.table.get(topic + SEPARATOR + source, {}))
        if copied:
            self._count -= len(self.table.pop(topic + SEPARATOR + group, {}))
        for queue_id, offset in copied.items():
            self.commit(group, topic, queue_id, offset)

    def forget_group(self, group: str) -> None:
        """Drop every offset of a deleted group."""
        self._keep(lambda _topic, owner: owner != group)

    def forget_topic(self, topic: str) -> None:
        """Drop every offset of a deleted topic."""
        self._keep(lambda name, _group: name != topic)

    def save_soon(self) -> None:
        """Write the file if anything changed since the last time."""
        if self._changed:
            self._changed = False
            self.file.mark()

    def _keep(self, wanted: Callable[[str, str], bool]) -> None:
        kept = {}
        for key, offsets in self.table.items():
            topic, _, group = key.partition(SEPARATOR)
            if wanted(topic, group):
                kept[key] = offsets
        self._changed = self._changed or len(kept) != len(self.table)
        self._take(kept)

    def _take(self, table: dict[str, dict[int, int]]) -> None:
        self.table = table
        self._count = sum(map(len, table.values()))

    def _text(self) -> str:
        return dumps_pretty(plain(ConsumerOffsetTable(offset_table=self.table)))
