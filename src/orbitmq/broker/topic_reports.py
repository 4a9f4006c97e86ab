"""Requests of tools about one topic: its queues, its consumers, their lag. Changes nothing."""

from __future__ import annotations

import base64

from orbitmq.broker.clients import Consumers
from orbitmq.broker.filters import Filters, is_tag
from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.broker.progress import queue_range, store_time
from orbitmq.broker.pull_selection import FilterLook, by_tags
from orbitmq.broker.resumption import Resumption
from orbitmq.broker.topics import Topics
from orbitmq.errors import RequestRejected
from orbitmq.message.config import SubscriptionData, TopicConfig
from orbitmq.message.javajson import dumps, dumps_pretty
from orbitmq.message.model import MessageQueue
from orbitmq.message.topics import SYSTEM_TOPICS, TIMER_TOPIC
from orbitmq.net.connection import Connection
from orbitmq.net.routing import Router
from orbitmq.runtime.clock import Clock
from orbitmq.runtime.turns import in_turns
from orbitmq.store.engine import MessageStore
from orbitmq.store.extended_queue import HEAD, Extension
from orbitmq.wire.bodies import (
    ConsumeQueueEntries,
    ConsumeQueueEntry,
    ConsumeTimeSpans,
    GroupList,
    QueueTimeSpan,
    TopicList,
    TopicStatsTable,
)
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers_admin import (
    GetTopicStatsInfoHeader,
    QueryConsumeQueueHeader,
    QueryConsumeTimeSpanHeader,
    QueryTopicConsumeByWhoHeader,
)
from orbitmq.wire.objects import encode, plain
from orbitmq.wire.requests import RequestCode

ENTRIES_MAX = 10_000  # queue entries of one response: a megabyte of text, ten milliseconds of the event loop


