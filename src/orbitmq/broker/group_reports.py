"""Requests of tools and slaves about all groups, and the position of one group relative to others. Changes nothing.

Responses about every group are made in steps, encoding included, so that thousands of groups do not block the event
loop; the forms are those of `ConsumerOffsetTable`, `ConsumeStatsList` and `ProducerTableInfo`.
"""

from __future__ import annotations

from collections.abc import Iterable

from orbitmq.broker.advertised import AdvertisedBroker
from orbitmq.broker.clients import ConnectedClient, Consumers, Producers
from orbitmq.broker.delay import DelayedDelivery
from orbitmq.broker.groups import Groups
from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.broker.progress import queue_progress
from orbitmq.broker.statistics import Statistics
from orbitmq.broker.timers.delivery import TimerDelivery
from orbitmq.broker.topics import Topics
from orbitmq.message.config import DataVersion, TopicConfig
from orbitmq.message.javajson import dumps
from orbitmq.message.model import MessageQueue
from orbitmq.net.connection import Connection
from orbitmq.net.routing import Router
from orbitmq.runtime.turns import in_turns
from orbitmq.store.engine import MessageStore
from orbitmq.wire.bodies import (
    ConsumeStats,
    CorrectionOffsets,
    DelayOffsetTable,
    GroupSubscription,
    ProducerInfo,
    TopicList,
)
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers_admin import (
    GetBrokerConsumeStatsHeader,
    QueryCorrectionOffsetHeader,
    QuerySubscriptionByConsumerHeader,
    QueryTopicsByConsumerHeader,
)
from orbitmq.wire.objects import encode, plain
from orbitmq.wire.requests import RequestCode

BEHIND = (1 << 63) - 1  # RocketMQ's mark of a queue whose offset needs no correction
PRODUCERS_A_TURN = 50  # groups, with some members each, written before other work gets its turn
NO_VERSION = encode(DataVersion()).decode()
QUEUES_A_TURN = 50  # entries per turn of the event loop: some four milliseconds


