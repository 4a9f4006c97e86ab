"""Calls the application regularly for each queue that this member of a group has. The application pulls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar, Unpack, cast

from orbitmq.client.background import Background
from orbitmq.client.consumer import HeldQueue
from orbitmq.client.core.allocation import AllocateStrategy
from orbitmq.client.core.arguments import checks_arguments
from orbitmq.client.instance import Instance
from orbitmq.client.loops import is_failure
from orbitmq.client.offset_store import OffsetStore
from orbitmq.client.pull import PullConsumer
from orbitmq.client.settings import PullSettings
from orbitmq.client.threads import on_thread
from orbitmq.client.workers import is_coroutine
from orbitmq.message.model import MessageQueue
from orbitmq.wire.bodies import MessageModel

_log = logging.getLogger(__name__)

NEXT_MS = 200  # until the next call for a queue, unless the callback says otherwise
AFTER_ERROR_MS = 1000

C = TypeVar("C")


@dataclass(slots=True)
class PullContext(Generic[C]):
    """Passed to a callback with its queue; the callback may set `next_delay_ms`."""

    consumer: C
    """The schedule itself, for pulling."""
    message_queue: MessageQueue
    """The queue to pull."""
    next_delay_ms: int = NEXT_MS
    """Milliseconds until the next call for this queue; 1000 after an exception."""


PullTask: TypeAlias = Callable[[MessageQueue, "PullContext[PullSchedule]"], Awaitable[object] | object]
"""Called with a queue and a context: a function on a thread, a coroutine function as a task."""


class PullSchedule(PullConsumer):
    """Calls a function regularly for each queue of the registered topics that is assigned to this member of the group.

        schedule = PullSchedule("group", "127.0.0.1:9876")

        async def pull(queue, context):
            offset = max(0, await context.consumer.fetch_offset(queue))
            result = await context.consumer.pull(queue, "*", offset, 32)
            ...
            context.consumer.update_offset(queue, result.next_begin_offset)
            context.next_delay_ms = 0 if result.messages else 200

        schedule.register("topic", pull)
        async with schedule:
            ...

    There is at most one call at a time per queue, and `pull_threads` calls in all. What a callback raises is logged,
    and it is called again after a second. There are no more calls for a queue that another member gets; a running call
    ends undisturbed, also at shutdown, which waits `await_termination_ms` for it. Further keywords are `PullSettings`.
    """

    @checks_arguments
    def __init__(
        self,
        group: str,
        namesrv_addr: str | Iterable[str] | None = None,
        *,
        message_model: MessageModel = MessageModel.CLUSTERING,
        allocate_strategy: AllocateStrategy | None = None,
        offset_store: OffsetStore | None = None,
        **settings: Unpack[PullSettings],
    ) -> None:
        super().__init__(
            group,
            namesrv_addr,
            message_model=message_model,
            allocate_strategy=allocate_strategy,
            offset_store=offset_store,
            **settings,
        )
        self._tasks: dict[str, PullTask] = {}
        self._calls = Background(f"{self._name()}, calls")
        self._running_tasks: dict[MessageQueue, asyncio.Task[None]] = {}
        self._turns = asyncio.Semaphore(self._settings["pull_threads"])

    @checks_arguments
    def register(self, topic: str, callback: PullTask) -> None:
        """Call `callback(queue, context)` for each queue of `topic` that this member has. Before or after start."""
        self._tasks[self._namespace.wrap(topic)] = callback
        self.register_topic(topic)

    def _hold(self, queue: MessageQueue) -> None:
        super()._hold(queue)
        held = self._held[queue]
        if queue.topic in self._tasks:
            held.task = self._background.spawn(self._serve(held))

    async def _serve(self, held: HeldQueue) -> None:
        queue = self._namespace.unwrap_queue(held.queue)
        before = self._running_tasks.get(queue)
        if before is not None:  # another member had the queue meanwhile, and the last call for it has not ended
            await asyncio.wait([before])
        while True:
            context = PullContext(self, queue)
            async with self._turns:
                call = self._running_tasks[queue] = self._calls.spawn(
                    self._call(self._tasks[held.queue.topic], context)
                )
                await asyncio.shield(call)
            await asyncio.sleep(context.next_delay_ms / 1000)

    async def _call(self, task: PullTask, context: PullContext[PullSchedule]) -> None:
        try:
            if is_coroutine(task):
                await cast("Awaitable[object]", task(context.message_queue, context))
            else:
                await on_thread(f"{self.group}-pull", lambda: task(context.message_queue, context))
        except BaseException as error:  # the application's code
            if not is_failure(error):
                raise
            context.next_delay_ms = AFTER_ERROR_MS
            _log.exception("event=pull_task_failed group=%s queue=%s", self.group, context.message_queue)

    async def _end(self, instance: Instance) -> None:
        await self._background.stop()
        with self._callbacks_may_request(instance):
            await self._calls.finish(self._settings["await_termination_ms"] / 1000)
        await super()._end(instance)