class TopicReports:
    """Handlers over the tables and the store."""

    def __init__(
        self,
        topics: Topics,
        consumers: Consumers,
        offsets: ConsumerOffsets,
        store: MessageStore,
        broker_name: str,
        clock: Clock,
        filters: Filters,
        resumption: Resumption,
    ) -> None:
        self._topics = topics
        self._consumers = consumers
        self._offsets = offsets
        self._store = store
        self._broker_name = broker_name
        self._clock = clock
        self._filters = filters
        self._resumption = resumption

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.GET_TOPIC_STATS_INFO, self.ranges)
        router.add(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, self.groups)
        router.add(RequestCode.QUERY_CONSUME_TIME_SPAN, self.time_spans)
        router.add(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, self.system_topics)
        router.add(RequestCode.QUERY_CONSUME_QUEUE, self.queue_entries)

    async def ranges(self, connection: Connection, command: Command) -> Command:
        """What each queue of a topic holds."""
        self._resumption.note_tool(connection)
        topic = self._known(command.header(GetTopicStatsInfoHeader).topic)
        queues = in_turns(range(topic.write_queues))
        table = {self._queue(topic, i): queue_range(self._store, topic.name, i) async for i in queues}
        return command.response(ResponseCode.SUCCESS, body=encode(TopicStatsTable(table)))

    def groups(self, _connection: Connection, command: Command) -> Command:
        """Groups whose online members subscribe the topic, and groups that have offsets for it."""
        topic = command.header(QueryTopicConsumeByWhoHeader).topic
        online = [name for name, group in self._consumers.groups.items() if topic in group.subscriptions]
        found = list(dict.fromkeys([*online, *self._offsets.groups_of(topic)]))
        return command.response(ResponseCode.SUCCESS, body=encode(GroupList(found)))

    async def time_spans(self, _connection: Connection, command: Command) -> Command:
        """When the messages of each queue were stored, and how long the next one has waited for the group."""
        header = command.header(QueryConsumeTimeSpanHeader)
        topic = self._known(header.topic)
        queues = in_turns(range(topic.write_queues))
        spans = [self._span(topic, header.group, queue_id) async for queue_id in queues]
        return command.response(ResponseCode.SUCCESS, body=encode(ConsumeTimeSpans(spans)))

    def _span(self, topic: TopicConfig, group: str, queue_id: int) -> QueueTimeSpan:
        store, name = self._store, topic.name
        first = store.earliest_store_time(name, queue_id)
        end = store.max_offset(name, queue_id)
        consumed = self._offsets.query(group, name, queue_id)
        consumed = -1 if consumed is None else consumed
        waits = store_time(store, name, queue_id, consumed) if consumed < end else -1
        return QueueTimeSpan(
            consume_time_stamp=store_time(store, name, queue_id, consumed - 1) if consumed > 0 else first,
            delay_time=self._clock.now_ms() - waits if waits >= 0 else 0,
            max_time_stamp=store_time(store, name, queue_id, end - 1),
            message_queue=self._queue(topic, queue_id),
            min_time_stamp=first,
        )

    def system_topics(self, _connection: Connection, command: Command) -> Command:
        """Names that belong to the system, whether or not there are such topics: the timers' only where there is one,
        because RocketMQ 4.9 has none.
        """
        names = sorted(SYSTEM_TOPICS | self._topics.built_in | {TIMER_TOPIC} & self._topics.table.keys())
        return command.response(ResponseCode.SUCCESS, body=encode(TopicList(topic_list=names)))

    def queue_entries(self, _connection: Connection, command: Command) -> Command:
        """Entries of one queue as they are on disk. A queue that is not there is refused, an offset only remarked."""
        header = command.header(QueryConsumeQueueHeader)
        name, queue_id = header.topic, header.queue_id
        low, high = self._store.min_offset(name, queue_id), self._store.max_offset(name, queue_id)
        topic = self._topics.get(name)
        if not high and (topic is None or not 0 <= queue_id < topic.write_queues):
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{name} is not exist!")
        if not low <= header.index < high:
            remark = f"Index {header.index} of {queue_id}@{name} is not exist!"
            return command.response(ResponseCode.SUCCESS, remark)
        entries = self._store.entries(name, queue_id, header.index, max(0, min(header.count, ENTRIES_MAX)))
        group = header.consumer_group or ""
        subscription = self._subscription(group, name) if group else None
        absent = f"{group}@{name} is not online!" if group else None
        body = ConsumeQueueEntries(
            filter_data=self._filter_text(name, group) if subscription else absent,
            max_queue_index=high,
            min_queue_index=low,
            queue_data=[
                self._entry(entry, self._store.extension(name, queue_id, header.index + number), group, subscription)
                for number, entry in enumerate(entries)
            ],
            subscription_data=subscription,
        )
        return command.response(ResponseCode.SUCCESS, body=encode(body))

    def _entry(
        self,
        entry: tuple[int, int, int],
        extension: Extension | None,
        group: str,
        subscription: SubscriptionData | None,
    ) -> ConsumeQueueEntry:
        """RocketMQ evaluates the filter only if a queue has an extension, and by its bitmap."""
        offset, size, code = entry
        if extension is None:
            return ConsumeQueueEntry(physical_offset=offset, physical_size=size, tags_code=code)
        return ConsumeQueueEntry(
            eval=subscription is not None and self._takes(group, subscription, extension),
            bit_map=_bits(extension.bitmap) if extension.bitmap else None,
            extend_data_json=_extension_text(extension),
            physical_offset=offset,
            physical_size=size,
            tags_code=code,
        )

    def _takes(self, group: str, subscription: SubscriptionData, extension: Extension) -> bool:
        if is_tag(subscription.expression_type):
            matcher = by_tags(subscription).matcher
            return matcher is None or matcher(extension.code)
        found = self._filters.find(subscription.topic, group)
        return found is None or FilterLook(self._filters, found).may_take(extension)

    def _filter_text(self, topic: str, group: str) -> str:
        found = self._filters.report(topic, group)
        return "null" if found is None else dumps_pretty(plain(found))

    def _subscription(self, group: str, topic: str) -> SubscriptionData | None:
        members = self._consumers.groups.get(group)
        return None if members is None else members.subscriptions.get(topic)

    def _known(self, name: str) -> TopicConfig:
        topic = self._topics.get(name)
        if topic is None:
            raise RequestRejected(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        return topic

    def _queue(self, topic: TopicConfig, queue_id: int) -> MessageQueue:
        return MessageQueue(topic.name, self._broker_name, queue_id)


def _extension_text(extension: Extension) -> str:
    unit = {
        "filterBitMap": base64.b64encode(extension.bitmap).decode() if extension.bitmap else None,
        "msgStoreTime": extension.store_timestamp,
        "size": HEAD.size + len(extension.bitmap),
        "tagsCode": extension.code,
    }
    return dumps({name: value for name, value in unit.items() if value is not None})


def _bits(bitmap: bytes) -> str:
    """The bits from the last to the first, as RocketMQ prints them, with a line break behind each eighth byte."""
    return "".join(f"{byte:08b}" + "\n" * (index % 8 == 0) for index, byte in reversed(list(enumerate(bitmap))))
