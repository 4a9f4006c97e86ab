"""Administrative requests about one consumer group: its members, its progress, and resetting its offsets.

Requests that only a consumer can handle are forwarded to it: see `orbitmq.broker.client_relay`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from orbitmq.broker.clients import ConnectedClient, ConsumerGroup, Consumers, Producers
from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.broker.progress import queue_progress
from orbitmq.broker.resumption import Resumption
from orbitmq.broker.topics import Topics
from orbitmq.errors import RequestRejected
from orbitmq.message.config import TopicConfig
from orbitmq.message.model import MessageQueue
from orbitmq.net.connection import Connection
from orbitmq.net.routing import Router
from orbitmq.runtime.turns import in_turns
from orbitmq.store.engine import MessageStore
from orbitmq.wire.bodies import (
    ClientConnection,
    ConsumerConnection,
    ConsumeStats,
    ProducerConnection,
    QueueOffset,
    QueueOffsetList,
    QueueOffsets,
    QueueProgress,
)
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, request
from orbitmq.wire.headers_admin import (
    GetConsumerConnectionListHeader,
    GetConsumeStatsHeader,
    GetProducerConnectionListHeader,
)
from orbitmq.wire.headers_groups import (
    CloneGroupOffsetHeader,
    InvokeBrokerToResetOffsetHeader,
    ResetConsumerClientOffsetHeader,
)
from orbitmq.wire.objects import encode
from orbitmq.wire.requests import RequestCode

_log = logging.getLogger(__name__)

RESET_SINCE = 28  # V3_0_7_SNAPSHOT: older clients do not know RESET_CONSUMER_CLIENT_OFFSET
END_OF_QUEUE = -1  # the timestamp that means "everything is consumed"
CPP = "CPP"  # clients of this language cannot read maps with objects as keys
TURN_SEARCHES = 50  # queues searched for a time before other work gets its turn: some 5 ms
TURN_QUEUES = 256  # queues per turn of the event loop: some 2 ms


class GroupAdministration:
    """Handlers over members, offsets and the store. `consume_tps` returns messages/s delivered for (topic, group)."""

    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        offsets: ConsumerOffsets,
        producers: Producers,
        consumers: Consumers,
        broker_name: str,
        resumption: Resumption,
        consume_tps: Callable[[str, str], float],
    ) -> None:
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._producers = producers
        self._consumers = consumers
        self._broker_name = broker_name
        self._resumption = resumption
        self._consume_tps = consume_tps

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.GET_CONSUMER_CONNECTION_LIST, self.consumer_connections)
        router.add(RequestCode.GET_PRODUCER_CONNECTION_LIST, self.producer_connections)
        router.add(RequestCode.GET_CONSUME_STATS, self.consume_stats)
        router.add_change(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, self.reset_offsets)
        router.add(RequestCode.CLONE_GROUP_OFFSET, self.clone_offsets)

    # ------------------------------------------------------------------------------------------------------- members

    def consumer_connections(self, _connection: Connection, command: Command) -> Command:
        """The members of a group and, once per topic, the subscription that the broker filters by."""
        name = command.header(GetConsumerConnectionListHeader).consumer_group
        group = self._consumers.groups.get(name)
        if group is None:
            raise RequestRejected(ResponseCode.CONSUMER_NOT_ONLINE, f"no consumer of the group {name} is online")
        body = ConsumerConnection(
            connection_set=_connections(group.members.values()),
            consume_from_where=group.consume_from_where,
            consume_type=group.consume_type,
            message_model=group.message_model,
            subscription_table=group.subscriptions,
            differing=group.expressions() if group.differs else None,
        )
        return command.response(ResponseCode.SUCCESS, body=encode(body))

    def producer_connections(self, _connection: Connection, command: Command) -> Command:
        name = command.header(GetProducerConnectionListHeader).producer_group
        members = self._producers.groups.get(name)
        if members is None:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"no producer of the group {name} is online")
        body = ProducerConnection(connection_set=_connections(members.values()))
        return command.response(ResponseCode.SUCCESS, body=encode(body))

    # ------------------------------------------------------------------------------------------------------ progress

    async def consume_stats(self, connection: Connection, command: Command) -> Command:
        """How far a group is in every queue of one topic, or of all topics it has offsets of."""
        self._resumption.note_tool(connection)
        header = command.header(GetConsumeStatsHeader)
        group, tps = header.consumer_group, 0.0
        table: dict[MessageQueue, QueueProgress] = {}
        async for topic in in_turns(self._topics_of(group, header.topic, online=True)):
            async for queue_id in in_turns(range(topic.read_queues), TURN_QUEUES):
                queue = MessageQueue(topic.name, self._broker_name, queue_id)
                table[queue] = queue_progress(self._store, self._offsets, group, topic.name, queue_id)
            tps += self._consume_tps(topic.name, group)
        return command.response(ResponseCode.SUCCESS, body=encode(ConsumeStats(consume_tps=tps, offset_table=table)))

    def _topics_of(self, group: str, topic: str | None, *, online: bool) -> list[TopicConfig]:
        """The existing ones of the requested topics; `online` leaves out those that no member subscribes to."""
        names = [topic] if topic and topic.strip() else self._offsets.topics_of(group)
        members = self._consumers.groups.get(group) if online else None
        subscribed = members.subscriptions if members is not None else {}
        found = []
        for name in names:
            config = self._topics.get(name)
            if config is not None and (not subscribed or name in subscribed):
                found.append(config)
        return found

    # ------------------------------------------------------------------------------------------------------- setting

    async def reset_offsets(self, _connection: Connection, command: Command) -> Command:
        """Reset a group to a time or, for one queue, to an offset.

        Online members are notified and commit by themselves; otherwise their next commit would undo the reset. A reset
        by time of a group without members is refused: tools then look up the offsets and commit them. An offset of one
        queue is also committed here, so it holds in both cases.
        """
        header = command.header(InvokeBrokerToResetOffsetHeader)
        topic = self._topics.get(header.topic)
        if topic is None:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"topic {header.topic} does not exist")
        by_offset = header.queue_id >= 0 and header.offset is not None and header.offset >= 0
        wanted = self._chosen(header) if by_offset else await self._by_time(header, topic)
        group = self._consumers.groups.get(header.group)
        if group is None and not by_offset:
            raise RequestRejected(
                ResponseCode.CONSUMER_NOT_ONLINE, f"no consumer of the group {header.group} is online, nothing is reset"
            )
        if group is not None:
            self._push(group, header, wanted, as_list=command.language == CPP)
        if by_offset:
            for queue, offset in wanted.items():
                self._offsets.commit(header.group, queue.topic, queue.queue_id, offset)
        _log.info(
            "event=offsets_reset group=%s topic=%s timestamp=%d queues=%d online=%s",
            header.group, header.topic, header.timestamp, len(wanted), group is not None,
        )  # fmt: skip
        return command.response(ResponseCode.SUCCESS, body=encode(QueueOffsets(offset_table=wanted)))

    def _chosen(self, header: InvokeBrokerToResetOffsetHeader) -> dict[MessageQueue, int]:
        offset = header.offset or 0
        low = self._store.min_offset(header.topic, header.queue_id)
        high = self._store.max_offset(header.topic, header.queue_id)
        if not low <= offset <= high:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"offset {offset} is outside queue {header.queue_id} of {header.topic}: {low} to {high}",
            )
        return {MessageQueue(header.topic, self._broker_name, header.queue_id): offset}

    async def _by_time(self, header: InvokeBrokerToResetOffsetHeader, topic: TopicConfig) -> dict[MessageQueue, int]:
        """The offset of each queue at the time; without force never one beyond the group's progress."""
        wanted = {}
        async for queue_id in in_turns(range(topic.write_queues), TURN_SEARCHES):
            consumed = self._offsets.query(header.group, topic.name, queue_id)
            if consumed is None or consumed == -1:
                remark = (
                    f"the group {header.group} has no offset of queue {queue_id} of {topic.name}: it does not exist"
                )
                raise RequestRejected(ResponseCode.SYSTEM_ERROR, remark)
            if header.timestamp == END_OF_QUEUE:
                found: int = self._store.max_offset(topic.name, queue_id)
            else:
                found = max(self._store.offset_by_time(topic.name, queue_id, header.timestamp), 0)
            queue = MessageQueue(topic.name, self._broker_name, queue_id)
            wanted[queue] = found if header.is_force else min(found, consumed)
        return wanted

    def _push(
        self,
        group: ConsumerGroup,
        header: InvokeBrokerToResetOffsetHeader,
        wanted: dict[MessageQueue, int],
        *,
        as_list: bool,
    ) -> None:
        for client in group.members.values():
            if client.version < RESET_SINCE:
                raise RequestRejected(
                    ResponseCode.SYSTEM_ERROR,
                    f"{client.client_id} cannot reset offsets: its version is {client.version}",
                )
        body = encode(_listed(wanted) if as_list else QueueOffsets(offset_table=wanted))
        pushed = ResetConsumerClientOffsetHeader(header.topic, header.group, header.timestamp)
        for connection in group.members:
            self._resumption.sent(connection, header.group, wanted)
            connection.send(request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, pushed, body, oneway=True))

    def clone_offsets(self, _connection: Connection, command: Command) -> Command:
        """Copy the offsets of one group to another, which loses its own of the same topics."""
        header = command.header(CloneGroupOffsetHeader)
        copied = self._topics_of(header.src_group, header.topic, online=not header.offline)
        for topic in copied:
            self._offsets.copy(header.src_group, header.dest_group, topic.name)
        _log.info("event=offsets_cloned source=%s group=%s topics=%d", header.src_group, header.dest_group, len(copied))
        return command.response(ResponseCode.SUCCESS)


def _connections(clients: Iterable[ConnectedClient]) -> list[ClientConnection]:
    return [ClientConnection(one.connection.address, one.client_id, one.language, one.version) for one in clients]


def _listed(offsets: dict[MessageQueue, int]) -> QueueOffsetList:
    return QueueOffsetList(
        offset_table=[
            QueueOffset(queue.broker_name, offset, queue.queue_id, queue.topic) for queue, offset in offsets.items()
        ]
    )
