"""The progress of each group in each queue: the next offset to consume, saved every few seconds.

Topic and group of a committed offset are not checked, as in RocketMQ; the number of entries is limited. Each entry of
the file is encoded separately, and again only after a change, so that thousands of groups do not block the event loop
at each save.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path

from orbitmq.broker.options import BrokerOptions
from orbitmq.message.javajson import dumps
from orbitmq.message.topics import TRANSACTION_GROUP, is_lmq, is_system_topic
from orbitmq.runtime.files import load_with_backup
from orbitmq.runtime.refusals import Limit, Refusals
from orbitmq.runtime.saved import SavedFile
from orbitmq.wire.bodies import SavedOffsetTable
from orbitmq.wire.objects import decode

_log = logging.getLogger(__name__)

SEPARATOR = "@"
# Offsets of topics, groups and queues that do not exist, limited so that invented ones leave room for others. RocketMQ
# accepts any, and a group keeps committing for a while for queues that its topic has lost.
STRANGERS_MAX = 50_000
QUEUES_MAX = 1 << 31  # of a topic about which nothing is known
KEY_LENGTH_MAX = 1024  # more than a topic and a group of the longest allowed names; for the same reason
TURN_ENTRIES = 300  # topics with group whose text is written before other work gets its turn: some 3 ms
QUEUES_AN_ENTRY = 16  # of a topic with more, the text takes as long as several
CORRECTIONS_TOLD = 20  # one by one; thousands of them have one reason


class ConsumerOffsets:
    """`topic@group` -> queue id -> next offset to consume."""

    def __init__(
        self,
        directory: Path,
        *,
        with_light_queues: bool = False,
        options: BrokerOptions | None = None,
        queues: Callable[[str, str], int] = lambda _topic, _group: QUEUES_MAX,
        refusals: Refusals | None = None,
    ) -> None:
        """`queues` returns how many queues a topic has; 0 if the topic or the group does not exist."""
        self._options = options or BrokerOptions()
        self._queues = queues
        self._refusals = refusals or Refusals()
        # entries of the table that `queues` did not know when they were committed
        self._strangers: dict[str, set[int]] = {}
        self._strangers_count = 0
        self._may_look_again = False  # at the strangers: once between two saves
        self.table: dict[str, dict[int, int]] = {}
        self._by_topic: dict[str, dict[str, None]] = {}  # topic -> keys of the table, in its order
        self._by_group: dict[str, dict[str, None]] = {}
        self.lost_groups: frozenset[str] = frozenset()
        """Groups that may have had progress before the file that held it was damaged."""
        self.with_light_queues = with_light_queues
        self.committed_here: dict[str, set[int]] | None = None  # of a slave: queues its master does not know of
        self._found_here: dict[str, set[int]] = {}  # in the file, at the start
        self._count = 0
        self._plain_path = directory / "consumerOffset.json"
        light_path = directory / "lmqConsumerOffset.json"
        self.file = SavedFile(light_path if with_light_queues else self._plain_path, self._text)
        self._changed: set[str] = set()  # keys whose text is not that of the table
        self._texts: dict[str, str] = {}
        self._here_texts: dict[str, str] = {}
        self._writing: asyncio.Task[None] | None = None

    def load(self) -> None:
        """After light queues were enabled, groups keep the offsets they had; RocketMQ loses them."""
        saved = self.file.load(lambda text: decode(SavedOffsetTable, text))
        if saved is None and self.with_light_queues:
            saved = load_with_backup(self._plain_path, lambda text: decode(SavedOffsetTable, text))
        if saved is not None:
            light = {key: {0: offset} for key, offset in (saved.lmq_offset_table or {}).items()}
            self._take({key: dict(offsets) for key, offsets in saved.offset_table.items()} | light)
            self._found_here = {key: set(queue_ids) for key, queue_ids in (saved.committed_here or {}).items()}

    def remember_commits(self) -> None:
        """Keep `committed_here` from now on, over restarts: progress that was made at a slave while its master was away
        must not be lost because the slave is away before the master is back.
        """
        self.committed_here = self._found_here
        self._changed.update(self.committed_here)

    def correct(self, max_offset: Callable[[str, int], int]) -> None:
        """After a crash: reset offsets beyond the end of their queue, given by `max_offset`.

        With asynchronous flush the log may have lost messages that were consumed. With its old progress a consumer
        would skip the messages that take their offsets, as it does with RocketMQ.
        """
        count = 0
        for key, offsets in self.table.items():
            topic, _, group = key.partition(SEPARATOR)
            if group == TRANSACTION_GROUP:
                continue  # the transactions themselves see to it, and have to know that something was lost
            for queue_id, offset in offsets.items():
                end = max_offset(topic, queue_id)
                if offset > end:
                    offsets[queue_id] = end
                    self._changed.add(key)
                    count += 1
                    if count <= CORRECTIONS_TOLD:
                        _log.warning("event=offset_corrected key=%s queue=%d from=%d to=%d", key, queue_id, offset, end)
        if count:
            _log.warning("event=offsets_corrected count=%d", count)

    def commit(self, group: str, topic: str, queue_id: int, offset: int, *, only_forward: bool = False) -> None:
        """Set an offset, also to a smaller one: a reset is a commit. A light group has one offset for all queues. With
        `only_forward` a greater stored offset stays.
        """
        if self.with_light_queues and is_lmq(group):
            queue_id = 0
        key = topic + SEPARATOR + group
        offsets = self.table.get(key)
        if offsets is None or queue_id not in offsets:
            if not self._has_room(key, topic, group, queue_id):
                return
            self._count += 1
            offsets = self._of_key(key)
        elif only_forward and offsets[queue_id] >= offset:
            return
        offsets[queue_id] = offset
        self._changed.add(key)
        if self.committed_here is not None:
            self.committed_here.setdefault(key, set()).add(queue_id)

    def _has_room(self, key: str, topic: str, group: str, queue_id: int) -> bool:
        """Whether one more offset is stored; those of unknown topics, groups and queues have their own limit."""
        limit = self._options.consumer_offsets_max
        if self._count >= limit or len(key) > KEY_LENGTH_MAX:
            text = "event=offset_refused key=%.100s offsets=%d limit=%d"
            self._refusals.note(Limit.OFFSETS, _log, text, key, self._count, limit)
            return False
        if not self._is_strange(topic, group, queue_id):
            return True
        if self._strangers_count >= STRANGERS_MAX and self._may_look_again:
            self._recount(self._strangers)
        if self._strangers_count >= STRANGERS_MAX:
            text = "event=offset_refused key=%.100s reason=unknown limit=%d"
            self._refusals.note(Limit.OFFSETS, _log, text, key, STRANGERS_MAX)
            return False
        self._strangers.setdefault(key, set()).add(queue_id)
        self._strangers_count += 1
        return True

    def _is_strange(self, topic: str, group: str, queue_id: int) -> bool:
        if self.with_light_queues and is_lmq(group):
            return False
        if group == TRANSACTION_GROUP and queue_id == 0 and is_system_topic(topic):
            return False  # the broker's own progress
        return not 0 <= queue_id < self._queues(topic, group)

    def _recount(self, table: Mapping[str, Iterable[int]]) -> None:
        """Count the unknown entries again: a topic or group may have been created or deleted since."""
        self._may_look_again = False
        self._strangers = {}
        for key, queue_ids in table.items():
            topic, _, group = key.partition(SEPARATOR)
            known = self.table.get(key, {})
            strange = {one for one in queue_ids if one in known and self._is_strange(topic, group, one)}
            if strange:
                self._strangers[key] = strange
        self._strangers_count = sum(map(len, self._strangers.values()))

    def _forget_strangers(self, key: str) -> None:
        self._strangers_count -= len(self._strangers.pop(key, ()))

    def to_hand_back(self, most: int) -> list[tuple[str, int]]:
        """Keys and queues, at a slave, that must be reported to its master."""
        here = self.committed_here or {}
        return list(islice(((key, queue_id) for key, queue_ids in here.items() for queue_id in queue_ids), most))

    def handed_back(self, key: str, queue_id: int) -> None:
        """The master knows of it."""
        here = self.committed_here or {}
        if queue_id in here.get(key, ()):
            here[key].discard(queue_id)
            self._changed.add(key)
            if not here[key]:
                del here[key]

    def replace(self, key: str, offsets: Mapping[int, int]) -> None:
        """Replace the offsets of one topic and group by the master's."""
        known, taken = self.table.get(key, {}), dict(offsets)
        here = (self.committed_here or {}).get(key, ())
        for queue_id, offset in known.items():
            if queue_id in here and offset > taken.get(queue_id, -1):
                taken[queue_id] = offset  # not handed back yet
        if known != taken:
            self._count += len(taken) - len(known)
            self._of_key(key)
            self.table[key] = taken
            self._changed.add(key)

    def query(self, group: str, topic: str, queue_id: int) -> int | None:
        if self.with_light_queues and is_lmq(group):
            queue_id = 0
        offsets = self.table.get(topic + SEPARATOR + group)
        return None if offsets is None else offsets.get(queue_id)

    def of(self, group: str, topic: str) -> Mapping[int, int]:
        """Queue id -> offset of one group in one topic."""
        return self.table.get(topic + SEPARATOR + group, {})

    def topics_of(self, group: str) -> list[str]:
        """Topics the group has offsets for."""
        return [key.partition(SEPARATOR)[0] for key in self._by_group.get(group, ())]

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have offsets for the topic."""
        return [key.partition(SEPARATOR)[2] for key in self._by_topic.get(topic, ())]

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Every topic and group that have offsets together, as of the first step. For any thread."""
        for key in list(self.table):
            topic, _, group = key.partition(SEPARATOR)
            yield topic, group

    def copy(self, source: str, group: str, topic: str) -> None:
        """Replace the offsets of `group` by those that `source` has of a topic."""
        copied = dict(self.table.get(topic + SEPARATOR + source, {}))
        if copied:
            self._forget([topic + SEPARATOR + group])
        for queue_id, offset in copied.items():
            self.commit(group, topic, queue_id, offset)

    def forget_group(self, group: str) -> None:
        """Drop every offset of a deleted group."""
        self._forget(list(self._by_group.get(group, ())))

    def forget_topic(self, topic: str) -> None:
        """Drop every offset of a deleted topic."""
        self._forget(list(self._by_topic.get(topic, ())))

    def save_soon(self) -> None:
        """Write the file if anything changed since the last time."""
        self._may_look_again = True
        if self._is_much():
            if self._writing is None:
                self._writing = asyncio.get_running_loop().create_task(self._write_in_turns())
        elif self._changed:
            self.file.mark()

    async def _write_in_turns(self) -> None:
        """Most of the texts first, so that little is left for the moment the file is made."""
        try:
            while self._is_much():
                self._write(TURN_ENTRIES)
                await asyncio.sleep(0)
            self.file.mark()
        finally:
            self._writing = None

    def _is_much(self) -> bool:
        """Whether the texts of what changed take longer than a turn."""
        return len(self._changed) > TURN_ENTRIES or sum(map(self._share, self._changed)) > TURN_ENTRIES

    def _share(self, key: str) -> int:
        """How many entries of the usual size this one is worth."""
        return 1 + len(self.table.get(key, ())) // QUEUES_AN_ENTRY

    def _write(self, count: float) -> None:
        """Texts of so many entries, of all with infinity."""
        while count > 0 and self._changed:
            key = self._changed.pop()
            count -= self._share(key)
            offsets = self.table.get(key)
            if offsets is None:
                self._texts.pop(key, None)
            else:
                self._texts[key] = self._entry(key, offsets)
            if self.committed_here is not None:
                self._write_here(key, self.committed_here.get(key))

    def _write_here(self, key: str, queue_ids: set[int] | None) -> None:
        if queue_ids is None:
            self._here_texts.pop(key, None)
        else:
            self._here_texts[key] = f"{dumps(key)}:{dumps(sorted(queue_ids))}"

    def _of_key(self, key: str) -> dict[int, int]:
        """The offsets of a topic and group; creates the entry if there is none."""
        offsets = self.table.get(key)
        if offsets is None:
            offsets = self.table[key] = {}
            topic, _, group = key.partition(SEPARATOR)
            self._by_topic.setdefault(topic, {})[key] = None
            self._by_group.setdefault(group, {})[key] = None
        return offsets

    def _forget(self, keys: Iterable[str]) -> None:
        for key in keys:
            offsets = self.table.pop(key, None)
            if offsets is None:
                continue
            self._count -= len(offsets)
            topic, _, group = key.partition(SEPARATOR)
            for index, name in ((self._by_topic, topic), (self._by_group, group)):
                del index[name][key]
                if not index[name]:
                    del index[name]
            self._forget_strangers(key)
            self._changed.add(key)

    def _take(self, table: dict[str, dict[int, int]]) -> None:
        self.table, self._by_topic, self._by_group = {}, {}, {}
        for key, offsets in table.items():
            self._of_key(key).update(offsets)
        self._count = sum(map(len, table.values()))
        self._recount(table)
        self._texts = {key: self._entry(key, offsets) for key, offsets in table.items()}

    def _text(self) -> Callable[[], str]:
        """A ConsumerOffsetTable in the form of Java's files; the returned function joins the encoded entries."""
        self._write(math.inf)
        here, texts = list(self._here_texts.values()), self._texts
        if not self.with_light_queues:
            return partial(_whole, here, None, list(map(texts.__getitem__, self.table)))
        light = [texts[key] for key in self.table if self.is_light(key)]
        return partial(_whole, here, light, [texts[key] for key in self.table if not self.is_light(key)])

    def is_light(self, key: str) -> bool:
        """Whether this is a light group's offset."""
        return self.with_light_queues and is_lmq(key.partition(SEPARATOR)[2])

    def _entry(self, key: str, offsets: Mapping[int, int]) -> str:
        if self.is_light(key):
            return f"{dumps(key)}:{offsets.get(0, 0)}"
        return _entry(key, offsets)


def _whole(here: list[str], light: list[str] | None, others: list[str]) -> str:
    """The file. `here` is present at a slave with offsets to report to its master; RocketMQ ignores it."""
    of_here = f'\n\t"committedHere":{{{",".join(here)}}},' if here else ""
    of_light = "" if light is None else f'\n\t"lmqOffsetTable":{_object(light)},'
    return f'{{{of_here}{of_light}\n\t"offsetTable":{_object(others)}\n}}'


def _object(entries: list[str]) -> str:
    between = ",\n\t\t"
    return f"{{\n\t\t{between.join(entries)}\n\t}}" if entries else "{}"


def _entry(key: str, offsets: Mapping[int, int]) -> str:
    if not offsets:
        return f"{dumps(key)}:{{}}"
    return f"{dumps(key)}:{{{','.join([f'{queue}:{offset}' for queue, offset in offsets.items()])}\n\t\t}}"
