"""Offsets at a broker: those of groups, and the limits of its queues. A group's offset is the next one to consume."""

from __future__ import annotations

from typing import Final

from orbitmq.errors import BrokerError
from orbitmq.message.model import MessageQueue
from orbitmq.message.unit import store_timestamp_of
from orbitmq.net.remoting import Remoting
from orbitmq.operations.call import call, oneway
from orbitmq.operations.pulls import view_message
from orbitmq.operations.queries import queue_entries
from orbitmq.operations.time_search import BOUNDARY_SINCE, TimeSearch
from orbitmq.wire.codes import ResponseCode
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
    SearchOffsetHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetHeader,
)
from orbitmq.wire.requests import RequestCode

FOUND_OR_NOT = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
DELETED: Final = -1  # as store time: earlier than any other


async def query_consumer_offset(
    remoting: Remoting, address: str, group: str, queue: MessageQueue, *, timeout_ms: float = 5000
) -> int | None:
    """QUERY_CONSUMER_OFFSET: the stored offset, None when the group has none for this queue.

    Java takes every error for "none" and then skips or repeats messages; here other codes raise BrokerError.
    """
    header = QueryConsumerOffsetHeader(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
    )
    code = RequestCode.QUERY_CONSUMER_OFFSET
    response = await call(remoting, address, code, header, timeout_ms=timeout_ms, accept=FOUND_OR_NOT)
    if response.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    return response.header(QueryConsumerOffsetResponseHeader).offset


def _update(
    group: str, queue: MessageQueue, offset: int, only_forward: bool | None = None
) -> UpdateConsumerOffsetHeader:
    return UpdateConsumerOffsetHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        commit_offset=offset,
        broker_name=queue.broker_name,
        only_forward=only_forward,
    )


async def update_consumer_offset(
    remoting: Remoting,
    address: str,
    group: str,
    queue: MessageQueue,
    offset: int,
    *,
    timeout_ms: float = 5000,
    only_forward: bool | None = None,
) -> None:
    """UPDATE_CONSUMER_OFFSET: commit with a response. With `only_forward` orbitmq keeps a greater offset."""
    header = _update(group, queue, offset, only_forward)
    await call(remoting, address, RequestCode.UPDATE_CONSUMER_OFFSET, header, timeout_ms=timeout_ms)


async def update_consumer_offset_oneway(
    remoting: Remoting, address: str, group: str, queue: MessageQueue, offset: int
) -> None:
    """UPDATE_CONSUMER_OFFSET without a response."""
    await oneway(remoting, address, RequestCode.UPDATE_CONSUMER_OFFSET, _update(group, queue, offset))


async def max_offset(remoting: Remoting, address: str, queue: MessageQueue, *, timeout_ms: float = 6000) -> int:
    """GET_MAX_OFFSET: the next offset to be written."""
    header = GetMaxOffsetHeader(topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name)
    response = await call(remoting, address, RequestCode.GET_MAX_OFFSET, header, timeout_ms=timeout_ms)
    return response.header(GetMaxOffsetResponseHeader).offset


async def min_offset(remoting: Remoting, address: str, queue: MessageQueue, *, timeout_ms: float = 6000) -> int:
    """GET_MIN_OFFSET: the first offset that can be read."""
    header = GetMinOffsetHeader(topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name)
    response = await call(remoting, address, RequestCode.GET_MIN_OFFSET, header, timeout_ms=timeout_ms)
    return response.header(GetMinOffsetResponseHeader).offset


async def search_offset(
    remoting: Remoting, address: str, queue: MessageQueue, timestamp_ms: int, *, timeout_ms: float = 6000
) -> int:
    """SEARCH_OFFSET_BY_TIMESTAMP: the offset of the first message stored at or after `timestamp_ms`; the end of the
    queue when there is none.

    RocketMQ before 5.2 returns the nearest message; then the store times around it decide. If the broker cannot report
    them, the result is the nearest message.
    """
    header = SearchOffsetHeader(
        queue.topic, queue.queue_id, timestamp_ms, broker_name=queue.broker_name, boundary=Boundary.LOWER
    )
    response = await call(remoting, address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header, timeout_ms=timeout_ms)
    found = response.header(SearchOffsetResponseHeader)
    if found.boundary is not None or response.version >= BOUNDARY_SINCE:
        return found.offset
    try:
        return await _first_since(remoting, address, queue, timestamp_ms, found.offset, timeout_ms)
    except BrokerError as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        return found.offset


async def _first_since(
    remoting: Remoting, address: str, queue: MessageQueue, timestamp_ms: int, near: int, timeout_ms: float
) -> int:
    low = max(0, await min_offset(remoting, address, queue, timeout_ms=timeout_ms))
    high = await max_offset(remoting, address, queue, timeout_ms=timeout_ms)
    search = TimeSearch(low, high, near)
    while not search.is_done:
        stored_at = await _store_time(remoting, address, queue, search.at, timeout_ms)
        search.learn(is_before=stored_at < timestamp_ms)
    return search.low


async def _store_time(remoting: Remoting, address: str, queue: MessageQueue, offset: int, timeout_ms: float) -> int:
    """The store time of the message at a queue offset, DELETED when it is deleted. These requests need no group and, at
    brokers of RocketMQ, no permission.
    """
    try:
        entries = await queue_entries(remoting, address, queue.topic, queue.queue_id, offset, 1, timeout_ms=timeout_ms)
        if not entries.queue_data:
            return DELETED
        place = entries.queue_data[0].physical_offset
        return store_timestamp_of(await view_message(remoting, address, place, timeout_ms=timeout_ms))
    except BrokerError:
        if offset >= await min_offset(remoting, address, queue, timeout_ms=timeout_ms):
            raise
        return DELETED


async def earliest_store_time(
    remoting: Remoting, address: str, queue: MessageQueue, *, timeout_ms: float = 6000
) -> int:
    """GET_EARLIEST_MSG_STORETIME: milliseconds since the epoch, -1 when the queue holds nothing."""
    header = GetEarliestMsgStoretimeHeader(topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name)
    response = await call(remoting, address, RequestCode.GET_EARLIEST_MSG_STORETIME, header, timeout_ms=timeout_ms)
    return response.header(GetEarliestMsgStoretimeResponseHeader).timestamp
