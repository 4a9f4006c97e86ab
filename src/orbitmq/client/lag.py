"""The lag of a group, queue by queue. An unknown lag is reported as unknown, never as zero."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace

from orbitmq.client.instance import Instance
from orbitmq.errors import OrbitMQError
from orbitmq.message.flags import PULL_SUBSCRIPTION
from orbitmq.message.model import MessageQueue
from orbitmq.message.unit import decode_units
from orbitmq.operations import offsets, pulls
from orbitmq.wire.headers import PullMessageHeader

ASKED_AT_ONCE = 16  # queues queried at a time; reading the lag must not put load on the brokers

OffsetOf = Callable[[MessageQueue], Awaitable[int | None]]


@dataclass(frozen=True, slots=True)
class QueueLag:
    """The lag in one queue. None means unknown, and `problem` says why."""

    queue: MessageQueue
    consumer_offset: int | None = None
    """The offset of the next message that the group consumes; None when it has not stored an offset yet."""
    max_offset: int | None = None
    """The next offset to be written in the queue."""
    messages: int | None = None
    """The messages between the two that still exist; all of the queue for a group without an offset."""
    seconds: float | None = None
    """The age of the oldest of them; 0 when there are none."""
    expired: int = 0
    """Messages that were deleted before the group consumed them."""
    problem: str = ""


def total_lag(lags: Iterable[QueueLag]) -> int | None:
    """The sum over all queues; None when one of them is unknown."""
    counts = [lag.messages for lag in lags]
    return None if None in counts else sum(count for count in counts if count is not None)


async def lag_of(instance: Instance, group: str, queues: Iterable[MessageQueue], offset_of: OffsetOf) -> list[QueueLag]:
    """The lag in each queue, in their order. Does not raise for a broker that cannot be reached."""
    gate = asyncio.Semaphore(ASKED_AT_ONCE)

    async def one(queue: MessageQueue) -> QueueLag:
        async with gate:
            try:
                return await _lag(instance, group, queue, await offset_of(queue))
            except OrbitMQError as error:
                return QueueLag(queue, problem=str(error))

    return list(await asyncio.gather(*map(one, queues)))


async def _lag(instance: Instance, group: str, queue: MessageQueue, offset: int | None) -> QueueLag:
    remoting, address = instance.remoting, await instance.routes.master(queue)
    low = await offsets.min_offset(remoting, address, queue)
    high = await offsets.max_offset(remoting, address, queue)
    first = low if offset is None else max(low, offset)
    lag = QueueLag(
        queue, offset, high, max(0, high - first), 0.0,
        expired=0 if offset is None else max(0, low - offset),
        problem="the group has stored no offset for this queue" if offset is None else "",
    )  # fmt: skip
    if not lag.messages:
        return lag
    stored_ms = await _stored_ms(instance, address, group, queue, first)
    if stored_ms is None:
        return replace(lag, seconds=None, problem=lag.problem or f"the message at offset {first} cannot be read")
    return replace(lag, seconds=max(0.0, (instance.clock.now_ms() - stored_ms) / 1000))


async def _stored_ms(instance: Instance, address: str, group: str, queue: MessageQueue, offset: int) -> int | None:
    """When the message was stored. The message is read, as no request returns only that."""
    header = PullMessageHeader(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, queue_offset=offset, max_msg_nums=1,
        sys_flag=PULL_SUBSCRIPTION, commit_offset=0, suspend_timeout_millis=0, subscription="*", sub_version=0,
        expression_type="TAG", broker_name=queue.broker_name,
    )  # fmt: skip
    reply = await pulls.pull(instance.remoting, address, header, timeout_ms=instance.settings["api_timeout_ms"])
    units = decode_units(reply.body)
    return units[0].store_timestamp if units else None
