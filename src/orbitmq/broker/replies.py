"""SEND_REPLY_MESSAGE: pushes the reply to a request message to the waiting client, and stores it in the reply topic.

The reply names its client, which the broker knows by the heartbeat of its producer; the reply is pushed on that
client's connection. Correlating replies and requests is the client's task.
"""

from __future__ import annotations

import logging

from orbitmq.broker.clients import Producers
from orbitmq.broker.message_writer import MessageWriter
from orbitmq.broker.options import BrokerOptions
from orbitmq.broker.send_handler import AnySendHeader, SendHandler
from orbitmq.broker.stored_properties import waits_for_store, with_pair
from orbitmq.errors import OrbitMQError, RequestRejected
from orbitmq.message.hosts import decode_host
from orbitmq.message.properties import PUSH_REPLY_TIME, REPLY_TO_CLIENT, decode_properties
from orbitmq.net.connection import Connection
from orbitmq.net.routing import Router
from orbitmq.runtime.clock import Clock
from orbitmq.store.records import PutRecord, PutStatus
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import FLAG_ONEWAY, Command, request
from orbitmq.wire.headers import SendMessageHeader, SendMessageV2Header
from orbitmq.wire.headers_reply import PushReplyMessageHeader
from orbitmq.wire.requests import RequestCode

_log = logging.getLogger(__name__)

PUSH_TIMEOUT_MS = 10_000  # how long the client may take to acknowledge the reply, as in RocketMQ
PUSHES_MAX = 10_000  # replies on their way to clients; RocketMQ's replyThreadPoolQueueCapacity


class Replies:
    """The handlers of replies."""

    def __init__(
        self, sending: SendHandler, writing: MessageWriter, producers: Producers, options: BrokerOptions, clock: Clock
    ) -> None:
        self._sending = sending
        self._writing = writing
        self._producers = producers
        self._options = options
        self._clock = clock
        self._in_flight = 0

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.SEND_REPLY_MESSAGE, self.reply_long)
        router.add(RequestCode.SEND_REPLY_MESSAGE_V2, self.reply_short)

    async def reply_long(self, connection: Connection, command: Command) -> Command | None:
        return await self._reply(connection, command, SendMessageHeader)

    async def reply_short(self, connection: Connection, command: Command) -> Command | None:
        return await self._reply(connection, command, SendMessageV2Header)

    async def _reply(self, connection: Connection, command: Command, kind: type[AnySendHeader]) -> Command | None:
        try:
            header = command.header(kind)
            record = self._sending.record_of(connection, command, header, self._sending.topic_of(header))
            record.properties = (header.properties or "").encode()
            queue_id = record.queue_id
            failure = await self._hand_over(header, record)
        except RequestRejected as error:
            answer = self._sending.refusal(command, error.code, error.remark)
        except OrbitMQError as error:
            answer = self._sending.refusal(command, error.response_code, str(error))
        else:
            code = ResponseCode.SYSTEM_ERROR if failure else ResponseCode.SUCCESS
            answer = self._sending.refusal(command, code, failure)
            place = None if failure else ("0", 0)
            if self._options.store_reply_message_enable:
                place = await self._store(record, header.properties or "") or place
            if place is not None and answer.ext is not None:
                answer.ext |= {"msgId": place[0], "queueId": str(queue_id), "queueOffset": str(place[1])}
        return None if command.flag & FLAG_ONEWAY else answer

    async def _hand_over(self, header: AnySendHeader, record: PutRecord) -> str | None:
        """Give the reply to the client that waits for it; else the reason why not, in RocketMQ's words."""
        client_id = decode_properties(header.properties or "").get(REPLY_TO_CLIENT)
        if client_id is None:
            return f"reply message properties[{REPLY_TO_CLIENT}] is null"
        client = self._producers.find(client_id)
        if client is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        if self._in_flight >= PUSHES_MAX:
            raise RequestRejected(ResponseCode.SYSTEM_BUSY, f"{PUSHES_MAX} replies are in flight, try again")
        self._in_flight += 1
        try:
            push = request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._push(header, record), bytes(record.body))
            answer = await client.call(push, PUSH_TIMEOUT_MS)
        except OrbitMQError as error:
            _log.warning("event=reply_not_pushed client=%s error=%s", client_id, error)
            return f"push reply message to {client_id}fail."
        finally:
            self._in_flight -= 1
        return None if answer.code == ResponseCode.SUCCESS else f"push reply message to {client_id}fail."

    def _push(self, header: AnySendHeader, record: PutRecord) -> PushReplyMessageHeader:
        now_ms = self._clock.now_ms()
        return PushReplyMessageHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            born_host=_host(record.born_host),
            store_host=_host(record.store_host),
            store_timestamp=now_ms,
            properties=with_pair(header.properties or "", PUSH_REPLY_TIME, str(now_ms)),
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode,
        )

    async def _store(self, record: PutRecord, text: str) -> tuple[str, int] | None:
        """Message id and queue offset of the stored reply. A failure to store it is not reported to its sender: whether
        the reply was pushed does not depend on it.
        """
        try:
            result = await self._writing.put_with_room(record)
            if result.status is PutStatus.PUT_OK and self._writing.can_wait and waits_for_store(text):
                await self._writing.durable(result)
        except OrbitMQError as error:
            _log.warning("event=reply_not_stored topic=%s error=%s", record.topic, error)
            return None
        if result.physical_offset < 0:
            _log.warning("event=reply_not_stored topic=%s status=%s", record.topic, result.status.name)
            return None
        return result.message_id, result.queue_offset


def _host(field: bytes) -> str:
    ip, port = decode_host(field)
    return f"{ip}:{port}"