class GroupReports:
    """Handlers over the tables and the store."""

    def __init__(
        self,
        topics: Topics,
        groups: Groups,
        producers: Producers,
        consumers: Consumers,
        offsets: ConsumerOffsets,
        store: MessageStore,
        statistics: Statistics,
        delayed: DelayedDelivery,
        timers: TimerDelivery,
        identity: AdvertisedBroker,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._producers = producers
        self._consumers = consumers
        self._offsets = offsets
        self._delayed = delayed
        self._timers = timers
        self._store = store
        self._statistics = statistics
        self._identity = identity

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.GET_ALL_CONSUMER_OFFSET, self.all_offsets)
        router.add(RequestCode.GET_ALL_DELAY_OFFSET, self.all_delay_offsets)
        router.add(RequestCode.QUERY_CORRECTION_OFFSET, self.correction_offsets)
        router.add(RequestCode.GET_BROKER_CONSUME_STATS, self.all_progress)
        router.add(RequestCode.GET_ALL_PRODUCER_INFO, self.all_producers)
        router.add(RequestCode.QUERY_TOPICS_BY_CONSUMER, self.topics_of)
        router.add(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, self.subscription_of)

    # ---------------------------------------------------------------------------------------------------- all groups

    async def all_offsets(self, _connection: Connection, command: Command) -> Command:
        """The offsets of all groups; those of light groups, which have one each, apart."""
        offsets = self._offsets
        light, others = [], []
        async for key in in_turns(list(offsets.table)):
            found = offsets.table.get(key, {})
            if offsets.is_light(key):
                light.append(f"{dumps(key)}:{found.get(0, 0)}")
            else:
                others.append(f"{dumps(key)}:{dumps(found)}")
        apart = f'"lmqOffsetTable":{{{",".join(light)}}},' if offsets.with_light_queues else ""
        # Slaves of RocketMQ 5 fail without a version, which they only store.
        body = f'{{"dataVersion":{NO_VERSION},{apart}"offsetTable":{{{",".join(others)}}}}}'
        return command.response(ResponseCode.SUCCESS, body=body.encode())

    def all_delay_offsets(self, _connection: Connection, command: Command) -> Command:
        """How far the queue of each delay level has been delivered, and timer messages."""
        table = DelayOffsetTable(offset_table=dict(self._delayed.offsets), timers=self._timers.progress)
        return command.response(ResponseCode.SUCCESS, body=encode(table))

    async def all_producers(self, _connection: Connection, command: Command) -> Command:
        """The members of all producer groups."""
        rows = []
        async for group in in_turns(list(self._producers.groups), PRODUCERS_A_TURN):
            members = self._producers.groups.get(group, {})
            rows.append(f"{dumps(group)}:{dumps(plain(list(map(_producer, members.values()))))}")
        return command.response(ResponseCode.SUCCESS, body=f'{{"data":{{{",".join(rows)}}}}}'.encode())

    async def all_progress(self, _connection: Connection, command: Command) -> Command:
        """How far each group is behind in each of its topics: over write queues, as RocketMQ counts here."""
        ordered_only = command.header(GetBrokerConsumeStatsHeader).is_order
        rows: list[str] = []
        total = 0
        async for group in in_turns(list(self._groups.table)):
            found = []
            topics = self._consumed(group, self._offsets.topics_of(group), ordered_only=ordered_only)
            async for topic in in_turns(list(topics)):
                stats = await self._progress(group, topic)
                total += sum(queue.broker_offset - queue.consumer_offset for queue in stats.offset_table.values())
                found.append(dumps(plain(stats)))
            rows.append(f"{{{dumps(group)}:[{','.join(found)}]}}")
        head = f'{{"brokerAddr":{dumps(self._identity.address())},"consumeStatsList":['
        return command.response(ResponseCode.SUCCESS, body=f'{head}{",".join(rows)}],"totalDiff":{total}}}'.encode())

    def _consumed(self, group: str, names: Iterable[str], *, ordered_only: bool) -> Iterable[TopicConfig]:
        """Topics that still exist, and that the members of the group subscribe if any is online."""
        online = self._consumers.groups.get(group)
        for name in names:
            topic = self._topics.get(name)
            if topic is None or (ordered_only and not topic.order):
                continue
            if online is None or not online.subscriptions or name in online.subscriptions:
                yield topic

    async def _progress(self, group: str, topic: TopicConfig) -> ConsumeStats:
        return ConsumeStats(
            self._statistics.consume_tps(topic.name, group),
            {
                MessageQueue(topic.name, self._identity.name, queue_id): queue_progress(
                    self._store, self._offsets, group, topic.name, queue_id
                )
                async for queue_id in in_turns(range(topic.write_queues), QUEUES_A_TURN)
            },
        )

    # ----------------------------------------------------------------------------------------------------- one group

    def topics_of(self, _connection: Connection, command: Command) -> Command:
        """Topics the group has offsets for."""
        topics = self._offsets.topics_of(command.header(QueryTopicsByConsumerHeader).group)
        return command.response(ResponseCode.SUCCESS, body=encode(TopicList(self._identity.address(), topics)))

    def subscription_of(self, _connection: Connection, command: Command) -> Command:
        """The subscription of the group's online members for the topic."""
        header = command.header(QuerySubscriptionByConsumerHeader)
        online = self._consumers.groups.get(header.group)
        subscription = online.subscriptions.get(header.topic) if online else None
        body = GroupSubscription(header.group, header.topic, subscription)
        return command.response(ResponseCode.SUCCESS, body=encode(body))

    def correction_offsets(self, _connection: Connection, command: Command) -> Command:
        """For each queue the smallest offset of the other groups; the maximum if the compared group is already behind
        it.

        RocketMQ deletes the offsets of the groups that the comparison excludes; orbitmq keeps them.
        """
        header = command.header(QueryCorrectionOffsetHeader)
        left_out = set((header.filter_groups or "").split(","))
        smallest: dict[int, int] = {}
        for group in self._offsets.groups_of(header.topic):
            if group not in left_out:
                self._lower(smallest, header.topic, group)
        for queue_id, offset in self._offsets.of(header.compare_group, header.topic).items():
            if queue_id in smallest and smallest[queue_id] > offset:
                smallest[queue_id] = BEHIND
        return command.response(ResponseCode.SUCCESS, body=encode(CorrectionOffsets(smallest)))

    def _lower(self, smallest: dict[int, int], topic: str, group: str) -> None:
        """Offsets of expired messages do not count."""
        for queue_id, offset in self._offsets.of(group, topic).items():
            if offset >= self._store.min_offset(topic, queue_id):
                smallest[queue_id] = min(offset, smallest.get(queue_id, BEHIND))


def _producer(client: ConnectedClient) -> ProducerInfo:
    return ProducerInfo(
        client.client_id, client.language, client.seen_ms, f"/{client.connection.address}", client.version
    )
