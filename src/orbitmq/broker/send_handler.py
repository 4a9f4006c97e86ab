"""SEND_MESSAGE in its three forms: checks, the stored record, the response.

Every message is received here, so rare cases (unknown topics, retry topics, transactions, delay) are detected by one
search of the properties text and handled separately.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import msgspec

from orbitmq.broker.dead_letters import for_grave
from orbitmq.broker.groups import Groups
from orbitmq.broker.message_writer import MessageWriter
from orbitmq.broker.options import BrokerOptions
from orbitmq.broker.stored_properties import waits_for_store, with_cluster, without_wait
from orbitmq.broker.topics import Topics
from orbitmq.broker.transactions.half import is_transactional
from orbitmq.errors import BodyError, MessageError, OrbitMQError, RequestRejected, StoreError
from orbitmq.message.config import MULTI_TAG, TopicConfig
from orbitmq.message.flags import (
    BORN_HOST_V6,
    MULTI_TAGS,
    PERM_WRITE,
    STORE_HOST_V6,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
)
from orbitmq.message.pop import revive_topic
from orbitmq.message.properties import (
    CLUSTER,
    DELAY,
    PROPERTIES_SIZE_MAX,
    TRAN_MSG,
    decode_properties,
    encode_properties,
)
from orbitmq.message.topics import RETRY_PREFIX, SEND_FORBIDDEN_TOPICS, check_topic, dlq_topic
from orbitmq.net.connection import Connection
from orbitmq.net.routing import Answer, Router
from orbitmq.runtime.clock import Clock
from orbitmq.runtime.refusals import Refusals
from orbitmq.store.queue_room import RoomAwaited
from orbitmq.store.records import PROPERTIES_TOO_LONG, PutRecord, PutResult, PutStatus
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import FLAG_ONEWAY, Command
from orbitmq.wire.frame import SendFrame, encode_frame
from orbitmq.wire.headers import SendMessageHeader, SendMessageV2Header
from orbitmq.wire.requests import RequestCode
from orbitmq.wire.send_loops import BINARY, JSON, respond, stored

_log = logging.getLogger(__name__)

MAX_RECONSUME_SINCE: Final = 121  # V3_4_9: older clients do not send the maximum number of retries

AnySendHeader = SendMessageHeader | SendMessageV2Header

# Put status -> response code and remark. A message of the first four is stored.
OUTCOMES: dict[PutStatus, tuple[int, str | None]] = {
    PutStatus.PUT_OK: (ResponseCode.SUCCESS, None),
    PutStatus.FLUSH_DISK_TIMEOUT: (ResponseCode.FLUSH_DISK_TIMEOUT, None),
    PutStatus.FLUSH_SLAVE_TIMEOUT: (ResponseCode.FLUSH_SLAVE_TIMEOUT, None),
    PutStatus.SLAVE_NOT_AVAILABLE: (ResponseCode.SLAVE_NOT_AVAILABLE, None),
    PutStatus.CREATE_MAPEDFILE_FAILED: (
        ResponseCode.SYSTEM_ERROR,
        "the message is not stored: there is no buffer for its file, or too many files are open or mapped",
    ),
    PutStatus.MESSAGE_ILLEGAL: (
        ResponseCode.MESSAGE_ILLEGAL,
        "the message is not stored: ",
    ),
    PutStatus.PROPERTIES_SIZE_EXCEEDED: (
        ResponseCode.MESSAGE_ILLEGAL,
        f"the message is not stored: with what the broker adds its properties exceed {PROPERTIES_SIZE_MAX} bytes",
    ),
    PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED: (
        ResponseCode.SYSTEM_ERROR,
        "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED] the message is not stored: it names a light queue too many",
    ),
    PutStatus.WHEEL_TIMER_NOT_ENABLE: (
        ResponseCode.SYSTEM_ERROR,
        "accurate timer message is not enabled: set timerWheelEnable=true, or use a delay level",
    ),
    PutStatus.WHEEL_TIMER_FLOW_CONTROL: (
        ResponseCode.SYSTEM_ERROR,
        "timer message is under flow control: as many wait for its second as timerCongestNumEachSlot says, ",
    ),
    PutStatus.OS_PAGECACHE_BUSY: (
        ResponseCode.SYSTEM_ERROR,
        "[PC_SYNCHRONIZED] the disk is too slow to allocate room for the message; try again",
    ),
    PutStatus.SERVICE_NOT_AVAILABLE: (
        ResponseCode.SERVICE_NOT_AVAILABLE,
        "the store takes no messages now: its disk is full, or it is stopping, or it is a slave; disk use ",
    ),
}

UNCONFIRMED: Final = "the message is not confirmed, and this broker is not the master any more: send it to the next one"


def outcome_of(result: PutResult, disk_use: Callable[[], str]) -> tuple[int, str | None]:
    """Response code and remark, which names the limit that was passed."""
    code, remark = OUTCOMES[result.status]
    if result.status is PutStatus.SERVICE_NOT_AVAILABLE and result.physical_offset >= 0:
        return code, UNCONFIRMED
    if result.status is PutStatus.SERVICE_NOT_AVAILABLE:
        return code, f"{remark}{disk_use()}"
    return code, f"{remark}{result.reason}" if result.reason else remark


_NO_ID: Final = "0" * 32  # in the place of an offset id with an IPv4 host
_UNCOMMON: Final = TRANSACTION_MASK | BORN_HOST_V6 | STORE_HOST_V6


def _decoded(text: bytes, kind: int) -> str | None:
    """The text of a field that was read in place, None if it is none."""
    try:
        return text.decode() if kind == BINARY else msgspec.json.decode(b'"%s"' % text, type=str)
    except (UnicodeDecodeError, msgspec.DecodeError):
        return None


def _any_queue(count: int) -> int:
    """The queue of a sender that leaves the choice to the broker."""
    return random.randrange(count) if count else 0  # noqa: S311 - spreads load, guards nothing


class SendHandler:
    """The handlers of sends."""

    def __init__(
        self,
        writing: MessageWriter,
        topics: Topics,
        groups: Groups,
        options: BrokerOptions,
        clock: Clock,
        prepare: Callable[[PutRecord, str, bool], PutResult],
        serves: Callable[[], bool] = lambda: True,
    ) -> None:
        """`serves` returns False while a fence holds sends back."""
        self._serves = serves
        self._cluster_pair = with_cluster("", options.broker_cluster_name).encode()
        self._writing = writing
        self._prepare = prepare  # stores the half of a transaction
        self._topics = topics
        self._groups = groups
        self._options = options
        self._clock = clock
        self._lines = Refusals()
        self.store_host = b""  # known when the port is
        self._region = options.region_id
        self._forbidden = SEND_FORBIDDEN_TOPICS | {revive_topic(options.broker_cluster_name)}
        self.take_settings()

    def take_settings(self) -> None:
        """To be called when options have changed, since each send uses cached values."""
        self._opens_ms = self._options.start_accept_send_timestamp
        self._trace = "true" if self._options.trace_on else "false"
        self._answers = tuple(self._around_fields(kind) for kind in (JSON, BINARY))

    def _around_fields(self, kind: int) -> tuple[bytes, bytes]:
        """A response up to the value of the id, and what follows the fields."""
        answer = Command(serialize_type=kind, opaque=0).response(ResponseCode.SUCCESS)
        answer.ext = {"MSG_REGION": self._region, "TRACE_ON": self._trace, "msgId": _NO_ID, "queueId": "0"}
        frame = encode_frame(answer)
        return frame[: frame.index(_NO_ID.encode())], frame[frame.index(b',"serialize') :] if kind == JSON else b""

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.SEND_MESSAGE, self.send_long)
        router.add((RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE), self.send_short)

    def take(self, connection: Connection, frame: SendFrame) -> bytes | None:
        """Store a common send, and make the frame of its response, of a single message without an object for either.
        None, and nothing is done, for everything that is not common: `send_short` does it, or says why not.
        """
        opaque, flag, _, name, queue_id, sys_flag, born, user_flag, times, start, end, code = frame.fields
        topic = self._topics.table.get(name)
        if (
            topic is None
            or topic.order
            or topic.filter_type == MULTI_TAG
            or sys_flag & _UNCOMMON not in (0, TRANSACTION_PREPARED)
            or self._opens_ms
            or self._writing.can_wait
            or self._writing.is_busy
            or not self._serves()
            or name in self._forbidden
            or (name in self._topics.unsaved and not flag & FLAG_ONEWAY)
            or name.startswith(RETRY_PREFIX)
            or queue_id >= max(topic.read_queues, topic.write_queues)
        ):
            return None
        if queue_id < 0:
            queue_id = _any_queue(topic.write_queues)
        if code == RequestCode.SEND_BATCH_MESSAGE or sys_flag & TRANSACTION_PREPARED:
            return self._take_record(connection, frame, queue_id)
        kind = frame.kind
        found = stored(frame.data, start, end, kind, self._cluster_pair)
        if found is None:
            return None
        properties, tags = found
        place = self._writing.put_common(
            name, queue_id, frame.data, frame.body_start, frame.end, properties, tags, user_flag, sys_flag, born,
            connection.peer_host, self.store_host, times,
        )  # fmt: skip
        if place is None:
            return None
        if flag & FLAG_ONEWAY:
            return b""
        head, tail = self._answers[kind]
        return respond(head, tail, kind, self.store_host, place[0], queue_id, place[1], opaque)

    def _take_record(self, connection: Connection, frame: SendFrame, queue_id: int) -> bytes | None:
        """The same for a batch, and for the half of a transaction."""
        opaque, flag, _, topic, _, sys_flag, born, user_flag, times, start, end, code = frame.fields
        text = _decoded(frame.data[start:end], frame.kind)
        if text is None:
            return None
        properties = with_cluster(text, self._options.broker_cluster_name)
        body = frame.data[frame.body_start : frame.end]
        record = PutRecord(
            topic, queue_id, body, b"", born, connection.peer_host, self.store_host, user_flag, sys_flag, times
        )
        try:
            if code == RequestCode.SEND_BATCH_MESSAGE:
                record.properties = properties.encode()
                result = self._writing.put_batch(record, at_once=True)
            elif is_transactional(text):
                result = self._prepare(record, properties, True)
            else:
                return None
        except (RoomAwaited, OrbitMQError):  # nothing is stored; the handler of all others says why
            return None
        if flag & FLAG_ONEWAY:
            return b""
        command = Command(serialize_type=frame.kind, opaque=opaque)
        return encode_frame(self.response(command, result, queue_id))

    def send_long(self, connection: Connection, command: Command) -> Answer | Awaitable[Answer]:
        return self._send(connection, command, SendMessageHeader)

    def send_short(self, connection: Connection, command: Command) -> Answer | Awaitable[Answer]:
        return self._send(connection, command, SendMessageV2Header)

    def _send(self, connection: Connection, command: Command, kind: type[AnySendHeader]) -> Answer | Awaitable[Answer]:
        self._writing.refuse_if_busy()
        try:
            header = command.header(kind)
            return self._store_and_respond(connection, command, header)
        except RoomAwaited as awaited:
            connection.defer(command)
            self._writing.when_room(awaited, partial(self._send_later, connection, command, header))
            return None
        except RequestRejected as error:
            return self.refusal(command, error.code, error.remark)
        except OrbitMQError as error:
            return self.refusal(command, error.response_code, str(error))

    def _send_later(
        self, connection: Connection, command: Command, header: AnySendHeader, refused: PutResult | None
    ) -> None:
        """The queue has room now, or will have none. Later sends of this connection wait for this one."""
        answer: Answer | Awaitable[Answer]
        try:
            if refused is None:
                answer = self._store_and_respond(connection, command, header)
            else:
                answer = self.response(command, refused, header.queue_id)
        except RoomAwaited as awaited:
            self._writing.when_room(awaited, partial(self._send_later, connection, command, header))
            return
        except RequestRejected as error:
            answer = self.refusal(command, error.code, error.remark)
        except OrbitMQError as error:
            answer = self.refusal(command, error.response_code, str(error))
        except Exception as error:
            answer = connection.failed(command, error)
        connection.complete(command, answer)

    def _store_and_respond(
        self, connection: Connection, command: Command, header: AnySendHeader
    ) -> Answer | Awaitable[Answer]:
        topic = self.topic_of(header)
        result, queue_id = self._store(connection, command, header, topic)
        if command.flag & FLAG_ONEWAY:
            return None
        waits = (
            self._writing.can_wait and result.status is PutStatus.PUT_OK and waits_for_store(header.properties or "")
        )
        if topic.name in self._topics.unsaved:
            return self._respond_when_saved(command, topic.name, result, queue_id, waits=waits)
        if waits:
            connection.defer(command)
            self._writing.when_durable(result, partial(self._respond_later, connection, command, result, queue_id))
            return None
        return self.response(command, result, queue_id)

    async def _respond_when_saved(
        self, command: Command, topic: str, result: PutResult, queue_id: int, *, waits: bool
    ) -> Command:
        """Messages of a new topic are stored in order of arrival; responses wait until the topic is on disk."""
        if waits:
            result.status = await self._writing.durable(result)
        try:
            await self._topics.saved(topic)
        except StoreError as error:
            return self.refusal(command, error.response_code, str(error))
        return self.response(command, result, queue_id)

    def _respond_later(
        self, connection: Connection, command: Command, result: PutResult, queue_id: int, status: PutStatus
    ) -> None:
        result.status = status
        connection.complete(command, self.response(command, result, queue_id))

    def topic_of(self, header: AnySendHeader) -> TopicConfig:
        """The topic of a message that may be sent there; RequestRejected for others."""
        if self._opens_ms and self._clock.now_ms() < self._opens_ms:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, "the broker does not accept messages yet")
        topic = self._topics.table.get(header.topic)
        if topic is None or header.topic in self._forbidden:
            topic = self._create_topic(header)
        # RocketMQ checks its own write permission for order topics only: clients go by the route.
        if topic.order and not self._options.broker_permission & PERM_WRITE:
            raise RequestRejected(ResponseCode.NO_PERMISSION, f"broker {self._options.broker_name} is not writable")
        return topic

    def _create_topic(self, header: AnySendHeader) -> TopicConfig:
        """The first message of a topic brings it to life."""
        try:
            check_topic(header.topic)
        except MessageError as error:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, str(error)) from error
        if header.topic in self._forbidden:
            raise RequestRejected(ResponseCode.NO_PERMISSION, f"{header.topic} is written by the broker alone")
        if (light := self._topics.get(header.topic)) is not None:  # it is in no table
            return light
        queues = header.default_topic_queue_nums
        topic = self._topics.create_for_send(header.topic, header.default_topic, queues, unit=header.unit_mode)
        if topic is None:
            raise RequestRejected(ResponseCode.TOPIC_NOT_EXIST, f"topic {header.topic} does not exist, create it first")
        return topic

    # ------------------------------------------------------------------------------------------------------ storing

    def _store(
        self, connection: Connection, command: Command, header: AnySendHeader, topic: TopicConfig
    ) -> tuple[PutResult, int]:
        """The result of the put, and the queue id for the sender. RoomAwaited if the queue has no room yet."""
        text = header.properties or ""
        record = self.record_of(connection, command, header, topic)
        queue_id = record.queue_id
        if header.batch:
            record.properties = with_cluster(text, self._options.broker_cluster_name).encode()
            return self._put_batch(record), queue_id
        if topic.name.startswith(RETRY_PREFIX):
            self._store_dead_letter(record, header, command.version)
        if TRAN_MSG in text and is_transactional(text):
            return self._prepare(record, with_cluster(text, self._options.broker_cluster_name), True), queue_id
        record.properties = with_cluster(without_wait(text), self._options.broker_cluster_name).encode()
        result = self._writing.put(record, True)
        if result.status is PutStatus.PROPERTIES_SIZE_EXCEEDED and topic.name.startswith(RETRY_PREFIX):
            result = self._dead_letter_at_once(connection, command, header, topic)
        return result, queue_id

    def record_of(
        self, connection: Connection, command: Command, header: AnySendHeader, topic: TopicConfig
    ) -> PutRecord:
        """The record for the store, without properties."""
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = _any_queue(topic.write_queues)
        elif queue_id >= max(topic.read_queues, topic.write_queues):
            remark = f"queue {queue_id} of {topic.name}: it has {max(topic.read_queues, topic.write_queues)}"
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, remark)
        return PutRecord(
            topic=topic.name,
            queue_id=queue_id,
            body=command.body,
            properties=b"",
            flag=header.flag,
            sys_flag=header.sys_flag | MULTI_TAGS if topic.filter_type == MULTI_TAG else header.sys_flag,
            born_timestamp=header.born_timestamp,
            born_host=connection.peer_host,
            store_host=self.store_host,
            reconsume_times=header.reconsume_times or 0,
        )

    def _put_batch(self, record: PutRecord) -> PutResult:
        try:
            return self._writing.put_batch(record, at_once=True)
        except BodyError as error:
            raise RequestRejected(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error

    def _store_dead_letter(self, record: PutRecord, header: AnySendHeader, version: int) -> None:
        """A message sent to a retry topic once too often becomes a dead letter of its group."""
        name = record.topic.removeprefix(RETRY_PREFIX)
        group = self._groups.require(name)
        times = group.retry_max
        if version >= MAX_RECONSUME_SINCE and header.max_reconsume_times is not None:
            times = header.max_reconsume_times
        if record.reconsume_times >= times:
            record.topic = self._topics.create_for_system(dlq_topic(name), 1).name
            record.queue_id = 0

    def _dead_letter_at_once(
        self, connection: Connection, command: Command, header: AnySendHeader, topic: TopicConfig
    ) -> PutResult:
        """A message sent to a retry topic that has no room for a delay: its consumer would send it for ever."""
        group = topic.name.removeprefix(RETRY_PREFIX)
        grave = self._topics.create_for_system(dlq_topic(group), 1)
        sent, result = decode_properties(header.properties or ""), PROPERTIES_TOO_LONG
        for properties in for_grave({**sent, DELAY: "0", CLUSTER: self._options.broker_cluster_name}):
            record = self.record_of(connection, command, header, topic)
            record.topic, record.queue_id = grave.name, 0
            record.properties = encode_properties(properties).encode()
            result = self._writing.put(record, True)
            if result.status is not PutStatus.PROPERTIES_SIZE_EXCEEDED:
                break
        text = "event=dead_letter_without_retry group=%.300s topic=%.300s reason=%s"
        self._lines.log(_log, text, group, topic.name, PutStatus.PROPERTIES_SIZE_EXCEEDED.name)
        return result

    def response(self, command: Command, result: PutResult, queue_id: int) -> Command:
        code, remark = outcome_of(result, self._writing.disk_use)
        answer = command.response(code, remark)
        answer.ext = ext = {"MSG_REGION": self._region, "TRACE_ON": self._trace}
        if result.physical_offset >= 0:
            ext["msgId"] = result.message_id
            ext["queueId"] = str(queue_id)
            ext["queueOffset"] = str(result.queue_offset)
            if result.recall_handle:
                ext["recallHandle"] = result.recall_handle
            if result.transaction_id:  # brokers of 5.x return it, and the proxy of 5.x needs it
                ext["transactionId"] = result.transaction_id
        return answer

    def refusal(self, command: Command, code: int, remark: str | None) -> Command:
        """Clients read region and trace switch from refusals too."""
        answer = command.response(code, remark)
        answer.ext = {"MSG_REGION": self._region, "TRACE_ON": self._trace}
        return answer
