"""Long loops on the event loop, in turns: other work comes between. Knows nothing of the work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from time import monotonic
from typing import TypeVar

T = TypeVar("T")

ITEMS_A_TURN = 200  # at ten to fifty microseconds each, two to ten milliseconds
TURN_SECONDS = 0.005  # after which a turn ends, however few its items were: those of a large broker cost more


async def in_turns(
    items: Iterable[T], items_a_turn: int = ITEMS_A_TURN, clock: Callable[[], float] = monotonic
) -> AsyncIterator[T]:
    """The items one by one, with a pause after so many, or after `TURN_SECONDS`. `items` must not change."""
    ends = clock() + TURN_SECONDS
    for number, item in enumerate(items, 1):
        yield item
        if number % items_a_turn == 0 or clock() >= ends:
            await asyncio.sleep(0)
            ends = clock() + TURN_SECONDS
