"""The requests that brokers send to a client: rebalance, reset offsets, report its state, consume a message.

Each request names a group, and the consumer of that group handles it. Knows only the interface of consumers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Protocol

from orbitmq.errors import RequestRejected
from orbitmq.message.model import MessageExt, MessageQueue
from orbitmq.message.unit import decode_unit, message_of
from orbitmq.net.connection import Connection
from orbitmq.net.routing import Router
from orbitmq.wire.bodies import (
    ConsumeDirectlyResult,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumerStatus,
    QueueOffsetList,
    QueueOffsets,
)
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers import NotifyConsumerIdsChangedHeader
from orbitmq.wire.headers_groups import (
    ConsumeMessageDirectlyHeader,
    GetConsumerRunningInfoHeader,
    GetConsumerStatusFromClientHeader,
    ResetConsumerClientOffsetHeader,
)
from orbitmq.wire.objects import decode, encode
from orbitmq.wire.requests import RequestCode

_log = logging.getLogger(__name__)


class GroupMember(Protocol):
    """The interface of a consumer for its client instance."""

    group: str

    def wanted_topics(self) -> Iterable[str]:
        """The topics whose routes it needs."""

    def heartbeat_data(self) -> ConsumerData:
        """What the heartbeat says about it."""

    def wake_rebalance(self) -> None:
        """Rebalance now: members or queues may have changed."""

    def known_offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        """Its offsets in memory."""

    def move(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """An operator reset the offsets: continue there soon."""

    def running_info(self, *, stacks: bool) -> ConsumerRunningInfo:
        """Its state."""

    async def consume_directly(self, message: MessageExt) -> ConsumeDirectlyResult:
        """Call its listener with a message of any queue. RequestRejected when it has no listener."""


class BrokerRequests:
    """The handlers of these requests, for the consumers of one client."""

    def __init__(self, consumers: Mapping[str, GroupMember]) -> None:
        self._consumers = consumers

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self.members_changed)
        router.add(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, self.move)
        router.add(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, self.status)
        router.add(RequestCode.GET_CONSUMER_RUNNING_INFO, self.running_info)
        router.add(RequestCode.CONSUME_MESSAGE_DIRECTLY, self.consume_directly)

    def members_changed(self, connection: Connection, command: Command) -> None:
        """A member of a group joined or left."""
        group = command.header(NotifyConsumerIdsChangedHeader).consumer_group
        _log.info("event=members_changed group=%s broker=%s", group, connection.address)
        member = self._consumers.get(group)
        if member is not None:
            member.wake_rebalance()

    def move(self, connection: Connection, command: Command) -> None:
        """An operator reset offsets of the group; each broker sends those of its own queues."""
        header = command.header(ResetConsumerClientOffsetHeader)
        offsets = _offsets_of(command.body)
        _log.info(
            "event=offsets_moved group=%s topic=%s queues=%d broker=%s",
            header.group, header.topic, len(offsets), connection.address,
        )  # fmt: skip
        member = self._consumers.get(header.group)
        if member is not None:
            member.move(header.topic, {queue: at for queue, at in offsets.items() if queue.topic == header.topic})

    def status(self, _connection: Connection, command: Command) -> Command:
        header = command.header(GetConsumerStatusFromClientHeader)
        member = self._consumers.get(header.group)
        offsets = member.known_offsets(header.topic) if member is not None else {}
        return command.response(ResponseCode.SUCCESS, body=encode(ConsumerStatus(message_queue_table=dict(offsets))))

    def running_info(self, _connection: Connection, command: Command) -> Command:
        header = command.header(GetConsumerRunningInfoHeader)
        info = self._member(header.consumer_group).running_info(stacks=header.jstack_enable)
        return command.response(ResponseCode.SUCCESS, body=encode(info))

    async def consume_directly(self, _connection: Connection, command: Command) -> Command:
        header = command.header(ConsumeMessageDirectlyHeader)
        member = self._member(header.consumer_group)
        message = message_of(decode_unit(command.body), header.broker_name or "")
        result = await member.consume_directly(message)
        return command.response(ResponseCode.SUCCESS, body=encode(result))

    def _member(self, group: str) -> GroupMember:
        member = self._consumers.get(group)
        if member is None:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"this client has no consumer of the group {group}")
        return member


def _offsets_of(body: bytes) -> dict[MessageQueue, int]:
    """A map with queues as keys, in either spelling, or the list that brokers make for C++ clients."""
    if body.lstrip().replace(b" ", b"").startswith(b'{"offsetTable":[{'):
        listed = decode(QueueOffsetList, body).offset_table
        return {MessageQueue(one.topic, one.broker_name, one.queue_id): one.offset for one in listed}
    return decode(QueueOffsets, body).offset_table
