"""Readers without a broker: which messages they deliver and keep when requests fail or a consumer goes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orbitmq.client.core.model import PullResult, PullStatus
from orbitmq.errors import RemotingError
from orbitmq.integrations.celery import readers
from orbitmq.integrations.celery.readers import Delivery, GroupReader, Prefetch, Reader, TopicReader
from orbitmq.message.model import MessageExt, MessageQueue
from tests.support.loops import LoopFactory, run, settle, turned_loop, until


class Group:
    """A consumer whose broker has given messages, or an error."""

    def __init__(self, *given: MessageExt | RemotingError) -> None:
        self.given = list(given)
        self.returned: list[MessageExt] = []
        self.may_receive = asyncio.Event()
        self.may_receive.set()
        self.is_receiving = asyncio.Event()

    async def receive(self, count: int, **_more: Any) -> list[MessageExt]:
        self.is_receiving.set()
        await self.may_receive.wait()
        taken, self.given = self.given[:count], self.given[count:]
        for one in taken:
            if isinstance(one, RemotingError):
                raise one
        return taken  # type: ignore[return-value]

    async def change_invisible(self, message: MessageExt, _seconds: float) -> None:
        self.returned.append(message)

    async def wait(self, _seconds: float) -> None:
        await asyncio.Event().wait()


def message(topic: str = "T") -> MessageExt:
    return MessageExt(topic, b"")


def reader_of(delivered: list[Delivery], **groups: Group) -> GroupReader:
    return GroupReader("q", lambda _reader, new: delivered.extend(new), groups, 60.0)  # type: ignore[arg-type]


async def test_messages_of_one_priority_are_delivered_though_another_one_fails() -> None:
    high, low = message("High"), message("Low")
    away = RemotingError("away")
    assert await reader_of([], High=Group(high), Low=Group(away)).receive(4) == [high]
    assert await reader_of([], High=Group(away), Low=Group(low)).receive(4) == [low]
    with pytest.raises(RemotingError, match="away"):
        await reader_of([], High=Group(away), Low=Group()).receive(4)


async def test_what_a_broker_is_delivering_when_a_consumer_goes_is_not_lost() -> None:
    group, delivered, prefetch = Group(message()), list[Delivery](), Prefetch()
    group.may_receive.clear()
    reader = reader_of(delivered, T=group)
    reader.consume(prefetch)
    await group.is_receiving.wait()
    leaving = asyncio.create_task(reader.cancel(prefetch))
    await asyncio.sleep(0)
    group.may_receive.set()
    await leaving
    assert len(delivered) == 1


async def test_what_one_priority_has_delivered_when_a_request_for_another_is_cancelled_is_given_back() -> None:
    one, high, low = message("High"), Group(), Group()
    high.given.append(one)
    low.may_receive.clear()
    receiving = asyncio.create_task(reader_of([], High=high, Low=low).receive(4))
    await low.is_receiving.wait()
    receiving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await receiving
    assert high.returned == [one]


async def test_a_channel_that_goes_leaves_the_other_one_its_messages() -> None:
    group, delivered = Group(), list[Delivery]()
    reader, first, second = reader_of(delivered, T=group), Prefetch(), Prefetch()
    reader.consume(first)
    reader.consume(second)
    await reader.cancel(second)
    assert list(reader._tasks) == [first]
    await reader.cancel()
    assert not reader._tasks


async def test_a_message_given_back_to_a_queue_of_its_own_waits_for_a_consumer() -> None:
    delivered: list[Delivery] = []
    reader: Reader = TopicReader("q", lambda _reader, new: delivered.extend(new), None)  # type: ignore[arg-type]
    one = message()
    await reader.requeue(one)
    assert not delivered
    assert await reader.receive(4) == [one]
    assert one.reconsume_times == 1


class Topic:
    """A consumer of a topic with a message stored at each of these times, by queue."""

    def __init__(self, *queues: list[int]) -> None:
        self.queues = {MessageQueue("T", "b", number): times for number, times in enumerate(queues)}
        self.present = len(queues)

    async def fetch_queues(self, _topic: str) -> list[MessageQueue]:
        return list(self.queues)[: self.present]

    async def max_offset(self, queue: MessageQueue) -> int:
        return len(self.queues[queue])

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        return sum(time < timestamp_ms for time in self.queues[queue])

    async def pull(self, queue: MessageQueue, _expression: str, offset: int, _count: int, **_more: Any) -> PullResult:
        times = self.queues[queue][offset:]
        found = [MessageExt("T", b"", store_timestamp=time) for time in times]
        return PullResult(PullStatus.FOUND, offset + len(found), 0, len(times), found)


async def test_a_queue_that_appears_later_has_only_messages_from_the_declaration_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker that was away then may bring commands of yesterday, such as one that ends workers."""
    monkeypatch.setattr(readers, "_now_ms", lambda: 1_000_000)
    topic = Topic([1], [1, 2, 1_000_001])
    topic.present = 1
    reader = TopicReader("q", lambda _reader, _new: None, topic)  # type: ignore[arg-type]
    await reader.follow("T")
    topic.present = 2
    await reader._find_new_queues()
    assert [one.store_timestamp for one in await reader.receive(4)] == [1_000_001]
    assert await reader.receive(4) == []


