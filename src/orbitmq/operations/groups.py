"""Consumer and producer groups of one broker: their rules, members and progress, and moving their offsets."""

from __future__ import annotations

from orbitmq.message.config import SubscriptionGroup
from orbitmq.message.model import MessageQueue
from orbitmq.message.topics import check_retry_topic
from orbitmq.net.remoting import Remoting
from orbitmq.operations.asking import ask
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
"""The time that stands for "everything is consumed"."""


async def create_group(remoting: Remoting, address: str, group: SubscriptionGroup, *, timeout_ms: float = 6000) -> None:
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: the group has these rules on that broker from now on. MessageIllegal
    for a group that could have no retry topic, which brokers of RocketMQ do not check.
    """
    check_retry_topic(group.name)
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    await ask(remoting, address, code, body=encode(group), timeout_ms=timeout_ms)


async def delete_group(
    remoting: Remoting, address: str, group: str, *, with_offsets: bool = False, timeout_ms: float = 6000
) -> None:
    """DELETE_SUBSCRIPTIONGROUP: its rules are gone, `with_offsets` its progress too. One that is not there is fine."""
    header = DeleteSubscriptionGroupHeader(group_name=group, remove_offset=with_offsets, clean_offset=with_offsets)
    await ask(remoting, address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header, timeout_ms=timeout_ms)


async def consumer_connections(
    remoting: Remoting, address: str, group: str, *, timeout_ms: float = 6000
) -> ConsumerConnection | None:
    """GET_CONSUMER_CONNECTION_LIST: the members this broker knows, None when nobody is online there."""
    header, code = GetConsumerConnectionListHeader(group), RequestCode.GET_CONSUMER_CONNECTION_LIST
    answer = await ask(remoting, address, code, header, timeout_ms=timeout_ms, accept=ONLINE_OR_NOT)
    if answer.code == ResponseCode.CONSUMER_NOT_ONLINE:
        return None
    return decode(ConsumerConnection, answer.body)


async def producer_connections(
    remoting: Remoting, address: str, group: str, *, timeout_ms: float = 6000
) -> list[ClientConnection]:
    """GET_PRODUCER_CONNECTION_LIST: the members this broker knows, none when it does not know the group."""
    header, code = GetProducerConnectionListHeader(group), RequestCode.GET_PRODUCER_CONNECTION_LIST
    answer = await ask(remoting, address, code, header, timeout_ms=timeout_ms, accept=KNOWN_OR_NOT)
    if answer.code == ResponseCode.SYSTEM_ERROR:
        return []
    return decode(ProducerConnection, answer.body).connection_set


async def all_producers(remoting: Remoting, address: str, *, timeout_ms: float = 6000) -> dict[str, list[ProducerInfo]]:
    """GET_ALL_PRODUCER_INFO: the members of every producer group this broker knows."""
    answer = await ask(remoting, address, RequestCode.GET_ALL_PRODUCER_INFO, timeout_ms=timeout_ms)
    return decode(ProducerTableInfo, answer.body).data


async def consume_stats(
    remoting: Remoting, address: str, group: str, topic: str | None = None, *, timeout_ms: float = 15_000
) -> ConsumeStats:
    """GET_CONSUME_STATS: ends and offsets queue by queue, of one topic or of all the group has offsets of.

    A queue without a stored offset shows 0 there, and topics the online members do not subscribe are left out.
    """
    header = GetConsumeStatsHeader(group, topic)
    answer = await ask(remoting, address, RequestCode.GET_CONSUME_STATS, header, timeout_ms=timeout_ms)
    return decode(ConsumeStats, answer.body)


async def time_spans(
    remoting: Remoting, address: str, group: str, topic: str, *, timeout_ms: float = 15_000
) -> list[QueueTimeSpan]:
    """QUERY_CONSUME_TIME_SPAN: when the messages of each queue were stored, and how long the next one waits."""
    header = QueryConsumeTimeSpanHeader(topic, group)
    answer = await ask(remoting, address, RequestCode.QUERY_CONSUME_TIME_SPAN, header, timeout_ms=timeout_ms)
    return decode(ConsumeTimeSpans, answer.body).consume_time_span_set


async def consumer_positions(
    remoting: Remoting, address: str, group: str, topic: str, *, timeout_ms: float = 15_000
) -> dict[str, dict[MessageQueue, int]]:
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS: client id -> the offsets it has in memory. BrokerError when offline."""
    header, code = InvokeBrokerToGetConsumerStatusHeader(topic, group), RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    answer = await ask(remoting, address, code, header, timeout_ms=timeout_ms)
    return decode(ConsumerStatus, answer.body).consumer_table


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
    """INVOKE_BROKER_TO_RESET_OFFSET: the offsets members are told to go to, None when nobody is online there.

    `queue_id` and `offset` move one queue; brokers of RocketMQ 4.9 do not know them and go by the time alone.
    Without `force` no queue is moved forward. The request is not its effect: members commit by themselves, later.
    """
    header = InvokeBrokerToResetOffsetHeader(topic, group, timestamp_ms, force, queue_id, offset)
    code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    answer = await ask(remoting, address, code, header, timeout_ms=timeout_ms, accept=ONLINE_OR_NOT)
    if answer.code == ResponseCode.CONSUMER_NOT_ONLINE:
        return None
    return decode(QueueOffsets, answer.body).offset_table
