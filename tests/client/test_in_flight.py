"""Asynchronous sends begin in their order, and never too many at a time."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.client.in_flight import InFlightLimit
from tests.support.loops import run, until


def test_so_many_are_under_way_and_the_others_follow_in_order() -> None:
    async def scenario() -> None:
        pace, begun = InFlightLimit(2, 1000), []

        async def one(number: int) -> None:
            await pace.enter(1)
            begun.append(number)

        tasks = [asyncio.create_task(one(number)) for number in range(4)]
        await until(lambda: begun == [0, 1])
        tasks[2].cancel()
        pace.leave(1)
        await until(lambda: begun == [0, 1, 3])
        assert not tasks[0].cancelled()
        assert tasks[2].cancelled()

    run(scenario())


def test_bytes_are_bounded_and_a_larger_body_goes_alone() -> None:
    async def scenario() -> None:
        pace = InFlightLimit(100, 10)
        await pace.enter(50)
        second = asyncio.create_task(pace.enter(6))
        third = asyncio.create_task(pace.enter(6))
        await asyncio.sleep(0)
        assert not second.done()
        pace.leave(50)
        await second
        await asyncio.sleep(0)
        assert not third.done()
        pace.leave(6)
        await third

    run(scenario())


def test_a_turn_that_comes_together_with_a_cancellation_goes_to_the_next() -> None:
    async def scenario() -> None:
        pace = InFlightLimit(1, 10)
        await pace.enter(1)
        second, third = asyncio.create_task(pace.enter(1)), asyncio.create_task(pace.enter(1))
        await asyncio.sleep(0)
        pace.leave(1)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        await third

    run(scenario())


def test_a_turn_that_comes_together_with_the_end_of_its_time_goes_to_the_next() -> None:
    async def scenario() -> None:
        loop, pace = asyncio.get_running_loop(), InFlightLimit(1, 10)
        await pace.enter(1)
        second = asyncio.create_task(pace.enter(1, loop.time()))
        loop.call_soon(pace.leave, 1)  # between the start of the wait and the look at its time
        await asyncio.wait([second])
        if second.exception() is None:
            pace.leave(1)
        assert pace.try_enter(1), pace

    run(scenario())
