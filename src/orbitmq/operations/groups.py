"""Consumer and producer groups of one broker: configuration, members, progress, and offset resets."""

from __future__ import annotations

from msgspec.structs import replace

from orbitmq.message.config import SubscriptionGroup
from orbitmq.message.model import MessageQueue
from orbitmq.message.topics import check_retry_topic
from orbitmq.net.remoting import Remoting
from orbitmq.operations.call import call
from orbitmq.wire.bodies import (
    ClientConnection,
    ConsumerConnection,
    ConsumerStatus,
    ConsumeStats,
    ConsumeTimeSpans,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
    QueueOffsets,
    QueueTimeSpan,
)
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers_admin import (
    DeleteSubscriptionGroupHeader,
    GetConsumerConnectionListHeader,
    GetConsumeStatsHeader,
    GetProducerConnectionListHeader,
    GetSubscriptionGroupConfigHeader,
    QueryConsumeTimeSpanHeader,
)
from orbitmq.wire.headers_groups import (
    InvokeBrokerToGetConsumerStatusHeader,
    InvokeBrokerToResetOffsetHeader,
)
from orbitmq.wire.objects import decode, encode
from orbitmq.wire.requests import RequestCode

ONLINE_OR_NOT = (ResponseCode.SUCCESS, ResponseCode.CONSUMER_NOT_ONLINE)
KNOWN_OR_NOT = (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR)
END_OF_QUEUE = -1
"""The timestamp that resets to the end of the queue."""


async def create_group(remoting: Remoting, address: str, group: SubscriptionGroup, *, timeout_ms: float = 6000) -> None:
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: create or replace the configuration of a group. MessageIllegal when the name
    is too long for a retry topic, which brokers of RocketMQ do not check. Its attributes are not sent: none can be set.
    """
    check_retry_topic(group.name)
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    await call(remoting, address, code, body=encode(replace(group, attributes={})), timeout_ms=timeout_ms)


async def group_config(remoting: Remoting, address: str, group: str, *, timeout_ms: float = 6000) -> SubscriptionGroup:
    """GET_SUBSCRIPTIONGROUP_CONFIG: one group. BrokerError if there is none, or the broker is older than RocketMQ 5."""
    header = GetSubscriptionGroupConfigHeader(group)
    code = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
    response = await call(remoting, address, code, header, timeout_ms=timeout_ms)
    return decode(SubscriptionGroup, response.body)


async def delete_group(
    remoting: Remoting, address: str, group: str, *, with_offsets: bool = False, timeout_ms: float = 6000
) -> None:
    """DELETE_SUBSCRIPTIONGROUP: delete the configuration, and `with_offsets` the offsets, if they exist."""
    header = DeleteSubscriptionGroupHeader(group_name=group, remove_offset=with_offsets, clean_offset=with_offsets)
    await call(remoting, address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header, timeout_ms=timeout_ms)


async def consumer_connections(
    remoting: Remoting, address: str, group: str, *, timeout_ms: float = 6000
) -> ConsumerConnection | None:
    """GET_CONSUMER_CONNECTION_LIST: the members that this broker knows, None when none is online."""
    header, code = GetConsumerConnectionListHeader(group), RequestCode.GET_CONSUMER_CONNECTION_LIST
    response = await call(remoting, address, code, header, timeout_ms=timeout_ms, accept=ONLINE_OR_NOT)
    if response.code == ResponseCode.CONSUMER_NOT_ONLINE:
        return None
    return decode(ConsumerConnection, response.body)


async def producer_connections(
    remoting: Remoting, address: str, group: str, *, timeout_ms: float = 6000
) -> list[ClientConnection]:
    """GET_PRODUCER_CONNECTION_LIST: the members that this broker knows, empty when it does not know the group."""
    header, code = GetProducerConnectionListHeader(group), RequestCode.GET_PRODUCER_CONNECTION_LIST
    response = await call(remoting, address, code, header, timeout_ms=timeout_ms, accept=KNOWN_OR_NOT)
    if response.code == ResponseCode.SYSTEM_ERROR:
        return []
    return decode(ProducerConnection, response.body).connection_set


async def all_producers(remoting: Remoting, address: str, *, timeout_ms: float = 6000) -> dict[str, list[ProducerInfo]]:
    """GET_ALL_PRODUCER_INFO: the members of every producer group this broker knows."""
    response = await call(remoting, address, RequestCode.GET_ALL_PRODUCER_INFO, timeout_ms=timeout_ms)
    return decode(ProducerTableInfo, response.body).data


async def consume_stats(
    remoting: Remoting, address: str, group: str, topic: str | None = None, *, timeout_ms: float = 15_000
) -> ConsumeStats:
    """GET_CONSUME_STATS: end and offset of each queue, of one topic or of all topics that the group has offsets of.

    A queue without a stored offset shows 0. Topics that online members do not subscribe are left out.
    """
    header = GetConsumeStatsHeader(group, topic)
    response = await call(remoting, address, RequestCode.GET_CONSUME_STATS, header, timeout_ms=timeout_ms)
    return decode(ConsumeStats, response.body)


async def time_spans(
    remoting: Remoting, address: str, group: str, topic: str, *, timeout_ms: float = 15_000
) -> list[QueueTimeSpan]:
    """QUERY_CONSUME_TIME_SPAN: store times of each queue's messages, and how long the next one has waited."""
    header = QueryConsumeTimeSpanHeader(topic, group)
    response = await call(remoting, address, RequestCode.QUERY_CONSUME_TIME_SPAN, header, timeout_ms=timeout_ms)
    return decode(ConsumeTimeSpans, response.body).consume_time_span_set


async def consumer_positions(
    remoting: Remoting, address: str, group: str, topic: str, *, timeout_ms: float = 15_000
) -> dict[str, dict[MessageQueue, int]]:
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS: client id -> the offsets in its memory. BrokerError when none is online."""
    header, code = InvokeBrokerToGetConsumerStatusHeader(topic, group), RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    response = await call(remoting, address, code, header, timeout_ms=timeout_ms)
    return decode(ConsumerStatus, response.body).consumer_table


async def reset_offsets(
    remoting: Remoting,
    address: str,
    group: str,
    topic: str,
    timestamp_ms: int,
    *,
    force: bool = True,
    queue_id: int = -1,
    offset: int | None = None,
    timeout_ms: float = 15_000,
) -> dict[MessageQueue, int] | None:
    """INVOKE_BROKER_TO_RESET_OFFSET: the offsets that members will move to, None when none is online.

    `queue_id` and `offset` move one queue; brokers of RocketMQ 4.9 do not know them and use the timestamp only. Without
    `force` no queue is moved forward. Members commit the new offsets later.
    """
    header = InvokeBrokerToResetOffsetHeader(topic, group, timestamp_ms, force, queue_id, offset)
    code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    response = await call(remoting, address, code, header, timeout_ms=timeout_ms, accept=ONLINE_OR_NOT)
    if response.code == ResponseCode.CONSUMER_NOT_ONLINE:
        return None
    return decode(QueueOffsets, response.body).offset_table
