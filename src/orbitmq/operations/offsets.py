"""Offsets a broker keeps: those of groups, and the limits of its queues. Offsets are always the next one to consume."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from orbitmq.errors import BrokerError
from orbitmq.message.model import MessageQueue
from orbitmq.message.unit import store_timestamp_of
from orbitmq.net.remoting import Remoting
from orbitmq.operations.asking import ask, tell
from orbitmq.operations.pulling import view_message
from orbitmq.operations.querying import queue_entries
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
BOUNDARY_SINCE: Final = 453  # V5_2_0: such a broker searches for a boundary, not for the nearest message
LONG_AGO: Final = -1


async def query_consumer_offset(
    remoting: Remoting, address: str, group: str, queue: MessageQueue, *, timeout_ms: float = 5000
) -> int | None:
    """QUERY_CONSUMER_OFFSET: the stored offset, None when the group has none for this queue.

    Java takes every refusal for "none" and then skips or repeats messages; here other codes raise.
    """
    header = QueryConsumerOffsetHeader(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
    )
    code = RequestCode.QUERY_CONSUMER_OFFSET
    answer = await ask(remoting, address, code, header, timeout_ms=timeout_ms, accept=FOUND_OR_NOT)
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    return answer.header(QueryConsumerOffsetResponseHeader).offset


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
    """UPDATE_CONSUMER_OFFSET, and the broker's word that it was taken. With `only_forward` a broker of orbitmq keeps an
    offset that is further on.
    """
    header = _update(group, queue, offset, only_forward)
    await ask(remoting, address, RequestCode.UPDATE_CONSUMER_OFFSET, header, timeout_ms=timeout_ms)


async def tell_consumer_offset(remoting: Remoting, address: str, group: str, queue: MessageQueue, offset: int) -> None:
    """UPDATE_CONSUMER_OFFSET without an answer."""
    await tell(remoting, address, RequestCode.UPDATE_CONSUMER_OFFSET, _update(group, queue, offset))


async def max_offset(remoting: Remoting, address: str, queue: MessageQueue, *, timeout_ms: float = 6000) -> int:
    """GET_MAX_OFFSET: the next offset to be written."""
    header = GetMaxOffsetHeader(topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name)
    answer = await ask(remoting, address, RequestCode.GET_MAX_OFFSET, header, timeout_ms=timeout_ms)
    return answer.header(GetMaxOffsetResponseHeader).offset


async def min_offset(remoting: Remoting, address: str, queue: MessageQueue, *, timeout_ms: float = 6000) -> int:
    """GET_MIN_OFFSET: the first offset that can be read."""
    header = GetMinOffsetHeader(topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name)
    answer = await ask(remoting, address, RequestCode.GET_MIN_OFFSET, header, timeout_ms=timeout_ms)
    return answer.header(GetMinOffsetResponseHeader).offset


async def search_offset(
    remoting: Remoting, address: str, queue: MessageQueue, timestamp_ms: int, *, timeout_ms: float = 6000
) -> int:
    """SEARCH_OFFSET_BY_TIMESTAMP: the offset of the first message stored at or after `timestamp_ms`; the end of the
    queue when there is none.

    A broker that answers with the nearest message, as RocketMQ before 5.2, is asked for the times of those beside it;
    the nearest has to do where it cannot tell them.
    """
    header = SearchOffsetHeader(
        queue.topic, queue.queue_id, timestamp_ms, broker_name=queue.broker_name, boundary=Boundary.LOWER
    )
    answer = await ask(remoting, address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header, timeout_ms=timeout_ms)
    found = answer.header(SearchOffsetResponseHeader)
    if found.boundary is not None or answer.version >= BOUNDARY_SINCE:
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

    async def is_before(offset: int) -> bool:
        return await _store_time(remoting, address, queue, offset, timeout_ms) < timestamp_ms

    return await _first_not(is_before, low, high, near)


async def _store_time(remoting: Remoting, address: str, queue: MessageQueue, offset: int, timeout_ms: float) -> int:
    """When the message at a queue offset was stored; long ago, when it is gone. No group is needed for these requests,
    and of RocketMQ's accounts no permission.
    """
    try:
        entries = await queue_entries(remoting, address, queue.topic, queue.queue_id, offset, 1, timeout_ms=timeout_ms)
        if not entries.queue_data:
            return LONG_AGO
        place = entries.queue_data[0].physical_offset
        return store_timestamp_of(await view_message(remoting, address, place, timeout_ms=timeout_ms))
    except BrokerError:
        if offset >= await min_offset(remoting, address, queue, timeout_ms=timeout_ms):
            raise
        return LONG_AGO


async def _first_not(is_before: Callable[[int], Awaitable[bool]], low: int, high: int, near: int) -> int:
    """The first offset from `low` on that is not before, `high` when all are. Asks little when it is close to `near`:
    steps double until it lies between two of them.
    """
    first, end, step = low, high, 1
    while low < high:
        is_between = first < low and high < end
        at = (low + high) // 2 if is_between else min(max(near, low), high - 1)
        if await is_before(at):
            low, near = at + 1, at + step
        else:
            high, near = at, at - step
        step *= 2
    return low


async def earliest_store_time(
    remoting: Remoting, address: str, queue: MessageQueue, *, timeout_ms: float = 6000
) -> int:
    """GET_EARLIEST_MSG_STORETIME: milliseconds since the epoch, -1 when the queue holds nothing."""
    header = GetEarliestMsgStoretimeHeader(topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name)
    answer = await ask(remoting, address, RequestCode.GET_EARLIEST_MSG_STORETIME, header, timeout_ms=timeout_ms)
    return answer.header(GetEarliestMsgStoretimeResponseHeader).timestamp
