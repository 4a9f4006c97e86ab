"""Extends the time of received messages until they are settled. Knows no broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from orbitmq.errors import OrbitMQError
from orbitmq.message.model import MessageExt
from orbitmq.runtime.events import wait_at_most

_log = logging.getLogger(__name__)

RENEWALS: Final = 3  # within the time of a message: one may fail


@dataclass(slots=True)
class _Batch:
    """Messages that are renewed together."""

    held: dict[int, _Held] = field(default_factory=dict)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when none of them is held any more."""


@dataclass(slots=True)
class _Held:
    message: MessageExt
    batch: _Batch
    until: float
    """By the loop's clock; then it is delivered to others."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Settling a message waits for its renewal, which changes its receipt."""


class Renewals:
    """The messages of one consumer whose time is extended. `extend` makes it so many seconds from now."""

    def __init__(self, extend: Callable[[MessageExt, float], Awaitable[None]]) -> None:
        self._extend = extend
        self._held: dict[int, _Held] = {}  # by the identity of the message

    def hold(self, messages: Iterable[MessageExt], seconds: float) -> _Batch:
        """From now on these are held; `keep` extends their time."""
        until, batch = asyncio.get_running_loop().time() + seconds, _Batch()
        batch.held = {id(message): _Held(message, batch, until) for message in messages}
        self._held.update(batch.held)
        return batch

    def release(self, messages: Iterable[MessageExt]) -> None:
        """Extend their time no more."""
        for message in messages:
            self._released(message)

    def _released(self, message: MessageExt) -> _Held | None:
        """No longer held, not even in memory: what is done may be much within the time of a message."""
        held = self._held.pop(id(message), None)
        if held is not None:
            del held.batch.held[id(message)]
            if not held.batch.held:
                held.batch.over.set()
        return held

    async def keep(self, batch: _Batch, seconds: float) -> None:
        """Extend the time of messages until none of them is held."""
        while batch.held:
            await wait_at_most(batch.over, seconds / RENEWALS)
            await asyncio.gather(*(self._renew(one, seconds) for one in batch.held.values()))

    @asynccontextmanager
    async def settling(self, message: MessageExt) -> AsyncIterator[None]:
        """Release a message when its renewal is over: what is acknowledged first would be delivered again."""
        held = self._released(message)
        if held is None:
            yield
        else:
            async with held.turn:
                yield

    def _holds(self, one: _Held) -> bool:
        return self._held.get(id(one.message)) is one

    async def _renew(self, one: _Held, seconds: float) -> None:
        async with one.turn:
            if not self._holds(one):
                return
            now = asyncio.get_running_loop().time()
            try:
                await self._extend(one.message, seconds)
            except OrbitMQError as error:
                _log.warning("event=renewal_failed message=%s error=%s", one.message.msg_id, error)
                if now >= one.until:
                    self.release([one.message])
            else:
                one.until = now + seconds