IDLE, BUSY = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)
NOW_MS = 1_000_000


class LongPolled(Topic):
    """One whose broker holds pulls until there is a message; or holds none and responds at once, or fails."""

    def __init__(self) -> None:
        super().__init__([], [])
        self.pulls: list[MessageQueue] = []
        """Those that it was to hold."""
        self.full: set[MessageQueue] = set()
        self.failing: set[MessageQueue] = set()
        self._arrived = asyncio.Condition()

    async def put(self, queue: MessageQueue) -> None:
        async with self._arrived:
            self.queues[queue].append(NOW_MS)
            self._arrived.notify_all()

    async def pull(
        self, queue: MessageQueue, expression: str, offset: int, count: int, *, block: bool = False, **_more: Any
    ) -> PullResult:
        times = self.queues[queue]
        if block:
            self.pulls.append(queue)
            if queue in self.failing:
                raise RemotingError("away")
            if queue not in self.full:
                async with self._arrived:
                    await self._arrived.wait_for(lambda: len(times) > offset)
        if offset > len(times):
            return PullResult(PullStatus.OFFSET_ILLEGAL, len(times), 0, len(times), [])
        return await super().pull(queue, expression, offset, count)


async def following(topic: Topic, delivered: list[Delivery]) -> TopicReader:
    reader = TopicReader("q", lambda _reader, new: delivered.extend(new), topic)  # type: ignore[arg-type]
    await reader.follow("T")
    assert await reader.receive(4) == []
    return reader


async def held(reader: TopicReader) -> asyncio.Task[None]:
    """A wait whose pulls are held."""
    waiting = asyncio.create_task(reader.wait())
    await settle()
    assert not waiting.done()
    return waiting


async def woken(waiting: asyncio.Task[None]) -> None:
    """Not only because its time is over."""
    await settle()
    assert waiting.done()
    await waiting


async def test_queues_without_messages_get_no_more_pulls_while_others_have_some() -> None:
    topic = LongPolled()
    reader = await following(topic, [])
    for _ in range(5):
        waiting = await held(reader)
        await topic.put(BUSY)
        await woken(waiting)
        assert len(await reader.receive(4)) == 1
    assert topic.pulls.count(BUSY) == 5
    assert topic.pulls.count(IDLE) == 1
    waiting = await held(reader)
    await topic.put(IDLE)
    await woken(waiting)
    assert len(await reader.receive(4)) == 1
    await reader.stop()


async def test_a_message_that_is_received_while_a_pull_for_it_is_held_does_not_hide_the_next_one() -> None:
    topic = LongPolled()
    reader = await following(topic, [])
    waiting = await held(reader)
    topic.queues[IDLE].append(NOW_MS)  # the broker has not looked at held pulls yet
    assert len(await reader.receive(4)) == 1
    await topic.put(IDLE)
    await woken(waiting)
    assert len(await reader.receive(4)) == 1
    await reader.stop()


async def test_a_queue_that_begins_again_has_its_pull_held_from_there() -> None:
    """As one whose topic was deleted and created again."""
    topic = LongPolled()
    topic.queues[IDLE] += [NOW_MS] * 3
    reader = await following(topic, [])
    waiting = await held(reader)
    topic.queues[IDLE].clear()
    assert await reader.receive(4) == []
    await woken(waiting)
    waiting = await held(reader)
    await topic.put(IDLE)
    await woken(waiting)
    assert len(await reader.receive(4)) == 1
    await reader.stop()


async def test_a_channel_that_goes_leaves_the_pulls_to_the_other_one() -> None:
    topic, delivered, first, second = LongPolled(), list[Delivery](), Prefetch(), Prefetch()
    reader = await following(topic, delivered)
    reader.consume(first)
    reader.consume(second)
    await until(lambda: len(topic.pulls) == 2)
    await settle()
    await reader.cancel(first)
    await topic.put(BUSY)
    await until(lambda: delivered)
    assert [one.prefetch for one in delivered] == [second]
    assert topic.pulls.count(IDLE) == 1
    await reader.cancel()
    await reader.stop()
    assert len(asyncio.all_tasks()) == 1, "nothing waits any more"


@pytest.mark.parametrize("state", ["full", "failing"])
def test_a_broker_that_holds_no_pull_is_asked_again_after_a_pause(turned_clock: LoopFactory, state: str) -> None:
    async def main() -> None:
        topic = LongPolled()
        getattr(topic, state).add(IDLE)
        reader = await following(topic, [])
        waiting = await held(reader)
        await topic.put(BUSY)
        await woken(waiting)
        assert len(await reader.receive(4)) == 1, "others are not delayed"
        waiting = asyncio.create_task(reader.wait())
        await turned_loop().turn(readers.PAUSE_S / 2)
        assert not waiting.done()
        assert topic.pulls.count(IDLE) == 1
        await turned_loop().turn(readers.PAUSE_S / 2)
        await woken(waiting)
        await reader.stop()

    run(main(), turned_clock)
