"""CONSUMER_SEND_MSG_BACK: moves a message that its consumer failed to handle to the group's retry topic, or after the
last retry to its dead letter topic. It never fails for lack of room: a message whose properties leave none for a retry
becomes a dead letter at once.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Mapping

from orbitmq.broker.dead_letters import for_grave, for_retry
from orbitmq.broker.groups import Groups, refuse_without_retries
from orbitmq.broker.message_writer import MessageWriter
from orbitmq.broker.options import BrokerOptions
from orbitmq.broker.statistics import Statistics
from orbitmq.broker.topics import Topics
from orbitmq.errors import RequestRejected, UnitError
from orbitmq.message.config import SubscriptionGroup, TopicConfig
from orbitmq.message.flags import PERM_WRITE
from orbitmq.message.ids import offset_message_id
from orbitmq.message.properties import DELAY, ORIGIN_MESSAGE_ID, RETRY_TOPIC, WAIT, decode_properties, encode_properties
from orbitmq.message.topics import dlq_topic
from orbitmq.message.unit import Unit, decode_unit
from orbitmq.net.connection import Connection
from orbitmq.net.routing import Router
from orbitmq.runtime.refusals import Refusals
from orbitmq.store.engine import MessageStore
from orbitmq.store.records import PutRecord, PutStatus, copy_of
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers import ConsumerSendMsgBackHeader
from orbitmq.wire.requests import RequestCode

_log = logging.getLogger(__name__)

MAX_RECONSUME_SINCE = 121  # V3_4_9: older clients do not send the maximum number of retries
FIRST_RETRY_LEVEL = 3  # 10 s by default; the n-th retry waits one level longer


class SendBackHandler:
    """The handler of messages that come back."""

    def __init__(
        self,
        store: MessageStore,
        writing: MessageWriter,
        topics: Topics,
        groups: Groups,
        options: BrokerOptions,
        statistics: Statistics,
    ) -> None:
        self._store = store
        self._writing = writing
        self._topics = topics
        self._groups = groups
        self._options = options
        self._statistics = statistics
        self._lines = Refusals()

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.CONSUMER_SEND_MSG_BACK, self.send_back)

    async def send_back(self, _connection: Connection, command: Command) -> Command:
        self._writing.refuse_if_busy()
        header = command.header(ConsumerSendMsgBackHeader)
        group = self._groups.require(header.group)
        refuse_without_retries(group.name)
        if not self._options.broker_permission & PERM_WRITE:
            raise RequestRejected(ResponseCode.NO_PERMISSION, f"broker {self._options.broker_name} is not writable")
        if group.retry_queues <= 0:
            return command.response(ResponseCode.SUCCESS)  # the group has no retries: the message is dropped
        unit = self._unit(header.offset)
        max_times = group.retry_max
        if command.version >= MAX_RECONSUME_SINCE and header.max_reconsume_times is not None:
            max_times = header.max_reconsume_times
        remark = None
        if unit.reconsume_times >= max_times or header.delay_level < 0:
            result = await self._store_dead_letter(unit, group, header)
        else:
            result = await self._retry(unit, group, header)
            if result is PutStatus.PROPERTIES_SIZE_EXCEEDED:
                remark = (
                    f"its properties of {len(unit.properties.encode())} bytes leave no room for a retry: a dead letter"
                )
                text = "event=dead_letter_without_retry group=%.300s topic=%.300s offset=%d reason=%s"
                self._lines.log(_log, text, group.name, unit.topic, header.offset, result.name)
                result = await self._store_dead_letter(unit, group, header)
        if result is not PutStatus.PUT_OK:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, result.name)
        self._statistics.sent_back(decode_properties(unit.properties).get(RETRY_TOPIC, unit.topic), group.name)
        return command.response(ResponseCode.SUCCESS, remark)

    async def _retry(self, unit: Unit, group: SubscriptionGroup, header: ConsumerSendMsgBackHeader) -> PutStatus:
        topic = await self._destination(group, dead=False, unit_mode=header.unit_mode)
        # The topic keeps the number of queues it was created with, whatever the group's setting is now: a retry in any
        # other queue would never be consumed. RocketMQ uses the group's setting alone.
        readable = max(1, min(group.retry_queues, topic.read_queues))
        queue_id = random.randrange(readable)  # noqa: S311 - spreads load, guards nothing
        level = header.delay_level or FIRST_RETRY_LEVEL + unit.reconsume_times
        return await self._put_first(unit, topic, queue_id, for_retry(_properties(unit, level)))

    async def _store_dead_letter(
        self, unit: Unit, group: SubscriptionGroup, header: ConsumerSendMsgBackHeader
    ) -> PutStatus:
        topic = await self._destination(group, dead=True, unit_mode=header.unit_mode)
        return await self._put_first(unit, topic, 0, for_grave(_properties(unit, 0)))

    async def _put_first(
        self, unit: Unit, topic: TopicConfig, queue_id: int, forms: Iterable[Mapping[str, str]]
    ) -> PutStatus:
        """Store the first of these forms that there is room for."""
        status = PutStatus.PROPERTIES_SIZE_EXCEEDED
        for properties in forms:
            status = await self._writing.put_durably(_returned(unit, topic, queue_id, properties))
            if status is not PutStatus.PROPERTIES_SIZE_EXCEEDED:
                break
        return status

    def _unit(self, offset: int) -> Unit:
        stored = self._store.unit_at(offset)
        try:
            if stored is not None:
                return decode_unit(stored)
        except UnitError:
            pass  # an offset inside a message, or nothing that is one
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"no message can be read at offset {offset}")

    async def _destination(self, group: SubscriptionGroup, *, dead: bool, unit_mode: bool) -> TopicConfig:
        """The topic, once it is on disk. A slow disk delays no message for a topic that was there before."""
        retry = self._topics.create_for_group(group.name, group.retry_queues, unit=unit_mode)
        if not retry.perm & PERM_WRITE:
            raise RequestRejected(ResponseCode.NO_PERMISSION, f"topic {retry.name} is not writable")
        topic = self._topics.create_for_system(dlq_topic(group.name), 1) if dead else retry
        if topic.name in self._topics.unsaved:
            await self._topics.saved(topic.name)
        return topic


def _properties(unit: Unit, delay_level: int) -> dict[str, str]:
    properties = decode_properties(unit.properties)
    properties.setdefault(RETRY_TOPIC, unit.topic)
    properties.setdefault(ORIGIN_MESSAGE_ID, offset_message_id(unit.store_host, unit.physical_offset))
    properties[WAIT] = "false"
    properties[DELAY] = str(delay_level)
    return properties


def _returned(unit: Unit, topic: TopicConfig, queue_id: int, properties: Mapping[str, str]) -> PutRecord:
    """The copy that is stored, with one more try on its count."""
    record = copy_of(unit, topic.name, queue_id, encode_properties(properties).encode())
    record.reconsume_times += 1
    return record
