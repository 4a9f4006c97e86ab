"""Requests of tools and slaves about topics and consumer groups."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from msgspec.structs import replace

from orbitmq.broker.groups import Groups
from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.broker.options import BrokerOptions
from orbitmq.broker.statistics import Statistics
from orbitmq.broker.topics import Topics
from orbitmq.errors import BodyError, OrbitMQError, RequestRejected
from orbitmq.message.config import MULTI_TAG, SINGLE_TAG, SubscriptionGroup, TopicConfig
from orbitmq.message.javajson import loads
from orbitmq.message.pop import pop_retry_topic
from orbitmq.message.topic_types import (
    MESSAGE_TYPE,
    Changes,
    MessageType,
    altered,
    parse_changes,
    signed_changes,
)
from orbitmq.message.topics import check_consumer_group, check_topic
from orbitmq.net.connection import Connection
from orbitmq.net.routing import Router
from orbitmq.runtime.turns import in_turns
from orbitmq.store.engine import MessageStore
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers_admin import (
    CreateTopicHeader,
    DeleteSubscriptionGroupHeader,
    DeleteTopicHeader,
    GetSubscriptionGroupConfigHeader,
    GetTopicConfigHeader,
)
from orbitmq.wire.objects import STRANGERS, decode_request, encode, from_plain
from orbitmq.wire.requests import RequestCode
from orbitmq.wire.table_texts import TableText

T = TypeVar("T")

LISTED_A_TURN = 100  # topics or groups of one request that are taken before other work gets its turn: some 5 ms
QUEUES_MAX = 65_536  # of one topic: a queue costs memory and a directory, and no group has so many consumers


class Administration:
    """Handlers for the topic and group tables. The response to a change is sent when it is on disk."""

    def __init__(
        self,
        topics: Topics,
        groups: Groups,
        offsets: ConsumerOffsets,
        store: MessageStore,
        statistics: Statistics,
        forget_topic: Callable[[str], object],
        options: BrokerOptions,
    ) -> None:
        self._options = options
        self._forget_topic = forget_topic
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._store = store
        self._statistics = statistics

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.UPDATE_AND_CREATE_TOPIC, self.create_topic)
        router.add_change(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, self.create_topics)
        router.add_change(RequestCode.DELETE_TOPIC_IN_BROKER, self.delete_topic)
        router.add(RequestCode.GET_ALL_TOPIC_CONFIG, self.all_topics)
        router.add(RequestCode.GET_TOPIC_CONFIG, self.one_topic)
        router.add(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, self.create_group)
        router.add_change(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, self.create_groups)
        router.add_change(RequestCode.DELETE_SUBSCRIPTIONGROUP, self.delete_group)
        router.add(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, self.all_groups)
        router.add(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, self.one_group)
        router.add_change(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, self.remove_expired_queues)
        router.add_change(RequestCode.CLEAN_UNUSED_TOPIC, self.remove_unused_topics)
        router.add(RequestCode.DELETE_EXPIRED_COMMITLOG, self.remove_expired_files)

    async def create_topic(self, _connection: Connection, command: Command) -> Command:
        header = command.header(CreateTopicHeader)
        config = TopicConfig(
            header.topic,
            header.read_queue_nums,
            header.write_queue_nums,
            header.perm,
            header.topic_filter_type,
            header.topic_sys_flag or 0,
        )
        self._put_topic(config, parse_changes(header.attributes or ""))
        await self._topics.file.flush()
        return command.response(ResponseCode.SUCCESS)

    async def create_topics(self, _connection: Connection, command: Command) -> Command:
        async for config in _listed(TopicConfig, command.body, "topicConfigList"):
            self._put_topic(config, signed_changes(config.attributes.items()))
        await self._topics.file.flush()
        return command.response(ResponseCode.SUCCESS)

    def _put_topic(self, config: TopicConfig, changes: Changes) -> None:
        """An existing topic keeps attributes that are not changed: 4.x tools do not know them."""
        _refuse_illegal(check_topic, config.name)
        self._refuse_protected(config.name)
        if config.filter_type not in (SINGLE_TAG, MULTI_TAG):
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"topicFilterType {config.filter_type!r} is unknown")
        if not (0 <= config.read_queues <= QUEUES_MAX and 0 <= config.write_queues <= QUEUES_MAX):
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"queue numbers must lie within 0 and {QUEUES_MAX}")
        if changes.get(MESSAGE_TYPE) == MessageType.MIXED and not self._options.enable_mixed_message_type:
            text = "the type MIXED is not allowed: give the topic another type, or set enableMixedMessageType=true"
            raise RequestRejected(ResponseCode.INVALID_PARAMETER, text)
        known = self._topics.table.get(config.name)
        attributes = altered(None if known is None else known.attributes, changes)
        self._topics.put(replace(config, attributes=attributes))

    async def delete_topic(self, _connection: Connection, command: Command) -> Command:
        """With the retry topics of its groups' POP consumption, as RocketMQ 5 does."""
        name = command.header(DeleteTopicHeader).topic
        _refuse_illegal(check_topic, name)
        self._refuse_protected(name)
        retries = [pop_retry_topic(name, group) for group in self._offsets.groups_of(name)]
        for one in (name, *(retry for retry in retries if retry in self._topics.table)):
            await self._delete_topic(one)
        await self._topics.file.flush()
        return command.response(ResponseCode.SUCCESS)

    async def _delete_topic(self, name: str) -> None:
        self._topics.delete(name)
        for _ in self._store.remove_topic(name):
            await asyncio.sleep(0)  # each takes a millisecond, and a topic may have thousands
        self._offsets.forget_topic(name)
        self._forget_topic(name)
        self._statistics.forget_topic(name)

    def _refuse_protected(self, name: str) -> None:
        if self._topics.is_protected(name):
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"{name} is a topic of the system")

    async def all_topics(self, _connection: Connection, command: Command) -> Command:
        answer = command.response(ResponseCode.SUCCESS, body=await _written(self._topics.text()))
        answer.ext = {}
        return answer

    def one_topic(self, _connection: Connection, command: Command) -> Command:
        name = command.header(GetTopicConfigHeader).topic
        config = self._topics.get(name)
        if config is None:
            raise RequestRejected(ResponseCode.TOPIC_NOT_EXIST, f"topic {name} does not exist")
        return command.response(ResponseCode.SUCCESS, body=encode(config))

    async def create_group(self, _connection: Connection, command: Command) -> Command:
        self._put_group(decode_request(SubscriptionGroup, command.body))
        await self._groups.file.flush()
        return command.response(ResponseCode.SUCCESS)

    async def create_groups(self, _connection: Connection, command: Command) -> Command:
        async for group in _listed(SubscriptionGroup, command.body, "groupConfigList"):
            self._put_group(group)
        await self._groups.file.flush()
        return command.response(ResponseCode.SUCCESS)

    def _put_group(self, group: SubscriptionGroup) -> None:
        """An unknown attribute is refused, and RocketMQ knows none so far; what a later version has stored is kept."""
        _refuse_illegal(check_consumer_group, group.name)
        if changed := next(iter(signed_changes(group.attributes.items())), None):
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"attribute {changed:.100} of a group is unknown")
        known = self._groups.table.get(group.name)
        self._groups.put(replace(group, attributes={} if known is None else known.attributes))

    async def delete_group(self, _connection: Connection, command: Command) -> Command:
        header = command.header(DeleteSubscriptionGroupHeader)
        self._groups.delete(header.group_name)
        self._statistics.forget_group(header.group_name)
        if header.remove_offset or header.clean_offset:
            self._offsets.forget_group(header.group_name)
            self._offsets.save_soon()
        await self._groups.file.flush()
        return command.response(ResponseCode.SUCCESS)

    async def all_groups(self, _connection: Connection, command: Command) -> Command:
        return command.response(ResponseCode.SUCCESS, body=await _written(self._groups.text()))

    def one_group(self, _connection: Connection, command: Command) -> Command:
        name = command.header(GetSubscriptionGroupConfigHeader).group
        group = self._groups.table.get(name)
        if group is None:
            raise RequestRejected(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"group {name} does not exist")
        return command.response(ResponseCode.SUCCESS, body=encode(group))

    async def remove_expired_queues(self, _connection: Connection, command: Command) -> Command:
        """Remove queues whose messages have all expired; messages sent to them later begin at offset 0."""
        for _ in self._store.remove_expired_queues():
            await asyncio.sleep(0)
        return command.response(ResponseCode.SUCCESS)

    async def remove_unused_topics(self, _connection: Connection, command: Command) -> Command:
        """Queues of topics that are not in the table."""
        for _ in self._store.remove_unused_topics(self._topics.table):
            await asyncio.sleep(0)
        return command.response(ResponseCode.SUCCESS)

    def remove_expired_files(self, _connection: Connection, command: Command) -> Command:
        """Commit log files that have expired, in the background."""
        self._store.remove_expired_files()
        return command.response(ResponseCode.SUCCESS)


def _refuse_illegal(check: Callable[[str], None], name: str) -> None:
    """RocketMQ responds to an illegal name with SYSTEM_ERROR here, but not when a message is sent."""
    try:
        check(name)
    except OrbitMQError as error:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, str(error)) from error


async def _written(text: TableText[T]) -> bytes:
    """A table of thousands of entries, encoded off the event loop."""
    return await asyncio.to_thread(lambda: text.compact().encode())


async def _listed(kind: type[T], body: bytes, member: str) -> AsyncIterator[T]:
    """The objects of a list that may be long, read and given out in turns of the event loop."""
    found = loads(body, STRANGERS) if body else None
    if not isinstance(found, dict) or not isinstance(found.get(member), list):
        raise BodyError(f"an object with the list {member} expected")
    async for one in in_turns(found[member], LISTED_A_TURN):
        yield from_plain(kind, one)
