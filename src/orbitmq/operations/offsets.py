"""Offsets a broker keeps: those of groups, and the limits of its queues. Offsets are always the next one to consume."""

from __future__ import annotations

from orbitmq.message.model import MessageQueue
from orbitmq.net.remoting import Remoting
from orbitmq.operations.asking import ask, tell
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.headers import (
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

FOUND_OR_NOT = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)


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
    """SEARCH_OFFSET_BY_TIMESTAMP: the offset of the first message stored at or after `timestamp_ms`, or near it."""
    header = SearchOffsetHeader(
        topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms, broker_name=queue.broker_name
    )
    answer = await ask(remoting, address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header, timeout_ms=timeout_ms)
    return answer.header(SearchOffsetResponseHeader).offset


async def earliest_store_time(
    remoting: Remoting, address: str, queue: MessageQueue, *, timeout_ms: float = 6000
) -> int:
    """GET_EARLIEST_MSG_STORETIME: milliseconds since the epoch, -1 when the queue holds nothing."""
    header = GetEarliestMsgStoretimeHeader(topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name)
    answer = await ask(remoting, address, RequestCode.GET_EARLIEST_MSG_STORETIME, header, timeout_ms=timeout_ms)
    return answer.header(GetEarliestMsgStoretimeResponseHeader).timestamp
