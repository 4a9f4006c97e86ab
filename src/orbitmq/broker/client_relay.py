"""Requests of tools that only a consumer can handle: its offsets, its state, and consuming a message directly.

They are forwarded on the consumer's connection, and its response is returned unchanged. Must not know consumers.
"""

from __future__ import annotations

import asyncio
import logging

from orbitmq.broker.clients import ConnectedClient, Consumers
from orbitmq.errors import MessageIllegal, OrbitMQError, RemotingTimeout, RequestRejected
from orbitmq.message.ids import decode_offset_message_id
from orbitmq.net.connection import Connection
from orbitmq.net.routing import Router
from orbitmq.store.engine import MessageStore
from orbitmq.wire.bodies import ConsumerStatus
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, request
from orbitmq.wire.headers_groups import (
    ConsumeMessageDirectlyHeader,
    GetConsumerRunningInfoHeader,
    GetConsumerStatusFromClientHeader,
    InvokeBrokerToGetConsumerStatusHeader,
)
from orbitmq.wire.objects import decode, encode
from orbitmq.wire.requests import RequestCode

_log = logging.getLogger(__name__)

STATUS_SINCE = 28  # V3_0_7_SNAPSHOT: older clients do not report their offsets
RUNNING_INFO_SINCE = 62  # V3_1_8_SNAPSHOT: nor their state, nor do they take a message directly
STATUS_TIMEOUT_MS = 5000  # both as in RocketMQ: tools wait a little longer than that
RELAY_TIMEOUT_MS = 10_000


class ClientRelay:
    """Handlers that forward a request to a member of a group."""

    def __init__(self, store: MessageStore, consumers: Consumers, broker_name: str) -> None:
        self._store = store
        self._consumers = consumers
        self._broker_name = broker_name

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, self.consumer_status)
        router.add(RequestCode.GET_CONSUMER_RUNNING_INFO, self.running_info)
        router.add(RequestCode.CONSUME_MESSAGE_DIRECTLY, self.consume_directly)

    async def consumer_status(self, _connection: Connection, command: Command) -> Command:
        """The offsets that members hold in memory, by client id. Members that do not respond are left out."""
        header = command.header(InvokeBrokerToGetConsumerStatusHeader)
        group = self._consumers.groups.get(header.group)
        if group is None:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"no consumer of the group {header.group} is online")
        members = [
            one for one in group.members.values() if not header.client_addr or one.client_id == header.client_addr
        ]
        for member in members:
            _refuse_older(member, STATUS_SINCE)
        ask = GetConsumerStatusFromClientHeader(header.topic, header.group)
        answers = await asyncio.gather(*(_request_status(member, ask) for member in members))
        tables = {
            member.client_id: answer.message_queue_table
            for member, answer in zip(members, answers, strict=True)
            if answer is not None
        }
        return command.response(ResponseCode.SUCCESS, body=encode(ConsumerStatus(consumer_table=tables)))

    async def running_info(self, _connection: Connection, command: Command) -> Command:
        header = command.header(GetConsumerRunningInfoHeader)
        return await self._relay(command, header.consumer_group, header.client_id, command.ext, command.body)

    async def consume_directly(self, _connection: Connection, command: Command) -> Command:
        """Deliver one stored message to a consumer's listener; the broker adds the message and its own name."""
        header = command.header(ConsumeMessageDirectlyHeader)
        body = self._message(header.msg_id) if header.msg_id else command.body
        ext = {**(command.ext or {}), "brokerName": self._broker_name}
        return await self._relay(command, header.consumer_group, header.client_id or "", ext, body)

    def _message(self, message_id: str) -> bytes:
        try:
            place = decode_offset_message_id(message_id).physical_offset
        except MessageIllegal as error:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, str(error)) from error
        unit = self._store.unit_at(place)
        if unit is None:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"no message can be read at offset {place}")
        return bytes(unit)

    async def _relay(
        self, command: Command, group: str, client_id: str, ext: dict[str, str] | None, body: bytes
    ) -> Command:
        """The consumer's response, with the opaque of the tool's request."""
        members = self._consumers.groups.get(group)
        member = members.find(client_id) if members is not None else None
        if member is None:
            remark = f"the consumer {client_id} of the group {group} is not online"
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, remark)
        _refuse_older(member, RUNNING_INFO_SINCE)
        question = request(command.code, body=body)
        question.ext = ext
        try:
            found = await member.connection.call(question, RELAY_TIMEOUT_MS)
        except RemotingTimeout as error:
            remark = f"the consumer {client_id} of the group {group} does not answer: {error}"
            raise RequestRejected(ResponseCode.CONSUME_MSG_TIMEOUT, remark) from error
        answer = command.response(found.code, found.remark, body=found.body)
        answer.ext, answer.language, answer.version = found.ext, found.language, found.version
        return answer


async def _request_status(member: ConnectedClient, header: GetConsumerStatusFromClientHeader) -> ConsumerStatus | None:
    question = request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header)
    try:
        answer = await member.connection.call(question, STATUS_TIMEOUT_MS)
        return decode(ConsumerStatus, answer.body) if answer.code == ResponseCode.SUCCESS else None
    except OrbitMQError as error:
        _log.warning("event=consumer_status_missing client=%s error=%s", member.client_id, error)
        return None


def _refuse_older(member: ConnectedClient, since: int) -> None:
    if member.version < since:
        remark = f"the consumer {member.client_id} has version {member.version}, which does not support this"
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, remark)
