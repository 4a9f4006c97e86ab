"""Calls listeners: plain functions on threads, coroutine functions as tasks. Knows no queue and no offset.

Portions go in on the event loop and come back there, through `finished`, in any order.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import logging
import queue
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias, cast

from orbitmq.client.consumer import HeldQueue
from orbitmq.client.core.model import (
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyStatus,
    OrderlyContext,
)
from orbitmq.client.core.process_queue import ProcessQueue
from orbitmq.client.loops import is_failure
from orbitmq.client.threads import on_thread
from orbitmq.message.model import MessageExt

_log = logging.getLogger(__name__)

ABANDON_S = 1.0  # for a cancelled coroutine to end; one that continues must not block shutdown
TASK_TURN_S = 0.005  # a coroutine listener that never awaits must not keep the loop longer than this

FunctionListener: TypeAlias = Callable[[Sequence[MessageExt], ConcurrentContext], ConsumeConcurrentlyStatus | None]
CoroutineListener: TypeAlias = Callable[
    [Sequence[MessageExt], ConcurrentContext], Awaitable[ConsumeConcurrentlyStatus | None]
]
Listener: TypeAlias = FunctionListener | CoroutineListener
"""Called with messages and their context and returns their status: a function, called on threads, or a coroutine
function. After an exception or None the messages are delivered again. A SystemExit counts as any exception on a thread,
and in a coroutine function of the synchronous classes; on your own loop it ends the loop, as everywhere in asyncio, and
the messages are delivered to other members.
"""
OrderlyFunctionListener: TypeAlias = Callable[[Sequence[MessageExt], OrderlyContext], ConsumeOrderlyStatus | None]
OrderlyCoroutineListener: TypeAlias = Callable[
    [Sequence[MessageExt], OrderlyContext], Awaitable[ConsumeOrderlyStatus | None]
]
OrderlyListener: TypeAlias = OrderlyFunctionListener | OrderlyCoroutineListener
"""A `Listener` for messages in the order of their queue."""
Status: TypeAlias = ConsumeConcurrentlyStatus | ConsumeOrderlyStatus
Context: TypeAlias = ConcurrentContext | OrderlyContext


@dataclass(eq=False, slots=True)
class ListenerCall:
    """One call of a listener: its messages and its result."""

    held: HeldQueue
    cached: ProcessQueue
    """The cache of the messages; the queue may have a new one since."""
    messages: Sequence[MessageExt]
    context: Context
    expired: Sequence[MessageExt] = ()
    """Those that had expired when their turn came: they are consumed, and the listener does not get them."""
    status: Status | None = None
    error: BaseException | None = None
    """The exception that the listener raised."""
    skipped: bool = False
    """The listener was not called: the queue was given up or the consumer shut down before. Or the listener itself
    shuts the consumer down, and its result is ignored.
    """
    ended: asyncio.Event | None = None
    """Set when the listener has returned, for an orderly queue that waits for that."""


class ListenerWorkers(ABC):
    """Concurrent calls of one listener. `prepare` is called right before it, in the same thread or task; a call for
    which it leaves no messages is not made.
    """

    def __init__(
        self, count: int, prepare: Callable[[ListenerCall], None], finished: Callable[[ListenerCall], None]
    ) -> None:
        self.count = count
        """Concurrent calls of the listener."""
        self._prepare = prepare
        self._finished = finished
        self._closing = False
        self._warned = False
        self._open_count = 0
        self._awaited_below = 1
        """Closing waits until fewer calls are open."""
        self._idle = asyncio.Event()

    @abstractmethod
    def resize(self, count: int) -> None:
        """Change the number of concurrent calls; running calls are not stopped."""

    def submit(self, call: ListenerCall) -> None:
        """Make the call as soon as there is a free worker."""
        self._open_count += 1
        self._enqueue(call)

    @abstractmethod
    async def call(self, call: ListenerCall) -> None:
        """Make the call now, in addition to the others; `finished` is not called for it."""

    def dismiss(self) -> None:
        """Make no more calls."""
        self._closing = True
        self._wind_down()

    async def close(self, grace_s: float) -> None:
        """Make no more calls; wait for the running ones, at most `grace_s` seconds."""
        self.dismiss()
        own = self.own_call()
        self._awaited_below = 1 if own is None else 2  # the call that closes the workers is open while it waits
        if own is not None and own.ended is not None:
            own.skipped = True
            own.ended.set()
        if self._open_count >= self._awaited_below:
            self._idle.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await self._idle.wait()
        await self._abandon()

    def _done(self, call: ListenerCall) -> None:
        self._open_count -= 1
        if self._open_count < self._awaited_below:
            self._idle.set()
        self._finished(call)

    def _may_run(self, call: ListenerCall) -> bool:
        call.skipped = self._closing or call.cached.dropped
        return not call.skipped

    def _checked(self, status: object, context: Context) -> Status | None:
        """The status that the listener returned, None unless it is one. A wrong result is logged as a warning once."""
        wanted = ConsumeOrderlyStatus if isinstance(context, OrderlyContext) else ConsumeConcurrentlyStatus
        if isinstance(status, wanted):
            return status
        level = logging.DEBUG if self._warned else logging.WARNING
        self._warned = True
        _log.log(
            level,
            "event=listener_returned_no_status value=%.80r; its messages are delivered again; return a %s",
            status,
            wanted.__name__,
        )
        return None

    def own_call(self) -> ListenerCall | None:
        """The call that the current task is making; None unless the caller is the listener."""
        return None

    @abstractmethod
    def _enqueue(self, call: ListenerCall) -> None: ...

    @abstractmethod
    def _wind_down(self) -> None:
        """Let workers end when no calls are left."""

    @abstractmethod
    async def _abandon(self) -> None:
        """Abandon running calls."""


class _Note(Enum):
    """Signals to the threads, in the queue of calls."""

    LOOK = auto()  # check whether there are too many threads
    END = auto()  # the end of the queue


class ThreadWorkers(ListenerWorkers):
    """Daemon threads: a listener that hangs must not keep the interpreter from exiting."""

    def __init__(
        self,
        listener: FunctionListener | OrderlyFunctionListener,
        count: int,
        name: str,
        prepare: Callable[[ListenerCall], None],
        finished: Callable[[ListenerCall], None],
    ) -> None:
        super().__init__(count, prepare, finished)
        self._listener = cast("Callable[[Sequence[MessageExt], Context], object]", listener)
        self._loop = asyncio.get_running_loop()
        self._waiting: queue.SimpleQueue[ListenerCall | _Note] = queue.SimpleQueue()
        self._results: deque[ListenerCall] = deque()
        self._woken = False
        self._name = name
        self._guard = threading.Lock()
        self._alive = 0
        """Threads that have not ended; protected by the guard."""
        self._numbers = itertools.count()
        self._start_threads()

    def resize(self, count: int) -> None:
        self.count = count
        self._start_threads()
        self._wake_surplus()

    def _start_threads(self) -> None:
        with self._guard:
            missing, self._alive = self.count - self._alive, max(self.count, self._alive)
        for _ in range(missing):
            name = f"{self._name}-{next(self._numbers)}"
            threading.Thread(target=self._run, name=name, daemon=True).start()

    def _wake_surplus(self) -> None:
        """Make idle threads check whether there are too many of them; busy threads do when their call ends."""
        for _ in range(self._alive - self.count):
            self._waiting.put(_Note.LOOK)

    def _may_go_on(self) -> bool:
        if self._alive <= self.count:
            return True
        with self._guard:
            surplus = self._alive > self.count
            self._alive -= surplus
        return not surplus

    def _enqueue(self, call: ListenerCall) -> None:
        self._waiting.put(call)

    def _run(self) -> None:
        while self._may_go_on():
            call = self._waiting.get()
            if call is _Note.LOOK:
                continue
            if call is _Note.END:
                return
            if self._may_run(call):
                self._call(call)
            self._results.append(call)
            if not self._woken:
                # One wake-up for all results until the loop runs. If two threads see False, the second finds nothing.
                self._woken = True
                with contextlib.suppress(RuntimeError):  # the loop is closed: the result is not needed any more
                    self._loop.call_soon_threadsafe(self._collect)

    async def call(self, call: ListenerCall) -> None:
        await on_thread(f"{self._name}-direct", lambda: self._call(call))

    def _call(self, call: ListenerCall) -> None:
        try:
            self._prepare(call)
            if call.messages:
                given = list(call.messages)  # a listener may change its list, and the offset must not depend on that
                call.status = self._checked(self._listener(given, call.context), call.context)
        except BaseException as error:  # otherwise the thread would end and its call never finish
            call.error = error
            _log.warning("event=listener_failed queue=%s", call.held.queue, exc_info=True)

    def _collect(self) -> None:
        self._woken = False
        while self._results:
            self._done(self._results.popleft())

    def _wind_down(self) -> None:
        for _ in range(self._alive):
            self._waiting.put(_Note.END)

    async def _abandon(self) -> None:
        """A thread cannot be stopped; its result will find the queue dropped."""


class TaskWorkers(ListenerWorkers):
    """At most `count` concurrent calls of a coroutine listener."""

    def __init__(
        self,
        listener: CoroutineListener | OrderlyCoroutineListener,
        count: int,
        prepare: Callable[[ListenerCall], None],
        finished: Callable[[ListenerCall], None],
    ) -> None:
        super().__init__(count, prepare, finished)
        self._listener = cast("Callable[[Sequence[MessageExt], Context], Awaitable[object]]", listener)
        self._waiting: deque[ListenerCall] = deque()
        self._tasks: dict[asyncio.Task[None], ListenerCall | None] = {}
        """Each task with its current call."""
        self._starting = False
        """Whether there is a task that has not begun. It starts the next one: a listener that waits for nothing needs
        one or two, and not as many as there are calls.
        """

    def _enqueue(self, call: ListenerCall) -> None:
        self._waiting.append(call)
        self._start_task()

    def resize(self, count: int) -> None:
        self.count = count
        self._start_task()

    def _start_task(self) -> None:
        if self._waiting and not self._starting and len(self._tasks) < self.count:
            self._starting = True
            self._tasks[asyncio.get_running_loop().create_task(self._work())] = None

    async def _work(self) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        self._starting = False
        try:
            await self._run(task)
        finally:
            # Here and not in a callback of the task, which would run later: a call enqueued in between would see every
            # task busy and wait for one that has ended.
            del self._tasks[task]

    async def _run(self, task: asyncio.Task[None]) -> None:
        loop = asyncio.get_running_loop()
        turn_ends = loop.time() + TASK_TURN_S
        while self._waiting and len(self._tasks) <= self.count:
            call = self._tasks[task] = self._waiting.popleft()
            self._start_task()
            if self._may_run(call):
                await self._call(call)
            self._done(call)
            if loop.time() > turn_ends:
                await asyncio.sleep(0)
                turn_ends = loop.time() + TASK_TURN_S

    async def call(self, call: ListenerCall) -> None:
        await self._call(call)

    async def _call(self, call: ListenerCall) -> None:
        try:
            self._prepare(call)
            if call.messages:
                given = list(call.messages)  # a listener may change its list, and the offset must not depend on that
                call.status = self._checked(await self._listener(given, call.context), call.context)
        except BaseException as error:
            if not is_failure(error):
                raise
            call.error = error
            _log.warning("event=listener_failed queue=%s", call.held.queue, exc_info=True)

    def _wind_down(self) -> None:
        """The running tasks skip the waiting calls; none waits when no task runs."""

    def own_call(self) -> ListenerCall | None:
        return self._tasks.get(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _abandon(self) -> None:
        tasks = self._tasks.keys() - {asyncio.current_task()}  # the listener may shut its consumer down
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=ABANDON_S)


def is_coroutine(listener: Callable[..., object]) -> bool:
    """Whether it is a coroutine function, or an object whose call is one."""
    call = listener if inspect.isroutine(listener) else getattr(listener, "__call__", listener)  # noqa: B004
    return inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(call)


def workers_for(
    listener: Listener | OrderlyListener,
    count: int,
    name: str,
    prepare: Callable[[ListenerCall], None],
    finished: Callable[[ListenerCall], None],
) -> ListenerWorkers:
    """Tasks for a coroutine function (or an object whose call is one), threads for anything else."""
    if is_coroutine(listener):
        return TaskWorkers(cast("CoroutineListener", listener), count, prepare, finished)
    return ThreadWorkers(cast("FunctionListener", listener), count, name, prepare, finished)
