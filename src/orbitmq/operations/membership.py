"""A client and its groups at a broker: heartbeat, leaving, members, queue locks. Knows no interval and no table."""

from __future__ import annotations

from collections.abc import Collection

from orbitmq.message.config import SubscriptionData
from orbitmq.message.model import MessageQueue
from orbitmq.net.remoting import Remoting
from orbitmq.operations.asking import ask
from orbitmq.wire.bodies import (
    CheckClientRequest,
    ConsumerIdList,
    ConsumerRunningInfo,
    HeartbeatData,
    LockedQueues,
    QueueLockRequest,
)
from orbitmq.wire.headers import GetConsumerListByGroupHeader, UnregisterClientHeader
from orbitmq.wire.headers_groups import GetConsumerRunningInfoHeader
from orbitmq.wire.objects import decode, encode
from orbitmq.wire.requests import RequestCode


async def heartbeat(remoting: Remoting, address: str, data: HeartbeatData, *, timeout_ms: float = 3000) -> int:
    """HEART_BEAT; returns the broker's version number."""
    body = encode(data)
    return (await ask(remoting, address, RequestCode.HEART_BEAT, body=body, timeout_ms=timeout_ms)).version


async def unregister_client(
    remoting: Remoting,
    address: str,
    client_id: str,
    *,
    producer_group: str | None = None,
    consumer_group: str | None = None,
    timeout_ms: float = 3000,
) -> None:
    """UNREGISTER_CLIENT: the client leaves a group; the other members are told at once."""
    header = UnregisterClientHeader(client_id=client_id, producer_group=producer_group, consumer_group=consumer_group)
    await ask(remoting, address, RequestCode.UNREGISTER_CLIENT, header, timeout_ms=timeout_ms)


async def consumer_ids(remoting: Remoting, address: str, group: str, *, timeout_ms: float = 3000) -> list[str]:
    """GET_CONSUMER_LIST_BY_GROUP: the client ids of the members. BrokerError when there is none."""
    header = GetConsumerListByGroupHeader(consumer_group=group)
    answer = await ask(remoting, address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header, timeout_ms=timeout_ms)
    return decode(ConsumerIdList, answer.body).consumer_id_list


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
    await ask(remoting, address, RequestCode.CHECK_CLIENT_CONFIG, body=body, timeout_ms=timeout_ms)


async def running_info(
    remoting: Remoting, address: str, group: str, client_id: str, *, stacks: bool = False, timeout_ms: float = 12_000
) -> ConsumerRunningInfo:
    """GET_CONSUMER_RUNNING_INFO: what a member says of itself, `stacks` with where its threads stand; the broker
    passes the question on and waits 10 s."""
    header = GetConsumerRunningInfoHeader(consumer_group=group, client_id=client_id, jstack_enable=stacks)
    answer = await ask(remoting, address, RequestCode.GET_CONSUMER_RUNNING_INFO, header, timeout_ms=timeout_ms)
    return decode(ConsumerRunningInfo, answer.body)


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
    answer = await ask(remoting, address, RequestCode.LOCK_BATCH_MQ, body=body, timeout_ms=timeout_ms)
    return set(decode(LockedQueues, answer.body).locked)


async def unlock_queues(
    remoting: Remoting,
    address: str,
    client_id: str,
    group: str,
    queues: Collection[MessageQueue],
    *,
    timeout_ms: float = 1000,
) -> None:
    """UNLOCK_BATCH_MQ, and the broker's word that it was done."""
    body = _locks(client_id, group, queues)
    await ask(remoting, address, RequestCode.UNLOCK_BATCH_MQ, body=body, timeout_ms=timeout_ms)
