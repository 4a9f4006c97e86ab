"""What a queue of kombu receives, for the event loop of the clients: from its group by POP, or by following topics.

A reader takes no more messages than the prefetch count has room for.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ClassVar, Final, NamedTuple

from orbitmq.client import PullConsumer, SimpleConsumer
from orbitmq.errors import OrbitMQError
from orbitmq.integrations.celery.routing import Payload
from orbitmq.message.expiry import split_expired
from orbitmq.message.model import MessageExt, MessageQueue

_log = logging.getLogger(__name__)

RECEIVED_AT_ONCE: Final = 32  # as many as a POP may have
HELD_MAX: Final = 256  # without a prefetch count, which means no limit: more would wait here, away from other workers
PAUSE_S: Final = 1.0  # after an error
WAIT_S: Final = 20.0  # of one request for messages
RECEIVE_S: Final = 5.0  # for a request whose messages would be lost to a reader that is cancelled
SKEW_MS: Final = 5000  # between the clocks of this machine and of a broker
RETURN_S: Final = 1.0  # within which a broker of orbitmq delivers again what is given back

Deliver = Callable[["Reader", "list[Delivery]"], None]


class Prefetch:
    """How many messages a channel may hold."""

    def __init__(self) -> None:
        self.limit = 0
        self._held = 0
        self._changed = asyncio.Event()

    async def room(self) -> int:
        """How many more may be received, at least 1."""
        while (left := (self.limit or HELD_MAX) - self._held) <= 0:
            self._changed.clear()
            await self._changed.wait()
        return min(left, RECEIVED_AT_ONCE)

    def set_limit(self, limit: int) -> None:
        self.limit = limit
        self._changed.set()

    def hold(self, count: int) -> None:
        """So many more are held; fewer, if it is negative."""
        self._held += count
        self._changed.set()


class Delivery(NamedTuple):
    """A message that is not settled."""

    message: MessageExt
    prefetch: Prefetch | None = None
    """What it counts in, until it is settled."""


class Reader(ABC):
    """The messages of one queue."""

    is_alone: ClassVar[bool]
    """Whether no other queue gets the messages of its topics, so that one may be sent there again."""

    def __init__(self, queue: str, deliver: Deliver) -> None:
        self.queue = queue
        self.wants: Callable[[Payload], bool] = lambda _payload: True
        """Whether a message of its topics is for the queue; what is not is skipped."""
        self.returns_until = 0.0
        """Until when a message that was given back may not be there yet, by the loop's clock."""
        self._deliver = deliver
        self._tasks: dict[Prefetch, asyncio.Task[None]] = {}  # by the channel for which they read
        self._receiving: set[Prefetch] = set()

    def consume(self, prefetch: Prefetch) -> None:
        """Deliver messages to a channel from now on."""
        task = self._tasks[prefetch] = asyncio.create_task(self._read(prefetch))
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            _log.error(
                "event=reader_failed queue=%s; no more messages of it are delivered",
                self.queue,
                exc_info=task.exception(),
            )

    async def cancel(self, prefetch: Prefetch | None = None) -> None:
        """Deliver no more to a channel, or to any. What a broker is delivering is waited for: it would be invisible
        until its time is over.
        """
        tasks = set()
        for one in [prefetch] if prefetch is not None else list(self._tasks):
            if (task := self._tasks.pop(one, None)) is not None:
                tasks.add(task)
                if one not in self._receiving:
                    task.cancel()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=RECEIVE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _read(self, prefetch: Prefetch) -> None:
        failed, task = False, asyncio.current_task()
        while self._tasks.get(prefetch) is task:
            room = await prefetch.room()
            prefetch.hold(room)  # no other queue of the channel gets it meanwhile
            self._receiving.add(prefetch)
            received: list[MessageExt] = []
            try:
                received = await self.receive(room)
            except OrbitMQError as error:
                if not failed:
                    _log.warning("event=receive_failed queue=%s error=%s", self.queue, error)
                failed = True
            else:
                failed = False
            finally:
                self._receiving.discard(prefetch)
                prefetch.hold(len(received) - room)
            if received:
                self._deliver(self, [Delivery(message, prefetch) for message in received])
            if self._tasks.get(prefetch) is not task:
                return
            if failed:
                await asyncio.sleep(PAUSE_S)
            elif not received:
                await self.wait()

    @abstractmethod
    async def receive(self, count: int) -> list[MessageExt]:
        """Messages that are there, without waiting."""

    @abstractmethod
    async def wait(self) -> None:
        """Return when there may be messages; no errors."""

    @abstractmethod
    async def size(self) -> int:
        """How many messages wait; 0 where that is not known."""

    @abstractmethod
    async def stop(self) -> None:
        """Leave the brokers."""

    @abstractmethod
    async def ack(self, message: MessageExt) -> None:
        """It is done."""

    @abstractmethod
    async def requeue(self, message: MessageExt) -> None:
        """Have it delivered again."""

    @abstractmethod
    async def reject(self, message: MessageExt) -> None:
        """It is of no use."""


