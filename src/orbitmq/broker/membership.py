"""Requests of clients about themselves: heartbeat, leaving, who else is in the group, queue locks."""

from __future__ import annotations

from orbitmq.broker.clients import Client, Consumers, Producers
from orbitmq.broker.filters import Filters, is_tag
from orbitmq.broker.groups import Groups
from orbitmq.broker.locks import QueueLocks as LockTable
from orbitmq.broker.topics import Topics
from orbitmq.errors import RequestRejected
from orbitmq.net.connection import Connection
from orbitmq.net.routing import Router
from orbitmq.runtime.clock import Clock
from orbitmq.wire.bodies import CheckClientRequest, ConsumerIdList, HeartbeatData, LockedQueues, QueueLocks
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers import GetConsumerListByGroupHeader, UnregisterClientHeader
from orbitmq.wire.objects import decode, encode


class Membership:
    """Handlers over the client tables."""

    def __init__(
        self,
        producers: Producers,
        consumers: Consumers,
        groups: Groups,
        topics: Topics,
        locks: LockTable,
        filters: Filters,
        clock: Clock,
    ) -> None:
        self._producers = producers
        self._consumers = consumers
        self._groups = groups
        self._topics = topics
        self._locks = locks
        self._filters = filters
        self._clock = clock

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.HEART_BEAT, self.heartbeat)
        router.add(RequestCode.UNREGISTER_CLIENT, self.unregister)
        router.add(RequestCode.GET_CONSUMER_LIST_BY_GROUP, self.consumer_ids)
        router.add(RequestCode.CHECK_CLIENT_CONFIG, self.check_client)
        router.add(RequestCode.LOCK_BATCH_MQ, self.lock)
        router.add(RequestCode.UNLOCK_BATCH_MQ, self.unlock)

    def heartbeat(self, connection: Connection, command: Command) -> Command:
        """Register every group the client names; consumer groups get their retry topic first."""
        data = decode(HeartbeatData, command.body)
        now_ms = self._clock.now_ms()
        client = Client(connection, data.client_id, command.language, command.version, now_ms)
        for consumer in data.consumer_data_set:
            group = self._groups.find(consumer.group_name)
            if group is not None:
                self._topics.create_for_group(group.name, group.retry_queues, unit=consumer.unit_mode)
            self._consumers.register(consumer, client)
            self._filters.register(consumer.group_name, consumer.subscription_data_set)
        for producer in data.producer_data_set:
            self._producers.register(producer.group_name, client)
        return command.response(ResponseCode.SUCCESS)

    def unregister(self, connection: Connection, command: Command) -> Command:
        header = command.header(UnregisterClientHeader)
        if header.producer_group:
            self._producers.unregister(header.producer_group, connection)
        if header.consumer_group:
            self._consumers.unregister(header.consumer_group, connection)
        answer = command.response(ResponseCode.SUCCESS)
        answer.ext = {}
        return answer

    def consumer_ids(self, _connection: Connection, command: Command) -> Command:
        name = command.header(GetConsumerListByGroupHeader).consumer_group
        group = self._consumers.groups.get(name)
        if group is None:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"no consumer of the group {name} is online")
        answer = command.response(ResponseCode.SUCCESS, body=encode(ConsumerIdList(group.client_ids())))
        answer.ext = {}
        return answer

    def check_client(self, _connection: Connection, command: Command) -> Command:
        """Whether the broker can evaluate a subscription that is no tag expression."""
        subscription = decode(CheckClientRequest, command.body).subscription_data
        if subscription is not None and not is_tag(subscription.expression_type):
            self._filters.check(subscription.expression, subscription.expression_type)
        return command.response(ResponseCode.SUCCESS)

    def lock(self, _connection: Connection, command: Command) -> Command:
        asked = decode(QueueLocks, command.body)
        owned = self._locks.lock(asked.consumer_group, asked.client_id, asked.mq_set, self._clock.now_ms())
        return command.response(ResponseCode.SUCCESS, body=encode(LockedQueues(locked=owned)))

    def unlock(self, _connection: Connection, command: Command) -> Command:
        asked = decode(QueueLocks, command.body)
        self._locks.unlock(asked.consumer_group, asked.client_id, asked.mq_set)
        return command.response(ResponseCode.SUCCESS)
