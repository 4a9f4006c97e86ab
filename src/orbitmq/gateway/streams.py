"""Server-sent events: a topic as it grows, and deliveries to a group. Knows no HTTP but the text of its events."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from orbitmq.client.deliveries import Deliveries, Source
from orbitmq.client.puller import Puller
from orbitmq.errors import MessageIllegal, OrbitMQError
from orbitmq.gateway import bodies
from orbitmq.gateway.links import Link
from orbitmq.gateway.messages import delivery, message_fields
from orbitmq.gateway.problems import problem_of, status_of
from orbitmq.message.config import SubscriptionData
from orbitmq.message.model import MessageExt, MessageQueue

KEEP_ALIVE_SECONDS: Final = 15.0  # proxies cut what is silent for a minute, and a caller that is gone is noticed
PAUSE_SECONDS: Final = 1.0  # before a broker that failed is asked again
PULL_COUNT: Final = 32
READ_AHEAD: Final = 128  # messages of a stream, of all queues; one of each queue if there are more queues
PULLS_AHEAD: Final = 4  # of these, that wait to be sent
RETRY_MS: Final = 1000  # after which a caller connects again
FINAL: Final = frozenset({400, 401, 403, 404, 501})  # statuses that trying again does not change
_POSITION: Final = re.compile(r"([^\s,:]{1,255}):([0-9]{1,9}):([0-9]{1,18})")  # so that they fit into int and long
_QUEUES_MAX: Final = 4096  # of a Last-Event-ID, whose text is then within the 64 KiB of a request's head

Positions = dict[MessageQueue, int]
"""Queue -> the offset of the next message."""


def event(kind: str, data: msgspec.Struct, event_id: str | None = None) -> bytes:
    """The text of an event. JSON has no line breaks."""
    head = f"event: {kind}\n" if event_id is None else f"id: {event_id}\nevent: {kind}\n"
    return head.encode() + b"data: " + msgspec.json.encode(data) + b"\n\n"


BEGINNING: Final = b"retry: %d\n" % RETRY_MS
KEEP_ALIVE: Final = b": nothing new\n\n"


def positions_text(positions: Mapping[MessageQueue, int]) -> str:
    """The id of an event: the next offset of every queue, as `broker:queue:offset`, joined by commas."""
    return ",".join(f"{one.broker_name}:{one.queue_id}:{at}" for one, at in sorted(positions.items()))


def positions_of(topic: str, text: str) -> Positions:
    """The positions in the id of an event. MessageIllegal for what is none."""
    parts = text.split(",", _QUEUES_MAX)
    found = [_POSITION.fullmatch(part) for part in parts[:_QUEUES_MAX]]
    if len(parts) > _QUEUES_MAX or None in found:
        raise MessageIllegal(
            f"Last-Event-ID {text[:100]!r} is not the id of an event of this stream; return it as it was received"
        )
    return {MessageQueue(topic, one[1], int(one[2])): int(one[3]) for one in found if one is not None}


class _Pulled(NamedTuple):
    """Of one queue: what a pull has found, and the offset after it; or why it failed."""

    queue: MessageQueue
    messages: Sequence[MessageExt]
    next_offset: int
    failure: OrbitMQError | None = None


class Tail:
    """A topic as it grows, from a position in each queue on. Queues that are `away` keep their place in the ids of the
    events, so that a caller who connects again when they are back goes on there.
    """

    def __init__(self, puller: Puller, subscription: SubscriptionData, positions: Positions, away: Positions) -> None:
        self._puller = puller
        self._subscription = subscription
        self._positions = positions
        # Made once, not for every event: the caller chooses how long it is.
        self._away = f",{positions_text(away)}" if away else ""
        self._arrived: asyncio.Queue[_Pulled] = asyncio.Queue(PULLS_AHEAD)
        # Each queue has a pull that waits for room, too.
        self._pull_count = max(1, min(PULL_COUNT, READ_AHEAD // (len(positions) + PULLS_AHEAD)))

    async def check(self) -> None:
        """Read once, without waiting. BrokerError if the caller may not read, ClientError, RemotingError."""
        queue, offset = next(iter(self._positions.items()))
        await self._puller.pull(queue, offset, 1, self._subscription, may_wait=False)

    async def events(self) -> AsyncGenerator[bytes, None]:
        """Texts of events, for ever; it ends with an event `problem` that says why it cannot go on. The beginning has
        an id already, so that a caller who connects again before the first message misses none.
        """
        tasks = [asyncio.create_task(self._follow(queue, at)) for queue, at in self._positions.items()]
        try:
            yield BEGINNING + b"id: %s\n\n" % self._id().encode()
            while True:
                try:
                    async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                        found = await self._arrived.get()
                except TimeoutError:
                    yield KEEP_ALIVE
                    continue
                if found.failure is not None:
                    problem = problem_of(found.failure)
                    yield event("problem", problem)
                    if problem.status in FINAL:
                        return
                for message in found.messages:
                    self._positions[found.queue] = message.queue_offset + 1
                    data = bodies.Message(**message_fields(message))
                    yield event("message", data, self._id())
                self._positions[found.queue] = found.next_offset
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _id(self) -> str:
        return positions_text(self._positions) + self._away

    async def _follow(self, queue: MessageQueue, offset: int) -> None:
        is_well = True
        while True:
            try:
                found = await self._puller.pull(queue, offset, self._pull_count, self._subscription)
            except OrbitMQError as error:
                if is_well or status_of(error) in FINAL:  # once an outage
                    await self._arrived.put(_Pulled(queue, (), offset, error))
                is_well = False
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            is_well, offset = True, found.next_begin_offset
            if found.messages:
                await self._arrived.put(_Pulled(queue, found.messages, offset))


async def start_positions(link: Link, topic: str, start: str, known: Positions) -> tuple[Positions, Positions]:
    """Where to begin in each queue of a topic: at `known`, else in all of them at the `start`; a queue that is new
    since then is read from its first message. Second, what is known of queues that are away, as while their broker
    restarts. ClientError when the topic does not exist, BrokerError, RemotingError.
    """
    queues = await link.fetch_queues(topic)
    offset_of = link.max_offset if start == "end" and not known else link.min_offset
    missing = [queue for queue in queues if queue not in known]
    found = await asyncio.gather(*(offset_of(queue) for queue in missing))
    offsets = known | dict(zip(missing, found, strict=True))
    return {queue: offsets.pop(queue) for queue in queues}, offsets


class Prefetched:
    """The deliveries of one stream that are not settled yet, each until its time is over."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: dict[str, float] = {}
        self._changed = asyncio.Event()

    def __contains__(self, handle: str) -> bool:
        return handle in self._open

    def add(self, handle: str, until: float) -> None:
        self._open[handle] = until

    def settle(self, handle: str) -> None:
        """The delivery is over."""
        if self._open.pop(handle, None) is not None:
            self._changed.set()

    def renew(self, handle: str, renewed: str, until: float) -> None:
        if self._open.pop(handle, None) is not None:
            self._open[renewed] = until
            self._changed.set()

    def room(self, now: float) -> int:
        """How many more may be delivered."""
        self._open = {handle: until for handle, until in self._open.items() if until > now}
        return self._limit - len(self._open)

    async def wait(self, now: float, at_most: float) -> None:
        """Until there may be room."""
        self._changed.clear()
        try:
            async with asyncio.timeout(min([at_most, *(max(0.0, until - now) for until in self._open.values())])):
                await self._changed.wait()
        except TimeoutError:
            pass