class GroupReader(Reader):
    """A queue that stays: a consumer group for each priority level, the highest one first."""

    is_alone = True

    def __init__(
        self, queue: str, deliver: Deliver, consumers: Mapping[str, SimpleConsumer], visibility_s: float
    ) -> None:
        super().__init__(queue, deliver)
        self._consumers = consumers  # by their topics
        self._visibility_s = visibility_s

    async def receive(self, count: int) -> list[MessageExt]:
        received: list[MessageExt] = []
        failure: OrbitMQError | None = None
        for consumer in self._consumers.values():
            if left := count - len(received):
                try:
                    received += await consumer.receive(left, invisible=self._visibility_s, timeout=0, renew=True)
                except OrbitMQError as error:
                    failure = error
                except asyncio.CancelledError:  # the others would be renewed and reach no worker
                    await asyncio.gather(*map(self.requeue, received), return_exceptions=True)
                    raise
        if failure is not None and not received:
            raise failure
        return received

    async def wait(self) -> None:
        await _first(*(consumer.wait(WAIT_S) for consumer in self._consumers.values()))

    async def size(self) -> int:
        return sum([one.messages or 0 for consumer in self._consumers.values() for one in await consumer.lag()])

    async def stop(self) -> None:
        for consumer in self._consumers.values():
            await consumer.shutdown()

    async def ack(self, message: MessageExt) -> None:
        await self._consumers[message.topic].ack(message)

    async def requeue(self, message: MessageExt) -> None:
        await self._consumers[message.topic].change_invisible(message, 0)
        self.returns_until = asyncio.get_running_loop().time() + RETURN_S

    async def reject(self, message: MessageExt) -> None:
        await self._consumers[message.topic].reject(message)


