"""Members of groups at a broker: heartbeat, unregister, member list, queue locks, and requests relayed to a member."""

from __future__ import annotations

from collections.abc import Collection

from orbitmq.message.config import SubscriptionData
from orbitmq.message.model import MessageQueue
from orbitmq.net.remoting import Remoting
from orbitmq.operations.call import call
from orbitmq.wire.bodies import (
    CheckClientRequest,
    ConsumeDirectlyResult,
    ConsumerIdList,
    ConsumerRunningInfo,
    HeartbeatData,
    LockedQueues,
    QueueLockRequest,
)
from orbitmq.wire.headers import GetConsumerListByGroupHeader, UnregisterClientHeader
from orbitmq.wire.headers_groups import ConsumeMessageDirectlyHeader, GetConsumerRunningInfoHeader
from orbitmq.wire.objects import decode, encode
from orbitmq.wire.requests import RequestCode


async def heartbeat(remoting: Remoting, address: str, data: HeartbeatData, *, timeout_ms: float = 3000) -> int:
    """HEART_BEAT; returns the broker's version number."""
    body = encode(data)
    return (await call(remoting, address, RequestCode.HEART_BEAT, body=body, timeout_ms=timeout_ms)).version


async def unregister_client(
    remoting: Remoting,
    address: str,
    client_id: str,
    *,
    producer_group: str | None = None,
    consumer_group: str | None = None,
    timeout_ms: float = 3000,
) -> None:
    """UNREGISTER_CLIENT: the client leaves a group; the broker notifies the other members."""
    header = UnregisterClientHeader(client_id=client_id, producer_group=producer_group, consumer_group=consumer_group)
    await call(remoting, address, RequestCode.UNREGISTER_CLIENT, header, timeout_ms=timeout_ms)


async def consumer_ids(remoting: Remoting, address: str, group: str, *, timeout_ms: float = 3000) -> list[str]:
    """GET_CONSUMER_LIST_BY_GROUP: the client ids of the members. BrokerError when there is none."""
    header = GetConsumerListByGroupHeader(consumer_group=group)
    response = await call(remoting, address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header, timeout_ms=timeout_ms)
    return decode(ConsumerIdList, response.body).consumer_id_list


async def check_client(
    remoting: Remoting,
    address: str,
    client_id: str,
    group: str,
    subscription: SubscriptionData,
    *,
    timeout_ms: float = 3000,
) -> None:
    """CHECK_CLIENT_CONFIG: BrokerError when the broker cannot filter by this subscription."""
    body = encode(CheckClientRequest(client_id=client_id, group=group, subscription_data=subscription))
    await call(remoting, address, RequestCode.CHECK_CLIENT_CONFIG, body=body, timeout_ms=timeout_ms)


async def running_info(
    remoting: Remoting, address: str, group: str, client_id: str, *, stacks: bool = False, timeout_ms: float = 12_000
) -> ConsumerRunningInfo:
    """GET_CONSUMER_RUNNING_INFO: the state of a member, with `stacks` also its stack traces. The broker relays the
    request and waits `RELAY_TIMEOUT_MS`.
    """
    header = GetConsumerRunningInfoHeader(consumer_group=group, client_id=client_id, jstack_enable=stacks)
    response = await call(remoting, address, RequestCode.GET_CONSUMER_RUNNING_INFO, header, timeout_ms=timeout_ms)
    return decode(ConsumerRunningInfo, response.body)


def _locks(client_id: str, group: str, queues: Collection[MessageQueue]) -> bytes:
    return encode(QueueLockRequest(client_id=client_id, consumer_group=group, mq_set=sorted(queues)))


async def lock_queues(
    remoting: Remoting,
    address: str,
    client_id: str,
    group: str,
    queues: Collection[MessageQueue],
    *,
    timeout_ms: float = 1000,
) -> set[MessageQueue]:
    """LOCK_BATCH_MQ: those of `queues` that the client owns now. A lock not renewed for 60 s is lost."""
    body = _locks(client_id, group, queues)
    response = await call(remoting, address, RequestCode.LOCK_BATCH_MQ, body=body, timeout_ms=timeout_ms)
    return set(decode(LockedQueues, response.body).locked)


async def unlock_queues(
    remoting: Remoting,
    address: str,
    client_id: str,
    group: str,
    queues: Collection[MessageQueue],
    *,
    timeout_ms: float = 1000,
) -> None:
    """UNLOCK_BATCH_MQ: release the locks of the client, and wait for the response."""
    body = _locks(client_id, group, queues)
    await call(remoting, address, RequestCode.UNLOCK_BATCH_MQ, body=body, timeout_ms=timeout_ms)


RELAY_TIMEOUT_MS = 10_000
"""How long a broker waits for the consumer."""


async def consume_directly(
    remoting: Remoting, address: str, group: str, client_id: str, offset_msg_id: str, *, timeout_ms: float = 15_000
) -> ConsumeDirectlyResult:
    """CONSUME_MESSAGE_DIRECTLY: have the listener of `client_id` consume one stored message, and return its result.

    The broker waits `RELAY_TIMEOUT_MS`. No offset moves. BrokerError when the client is offline or does not respond.
    """
    header = ConsumeMessageDirectlyHeader(consumer_group=group, client_id=client_id, msg_id=offset_msg_id)
    response = await call(remoting, address, RequestCode.CONSUME_MESSAGE_DIRECTLY, header, timeout_ms=timeout_ms)
    return decode(ConsumeDirectlyResult, response.body)
