"""Long loops on the event loop, in turns: other work comes between. Knows nothing of the work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")

ITEMS_A_TURN = 200  # at ten to fifty microseconds each, two to ten milliseconds


async def in_turns(items: Iterable[T], items_a_turn: int = ITEMS_A_TURN) -> AsyncIterator[T]:
    """The items one by one, with a pause for others after so many. `items` must not change meanwhile."""
    for number, item in enumerate(items, 1):
        yield item
        if number % items_a_turn == 0:
            await asyncio.sleep(0)
