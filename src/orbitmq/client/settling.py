"""Tries to settle a message until that succeeds or its time is over. Knows no consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from orbitmq.errors import InvalidStateError, OrbitMQError
from orbitmq.message.model import MessageExt

PAUSE_S: Final = 0.5  # between two attempts


async def settle(work: Callable[[MessageExt], Awaitable[None]], message: MessageExt, within_s: float) -> None:
    """Call `work` until it succeeds. Its error after so many seconds, and at once when the client is shut down."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + within_s
    while True:
        try:
            return await work(message)
        except InvalidStateError:
            raise
        except OrbitMQError:
            if loop.time() > ends:
                raise
            await asyncio.sleep(PAUSE_S)
