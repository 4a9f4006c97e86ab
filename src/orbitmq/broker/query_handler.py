"""Requests about positions: consumer offsets, queue bounds, offsets by time; and single messages by key or place."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from orbitmq.broker.cold_reads import ColdReads
from orbitmq.broker.in_flight import InFlight
from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.broker.resumption import Resumption
from orbitmq.errors import RequestRejected
from orbitmq.net.connection import Connection
from orbitmq.net.routing import Answer, Router
from orbitmq.runtime.clock import Clock
from orbitmq.store.engine import MessageStore
from orbitmq.store.index.search import QueryResult
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.frame import FRAME_SIZE_MAX
from orbitmq.wire.headers import (
    Boundary,
    GetEarliestMsgStoretimeHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetHeader,
    QueryConsumerOffsetResponseHeader,
    QueryMessageHeader,
    QueryMessageResponseHeader,
    SearchOffsetHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetHeader,
    ViewMessageHeader,
)
from orbitmq.wire.requests import RequestCode

VIEWED_MAX = 2
ANSWER_SIZE_MAX = FRAME_SIZE_MAX - (64 << 10)  # bytes of messages; a peer would refuse a longer frame


class QueryHandler:
    """Handlers over the offsets and the store."""

    def __init__(
        self, store: MessageStore, offsets: ConsumerOffsets, resumption: Resumption, clock: Clock, cold: ColdReads
    ) -> None:
        self._store = store
        self._cold = cold
        self._offsets = offsets
        self._resumption = resumption
        self.searches = InFlight(clock)

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.QUERY_CONSUMER_OFFSET, self.query_consumer_offset)
        router.add(RequestCode.UPDATE_CONSUMER_OFFSET, self.update_consumer_offset)
        router.add(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, self.search_offset)
        router.add(RequestCode.GET_MAX_OFFSET, self.max_offset)
        router.add(RequestCode.GET_MIN_OFFSET, self.min_offset)
        router.add(RequestCode.GET_EARLIEST_MSG_STORETIME, self.earliest_store_time)
        router.add(RequestCode.VIEW_MESSAGE_BY_ID, self.view_message)
        router.add(RequestCode.QUERY_MESSAGE, self.query_message)

    def query_consumer_offset(self, _connection: Connection, command: Command) -> Command:
        """The stored offset; 0 for a new group on a queue that still holds everything in memory; else not found.

        Clients apply their own starting rule only on QUERY_NOT_FOUND: to begin at the end, as most do, would skip
        messages of a group whose progress was lost. It begins at the first message that is left.
        """
        header = command.header(QueryConsumerOffsetHeader)
        offset = self._offsets.query(header.consumer_group, header.topic, header.queue_id)
        if offset is None or offset < 0:
            first = self._store.min_offset(header.topic, header.queue_id)
            is_lost = header.consumer_group in self._offsets.lost_groups
            if not is_lost and (first > 0 or self._store.is_on_disk(header.topic, header.queue_id, 0)):
                raise RequestRejected(
                    ResponseCode.QUERY_NOT_FOUND,
                    f"group {header.consumer_group} has no offset for {header.topic}, maybe it is new",
                )
            offset = first
        return command.response(ResponseCode.SUCCESS, header=QueryConsumerOffsetResponseHeader(offset))

    def update_consumer_offset(self, connection: Connection, command: Command) -> Command:
        header = command.header(UpdateConsumerOffsetHeader)
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        offset = self._resumption.committed(connection, group, topic, queue_id, header.commit_offset)
        self._offsets.commit(group, topic, queue_id, offset, only_forward=bool(header.only_forward))
        answer = command.response(ResponseCode.SUCCESS)
        answer.ext = {}
        return answer

    def search_offset(self, connection: Connection, command: Command) -> Command:
        header = command.header(SearchOffsetHeader)
        is_upper = (header.boundary or "").upper() == Boundary.UPPER
        search = self._store.last_offset_by_time if is_upper else self._store.offset_by_time
        offset = search(header.topic, header.queue_id, header.timestamp)
        self._resumption.reported(connection, header.topic, header.queue_id, offset)
        boundary = Boundary.UPPER if is_upper else Boundary.LOWER
        found = SearchOffsetResponseHeader(offset, None if header.boundary is None else boundary)
        return command.response(ResponseCode.SUCCESS, header=found)

    def max_offset(self, connection: Connection, command: Command) -> Command:
        header = command.header(GetMaxOffsetHeader)
        offset = self._store.max_offset(header.topic, header.queue_id)
        self._resumption.reported(connection, header.topic, header.queue_id, offset)
        return command.response(ResponseCode.SUCCESS, header=GetMaxOffsetResponseHeader(offset))

    def min_offset(self, _connection: Connection, command: Command) -> Command:
        header = command.header(GetMinOffsetHeader)
        offset = self._store.min_offset(header.topic, header.queue_id)
        return command.response(ResponseCode.SUCCESS, header=GetMinOffsetResponseHeader(offset))

    def earliest_store_time(self, _connection: Connection, command: Command) -> Command:
        header = command.header(GetEarliestMsgStoretimeHeader)
        timestamp = self._store.earliest_store_time(header.topic, header.queue_id)
        return command.response(ResponseCode.SUCCESS, header=GetEarliestMsgStoretimeResponseHeader(timestamp))

    def view_message(self, connection: Connection, command: Command) -> Command | None:
        """One stored unit by its place in the commit log, which clients read out of an offset message id."""
        return self._view(VIEWED_MAX, connection, command)

    def _view(self, fetches: int, connection: Connection, command: Command) -> Command | None:
        """Up to `fetches` times what is read is brought into memory first: the head, then what it says there is."""
        header = command.header(ViewMessageHeader)
        if fetches and (absent := self._store.absent_unit(header.offset)):
            self._cold.serve_later(connection, command, absent, partial(self._view, fetches - 1))
            return None
        unit = self._store.unit_at(header.offset)
        if unit is None or len(unit) > ANSWER_SIZE_MAX:  # inside a message any four bytes may pass for a size
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"no message can be read at offset {header.offset}")
        answer = command.response(ResponseCode.SUCCESS)
        answer.body_parts = (unit,)
        return answer

    def query_message(self, _connection: Connection, command: Command) -> Answer | Awaitable[Answer]:
        """Messages by one of their keys or by unique id. A thread looks where something has to come from disk."""
        header = command.header(QueryMessageHeader)
        count = self._store.options.default_query_max_num if header.is_unique_key else header.max_num
        query = partial(
            self._store.query, header.topic, header.key, count, header.begin_timestamp, header.end_timestamp
        )
        try:
            return self._found(command, query(at_once=True))
        except BlockingIOError:
            return self._search(command, query)

    async def _search(self, command: Command, query: Callable[[], QueryResult]) -> Command:
        with self.searches.one():
            return self._found(command, await asyncio.to_thread(query))

    @staticmethod
    def _found(command: Command, found: QueryResult) -> Command:
        answer_header = QueryMessageResponseHeader(found.index_last_update_timestamp, found.index_last_update_offset)
        if not found.buffers:
            remark = "no message with this key was stored in this time"
            return command.response(ResponseCode.QUERY_NOT_FOUND, remark, header=answer_header)
        answer = command.response(ResponseCode.SUCCESS, header=answer_header)
        answer.body_parts = _fitting(found.buffers)
        return answer


def _fitting(units: list[memoryview]) -> tuple[memoryview, ...]:
    """The newest that fit into one response; at least one."""
    total = len(units[-1])
    for index in range(len(units) - 2, -1, -1):
        total += len(units[index])
        if total > ANSWER_SIZE_MAX:
            return tuple(units[index + 1 :])
    return tuple(units)
