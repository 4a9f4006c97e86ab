"""The broker's topics: built-in ones, those created by an administrator, those created by their first message.

The table is saved to config/topics.json at every change, and `on_change` gets what to register.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable
from pathlib import Path
from typing import Final

import msgspec

from orbitmq.broker.light_queues import light_topic
from orbitmq.broker.options import BrokerOptions
from orbitmq.errors import RequestRejected
from orbitmq.message.config import SINGLE_TAG, DataVersion, TopicConfig
from orbitmq.message.flags import PERM_INHERIT, PERM_READ, PERM_WRITE, TOPIC_UNIT, TOPIC_UNIT_SUBSCRIPTION
from orbitmq.message.topic_types import MESSAGE_TYPE, MessageType
from orbitmq.message.topics import (
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    DLQ_PREFIX,
    HALF_TOPIC,
    OFFSET_MOVED_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    is_lmq,
    is_system_topic,
    reply_topic,
    retry_topic,
)
from orbitmq.runtime.clock import Clock
from orbitmq.runtime.refusals import Limit, Refusals
from orbitmq.runtime.saved import SavedFile
from orbitmq.runtime.turns import in_turns
from orbitmq.wire.bodies import TopicTable
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.objects import decode
from orbitmq.wire.table_texts import TableText, TableTexts

_log = logging.getLogger(__name__)

READ_WRITE: Final = PERM_READ | PERM_WRITE
SCHEDULE_QUEUES: Final = 18  # fixed in RocketMQ, regardless of the level table
# All topics travel to each name server, slave and tool in one frame of 16 MiB: a broker whose table does not fit into
# it cannot be used. Clients that create topics leave room for administrators.
TEXT_SIZE_MAX = 15 << 20
AUTO_CREATED_SIZE_MAX = 12 << 20
FOR_GROUPS_SIZE_MAX: Final = 14 << 20  # and so do those that create groups
ADMINISTRATORS_SHARE = 5  # of topicsMax, one in so many


class Topics:
    """Topic name -> configuration, with the version that slaves and name servers compare."""

    def __init__(
        self,
        directory: Path,
        options: BrokerOptions,
        clock: Clock,
        on_change: Callable[[TopicConfig | None], None] = lambda _: None,
        *,
        with_light_queues: bool = False,
        refusals: Refusals | None = None,
    ) -> None:
        self._refusals = refusals or Refusals()
        self._options = options
        self._clock = clock
        self._on_change = on_change
        self._with_light_queues = with_light_queues
        self.table: dict[str, TopicConfig] = {}
        self.unsaved: set[str] = set()  # created since the start and not known to be on disk
        self.version = DataVersion(0, clock.now_ms())
        self._texts: TableTexts[TopicConfig] = TableTexts("topicConfigTable")
        self.file = SavedFile(directory / "topics.json", self._text)
        self.built_in = frozenset(self._make_built_in())

    def load(self) -> None:
        """Entries of the file replace built-in ones of the same name."""
        saved = self.file.load(lambda text: decode(TopicTable, text))
        if saved is not None:
            self.table.update(saved.topics)
            self.version = saved.data_version
        self._texts.keep(self.table)  # encodes each entry once, before any request waits for it

    def get(self, name: str) -> TopicConfig | None:
        found = self.table.get(name)
        return light_topic(name) if found is None and self._with_light_queues else found

    def queues(self, name: str) -> int:
        """How many a topic has, to read or to write; 0 when it is not there."""
        found = self.get(name)
        return 0 if found is None else max(found.read_queues, found.write_queues)

    def put(self, config: TopicConfig) -> None:
        """Create or replace a topic. Light topics cannot be configured. RequestRejected when there are too many."""
        if self._with_light_queues and is_lmq(config.name):
            return
        if config.name not in self.table:
            self._refuse_too_many(config.name, self._options.topics_max, TEXT_SIZE_MAX)
        if self.table.get(config.name) == config:
            return
        self.table[config.name] = config
        self._texts.write(config.name, config)
        self._changed(config)

    async def take(self, table: TopicTable) -> None:
        """Replace the table by the master's, version included; topics that the master does not have are removed."""
        async for name in in_turns(list(table.topics)):
            self._texts.write(name, table.topics[name])
        self.table.clear()
        self.table.update(table.topics)
        self._texts.keep(self.table)
        self.version = table.data_version
        self.file.mark()
        self._on_change(None)

    def delete(self, name: str) -> None:
        if self.table.pop(name, None) is not None:
            self._texts.forget(name)
            self._changed(None)

    def touch(self) -> None:
        """A change that concerns all topics: the table gets a new version."""
        self._changed(None)

    def take_order(self, ordered: Container[str]) -> None:
        """Take the name servers' setting: in these topics, and no others, order counts more than service; while the
        broker may not be written, their messages are refused."""
        for config in list(self.table.values()):
            if config.order != (config.name in ordered):
                _log.info("event=topic_order topic=%s order=%s", config.name, not config.order)
                self.put(msgspec.structs.replace(config, order=not config.order))

    async def saved(self, name: str) -> None:
        """Return when a topic that was created is on disk. StoreError when it cannot be written."""
        await self.file.flush()
        self.unsaved.discard(name)

    def is_protected(self, name: str) -> bool:
        """System and built-in topics cannot be created or deleted by an administrator."""
        return name in self.built_in or is_system_topic(name)

    def create_for_send(self, name: str, template: str, queues: int, *, unit: bool) -> TopicConfig | None:
        """The topic a first message brings to life, after RocketMQ's rules; None when it may not be created.

        Only a retry topic does without a template that may be inherited from: it gets one queue then.
        """
        model = self.table.get(template)
        limit = min(self._options.auto_created_topics_max, self._options.topics_max)
        if len(self.table) >= limit or self._texts.size > AUTO_CREATED_SIZE_MAX:
            self._log_limit(name, limit)
            return None
        if model is not None and self._perm_of_template(model) & PERM_INHERIT:
            count = max(0, min(queues, model.write_queues))
            sys_flag = self._unit_flag(name) if unit else 0
            perm, attributes = model.perm & ~PERM_INHERIT, self._attributes_of_created(name)
            return self._add(TopicConfig(name, count, count, perm, model.filter_type, sys_flag, attributes=attributes))
        if name.startswith(RETRY_PREFIX):
            return self.create_for_system(name, 1, unit=unit)
        self._refusals.log(_log, "event=topic_refused topic=%.300s template=%.300s", name, template)
        return None

    def create_for_system(self, name: str, queues: int, *, unit: bool = False) -> TopicConfig:
        """Create a retry or dead letter topic for the broker's own use. RequestRejected if there are too many: those
        that clients cause leave room for administrators.
        """
        known = self.table.get(name)
        if known is not None:
            return known
        if name.startswith((RETRY_PREFIX, DLQ_PREFIX)):  # others are few, and clients do not name them
            limit, size_max = self._options.topics_max, TEXT_SIZE_MAX
            if self._options.auto_create_subscription_group:
                limit, size_max = limit - limit // ADMINISTRATORS_SHARE, FOR_GROUPS_SIZE_MAX
            self._refuse_too_many(name, limit, size_max)
        sys_flag = self._unit_flag(name) if unit else 0
        return self._add(TopicConfig(name, queues, queues, READ_WRITE, SINGLE_TAG, sys_flag))

    def add_found(self, name: str, queues: int) -> TopicConfig:
        """A topic whose queues are on disk. No limit counts: it was let in before, and a refusal would end a start."""
        return self._add(TopicConfig(name, queues, queues, READ_WRITE, SINGLE_TAG, 0))

    def create_for_group(self, group: str, queues: int, *, unit: bool = False) -> TopicConfig:
        """The retry topic of a consumer group."""
        return self.create_for_system(retry_topic(group), queues, unit=unit)

    def snapshot(self, only: Iterable[TopicConfig] | None = None) -> TopicTable:
        """The registered topics: all, or `only` some; the version is that of the whole table."""
        chosen = self.table if only is None else {config.name: config for config in only}
        return TopicTable(data_version=self.version, topics=dict(chosen))

    def text(self) -> TableText[TopicConfig]:
        """The text of the whole table as it is now."""
        return self._texts.of(self.version, self.table)

    def _refuse_too_many(self, name: str, limit: int, size_max: int) -> None:
        if len(self.table) >= limit:
            reason = f"the broker has {len(self.table)}, as many as it may (topicsMax)"
        elif self._texts.size > size_max:
            reason = f"those of the broker take {self._texts.size >> 20} MiB: all of them must fit into one frame"
        else:
            return
        self._log_limit(name, limit)
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"topic {name} is not created: {reason}")

    def _log_limit(self, name: str, limit: int) -> None:
        text = "event=topic_refused topic=%.300s reason=limit topics=%d limit=%d bytes=%d"
        self._refusals.note(Limit.TOPICS, _log, text, name, len(self.table), limit, self._texts.size)

    def _attributes_of_created(self, name: str) -> dict[str, str]:
        """A normal topic has none, so that its entry is that of RocketMQ 4.9."""
        wanted = self._options.auto_create_topic_message_type
        is_plain = wanted == MessageType.NORMAL or name.startswith((RETRY_PREFIX, DLQ_PREFIX))
        return {} if is_plain else {MESSAGE_TYPE: wanted}

    @staticmethod
    def _unit_flag(name: str) -> int:
        return TOPIC_UNIT_SUBSCRIPTION if name.startswith(RETRY_PREFIX) else TOPIC_UNIT

    def _perm_of_template(self, model: TopicConfig) -> int:
        if model.name == AUTO_CREATE_TOPIC and not self._options.auto_create_topic_enable:
            return READ_WRITE
        return model.perm

    def _add(self, config: TopicConfig) -> TopicConfig:
        _log.info("event=topic_created topic=%s queues=%d perm=%d", config.name, config.write_queues, config.perm)
        self.table[config.name] = config
        self._texts.write(config.name, config)
        self.unsaved.add(config.name)
        self._changed(config)
        return config

    def _changed(self, config: TopicConfig | None) -> None:
        self.version = self.version.next(self._clock.now_ms())
        self.file.mark()
        self._on_change(config)

    def _text(self) -> Callable[[], str]:
        return self.text().pretty

    def _make_built_in(self) -> list[str]:
        options = self._options
        inherit = READ_WRITE | PERM_INHERIT
        built_in = [
            (SELF_TEST_TOPIC, 1, READ_WRITE, True),
            (AUTO_CREATE_TOPIC, options.default_topic_queue_nums, inherit, options.auto_create_topic_enable),
            (BENCHMARK_TOPIC, 1024, READ_WRITE, True),
            (options.broker_cluster_name, 16, inherit if options.cluster_topic_enable else PERM_INHERIT, True),
            (options.broker_name, 1, inherit if options.broker_topic_enable else PERM_INHERIT, True),
            (OFFSET_MOVED_TOPIC, 1, READ_WRITE, True),
            (SCHEDULE_TOPIC, SCHEDULE_QUEUES, READ_WRITE, True),
            (HALF_TOPIC, 1, READ_WRITE, True),  # RocketMQ makes it at its first round of transaction checks
            (options.msg_trace_topic_name, 1, READ_WRITE, options.trace_topic_enable),
            (reply_topic(options.broker_cluster_name), 1, READ_WRITE, True),
        ]
        for name, queues, perm, wanted in built_in:
            if wanted:
                self.table[name] = TopicConfig(name, queues, queues, perm)
        return [name for name, _, _, wanted in built_in if wanted]
