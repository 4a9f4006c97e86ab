"""The callbacks of an application for queues that its consumer gets and loses. Knows neither rebalance nor pulling.

A callback is a function, which runs on the event loop and must not block, or a coroutine function, which the consumer
awaits for a limited time. Exceptions of a callback are logged and change nothing.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeAlias, TypeVar

from orbitmq.client.loops import is_failure
from orbitmq.message.model import MessageQueue
from orbitmq.message.namespace import Namespace

_log = logging.getLogger(__name__)

CALLBACK_S = 10.0  # a callback is cancelled after this: other members wait for the queues that are given up

OnQueues: TypeAlias = Callable[[Sequence[MessageQueue]], Awaitable[object] | object]
"""Called with the queues that were assigned, or will be given up."""
ON_QUEUES = TypeVar("ON_QUEUES", bound=OnQueues)
OnTopicQueues: TypeAlias = Callable[[str, Sequence[MessageQueue]], Awaitable[object] | object]
"""Called with a topic and all its readable queues."""
QueueListener: TypeAlias = Callable[[str, Sequence[MessageQueue], Sequence[MessageQueue]], Awaitable[object] | object]
"""Called with a topic, all its readable queues, and those of them that are assigned to this consumer."""


class QueueListeners:
    """The callbacks of one consumer. They get queues without their namespace."""

    def __init__(self, namespace: Namespace, owner: str) -> None:
        self._namespace = namespace
        self._owner = owner
        self.assigned_callbacks: list[OnQueues] = []
        self.revoked_callbacks: list[OnQueues] = []
        self.listeners: dict[str, QueueListener] = {}
        """Topic -> the listener for every change of its assignment."""
        self._followed: dict[str, tuple[OnTopicQueues, tuple[MessageQueue, ...]]] = {}

    # -------------------------------------------------------------------------------------------------- assignment

    async def assigned(self, queues: Collection[MessageQueue]) -> None:
        """These queues were assigned."""
        if queues:
            for callback in self.assigned_callbacks:
                await self._call(callback, self._plain(queues))

    async def revoked(self, queues: Collection[MessageQueue]) -> None:
        """These queues are given up when the callbacks have returned."""
        if queues:
            for callback in self.revoked_callbacks:
                await self._call(callback, self._plain(queues))

    async def changed(self, topic: str, every: Collection[MessageQueue], own: Collection[MessageQueue]) -> None:
        """The assignment of a topic has changed."""
        listener = self.listeners.get(topic)
        if listener is not None:
            await self._call(listener, self._namespace.unwrap(topic), self._plain(every), self._plain(own))

    # ------------------------------------------------------------------------------------------------ queues of topics

    def follow(self, topic: str, callback: OnTopicQueues, known: tuple[MessageQueue, ...]) -> None:
        """Call `callback` when the queues of the topic differ from `known`; if that is empty, from the first seen."""
        self._followed[topic] = (callback, known)

    @property
    def followed(self) -> Collection[str]:
        """The topics whose queues are followed."""
        return self._followed.keys()

    async def look(self, topic: str, queues: tuple[MessageQueue, ...]) -> None:
        """The queues of a followed topic, by its route."""
        callback, known = self._followed[topic]
        if queues and queues != known:
            self._followed[topic] = (callback, queues)
            if known:
                await self._call(callback, self._namespace.unwrap(topic), self._plain(queues))

    # -------------------------------------------------------------------------------------------------------- calling

    def _plain(self, queues: Collection[MessageQueue]) -> list[MessageQueue]:
        return sorted(map(self._namespace.unwrap_queue, queues))

    async def _call(self, callback: Callable[..., Awaitable[object] | object], *arguments: object) -> None:
        try:
            async with asyncio.timeout(CALLBACK_S):
                answer = callback(*arguments)
                if inspect.isawaitable(answer):
                    await answer
        except BaseException as error:  # the application's code
            if not is_failure(error):
                raise
            _log.exception("event=callback_failed owner=%s callback=%r", self._owner, callback)