class TopicReader(Reader):
    """A queue that goes with its consumer: it follows topics from their ends on. Nothing is kept for it at brokers, so
    what it has received is delivered again by this process alone.
    """

    is_alone = False

    def __init__(self, queue: str, deliver: Deliver, consumer: PullConsumer) -> None:
        super().__init__(queue, deliver)
        self._consumer = consumer
        self._offsets: dict[MessageQueue, int] = {}
        self._topics: dict[str, int] = {}  # with the time of their declaration, milliseconds since the epoch
        self._turn = 0
        self._returned: deque[MessageExt] = deque()
        self._held: dict[MessageQueue, asyncio.Task[None]] = {}
        """Pulls that brokers hold. They outlive a wait, and the channels share them: a broker keeps one that its client
        has cancelled.
        """
        self._news = asyncio.Event()
        """Set when a message was given back, or a topic is new."""
        self._pulling = asyncio.Lock()
        """Held from reading an offset to changing it: several channels may read."""

    async def follow(self, topic: str) -> None:
        """Receive the messages of one more topic, from now on."""
        if topic not in self._topics:
            now_ms = _now_ms()
            for queue in await self._consumer.fetch_queues(topic):
                self._offsets[queue] = await self._consumer.max_offset(queue)
            self._topics[topic] = now_ms
            self._news.set()

    async def receive(self, count: int) -> list[MessageExt]:
        async with self._pulling:
            self._news.clear()
            if self._returned:
                return [self._returned.popleft() for _ in range(min(count, len(self._returned)))]
            return await self._pulled(count)

    async def _pulled(self, count: int) -> list[MessageExt]:
        for queue in self._in_turn():
            offset = self._offsets[queue]
            result = await self._consumer.pull(queue, "*", offset, count)
            self._offsets[queue] = result.next_begin_offset
            if result.next_begin_offset < offset and queue in self._held:  # one that waits for a later message
                self._held.pop(queue).cancel()
            fresh, _expired = split_expired(result.messages, _now_ms())
            if fresh:
                return list(fresh)
        return []

    def _in_turn(self) -> list[MessageQueue]:
        queues = list(self._offsets)
        self._turn = (self._turn + 1) % max(1, len(queues))
        return queues[self._turn :] + queues[: self._turn]

    async def wait(self) -> None:
        """Have a pull for one message held at each queue; the next receive gets it, as the offset stays. A pull whose
        offset was passed meanwhile finds a message, too.
        """
        await self._find_new_queues()
        for queue, offset in self._offsets.items():
            if queue not in self._held or self._held[queue].done():
                self._held[queue] = asyncio.create_task(self._hold(queue, offset))
        news = asyncio.create_task(self._news.wait())
        waits = {news, *self._held.values()}
        try:
            done, _ = await asyncio.wait(waits, timeout=WAIT_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
        for one in done:
            if not one.cancelled():
                one.result()

    async def _hold(self, queue: MessageQueue, offset: int) -> None:
        """Return when there is a message; without one not at once, for a broker that holds as many as it may responds
        at once.
        """
        loop = asyncio.get_running_loop()
        ends = loop.time() + PAUSE_S
        with contextlib.suppress(OrbitMQError):  # the next receive says why
            if (await self._consumer.pull(queue, "*", offset, 1, block=True)).messages:
                return
        await asyncio.sleep(ends - loop.time())

    async def _find_new_queues(self) -> None:
        """Of brokers and queues that were added, or of a broker that was away: it may have older messages."""
        for topic, since_ms in list(self._topics.items()):  # `follow` may add one
            try:
                for queue in await self._consumer.fetch_queues(topic):
                    if queue not in self._offsets:
                        first = await self._consumer.search_offset(queue, since_ms - SKEW_MS)
                        self._offsets.setdefault(queue, first)  # another channel may have found it meanwhile
            except OrbitMQError as error:
                _log.info("event=queues_not_found queue=%s topic=%s error=%s", self.queue, topic, error)

    async def size(self) -> int:
        return sum([await self._consumer.max_offset(queue) - offset for queue, offset in list(self._offsets.items())])

    async def stop(self) -> None:
        """Wait no more. The consumer is that of all such queues."""
        held, self._held = self._held.values(), {}
        for pull in held:
            pull.cancel()
        await asyncio.gather(*held, return_exceptions=True)

    async def ack(self, message: MessageExt) -> None:
        """The offset says it."""

    async def requeue(self, message: MessageExt) -> None:
        message.reconsume_times += 1
        self._returned.append(message)
        self._news.set()

    async def reject(self, message: MessageExt) -> None:
        """There is no group whose dead letter it would be."""


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


async def _first(*waits: Coroutine[Any, Any, object]) -> None:
    """Return when one of them has; after a pause if it failed, for the next receive says why."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    errors = [one for one in results if isinstance(one, Exception)]
    if foreign := next((one for one in errors if not isinstance(one, OrbitMQError)), None):
        raise foreign
    if errors and len(errors) >= len(done):
        await asyncio.sleep(PAUSE_S)
