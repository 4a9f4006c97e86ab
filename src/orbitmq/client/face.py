"""Runs asyncio objects for threads: one event loop in one thread a process, and methods that wait for their coroutines.

    class Producer(Face[asynchronous.Producer]):
        send = waiting(asynchronous.Producer.send)

A method is declared by naming the one that does the work, and has its parameters, result and documentation. Knows no
particular client.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import functools
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Concatenate, Generic, ParamSpec, TypeVar

import uvloop

from orbitmq.client.leaving import keep
from orbitmq.client.threads import on_thread
from orbitmq.client.workers import is_coroutine
from orbitmq.errors import InvalidStateError
from orbitmq.runtime.logging import spare_this_thread

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)

_log = logging.getLogger(__name__)


TURN_S = 0.005  # of calls in one turn of the loop: connections and timers must have their turn as well
CALLS_MAX = 1000  # that wait for the loop; threads that call faster than it works wait until there are fewer
LOOK_S = 0.001  # how often such a thread looks; the loop needs longer for the calls that wait


class LoopThread:
    """An event loop on a daemon thread."""

    def __init__(self) -> None:
        self.loop = uvloop.new_event_loop()
        keep(self.loop)
        self._calls: deque[Callable[[], None]] = deque()
        self._woken = False
        self._thread = threading.Thread(target=self._run, name="orbitmq-client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        spare_this_thread()
        asyncio.set_event_loop(self.loop)
        while True:
            try:
                return self.loop.run_forever()
            except (SystemExit, KeyboardInterrupt):  # an application's: every thread that calls needs the loop
                _log.exception("event=loop_not_left; code of the application on the clients' loop cannot end it")

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on the loop."""
        return threading.current_thread() is self._thread

    def call(self, function: Callable[[], None]) -> None:
        """Run `function` on the loop soon. Many calls of one moment cost one wake-up of the loop; when very many wait
        for it, this waits until there are fewer.
        """
        while len(self._calls) >= CALLS_MAX and not self.is_current:
            time.sleep(LOOK_S)
        self._calls.append(function)
        if not self._woken:
            try:
                self._woken = True
                self.loop.call_soon_threadsafe(self._work)
            except BaseException:  # Ctrl-C may come between the two: then nobody would ever wake the loop again
                self._woken = False
                raise

    def _work(self) -> None:
        ends = time.monotonic() + TURN_S
        while self._calls and time.monotonic() < ends:
            self._calls.popleft()()
        self._woken = False  # before the last look: a call that comes behind it wakes the loop once more
        if self._calls:
            self._woken = True
            self.loop.call_soon(self._work)


_lock = threading.Lock()
_current: LoopThread | None = None


def loop_thread() -> LoopThread:
    """The one of this process, begun at first use."""
    global _current
    with _lock:
        if _current is None:
            _current = LoopThread()
        return _current


def _after_fork() -> None:
    """Threads do not live on in a child: it begins its own loop. Objects of the parent refuse to work there."""
    global _current, _lock
    _current, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def submit(start: Callable[[], asyncio.Future[R]]) -> concurrent.futures.Future[R]:
    """Call `start` on the loop; a future for threads with the outcome of the one it returns."""
    outcome: concurrent.futures.Future[R] = concurrent.futures.Future()

    def begin() -> None:
        if not outcome.set_running_or_notify_cancel():
            return
        try:
            start().add_done_callback(functools.partial(_pass_on, outcome))
        except BaseException as error:  # the caller's, whose thread waits for it
            outcome.set_exception(error)

    loop_thread().call(begin)
    return outcome


def _pass_on(outcome: concurrent.futures.Future[R], future: asyncio.Future[R]) -> None:
    if future.cancelled():
        outcome.set_exception(concurrent.futures.CancelledError())
    elif (error := future.exception()) is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(future.result())


def run(work: Coroutine[object, object, R]) -> R:
    """Run a coroutine on the loop and wait for its result. InvalidStateError on the loop, where it would never end."""
    if loop_thread().is_current:
        work.close()
        raise InvalidStateError("a coroutine on the client's own loop cannot wait for it; use the asyncio client there")
    context = contextvars.copy_context()  # what the caller's thread knows of itself, a trace for example, goes along
    task: asyncio.Task[R] | None = None

    def start() -> asyncio.Task[R]:
        nonlocal task
        task = asyncio.get_running_loop().create_task(work, context=context)
        return task

    def give_up() -> None:
        if task is not None:
            task.cancel()

    try:
        return submit(start).result()
    except KeyboardInterrupt:  # nobody waits any more: a poll that went on would take messages and give them to nobody
        loop_thread().call(give_up)
        raise


class Face(Generic[C_co]):
    """Base of the synchronous classes: holds the object that does the work."""

    def __init__(self, core: C_co) -> None:
        self.core = core
        """The asyncio object behind this one; it lives on the loop of `loop_thread()`."""


def beside(callback: Callable[P, object]) -> Callable[P, object]:
    """The callback on a thread of its own, where it may use the synchronous classes; a coroutine function stays."""
    if is_coroutine(callback):
        return callback

    async def call(*args: P.args, **kwargs: P.kwargs) -> object:
        return await on_thread("orbitmq-callback", lambda: callback(*args, **kwargs))

    return call


def waiting(method: Callable[Concatenate[C, P], Coroutine[object, object, R]]) -> Callable[Concatenate[Face[C], P], R]:
    """The method that runs a coroutine method and waits for its result."""

    @functools.wraps(method)
    def call(face: Face[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return run(method(face.core, *args, **kwargs))

    return call


def direct(method: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[Face[C], P], R]:
    """The method that calls a plain method on the loop, where nothing else touches the object meanwhile."""

    @functools.wraps(method)
    def call(face: Face[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        async def on_the_loop() -> R:
            return method(face.core, *args, **kwargs)

        return run(on_the_loop())

    return call


def started(
    method: Callable[Concatenate[C, P], asyncio.Task[R]],
) -> Callable[Concatenate[Face[C], P], concurrent.futures.Future[R]]:
    """The method that begins a task and returns a future for threads at once."""

    @functools.wraps(method)
    def call(face: Face[C], /, *args: P.args, **kwargs: P.kwargs) -> concurrent.futures.Future[R]:
        context = contextvars.copy_context()
        return submit(lambda: context.run(method, face.core, *args, **kwargs))

    return call
