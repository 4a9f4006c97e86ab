"""Waits for an event, or for some time."""

from __future__ import annotations

import asyncio
from contextlib import suppress


async def wait_at_most(event: asyncio.Event, seconds: float) -> None:
    """Return when the event is set, or after `seconds`; in any case after others had a turn of the event loop.

    Not `asyncio.wait_for`: in Python 3.11 it loses a cancellation that coincides with the event, and whoever stops the
    task waits for ever.
    """
    await asyncio.sleep(0)
    if seconds > 0 and not event.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()
