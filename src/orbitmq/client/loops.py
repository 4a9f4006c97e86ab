"""Which event loop an object belongs to. Knows nothing of the object.

What waits on one event loop cannot be used on another: asyncio says so in the words of whatever it meets first, and
often not at all.
"""

from __future__ import annotations

import asyncio
from asyncio import _get_running_loop as running_loop  # which raises nothing where none runs

from orbitmq.errors import InvalidStateError

__all__ = ["check_loop", "running_loop"]


def check_loop(owner: str, own: asyncio.AbstractEventLoop | None, *, or_none: bool = False) -> None:
    """InvalidStateError unless the caller runs on `own`, or `owner` belongs to no loop yet. With `or_none` a thread
    without a loop may call, too: for what touches nothing that waits.
    """
    here = running_loop()
    if own is None or here is own or (or_none and here is None):
        return
    raise InvalidStateError(
        f"{owner} belongs to the event loop that started it, {own}; it cannot be used in "
        f"{here or 'a thread without one'}. Make another client here, or use orbitmq.client.sync, which works in any "
        "thread"
    )
