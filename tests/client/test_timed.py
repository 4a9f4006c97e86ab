"""What a listener takes is measured where it runs: its own computation, and everything else it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from orbitmq.client import ConcurrentContext, ConsumeConcurrentlyStatus, MessageExt, MessageQueue
from orbitmq.client.core.capacity import Times
from orbitmq.client.timed import Timed
from tests.support.received import received

DONE = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
MESSAGES = [received("T", b"1", {}), received("T", b"2", {})]
CONTEXT = ConcurrentContext(MessageQueue("T", "b", 0))


class Clocks:
    """A processor and a wall clock that the work itself turns."""

    def __init__(self) -> None:
        self.computed = self.passed = 0.0

    def compute(self, seconds: float) -> None:
        self.computed += seconds
        self.passed += seconds

    def wait(self, seconds: float) -> None:
        self.passed += seconds

    def time(self, listener: object) -> Timed:
        return Timed(listener, compute=lambda: self.computed, elapsed=lambda: self.passed)  # type: ignore[arg-type]


def test_a_function_s_time_is_split() -> None:
    clocks = Clocks()

    def listen(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        clocks.compute(1)
        clocks.wait(3)
        return DONE

    timed = clocks.time(listen)
    assert timed.listener(MESSAGES, CONTEXT) is DONE
    assert timed.times == Times(2, 1, 3)
    timed.reset()
    assert timed.times == Times()


def test_a_coroutine_is_charged_for_its_own_steps_only() -> None:
    clocks = Clocks()

    async def listen(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        clocks.compute(1)
        await asyncio.sleep(0)
        clocks.compute(2)
        await asyncio.get_running_loop().run_in_executor(None, clocks.wait, 4)
        return DONE

    async def scenario() -> None:
        timed = clocks.time(listen)
        task = asyncio.ensure_future(timed.listener(MESSAGES[:1], CONTEXT))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        clocks.compute(10)  # somebody else's, while the listener waits
        assert await task is DONE
        assert timed.times == Times(1, 3, 14)

    asyncio.run(scenario())


def test_an_object_whose_call_is_a_coroutine_is_measured() -> None:
    clocks = Clocks()

    class Listens:
        async def __call__(
            self, messages: Sequence[MessageExt], context: ConcurrentContext
        ) -> ConsumeConcurrentlyStatus:
            clocks.compute(2)
            return DONE

    async def scenario() -> None:
        timed = clocks.time(Listens())
        assert await timed.listener(MESSAGES[:1], CONTEXT) is DONE  # type: ignore[misc]
        assert timed.times == Times(1, 2, 0)

    asyncio.run(scenario())


def test_what_a_listener_raises_comes_through_and_is_measured() -> None:
    clocks = Clocks()

    def fails(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        clocks.compute(1)
        raise RuntimeError("a bug")

    async def fails_later(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        await asyncio.sleep(0)
        clocks.compute(1)
        raise RuntimeError("a bug")

    async def cancelled(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        try:
            await asyncio.Event().wait()
        finally:
            clocks.compute(1)
        return DONE

    async def scenario() -> None:
        timed = clocks.time(fails_later)
        with pytest.raises(RuntimeError, match="a bug"):
            await timed.listener(MESSAGES, CONTEXT)  # type: ignore[misc]
        assert timed.times == Times(2, 1, 0)
        timed = clocks.time(cancelled)
        task = asyncio.ensure_future(timed.listener(MESSAGES, CONTEXT))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert timed.times == Times(2, 1, 0)

    timed = clocks.time(fails)
    with pytest.raises(RuntimeError, match="a bug"):
        timed.listener(MESSAGES, CONTEXT)
    assert timed.times == Times(2, 1, 0)
    asyncio.run(scenario())
