"""Requests of clients about themselves: heartbeat, unregistering, members of their group, queue locks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from contextlib import suppress
from typing import Any

from orbitmq.broker.clients import ConnectedClient
from orbitmq.broker.filters import Filters, is_tag
from orbitmq.broker.groups import Groups, refuse_without_retries
from orbitmq.broker.presence import Presence
from orbitmq.broker.topics import Topics
from orbitmq.errors import BodyError, RequestRejected
from orbitmq.message.javajson import loads
from orbitmq.net.connection import Connection
from orbitmq.net.routing import Router
from orbitmq.wire.bodies import (
    CheckClientRequest,
    ConsumerData,
    ConsumerIdList,
    HeartbeatData,
    LockedQueues,
    QueueLockRequest,
)
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers import GetConsumerListByGroupHeader, UnregisterClientHeader
from orbitmq.wire.objects import STRANGERS, decode_request, encode, from_plain
from orbitmq.wire.requests import RequestCode

GROUPS_MAX = 10_000  # of one client; each costs memory in this process and a retry topic
SUBSCRIPTIONS_MAX = 10_000  # topics of one group of one client: as many as a broker is made for
# Objects and lists of a heartbeat, counted before it is parsed, which takes a microsecond for each: 10,000 producers,
# and as many groups that subscribe a topic and their retry topic, as Java writes them.
CONTAINERS_MAX = 100_000
NAME_LENGTH_MAX = 1024  # of a group or a client: four times what clients of RocketMQ allow themselves
TURN_GROUPS = 50  # registered before other work gets its turn: some 5 ms
_CONSUMERS = "consumerDataSet"
_SUBSCRIPTIONS = "subscriptionDataSet"


class Membership:
    """Handlers over the client tables."""

    def __init__(self, presence: Presence, groups: Groups, topics: Topics, filters: Filters) -> None:
        self._producers = presence.producers
        self._consumers = presence.consumers
        self._groups = groups
        self._topics = topics
        self._locks = presence.locks
        self._filters = filters
        self._clock = presence.clock

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.HEART_BEAT, self.heartbeat)
        router.add(RequestCode.UNREGISTER_CLIENT, self.unregister)
        router.add(RequestCode.GET_CONSUMER_LIST_BY_GROUP, self.consumer_ids)
        router.add(RequestCode.CHECK_CLIENT_CONFIG, self.check_client)
        router.add(RequestCode.LOCK_BATCH_MQ, self.lock)
        router.add(RequestCode.UNLOCK_BATCH_MQ, self.unlock)

    def heartbeat(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """Register every group of the client; consumer groups get their retry topic first.

        A client of thousands of groups is registered in turns. If one group is refused, the others are registered, and
        the response has the reason; another error in the heartbeat leaves some of them out.
        """
        found = _read(command.body)
        consumers = found.pop(_CONSUMERS, None) or []
        data = from_plain(HeartbeatData, found)
        if len(consumers) > GROUPS_MAX or len(data.producer_data_set) > GROUPS_MAX:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"a client may have {GROUPS_MAX} groups, not more")
        names = (data.client_id, command.language, *(producer.group_name for producer in data.producer_data_set))
        _refuse_long(names)
        client = ConnectedClient(connection, data.client_id, command.language, command.version, self._clock.now_ms())
        for producer in data.producer_data_set:
            self._producers.register(producer.group_name, client)
        if len(consumers) > TURN_GROUPS:
            return self._register_in_turns(client, consumers, command)
        self._register(client, consumers)
        return command.response(ResponseCode.SUCCESS)

    async def _register_in_turns(self, client: ConnectedClient, consumers: list[Any], command: Command) -> Command:
        refusal: RequestRejected | None = None
        for start in range(0, len(consumers), TURN_GROUPS):
            try:
                self._register(client, consumers[start : start + TURN_GROUPS])
            except RequestRejected as error:
                refusal = error
            await asyncio.sleep(0)
        if refusal is not None:
            raise refusal
        return command.response(ResponseCode.SUCCESS)

    def _register(self, client: ConnectedClient, consumers: list[Any]) -> None:
        if any(_topics_in(consumer) > SUBSCRIPTIONS_MAX for consumer in consumers):  # before each of them is examined
            remark = f"a group may subscribe {SUBSCRIPTIONS_MAX} topics, not more"
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, remark)
        refusal: RequestRejected | None = None
        for consumer in from_plain(list[ConsumerData], consumers):
            try:
                self._join(client, consumer)
            except RequestRejected as error:
                refusal = error
        if refusal is not None:
            raise refusal

    def _join(self, client: ConnectedClient, consumer: ConsumerData) -> None:
        refuse_without_retries(consumer.group_name)
        group = self._groups.find(consumer.group_name)
        if group is not None:
            with suppress(RequestRejected):  # too many topics: the group's subscribed topics are served all the same
                self._topics.create_for_group(group.name, group.retry_queues, unit=consumer.unit_mode)
        self._consumers.register(consumer, client)
        self._filters.register(consumer.group_name, consumer.subscription_data_set)

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
        subscription = decode_request(CheckClientRequest, command.body).subscription_data
        if subscription is not None and not is_tag(subscription.expression_type):
            self._filters.check(subscription.expression, subscription.expression_type)
        return command.response(ResponseCode.SUCCESS)

    def lock(self, _connection: Connection, command: Command) -> Command:
        asked = decode_request(QueueLockRequest, command.body)
        owned = self._locks.lock(asked.consumer_group, asked.client_id, asked.mq_set, self._clock.now_ms())
        return command.response(ResponseCode.SUCCESS, body=encode(LockedQueues(locked=owned)))

    def unlock(self, _connection: Connection, command: Command) -> Command:
        asked = decode_request(QueueLockRequest, command.body)
        self._locks.unlock(asked.consumer_group, asked.client_id, asked.mq_set)
        return command.response(ResponseCode.SUCCESS)


def _topics_in(consumer: Any) -> int:
    """How many topics a group of a heartbeat subscribes to, before it is parsed."""
    named = consumer.get(_SUBSCRIPTIONS) if isinstance(consumer, dict) else None
    return len(named) if isinstance(named, list) else 0


def _refuse_long(names: Iterable[str]) -> None:
    """Names are kept while their client lives, and no other check limits their length."""
    if any(len(name) > NAME_LENGTH_MAX for name in names):
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"a name may have {NAME_LENGTH_MAX} characters, not more")


def _read(body: bytes) -> dict[str, Any]:
    """The members of a heartbeat, before they are parsed."""
    if not body:
        raise BodyError("HeartbeatData: the body is empty")
    objects = body.count(b"{")
    if objects > CONTAINERS_MAX or objects + body.count(b"[") > CONTAINERS_MAX:  # a count of megabytes takes its time
        remark = f"a heartbeat may have {CONTAINERS_MAX} objects and lists, not more"
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, remark)
    found = loads(body, STRANGERS)
    if not isinstance(found, dict) or not isinstance(found.get(_CONSUMERS) or [], list):
        raise BodyError("HeartbeatData: an object with lists expected")
    return found
