"""What the gateway does: one coroutine for each operation. Knows shapes and links, and no HTTP."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Generic, TypeVar

from orbitmq.client.core.selection import queue_of_key
from orbitmq.client.deliveries import Deliveries, Source
from orbitmq.client.lag import QueueLag, total_lag
from orbitmq.errors import OrbitMQError
from orbitmq.filter.sql92 import compile_sql92
from orbitmq.filter.tags import tag_subscription
from orbitmq.gateway import bodies
from orbitmq.gateway.links import Link
from orbitmq.gateway.messages import delivered, deliveries, handle_of, new_message, sent_messages
from orbitmq.gateway.problems import Refused, problem_of, status_of, text_status
from orbitmq.gateway.streams import (
    DeliveryStream,
    Prefetched,
    Tail,
    milliseconds,
    positions_of,
    start_positions,
)
from orbitmq.message.config import SQL92, SubscriptionData
from orbitmq.message.model import MessageExt
from orbitmq.message.topics import RETRY_PREFIX

P = TypeVar("P", bound=bodies.Shape)
Q = TypeVar("Q", bound=bodies.Shape)
B = TypeVar("B", bound=bodies.Shape)


@dataclass(frozen=True, slots=True)
class Call(Generic[P, Q, B]):
    """A checked request: what its path, its query and its body hold."""

    link: Link
    path: P
    query: Q
    body: B
    last_event_id: str
    caller: str
    """The account, or the address of a caller without one."""
    prefetched: dict[tuple[str, str], list[Prefetched]]
    """Caller and group -> the deliveries of its open streams."""

    def is_accepted(self) -> None:
        """A broker has accepted the account: it is not among those that may be guessed, however long the call lasts."""
        self.link.is_proven = True

    def streams_of(self, group: str) -> list[Prefetched]:
        return self.prefetched.get((self.caller, group), [])


@dataclass(frozen=True, slots=True)
class EventStream:
    """Events, how long they last, and what is to be done at their end."""

    events: AsyncGenerator[bytes, None]
    seconds: float
    ended: Callable[[], Awaitable[None]]


# ---------------------------------------------------------------------------------------------------------------- sends


async def send(call: Call[bodies.TopicPath, bodies.Nothing, bodies.NewMessage]) -> bodies.SentMessage:
    message = new_message(call.path.topic, call.body)
    (sent,) = sent_messages(await call.link.send(message, sharding_key=call.body.sharding_key or None))
    return sent


async def send_batch(call: Call[bodies.TopicPath, bodies.Nothing, bodies.NewBatch]) -> bodies.SentBatch:
    topic, given = call.path.topic, call.body
    messages = [new_message(topic, one) for one in given.messages]
    queue = None
    if given.sharding_key:
        queue = queue_of_key(await call.link.fetch_publish_queues(topic), given.sharding_key)
    return bodies.SentBatch(messages=sent_messages(await call.link.send_batch(messages, queue=queue)))


# ----------------------------------------------------------------------------------------------------------- deliveries


def _subscription(topic: str, given: bodies.Receive | bodies.Deliver) -> SubscriptionData:
    if given.filter_type == SQL92:
        compile_sql92(given.filter)  # its error names the place, that of brokers does not
        return SubscriptionData(topic, given.filter, expression_type=SQL92)
    return tag_subscription(topic, given.filter)


async def shuffled_sources(group: Deliveries, subscription: SubscriptionData) -> Sequence[Source]:
    """A topic at its brokers, each time in another order: the first one that has messages delivers them, and the last
    one must not wait until all others have none.
    """
    found = await group.sources(subscription)
    return random.sample(found, len(found))


async def receive(call: Call[bodies.GroupPath, bodies.Nothing, bodies.Receive]) -> bodies.Received:
    given = call.body
    group = call.link.deliveries(call.path.group, given.start_from)
    sources = partial(shuffled_sources, group, _subscription(call.path.topic, given))
    most, invisible_ms = given.max_messages, milliseconds(given.invisible_seconds)
    found, _ = await group.receive(sources, most, invisible_ms, 0)
    call.is_accepted()
    if not found and given.wait_seconds:
        found, _ = await group.receive(sources, most, invisible_ms, given.wait_seconds)
    return bodies.Received(messages=deliveries(found))


async def acknowledge(call: Call[bodies.GroupPath, bodies.Nothing, bodies.Handles]) -> bodies.Settled:
    return await _settle(call, Deliveries.ack)


async def reject(call: Call[bodies.GroupPath, bodies.Nothing, bodies.Handles]) -> bodies.Settled:
    return await _settle(call, Deliveries.reject_stored)


async def _settle(
    call: Call[bodies.GroupPath, bodies.Nothing, bodies.Handles],
    settle: Callable[[Deliveries, MessageExt], Awaitable[None]],
) -> bodies.Settled:
    """Each by itself. If all fail for the same reason, that is the response; also if none is settled and a broker does
    not know the account, which then has to wait like any other that may be guessing.
    """
    group, handles = call.link.deliveries(call.path.group), call.body.handles
    messages = [delivered(call.path.topic, handle) for handle in handles]
    results = await asyncio.gather(*(settle(group, one) for one in messages), return_exceptions=True)
    failures, errors = [], []
    for handle, result in zip(handles, results, strict=True):
        if isinstance(result, OrbitMQError):
            errors.append(result)
            failures.append(bodies.Unsettled(handle=handle, problem=problem_of(result)))
        elif result is not None:
            raise result
        else:
            for stream in call.streams_of(call.path.group):
                stream.settle(handle)
    if len(errors) == len(handles):
        unknown = [error for error in errors if status_of(error) == HTTPStatus.UNAUTHORIZED]
        if unknown or len({one.problem.status for one in failures}) == 1:
            raise (unknown or errors)[0]
    return bodies.Settled(settled=len(handles) - len(failures), failures=failures)


async def change_visibility(call: Call[bodies.GroupPath, bodies.Nothing, bodies.Visibility]) -> bodies.Renewed:
    handle, seconds = call.body.handle, call.body.invisible_seconds
    message = delivered(call.path.topic, handle)
    await call.link.deliveries(call.path.group).change_invisible(message, round(seconds * 1000))
    renewed = handle_of(message)
    until = asyncio.get_running_loop().time() + seconds
    for stream in call.streams_of(call.path.group):
        stream.renew(handle, renewed, until)
    return bodies.Renewed(handle=renewed)


# -------------------------------------------------------------------------------------------------------------- streams


async def tail(call: Call[bodies.TopicPath, bodies.Tail, bodies.Nothing]) -> EventStream:
    topic, given = call.path.topic, call.query
    known = positions_of(topic, call.last_event_id) if call.last_event_id else {}
    positions, away = await start_positions(call.link, topic, given.start, known)
    found = Tail(call.link.puller(given.reader), tag_subscription(topic, given.tags), positions, away)
    await found.check()
    call.is_accepted()
    return EventStream(found.events(), given.seconds, _nothing)


async def _nothing() -> None:
    """To be done."""


async def deliver(call: Call[bodies.GroupPath, bodies.Deliver, bodies.Nothing]) -> EventStream:
    given, key = call.query, (call.caller, call.path.group)
    group = call.link.deliveries(call.path.group, given.start_from)
    prefetched = Prefetched(given.prefetch)
    sources = partial(shuffled_sources, group, _subscription(call.path.topic, given))
    found = DeliveryStream(group, sources, given.invisible_seconds, prefetched)
    await found.receive(0)
    call.is_accepted()
    call.prefetched.setdefault(key, []).append(prefetched)

    async def ended() -> None:
        await found.give_back()
        call.prefetched[key].remove(prefetched)
        if not call.prefetched[key]:
            del call.prefetched[key]

    return EventStream(found.events(), given.seconds, ended)


# ------------------------------------------------------------------------------------------------------------------ lag


async def lag(call: Call[bodies.GroupPath, bodies.Nothing, bodies.Nothing]) -> bodies.Lag:
    """An unknown lag is a problem, and never 0: what scales by it would stop all consumers."""
    topic, group = call.path.topic, call.path.group
    found = await call.link.lags(group, topic)
    total = total_lag(found)
    if total is None:
        raise _unknown(found)
    in_flight = await call.link.in_flight(group, topic)
    return bodies.Lag(
        topic=topic,
        group=group,
        lag=total,
        oldest_seconds=max((one.seconds or 0.0 for one in found), default=0.0),
        in_flight=in_flight,
        backlog=total + (in_flight or 0),
        queues=[
            bodies.LagInQueue(
                broker_name=one.queue.broker_name,
                queue_id=one.queue.queue_id,
                is_retry=one.queue.topic.startswith(RETRY_PREFIX),
                lag=one.messages or 0,
            )
            for one in found
        ],
    )


def _unknown(lags: Iterable[QueueLag]) -> Refused:
    first = next(one for one in lags if one.messages is None)
    queue = first.queue
    text = f"the lag in {queue.topic}/{queue.broker_name}/{queue.queue_id} is unknown: {first.problem}"
    return Refused(text_status(first.problem) or 503, text)
