"""The clients of one connection of kombu. Its methods may be called by any thread; the work is done on the event loop
of the clients. Knows no exchanges.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import uuid
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final, NamedTuple, TypeVar

from orbitmq.client import Producer, PullConsumer, SimpleConsumer
from orbitmq.client.settling import settle
from orbitmq.client.sync_wrapper import check_may_wait, loop_thread
from orbitmq.errors import ClientError, OrbitMQError
from orbitmq.integrations.celery.readers import PAUSE_S, Delivery, GroupReader, Prefetch, Reader, TopicReader
from orbitmq.integrations.celery.routing import Payload, decoded, encoded, eta_of
from orbitmq.message.model import MessageExt

_log = logging.getLogger(__name__)

T = TypeVar("T")

GROUP: Final = "kombu"
EARLY_S: Final = 1.0  # a task that comes earlier waits at the broker again, not in the worker
RETURN_LOOK_S: Final = 0.02
CLOSE_S: Final = 5.0  # for what is being settled


class Settlement(Enum):
    """What becomes of a message."""

    ACK = "done"
    REQUEUE = "deliver it again"
    REJECT = "dead letter"


class Received(NamedTuple):
    """A message for the consumer of a queue."""

    queue: str
    payload: Payload
    tag: str
    prefetch: Prefetch | None
    """That of the channel which has the consumer."""


class Link:
    """Sends, receives and settles messages of one connection."""

    def __init__(
        self,
        name_servers: str,
        settings: dict[str, Any],
        *,
        visibility_s: float,
        redeliveries_max: int,
        delay_max_s: float,
    ) -> None:
        self.received: deque[Received] = deque()
        self._pid = os.getpid()
        self._loop = loop_thread().loop
        self._name_servers = name_servers
        self._settings = {"instance_name": f"kombu-{os.getpid()}-{uuid.uuid4().hex[:8]}", **settings}
        self._visibility_s = visibility_s
        self._redeliveries_max = redeliveries_max
        self._delay_max_s = delay_max_s
        self._producer = Producer(GROUP, name_servers, **self._settings)
        self._known: set[str] = set()
        self._readers: dict[str, Reader] = {}
        self._pulls: PullConsumer | None = None
        self._opening = asyncio.Lock()
        """Of readers, which threads may need at the same time."""
        self._unsettled: dict[str, tuple[Reader, Delivery]] = {}
        self._settling: set[asyncio.Task[None]] = set()
        self.fileno, self._bell = os.pipe()
        """Readable when there are messages."""
        os.set_blocking(self.fileno, False)
        os.set_blocking(self._bell, False)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of work on the loop, or its error. Errors of `check_usable`."""
        try:
            self.check_usable()
        except OrbitMQError:
            work.close()
            raise
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def check_usable(self) -> None:
        """ClientError in a child of the process that has opened it, InvalidStateError on the loop itself."""
        if not self.is_own:
            raise ClientError(10003, "this connection belongs to the parent process: open one after the fork")
        check_may_wait()

    @property
    def is_own(self) -> bool:
        """Whether this process has opened it: threads do not live on in a child."""
        return self._pid == os.getpid()

    # ------------------------------------------------------------------------------------------------------ lifecycle

    async def open(self) -> None:
        """Connect. RemotingError, ClientError when no name server can be reached."""
        await self._producer.start()
        try:
            await self.exists(GROUP)
        except BaseException:
            await self._producer.shutdown()
            raise

    async def close(self) -> None:
        """Give back what is not settled, and leave the brokers."""
        await asyncio.gather(*(reader.cancel() for reader in self._readers.values()))
        await self._all_settled()  # before giving back: what is sent again would be there twice
        for tag in list(self._unsettled):
            self._settle(tag, Settlement.REQUEUE)
        await self._all_settled()
        for task in self._settling:
            task.cancel()
        for reader in self._readers.values():
            await self._leave(reader)
        for client in filter(None, (self._pulls, self._producer)):
            with contextlib.suppress(OrbitMQError):
                await client.shutdown()

    def close_files(self) -> None:
        os.close(self.fileno)
        os.close(self._bell)

    @staticmethod
    async def _leave(reader: Reader) -> None:
        try:
            await reader.stop()
        except OrbitMQError as error:
            _log.warning("event=not_left queue=%s error=%s", reader.queue, error)

    # --------------------------------------------------------------------------------------------------------- topics

    async def exists(self, topic: str) -> bool:
        """Whether a topic has queues. RemotingError when no name server responds."""
        if topic not in self._known:
            try:
                await self._producer.fetch_queues(topic)
            except ClientError:
                return False
            self._known.add(topic)
        return True

    async def create(self, topic: str, queues: int) -> None:
        """Create a topic unless it is there. ClientError, BrokerError, RemotingError."""
        if not await self.exists(topic):
            await self._producer.create_topic(topic, queues=queues)
            self._known.add(topic)

    # ---------------------------------------------------------------------------------------------------------- sends

    async def send(self, topic: str, payload: Payload) -> None:
        """Send the message for a payload. ClientError, BrokerError, RemotingError, MessageIllegal."""
        message = encoded(topic, payload, delay_max_s=self._delay_max_s, now=datetime.now(UTC))
        await self._producer.send(message)

    # ------------------------------------------------------------------------------------------------------- receives

    async def open_group(self, queue: str, topics: Sequence[str]) -> None:
        """Have a reader of a queue that stays, with its topics of descending priority."""
        async with self._opening:
            if queue in self._readers:
                return
            consumers: dict[str, SimpleConsumer] = {}
            reader = GroupReader(queue, self._deliver, consumers, self._visibility_s)
            try:
                for topic in topics:
                    consumers[topic] = await self._consumer(topic)
            except BaseException:
                await self._leave(reader)
                raise
            self._readers[queue] = reader

    async def _consumer(self, topic: str) -> SimpleConsumer:
        consumer = SimpleConsumer(
            topic, self._name_servers, max_reconsume_times=self._redeliveries_max, **self._settings
        )
        consumer.subscribe(topic)
        await consumer.start()
        return consumer

    async def follow(self, queue: str, topic: str, wants: Callable[[Payload], bool]) -> None:
        """Have a reader of a queue that goes with its consumer, which follows a topic from now on."""
        await self.create(topic, 1)
        async with self._opening:
            reader = self._readers.get(queue)
            if not isinstance(reader, TopicReader):
                reader = self._readers[queue] = TopicReader(queue, self._deliver, await self._puller())
            reader.wants = wants
            await reader.follow(topic)

    async def _puller(self) -> PullConsumer:
        """Of all queues that go with their consumer: a group for each would stay at the brokers."""
        if self._pulls is None:
            pulls = PullConsumer(GROUP, self._name_servers, **self._settings)
            await pulls.start()
            self._pulls = pulls
        return self._pulls

    async def forget(self, queue: str) -> None:
        """Leave a queue."""
        reader = self._readers.pop(queue, None)
        if reader is not None:
            await reader.cancel()
            await self._leave(reader)

    async def consume(self, queue: str, prefetch: Prefetch) -> None:
        """Receive messages of a queue from now on."""
        self._readers[queue].consume(prefetch)

    def limit(self, prefetch: Prefetch, count: int) -> None:
        """Change how many messages a channel may hold."""
        self._loop.call_soon_threadsafe(prefetch.set_limit, count)

    async def cancel(self, queue: str, prefetch: Prefetch) -> None:
        """Receive no more messages of a queue for a channel, and give back those that it has not taken."""
        if (reader := self._readers.get(queue)) is not None:
            await reader.cancel(prefetch)
        with contextlib.suppress(IndexError):  # another thread may take some
            for _ in range(len(self.received)):
                received = self.received.popleft()
                if received.queue == queue and received.prefetch is prefetch:
                    self._settle(received.tag, Settlement.REQUEUE)
                else:
                    self.received.append(received)

    async def get(self, queue: str) -> Received | None:
        """One message that is there, or was given back a moment ago."""
        reader = self._readers[queue]
        await self._all_settled()
        received: Received | None = None
        while received is None:
            if found := await reader.receive(1):
                received = self._taken(reader, Delivery(found[0]))
            elif self._loop.time() < reader.returns_until:
                await asyncio.sleep(RETURN_LOOK_S)
            else:
                break
        return received

    async def size(self, queue: str) -> int:
        return await self._readers[queue].size()

    async def purge(self, queue: str) -> int:
        """Acknowledge what is there; how many."""
        count, reader = 0, self._readers[queue]
        while found := await reader.receive(32):
            await asyncio.gather(*map(reader.ack, found))
            count += len(found)
        return count

    def _deliver(self, reader: Reader, deliveries: list[Delivery]) -> None:
        """Hand messages to the thread of the channel."""
        taken = [received for one in deliveries if (received := self._taken(reader, one)) is not None]
        if taken:
            self.received.extend(sorted(taken, key=_urgency))
            self.ring()

    def ring(self) -> None:
        """Have whoever waits for messages look."""
        with contextlib.suppress(BlockingIOError):  # then it is readable
            os.write(self._bell, b"\0")

    def hush(self) -> None:
        """All that was received is about to be taken."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self.fileno, 4096):
                pass

    def _taken(self, reader: Reader, delivery: Delivery) -> Received | None:
        """The payload of a message that is not settled from now on. None if it is not for a worker."""
        tag = uuid.uuid4().hex
        self._unsettled[tag] = reader, delivery
        try:
            payload = decoded(delivery.message.body)
        except ValueError as error:
            text = "event=message_rejected queue=%s message=%s error=%s"
            _log.warning(text, reader.queue, delivery.message.msg_id, error)
            self._settle(tag, Settlement.REJECT)
            return None
        if not reader.wants(payload):
            self._settle(tag, Settlement.ACK)
            return None
        eta = eta_of(payload) if reader.is_alone else None
        if eta is not None and (eta - datetime.now(UTC)).total_seconds() > EARLY_S:
            self._start(self._postpone(tag, delivery.message, payload))
            return None
        payload["properties"]["delivery_tag"] = tag
        payload["properties"]["delivery_info"]["redelivered"] = delivery.message.reconsume_times > 0
        return Received(reader.queue, payload, tag, delivery.prefetch)

    async def _postpone(self, tag: str, message: MessageExt, payload: Payload) -> None:
        """Send a task again whose ETA is further ahead than brokers delay messages. While none stores it, it is held
        here: each time that it is given back counts as a redelivery, and too many make a dead letter of it.
        """
        is_failing = False
        while tag in self._unsettled:  # until the connection closes
            try:
                await self.send(message.topic, payload)
            except OrbitMQError as error:
                if not is_failing:
                    _log.warning("event=task_not_postponed message=%s error=%s", message.msg_id, error)
                is_failing = True
                await asyncio.sleep(PAUSE_S)
            else:
                self._settle(tag, Settlement.ACK)

    # -------------------------------------------------------------------------------------------------------- settling

    def settle(self, tag: str, how: Settlement) -> None:
        """Settle a message, later. Nothing happens for one that is settled, or that another process has received."""
        if self.is_own:
            self._loop.call_soon_threadsafe(self._settle, tag, how)

    def _settle(self, tag: str, how: Settlement) -> None:
        found = self._unsettled.pop(tag, None)
        if found is not None:
            reader, delivery = found
            if delivery.prefetch is not None:
                delivery.prefetch.hold(-1)
            self._start(self._settled(reader, delivery, how))

    async def _all_settled(self) -> None:
        if self._settling:
            await asyncio.wait(set(self._settling), timeout=CLOSE_S)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _settled(self, reader: Reader, delivery: Delivery, how: Settlement) -> None:
        work: Callable[[MessageExt], Coroutine[Any, Any, None]] = {
            Settlement.ACK: reader.ack,
            Settlement.REQUEUE: reader.requeue,
            Settlement.REJECT: reader.reject,
        }[how]
        try:
            await settle(work, delivery.message, self._visibility_s)  # then it is delivered again: it is not renewed
        except OrbitMQError as error:
            text = "event=message_not_settled queue=%s message=%s as=%s error=%s"
            _log.warning(text, reader.queue, delivery.message.msg_id, how.name, error)


def _urgency(received: Received) -> int:
    """Sorts by descending priority."""
    priority = received.payload["properties"].get("priority")
    return -priority if isinstance(priority, int) else 0
