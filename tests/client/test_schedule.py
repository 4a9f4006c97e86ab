"""A schedule calls for each queue of this member, one call at a time, and lets calls end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from orbitmq.client import MessageQueue, PullContext, PullSchedule
from orbitmq.client import sync as threads
from orbitmq.client.sync_wrapper import run as run_beside
from tests.support.fake_system import BROKER, FakeSystem, fake_system
from tests.support.loops import TurnedLoop, run, settle, turned_loop, until
from tests.support.process import wait_until

Q = [MessageQueue("T", BROKER, n) for n in range(4)]


def scheduled(system: FakeSystem, callback: Callable[..., Any], queues: int = 1, **settings: Any) -> PullSchedule:
    system.topics["T"] = queues
    schedule = PullSchedule("g", system.address, **settings)
    schedule.register("T", callback)
    return schedule


def test_every_queue_has_its_turn_again_and_again() -> None:
    calls: list[MessageQueue] = []

    async def callback(queue: MessageQueue, context: PullContext[PullSchedule]) -> None:
        assert context.message_queue == queue
        calls.append(queue)
        context.next_delay_ms = 500 if queue == Q[1] else context.next_delay_ms

    async def scenario() -> None:
        async with fake_system() as system, scheduled(system, callback, queues=2):
            await until(lambda: sorted(calls) == Q[:2])
            await turned_loop().turn(0.21)
            await until(lambda: calls.count(Q[0]) == 2)
            assert calls.count(Q[1]) == 1
            await turned_loop().turn(0.3)
            await until(lambda: calls.count(Q[1]) == 2)

    run(scenario(), TurnedLoop)


def test_a_callback_pulls_and_its_offset_is_stored() -> None:
    got: list[bytes] = []

    async def callback(queue: MessageQueue, context: PullContext[PullSchedule]) -> None:
        offset = max(0, await context.consumer.fetch_offset(queue))
        result = await context.consumer.pull(queue, "*", offset, 2)
        got.extend(message.body for message in result.messages)
        context.consumer.update_offset(queue, result.next_begin_offset)
        context.next_delay_ms = 0

    async def scenario() -> None:
        async with fake_system() as system:
            for i in range(5):
                system.put("T", 0, b"%d" % i)
            async with scheduled(system, callback):
                await until(lambda: len(got) == 5)
            assert system.offsets == {("g", "T", 0): 5}

    run(scenario())
    assert got == [b"%d" % i for i in range(5)]


def test_a_callback_that_fails_has_its_turn_after_a_second(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[int] = []

    async def callback(queue: MessageQueue, context: PullContext[PullSchedule]) -> None:
        calls.append(1)
        context.next_delay_ms = 0
        raise ValueError("no")

    async def scenario() -> None:
        async with fake_system() as system, scheduled(system, callback):
            await until(lambda: calls)
            await turned_loop().turn(0.9)
            assert len(calls) == 1
            await turned_loop().turn(0.2)
            await until(lambda: len(calls) == 2)

    run(scenario(), TurnedLoop)
    assert "event=pull_task_failed" in caplog.text


def test_no_more_calls_than_threads_and_never_two_for_a_queue() -> None:
    now: list[MessageQueue] = []
    seen: list[int] = []

    async def callback(queue: MessageQueue, context: PullContext[PullSchedule]) -> None:
        assert queue not in now
        now.append(queue)
        seen.append(len(now))
        await asyncio.sleep(0.001)
        now.remove(queue)
        context.next_delay_ms = 0

    async def scenario() -> None:
        async with fake_system() as system, scheduled(system, callback, queues=4, pull_threads=2):
            await until(lambda: len(seen) > 20)

    run(scenario())
    assert max(seen) == 2


def test_calls_under_way_end_at_shutdown_and_when_the_queue_is_lost() -> None:
    ended: list[MessageQueue] = []

    async def scenario() -> None:
        release = asyncio.Event()
        begun: list[MessageQueue] = []

        async def callback(queue: MessageQueue, context: PullContext[PullSchedule]) -> None:
            begun.append(queue)
            await release.wait()
            ended.append(queue)
            context.consumer.update_offset(queue, 9)

        async with fake_system() as system:
            schedule = scheduled(system, callback, queues=2)
            await schedule.start()
            await until(lambda: len(begun) == 2)
            system.members["g"].append("z")  # sorts behind ours
            system.notify("g")
            await until(lambda: schedule.fetch_balanced_queues("T") == Q[:1])
            closing = asyncio.ensure_future(schedule.shutdown())
            await settle(50)
            assert not closing.done()
            release.set()
            await closing
            assert sorted(ended) == Q[:2]
            assert system.offsets["g", "T", 0] == 9

    run(scenario())


def test_functions_are_called_on_threads_and_use_the_synchronous_classes() -> None:
    context = fake_system()
    system = run_beside(context.__aenter__())
    system.topics["T"] = 1
    for i in range(3):
        system.put("T", 0, b"%d" % i)
    got: list[bytes] = []
    names: set[str] = set()

    def callback(queue: MessageQueue, told: PullContext[threads.PullSchedule]) -> None:
        names.add(threading.current_thread().name)
        offset = max(0, told.consumer.fetch_offset(queue))
        result = told.consumer.pull(queue, "*", offset, 32)
        told.consumer.update_offset(queue, result.next_begin_offset)
        got.extend(message.body for message in result.messages)
        told.next_delay_ms = 1

    schedule = threads.PullSchedule("g", system.address)
    schedule.register("T", callback)
    with schedule:
        wait_until(lambda: len(got) == 3, 20, "the messages")
        run_beside(_put(system))
        wait_until(lambda: len(got) == 4, 20, "another one")
    run_beside(context.__aexit__(None, None, None))
    assert names == {"g-pull"}
    assert got == [b"0", b"1", b"2", b"3"]


async def _put(system: FakeSystem) -> None:
    system.put("T", 0, b"3")
