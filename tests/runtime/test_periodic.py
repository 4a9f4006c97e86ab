"""Periodic work goes on after a failure, keeps its pause, and ends when told."""

from __future__ import annotations

import asyncio
import logging

import pytest

from orbitmq.runtime.periodic import Periodic
from tests.support.loops import LoopFactory, turned_loop


async def test_a_job_runs_after_each_pause_and_not_before(turned_clock: LoopFactory) -> None:
    runs: list[str] = []
    periodic = Periodic()
    periodic.every(10, lambda: runs.append("slow"))
    periodic.every(4, lambda: runs.append("quick"))
    periodic.start()
    loop = turned_loop()
    await loop.turn(3.9)
    assert runs == []
    await loop.turn(0.2)
    assert runs == ["quick"]
    await loop.turn(4.2)
    assert runs == ["quick", "quick"]
    await loop.turn(1.9)
    assert runs == ["quick", "quick", "slow"]
    await periodic.stop()


async def test_a_job_that_fails_is_logged_and_comes_again(
    turned_clock: LoopFactory, caplog: pytest.LogCaptureFixture
) -> None:
    runs: list[int] = []

    def fragile() -> None:
        runs.append(len(runs))
        if len(runs) == 1:
            raise RuntimeError("out of ink")

    periodic = Periodic()
    periodic.every(1, fragile)
    periodic.start()
    loop = turned_loop()
    with caplog.at_level(logging.ERROR):
        await loop.turn(1.1)
        await loop.turn(1.1)
    assert runs == [0, 1]
    (record,) = caplog.records
    assert "fragile" in record.message
    assert record.exc_info is not None
    await periodic.stop()


async def test_nothing_runs_after_the_stop(turned_clock: LoopFactory) -> None:
    runs: list[int] = []
    periodic = Periodic()
    periodic.every(1, lambda: runs.append(1))
    periodic.start()
    await periodic.stop()
    await turned_loop().turn(100)
    assert runs == []


async def test_a_job_that_is_a_coroutine_is_waited_for_and_ends_with_the_stop(turned_clock: LoopFactory) -> None:
    begun: list[int] = []
    done = asyncio.Event()

    async def long() -> None:
        begun.append(1)
        await done.wait()

    periodic = Periodic()
    periodic.every(1, long)
    periodic.start()
    loop = turned_loop()
    await loop.turn(1.1)
    await loop.turn(5)
    assert begun == [1], "the pause begins when it is done"
    done.set()
    await loop.turn(0)
    await loop.turn(1.1)
    assert begun == [1, 1]
    done.clear()
    await loop.turn(1.1)
    await periodic.stop()