class DeliveryStream:
    """Deliveries to a group as events, of which a limited number is not settled."""

    def __init__(
        self,
        deliveries: Deliveries,
        sources: Callable[[], Awaitable[Sequence[Source]]],
        invisible_seconds: float,
        prefetched: Prefetched,
    ) -> None:
        self._deliveries = deliveries
        self._sources = sources
        self._invisible_seconds = invisible_seconds
        self._prefetched = prefetched
        self._unsent: list[MessageExt] = []
        self._until = 0.0

    async def receive(self, timeout: float) -> None:
        """Receive as many messages as there is room for. BrokerError if the caller may not; ClientError when the topic
        does not exist, RemotingError.
        """
        loop = asyncio.get_running_loop()
        room, invisible_ms = self._prefetched.room(loop.time()), milliseconds(self._invisible_seconds)
        self._unsent, _ = await self._deliveries.receive(self._sources, room, invisible_ms, timeout)
        self._until = loop.time() + self._invisible_seconds

    async def give_back(self) -> None:
        """At the end: what was received and not sent."""
        await self._deliveries.give_back(self._unsent)

    async def events(self) -> AsyncGenerator[bytes, None]:
        """Texts of events, for ever; it ends with an event `problem` that says why it cannot go on."""
        loop, is_well = asyncio.get_running_loop(), True
        yield BEGINNING + b"\n"
        while True:
            while self._unsent:
                found = delivery(self._unsent[0])
                self._prefetched.add(found.handle, self._until)
                yield event("message", found)
                del self._unsent[0]
            if not self._prefetched.room(loop.time()):
                await self._prefetched.wait(loop.time(), KEEP_ALIVE_SECONDS)
                if not self._prefetched.room(loop.time()):
                    yield KEEP_ALIVE
                continue
            try:
                await self.receive(KEEP_ALIVE_SECONDS)
            except OrbitMQError as error:
                problem = problem_of(error)
                if is_well or problem.status in FINAL:  # once an outage
                    yield event("problem", problem)
                if problem.status in FINAL:
                    return
                is_well = False
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            is_well = True
            if not self._unsent:
                yield KEEP_ALIVE


async def lasting(
    events: AsyncGenerator[bytes, None], seconds: float, ended: asyncio.Event
) -> AsyncGenerator[bytes, None]:
    """The events of some seconds, or until `ended` is set."""
    loop = asyncio.get_running_loop()
    deadline, ending = loop.time() + seconds, loop.create_task(ended.wait())
    coming: asyncio.Task[bytes] | None = None
    try:
        while not ended.is_set() and loop.time() < deadline:  # a stream with a backlog never waits
            coming = loop.create_task(_next(events))
            done, _ = await asyncio.wait(
                {coming, ending}, timeout=max(0.0, deadline - loop.time()), return_when=asyncio.FIRST_COMPLETED
            )
            if coming not in done or not (text := coming.result()):
                return
            yield text
    finally:
        ending.cancel()
        if coming is not None:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)
        await events.aclose()


async def _next(events: AsyncGenerator[bytes, None]) -> bytes:
    """The next event; empty when there is none."""
    return await anext(events, b"")


def milliseconds(seconds: float) -> int:
    """At least 1: brokers take 0 for no time at all."""
    return max(1, round(seconds * 1000))
