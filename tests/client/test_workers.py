"""Every portion comes back once, whatever the listener does."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from typing import Any

import pytest

from orbitmq.client.consumer import HeldQueue
from orbitmq.client.core.model import ConcurrentContext, ConsumeConcurrentlyStatus
from orbitmq.client.workers import (
    ABANDON_S,
    Listener,
    ListenerCall,
    ListenerWorkers,
    TaskWorkers,
    ThreadWorkers,
    workers_for,
)
from orbitmq.message.model import MessageExt, MessageQueue
from tests.support.loops import TurnedLoop, run, settle, turned_loop, until

SUCCESS = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
Q = MessageQueue("T", "b", 0)


def call(held: HeldQueue | None = None) -> ListenerCall:
    held = held or HeldQueue(Q)
    return ListenerCall(held, held.cached, [MessageExt("T", b"x")], ConcurrentContext(Q))


class Finished(list[ListenerCall]):
    """Collects what comes back, and checks that it comes on the loop."""

    def __call__(self, back: ListenerCall) -> None:
        asyncio.get_running_loop()
        self.append(back)


async def coroutine_listener(messages: Any, context: Any) -> ConsumeConcurrentlyStatus:
    await asyncio.sleep(0)
    return SUCCESS


def function_listener(messages: Any, context: Any) -> ConsumeConcurrentlyStatus:
    return SUCCESS


class CallableListener:
    async def __call__(self, messages: Any, context: Any) -> ConsumeConcurrentlyStatus:
        return SUCCESS


def made(listener: Listener, finished: Finished, count: int = 4) -> ListenerWorkers:
    return workers_for(listener, count, "worker", lambda _: None, finished)


def test_the_kind_of_worker_follows_the_listener() -> None:
    async def scenario() -> None:
        kinds = {
            coroutine_listener: TaskWorkers,
            functools.partial(coroutine_listener): TaskWorkers,
            CallableListener(): TaskWorkers,
            CallableListener().__call__: TaskWorkers,
            function_listener: ThreadWorkers,
            functools.partial(function_listener): ThreadWorkers,
        }
        for listener, kind in kinds.items():
            workers = made(listener, Finished())
            assert type(workers) is kind
            await workers.close(1)

    run(scenario())


@pytest.mark.parametrize("listener", [coroutine_listener, function_listener])
def test_many_portions_come_back_with_their_answer(listener: Listener) -> None:
    async def scenario() -> None:
        finished = Finished()
        workers = made(listener, finished)
        # In waves, so that workers run dry and begin again in between.
        for wave in range(200):
            for _ in range(wave % 7):
                workers.submit(call())
            if wave % 3:
                await asyncio.sleep(0)
        total = sum(wave % 7 for wave in range(200))
        await until(lambda: len(finished) == total)
        assert {back.status for back in finished} == {SUCCESS}
        await workers.close(1)

    run(scenario())


@pytest.mark.parametrize("kind", ["coroutine", "function"])
async def test_a_listener_may_change_the_list_that_it_gets(kind: str) -> None:
    def function(messages: Any, context: Any) -> ConsumeConcurrentlyStatus:
        messages.clear()
        return SUCCESS

    async def coroutine(messages: Any, context: Any) -> ConsumeConcurrentlyStatus:
        return function(messages, context)

    finished = Finished()
    workers = made(coroutine if kind == "coroutine" else function, finished)
    workers.submit(call())
    await until(lambda: finished)
    assert [message.body for message in finished[0].messages] == [b"x"], "what is committed or delivered again"
    await workers.close(1)


def test_a_failing_listener_answers_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(messages: Any, context: Any) -> Any:
        raise ValueError("listener is broken")

    def wrong(messages: Any, context: Any) -> Any:
        return "fine"

    async def scenario() -> None:
        for listener in (fail, wrong):
            finished = Finished()
            workers = made(listener, finished)
            workers.submit(call())
            await until(lambda finished=finished: finished)  # type: ignore[misc]
            assert (finished[0].status, finished[0].skipped) == (None, False)
            await workers.close(1)

    run(scenario())
    assert "listener is broken" in caplog.text
    assert "event=listener_returned_no_status value='fine'" in caplog.text


def test_a_cancelled_wait_in_a_listener_costs_no_portion_and_no_task() -> None:
    async def listener(messages: Any, context: Any) -> ConsumeConcurrentlyStatus:
        if finished:
            return SUCCESS
        inner = asyncio.ensure_future(asyncio.Event().wait())
        asyncio.get_running_loop().call_soon(inner.cancel)
        await inner
        raise AssertionError("not reached")

    async def scenario() -> None:
        workers = made(listener, finished, count=1)
        workers.submit(call())
        workers.submit(call())
        await until(lambda: len(finished) == 2)
        assert isinstance(finished[0].error, asyncio.CancelledError)
        assert finished[1].status is SUCCESS
        await workers.close(60)

    finished = Finished()
    run(scenario())


def test_a_listener_that_wants_to_end_its_thread_costs_none() -> None:
    def leave(messages: Any, context: Any) -> Any:
        raise SystemExit

    async def scenario() -> None:
        finished = Finished()
        workers = made(leave, finished, count=1)
        for _ in range(3):
            workers.submit(call())
        await until(lambda: len(finished) == 3)
        assert [one.status for one in finished] == [None] * 3
        await workers.close(1)

    run(scenario())


@pytest.mark.parametrize("listener", [coroutine_listener, function_listener])
def test_messages_of_a_queue_that_went_away_are_skipped(listener: Listener) -> None:
    async def scenario() -> None:
        finished = Finished()
        workers = made(listener, finished)
        held = HeldQueue(Q)
        held.drop()
        workers.submit(call(held))
        await until(lambda: finished)
        assert finished[0].skipped
        await workers.close(1)

    run(scenario())


def test_calls_are_limited() -> None:
    running: list[int] = []
    most: list[int] = []

    async def listener(messages: Any, context: Any) -> ConsumeConcurrentlyStatus:
        running.append(1)
        most.append(len(running))
        await asyncio.sleep(0.001)
        running.pop()
        return SUCCESS

    async def scenario() -> None:
        finished = Finished()
        workers = made(listener, finished, count=3)
        for _ in range(20):
            workers.submit(call())
        await until(lambda: len(finished) == 20)
        await workers.close(1)

    run(scenario())
    assert max(most) == 3


def test_closing_skips_what_waits_and_waits_for_what_runs() -> None:
    begun, release = threading.Event(), threading.Event()

    def listener(messages: Any, context: Any) -> ConsumeConcurrentlyStatus:
        begun.set()
        release.wait(10)
        return SUCCESS

    async def scenario() -> None:
        finished = Finished()
        workers = made(listener, finished, count=1)
        for _ in range(3):
            workers.submit(call())
        await until(begun.is_set)
        closing = asyncio.create_task(workers.close(10))
        await asyncio.sleep(0.01)
        assert not closing.done()
        release.set()
        await closing
        assert [back.skipped for back in finished] == [False, True, True]

    run(scenario())


def test_closing_does_not_wait_for_ever() -> None:
    release = threading.Event()

    def hang(messages: Any, context: Any) -> ConsumeConcurrentlyStatus:
        release.wait(10)
        return SUCCESS

    async def hang_too(messages: Any, context: Any) -> ConsumeConcurrentlyStatus:
        await asyncio.Event().wait()
        return SUCCESS

    async def scenario() -> None:
        for listener in (hang, hang_too):
            workers = made(listener, Finished(), count=1)
            workers.submit(call())
            await asyncio.sleep(0.01)
            await workers.close(0.01)

    run(scenario())
    release.set()


def test_a_coroutine_that_is_not_to_be_cancelled_holds_up_nobody() -> None:
    async def scenario() -> None:
        begun, gate = asyncio.Event(), asyncio.Event()

        async def stubborn(messages: Any, context: Any) -> ConsumeConcurrentlyStatus:
            begun.set()
            while not gate.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await gate.wait()
            return SUCCESS

        workers = made(stubborn, Finished())
        workers.submit(call())
        await begun.wait()
        closing = asyncio.create_task(workers.close(0))
        await settle()
        assert not closing.done()
        await turned_loop().turn(ABANDON_S)
        await closing
        gate.set()

    run(scenario(), TurnedLoop)


def test_a_listener_may_close_its_own_workers() -> None:
    async def scenario() -> None:
        async def last(messages: Any, context: Any) -> ConsumeConcurrentlyStatus:
            await workers.close(0)
            return SUCCESS

        finished = Finished()
        workers = made(last, finished)
        workers.submit(call())
        await until(lambda: finished)
        assert finished[0].status is SUCCESS

    run(scenario())


def test_a_listener_that_never_waits_leaves_the_loop_its_turns() -> None:
    def spin() -> None:
        for _ in range(20_000):
            pass

    async def listener(messages: Any, context: Any) -> ConsumeConcurrentlyStatus:
        spin()
        return SUCCESS

    async def scenario() -> None:
        finished = Finished()
        workers = made(listener, finished, count=1)
        for _ in range(200):
            workers.submit(call())
        await asyncio.sleep(0.001)
        assert len(finished) < 200
        await until(lambda: len(finished) == 200)
        await workers.close(1)

    run(scenario())


@pytest.mark.parametrize("kind", ["tasks", "threads"])
def test_the_number_of_calls_can_be_changed(kind: str) -> None:
    guard = threading.Lock()
    release = threading.Event()
    now, most = 0, 0

    def enter() -> None:
        nonlocal now, most
        with guard:
            now += 1
            most = max(most, now)

    def leave() -> None:
        nonlocal now
        with guard:
            now -= 1

    async def coroutine(messages: Any, context: Any) -> ConsumeConcurrentlyStatus:
        enter()
        await until(release.is_set)
        leave()
        return SUCCESS

    def function(messages: Any, context: Any) -> ConsumeConcurrentlyStatus:
        enter()
        release.wait()
        leave()
        return SUCCESS

    async def scenario() -> None:
        nonlocal most
        finished = Finished()
        workers = made(coroutine if kind == "tasks" else function, finished, 2)
        for _ in range(8):
            workers.submit(call())
        await until(lambda: now == 2)
        workers.resize(5)
        await until(lambda: now == 5)
        assert workers.count == 5
        workers.resize(1)
        release.set()
        await until(lambda: len(finished) == 8)
        if kind == "threads":
            await until(lambda: len([t for t in threading.enumerate() if t.name.startswith("worker-")]) == 1)
        release.clear()
        most = 0
        for _ in range(3):
            workers.submit(call())
        await until(lambda: now == 1)
        await asyncio.sleep(0.01)
        assert most == 1
        release.set()
        await workers.close(5)
        assert len(finished) == 11
        if kind == "threads":
            await until(lambda: not [t for t in threading.enumerate() if t.name.startswith("worker-")])

    run(scenario())


def test_a_listener_without_answers_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        finished = Finished()
        workers = made(lambda messages, context: None, finished)
        for _ in range(5):
            workers.submit(call())
        await until(lambda: len(finished) == 5)
        await workers.close(1)

    run(scenario())
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "value=None" in line
    assert "return a ConsumeConcurrentlyStatus" in line


def test_a_coroutine_that_wants_to_end_the_loop_ends_that_of_the_application(caplog: pytest.LogCaptureFixture) -> None:
    async def leave(messages: Any, context: Any) -> Any:
        raise SystemExit(3)

    async def scenario() -> None:
        made(leave, Finished()).submit(call())
        await asyncio.Event().wait()

    with pytest.raises(SystemExit, match="3"):
        run(scenario())
    assert "event=listener_failed" not in caplog.text


def test_a_coroutine_listener_that_closes_its_workers_does_not_wait_for_itself_but_for_the_others() -> None:
    async def scenario() -> None:
        async def listener(messages: Any, context: Any) -> ConsumeConcurrentlyStatus:
            if not began:
                began.append(1)
                await other.wait()
            else:
                await workers.close(60)
                closed.append(len(finished))
            return SUCCESS

        began: list[int] = []
        closed: list[int] = []
        other = asyncio.Event()
        finished = Finished()
        workers = made(listener, finished)
        workers.submit(call())
        workers.submit(call())
        await settle()
        assert not closed
        other.set()
        await settle()
        assert closed == [1]
        assert [one.status for one in finished] == [SUCCESS] * 2

    run(scenario(), TurnedLoop)
