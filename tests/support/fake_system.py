"""A name server and one broker behind one socket, with tables a test can read and write: what a client sees of either.

It answers as the real ones do in the plain cases; `answers` lets a test put another handler before any request. Knows
nothing of the client.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from orbitmq.client.sync_wrapper import run
from orbitmq.message.hosts import encode_host
from orbitmq.message.ids import offset_message_id
from orbitmq.message.model import MessageQueue
from orbitmq.message.unit import Unit, body_crc, encode_unit
from orbitmq.net.connection import Connection
from orbitmq.net.routing import Answer, Router
from orbitmq.wire.bodies import (
    BrokerData,
    ClusterInfo,
    ConsumerIdList,
    HeartbeatData,
    LockedQueues,
    QueueData,
    QueueLockRequest,
    TopicRouteData,
)
from orbitmq.wire.codes import VERSION, ResponseCode
from orbitmq.wire.command import Command, request
from orbitmq.wire.header import Header
from orbitmq.wire.headers import (
    ConsumerSendMsgBackHeader,
    GetConsumerListByGroupHeader,
    GetMaxOffsetResponseHeader,
    NotifyConsumerIdsChangedHeader,
    PullMessageHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetHeader,
    QueryConsumerOffsetResponseHeader,
    QueryMessageResponseHeader,
    SendMessageResponseHeader,
    SendMessageV2Header,
    UnregisterClientHeader,
    UpdateConsumerOffsetHeader,
)
from orbitmq.wire.headers_admin import CreateTopicHeader
from orbitmq.wire.headers_namesrv import GetRouteInfoHeader
from orbitmq.wire.objects import decode, encode_standard
from orbitmq.wire.requests import RequestCode
from tests.support.batches import decode_batch
from tests.support.peers import serving

BROKER = "broker-a"
QUEUES = 4

Handler = Callable[[Connection, Command], Answer | Awaitable[Answer]]


@dataclass
class FakeSystem:
    """Tables of the fake; `address` is that of name server and broker alike."""

    address: str = ""
    topics: dict[str, int] = field(default_factory=lambda: {"TBW102": QUEUES})
    """Topic -> number of its queues."""
    messages: dict[tuple[str, int], list[Unit]] = field(default_factory=lambda: defaultdict(list))
    offsets: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """(group, topic, queue id) -> offset."""
    masters: dict[str, str] = field(default_factory=dict)
    """Further brokers that the name server names: name -> address."""
    members: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    heartbeats: list[HeartbeatData] = field(default_factory=list)
    locks: dict[tuple[str, MessageQueue], str] = field(default_factory=dict)
    """(group, queue) -> the client that has it locked."""
    sent_back: list[ConsumerSendMsgBackHeader] = field(default_factory=list)
    asked: list[Command] = field(default_factory=list)
    """Every request in the order it came."""
    answers: dict[int, Handler] = field(default_factory=dict)
    """Request code -> what answers it instead; None of it falls back to the usual answer."""
    connections: list[Connection] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def count(self, code: RequestCode) -> int:
        """How many requests of this code came."""
        return sum(command.code == code for command in self.asked)

    def put(self, topic: str, queue_id: int, body: bytes, properties: str = "") -> Unit:
        """Store a message and wake the pulls that wait."""
        queue = self.messages[topic, queue_id]
        unit = _unit(topic, queue_id, len(queue), body, properties)
        queue.append(unit)
        self.arrived.set()
        self.arrived = asyncio.Event()
        return unit

    def notify(self, group: str) -> None:
        """Tell every client that the members of a group changed."""
        header = NotifyConsumerIdsChangedHeader(consumer_group=group)
        for connection in self.connections:
            connection.send(request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header, oneway=True))

    def route(self, topic: str, perm: int = 6) -> TopicRouteData:
        """The route of a topic that exists."""
        count = self.topics[topic]
        return TopicRouteData(
            broker_datas=[BrokerData(addresses={0: self.address}, broker_name=BROKER, cluster="C")],
            queue_datas=[QueueData(broker_name=BROKER, perm=perm, read_queues=count, write_queues=count)],
        )


def _unit(topic: str, queue_id: int, queue_offset: int, body: bytes, properties: str) -> Unit:
    host = encode_host("127.0.0.1", 1)
    return Unit(
        0,
        body_crc(body),
        queue_id,
        0,
        queue_offset,
        queue_offset * 1000,
        0,
        1,
        host,
        2,
        host,
        0,
        0,
        body,
        topic,
        properties,
    )


@asynccontextmanager
async def fake_system() -> AsyncIterator[FakeSystem]:
    """A running fake."""
    system = FakeSystem()
    router = Router("fake")
    known = usual_answers(system)
    for code in RequestCode:
        router.add(code, _recorded(system, known.get(code, _unknown)))
    async with serving(router, on_open=system.connections.append, typed=False) as (_, address):
        system.address = address
        yield system


@contextmanager
def fake_system_beside() -> Iterator[FakeSystem]:
    """A running fake on the loop of the synchronous clients."""
    context = fake_system()
    yield run(context.__aenter__())
    run(context.__aexit__(None, None, None))


def _unknown(_: Connection, command: Command) -> Command:
    return command.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f"request type {command.code} not supported")


def _recorded(system: FakeSystem, usual: Handler) -> Handler:
    def handle(connection: Connection, command: Command) -> Answer | Awaitable[Answer]:
        system.asked.append(command)
        other = system.answers.get(command.code)
        answer = other(connection, command) if other else None
        return usual(connection, command) if answer is None else answer

    return handle


def usual_answers(system: FakeSystem) -> dict[RequestCode, Handler]:
    """What answers each request that has no other answer."""

    def route(_: Connection, command: Command) -> Command:
        topic = command.header(GetRouteInfoHeader).topic
        if topic not in system.topics:
            return command.response(ResponseCode.TOPIC_NOT_EXIST, f"No topic route info: {topic}")
        return command.response(0, body=encode_standard(system.route(topic)))

    def cluster(_: Connection, command: Command) -> Command:
        masters = {BROKER: system.address, **system.masters}
        table = {name: BrokerData(addresses={0: one}, broker_name=name, cluster="C") for name, one in masters.items()}
        return command.response(0, body=encode_standard(ClusterInfo(table, {"C": list(table)})))

    def create(_: Connection, command: Command) -> Command:
        header = command.header(CreateTopicHeader)
        system.topics[header.topic] = header.write_queue_nums
        return command.response(0)

    def heartbeat(_: Connection, command: Command) -> Command:
        data = decode(HeartbeatData, command.body)
        system.heartbeats.append(data)
        for consumer in data.consumer_data_set:
            system.topics.setdefault(f"%RETRY%{consumer.group_name}", 1)
            if data.client_id not in system.members[consumer.group_name]:
                system.members[consumer.group_name].append(data.client_id)
        answer = command.response(0)
        answer.version = VERSION
        return answer

    def unregister(_: Connection, command: Command) -> Command:
        header = command.header(UnregisterClientHeader)
        if header.consumer_group and header.client_id in system.members[header.consumer_group]:
            system.members[header.consumer_group].remove(header.client_id)
        return command.response(0)

    def members(_: Connection, command: Command) -> Command:
        found = system.members[command.header(GetConsumerListByGroupHeader).consumer_group]
        if not found:
            return command.response(1, "no consumer for this group")
        return command.response(0, body=encode_standard(ConsumerIdList(consumer_id_list=found)))

    def running_info(_: Connection, command: Command) -> Command:
        return command.response(1, "the consumer is not online")

    def send(_: Connection, command: Command) -> Command:
        header = command.header(SendMessageV2Header)
        system.topics.setdefault(header.topic, header.default_topic_queue_nums)
        if header.batch:
            items = [(item.body, item.properties.decode()) for item in decode_batch(command.body)]
        else:
            items = [(command.body, header.properties or "")]
        units = [system.put(header.topic, header.queue_id, body, properties) for body, properties in items]
        ids = ",".join(offset_message_id(unit.store_host, unit.physical_offset) for unit in units)
        stored = SendMessageResponseHeader(msg_id=ids, queue_id=header.queue_id, queue_offset=units[0].queue_offset)
        return command.response(0, header=stored)

    def query_offset(_: Connection, command: Command) -> Command:
        header = command.header(QueryConsumerOffsetHeader)
        offset = system.offsets.get((header.consumer_group, header.topic, header.queue_id))
        if offset is None:
            return command.response(ResponseCode.QUERY_NOT_FOUND, "Not found")
        return command.response(0, header=QueryConsumerOffsetResponseHeader(offset=offset))

    def update_offset(_: Connection, command: Command) -> Command:
        header = command.header(UpdateConsumerOffsetHeader)
        system.offsets[header.consumer_group, header.topic, header.queue_id] = header.commit_offset
        return command.response(0)

    def limit(_: Connection, command: Command) -> Command:
        ext = command.ext or {}
        queue = system.messages[ext["topic"], int(ext["queueId"])]
        ends = {RequestCode.GET_MIN_OFFSET: 0, RequestCode.GET_MAX_OFFSET: len(queue)}
        offset = ends.get(RequestCode(command.code), len(queue) // 2)
        return command.response(0, header=GetMaxOffsetResponseHeader(offset=offset))

    async def pull(_: Connection, command: Command) -> Command:
        header = command.header(PullMessageHeader)
        queue = system.messages[header.topic, header.queue_id]
        if header.sys_flag & 1:
            system.offsets[header.consumer_group, header.topic, header.queue_id] = header.commit_offset
        while header.queue_offset == len(queue) and header.sys_flag & 2:
            await system.arrived.wait()
        return _pulled(command, header, queue)

    def lock(_: Connection, command: Command) -> Command:
        asked = decode(QueueLockRequest, command.body)
        mine = [
            queue
            for queue in asked.mq_set
            if system.locks.setdefault((asked.consumer_group, queue), asked.client_id) == asked.client_id
        ]
        return command.response(0, body=encode_standard(LockedQueues(locked=mine)))

    def unlock(_: Connection, command: Command) -> Command:
        asked = decode(QueueLockRequest, command.body)
        for queue in asked.mq_set:
            if system.locks.get((asked.consumer_group, queue)) == asked.client_id:
                del system.locks[asked.consumer_group, queue]
        return command.response(0)

    def send_back(_: Connection, command: Command) -> Command:
        system.sent_back.append(command.header(ConsumerSendMsgBackHeader))
        return command.response(0)

    def query(_: Connection, command: Command) -> Command:
        """An index knows hashes only; this one is so small that all messages of all topics share one."""
        units = [encode_unit(unit) for queue in system.messages.values() for unit in queue]
        return command.response(0, header=QueryMessageResponseHeader(1, 1), body=b"".join(units))

    return {
        RequestCode.QUERY_MESSAGE: query,
        RequestCode.GET_ROUTEINFO_BY_TOPIC: route,
        RequestCode.GET_BROKER_CLUSTER_INFO: cluster,
        RequestCode.UPDATE_AND_CREATE_TOPIC: create,
        RequestCode.HEART_BEAT: heartbeat,
        RequestCode.UNREGISTER_CLIENT: unregister,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: members,
        RequestCode.GET_CONSUMER_RUNNING_INFO: running_info,
        RequestCode.SEND_MESSAGE_V2: send,
        RequestCode.SEND_BATCH_MESSAGE: send,
        RequestCode.QUERY_CONSUMER_OFFSET: query_offset,
        RequestCode.UPDATE_CONSUMER_OFFSET: update_offset,
        RequestCode.GET_MAX_OFFSET: limit,
        RequestCode.GET_MIN_OFFSET: limit,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: limit,
        RequestCode.PULL_MESSAGE: pull,
        RequestCode.LOCK_BATCH_MQ: lock,
        RequestCode.UNLOCK_BATCH_MQ: unlock,
        RequestCode.CONSUMER_SEND_MSG_BACK: send_back,
        RequestCode.END_TRANSACTION: lambda _, command: command.response(0),
    }


def _pulled(command: Command, header: PullMessageHeader, queue: list[Unit]) -> Command:
    start, end = header.queue_offset, min(len(queue), header.queue_offset + header.max_msg_nums)
    code, next_offset, body = ResponseCode.SUCCESS, end, b""
    if start > len(queue):
        code, next_offset = ResponseCode.PULL_OFFSET_MOVED, len(queue)
    elif start == len(queue):
        code = ResponseCode.PULL_NOT_FOUND
    else:
        body = b"".join(map(encode_unit, queue[start:end]))
    offsets = PullMessageResponseHeader(
        suggest_which_broker_id=0, next_begin_offset=next_offset, min_offset=0, max_offset=len(queue)
    )
    return command.response(code, header=offsets, body=body)


def refuse(code: int, remark: str = "no", *, times: int = 1_000_000) -> Handler:
    """A handler that gives this answer the first `times` times."""
    left = [times]

    def handle(_: Connection, command: Command) -> Answer:
        left[0] -= 1
        return command.response(code, remark) if left[0] >= 0 else None

    return handle


def answer_with(header: Header) -> Handler:
    """A handler that answers with success and this header."""
    return lambda _, command: command.response(0, header=header)


def silence() -> Handler:
    """A handler that never answers."""

    async def wait(_: Connection, command: Command) -> Answer:
        await asyncio.Event().wait()
        return None

    return wait
