"""Long loops let others run in between."""

from __future__ import annotations

import asyncio

from orbitmq.runtime.turns import in_turns


async def test_others_run_between_the_turns_of_a_loop() -> None:
    order: list[object] = []

    async def other() -> None:
        for name in "abc":
            order.append(name)
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    async for number in in_turns(range(5), items_a_turn=2):
        order += [number]
    await task
    assert order == [0, 1, "a", 2, 3, "b", 4, "c"]


async def test_a_turn_ends_when_its_time_is_over_however_few_its_items_were() -> None:
    order: list[object] = []

    async def other() -> None:
        for name in "ab":
            order.append(name)
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    times = iter((0, 0.004, 0.005, 0.005, 0.006, 0.009))
    async for number in in_turns(range(4), clock=lambda: next(times)):
        order += [number]
    await task
    assert order == [0, 1, "a", 2, 3, "b"], "the second item took the first turn to its end"
