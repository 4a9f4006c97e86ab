"""Runs asyncio objects for threads: one event loop in one thread per process, and methods that wait for their
coroutines.

    class Producer(SyncWrapper[asynchronous.Producer]):
        send = blocking(asynchronous.Producer.send)

A method is declared by naming the asyncio method that does the work; it has the same parameters, result and
documentation. Knows no particular client.
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
from collections.abc import Callable, Coroutine, Sequence
from typing import Concatenate, Generic, ParamSpec, TypeVar, cast

import uvloop

from orbitmq.client.loops import protect
from orbitmq.client.threads import on_thread
from orbitmq.client.workers import is_coroutine
from orbitmq.errors import InvalidStateError, TooManyRequestsError
from orbitmq.runtime.call_thread import CallThread
from orbitmq.runtime.logging import spare_this_thread

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")
V = TypeVar("V")
C_co = TypeVar("C_co", covariant=True)
S = TypeVar("S", bound="SyncWrapper[object]")

_log = logging.getLogger(__name__)


TURN_S = 0.005  # of calls in one iteration of the loop: connections and timers must be served as well
CALLS_MAX = 1000  # that wait for the loop; threads that call faster than it runs wait until there are fewer
CALLBACKS_MAX = 50_000  # that are due; as many as the sends of a producer that may be unfinished
LOOK_S = 0.001  # how often such a thread checks; the loop needs longer for the waiting calls


class LoopThread:
    """An event loop on a daemon thread.

    A signal handler runs inside the call that it interrupts, on the same thread, and may call as well. So a calling
    thread holds no lock and leaves no state inconsistent that another call needs, and the loop never waits for a lock
    that a calling thread may hold.
    """

    def __init__(self) -> None:
        self.loop = uvloop.new_event_loop()
        protect(self.loop)
        self._calls: deque[Callable[[], None]] = deque()
        self._is_working = False
        """Whether the loop is processing calls, or about to, and will find new ones. Only the loop changes it."""
        self.futures = CallThread("orbitmq-futures")
        """For work that may block."""
        self.callbacks = CallThread("orbitmq-callbacks")
        """For callbacks of the application: on the loop, a callback that waits for a lock which a thread holds while it
        calls a client would deadlock.
        """
        self._thread = threading.Thread(target=self._run, name="orbitmq-client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        spare_this_thread()
        asyncio.set_event_loop(self.loop)
        while True:
            try:
                return self.loop.run_forever()
            except (SystemExit, KeyboardInterrupt):  # from application code: every calling thread needs the loop
                _log.exception("event=loop_not_left; code of the application on the clients' loop cannot end it")

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on the loop."""
        return threading.get_ident() == self._thread.ident

    def call(self, function: Callable[[], None]) -> None:
        """Schedule `function` on the loop. While too many calls are waiting, block until there are fewer."""
        while len(self._calls) >= CALLS_MAX and not self.is_current:
            time.sleep(LOOK_S)
        self._calls.append(function)
        if not self._is_working:
            self.loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        if not self._is_working:
            self._work()

    def _work(self) -> None:
        self._is_working = True
        ends = time.monotonic() + TURN_S
        try:
            while self._calls and time.monotonic() < ends:
                self._calls.popleft()()
        finally:
            self._is_working = False  # before the last check: a later call wakes the loop
            if self._calls:
                self._is_working = True
                self.loop.call_soon(self._work)


_lock = threading.RLock()  # a signal handler that interrupts the holder may acquire it on the same thread
_is_beginning = False
_current: LoopThread | None = None


def loop_thread() -> LoopThread:
    """The loop thread of this process. InvalidStateError in a signal handler that interrupts its start."""
    return _current or _begin()


def _begin() -> LoopThread:
    global _current, _is_beginning
    with _lock:
        if _current is None:
            if _is_beginning:
                raise InvalidStateError(
                    "this signal handler interrupted the first use of a client in this process, which must end before "
                    "another one is used; start a client before you set the handler"
                )
            _is_beginning = True
            try:
                _current = LoopThread()
            finally:
                _is_beginning = False
        return _current


def _after_fork() -> None:
    """Threads do not survive in a child, so it starts its own loop. Clients of the parent do not work there."""
    global _current, _lock, _is_beginning
    _current, _lock, _is_beginning = None, threading.RLock(), False


os.register_at_fork(after_in_child=_after_fork)


# ----------------------------------------------------------------------------------------------------- calls that wait


class _Call(Generic[R]):
    """A coroutine on the loop, and the thread that waits for it."""

    def __init__(self, start: Callable[[], Coroutine[object, object, R]], undo: Callable[[R], object] | None) -> None:
        self._start, self._undo = start, undo
        self._context = contextvars.copy_context()  # the context variables of the thread, a trace for example
        self._task: asyncio.Task[R] | None = None
        self._is_given_up = False
        self.ended = threading.Lock()
        """Released when the outcome is known. Unlike a future, releasing it never blocks."""
        self.ended.acquire()
        self.has_ended = False
        self.error: BaseException | None = None
        self.result: R

    def begin(self) -> None:
        try:
            work = self._context.run(self._start)
            self._task = asyncio.get_running_loop().create_task(work, context=self._context)
            self._task.add_done_callback(self._end)
        except BaseException as error:  # the caller's, whose thread waits for it
            self.error = error
            self._settle()

    def _end(self, task: asyncio.Task[R]) -> None:
        self.error = concurrent.futures.CancelledError() if task.cancelled() else task.exception()
        if self.error is None:
            self.result = task.result()
            if self._is_given_up:
                self._take_back()
        self._settle()

    def _settle(self) -> None:
        self.has_ended = True
        self.ended.release()

    def give_up(self) -> None:
        """The thread no longer waits, and did not get a result that may have arrived meanwhile."""
        if self._task is None or self._is_given_up:
            return
        self._is_given_up = True
        if not self.has_ended:
            self._task.cancel()
        elif self.error is None:
            self._take_back()

    def _take_back(self) -> None:
        if self._undo is not None:
            self._undo(self.result)


def check_may_wait() -> None:
    """InvalidStateError on the loop itself, which would wait for ever."""
    if loop_thread().is_current:
        raise InvalidStateError(
            "a coroutine on the client's own loop cannot wait for it; use the asyncio client there, "
            "or asyncio.to_thread"
        )


def wait(start: Callable[[], Coroutine[object, object, R]], undo: Callable[[R], object] | None = None) -> R:
    """Run the coroutine that `start` returns on the loop and wait for its result. InvalidStateError on the loop itself,
    where it would never end.

    What a signal handler raises meanwhile ends the wait, and the coroutine is cancelled. If it already has a result,
    which is lost then, `undo` is called with the result on the loop, before any later call of this thread.
    """
    check_may_wait()
    thread = loop_thread()
    call = _Call(start, undo)
    try:
        thread.call(call.begin)
        call.ended.acquire()
        if call.error is None:
            return call.result
    except BaseException as first:
        latest = first
        while True:
            try:
                thread.call(call.give_up)
                break
            except BaseException as another:  # another signal: cancel the interrupted call all the same
                latest = another
        try:
            raise latest
        finally:
            del latest  # it knows this frame
    error = call.error
    try:
        raise error
    finally:
        del error, call


def run(work: Coroutine[object, object, R]) -> R:
    """`wait` for a coroutine object."""
    if loop_thread().is_current:
        work.close()
    return wait(lambda: work)


# ------------------------------------------------------------------------------------------------- futures for threads


class CallFuture(concurrent.futures.Future[R]):
    """A future that the loop completes without waiting for the threads that use it: its usual methods acquire a lock
    that an interrupted thread may hold while the signal handler waits for the loop.
    """

    _done_callbacks: list[Callable[[CallFuture[R]], object]]

    def settle(self, thread: LoopThread, act: Callable[[V], None], value: V) -> None:
        """Call `act`, which sets the result or the error, with `value`. On the loop of `thread`."""
        if not self._condition.acquire(blocking=False):
            thread.loop.call_later(LOOK_S, self.settle, thread, act, value)
            return
        try:
            if self._waiters:  # those of `concurrent.futures.wait` have locks of their own
                thread.futures.put(functools.partial(self._act, thread, act, value))
            else:
                self._act(thread, act, value)
        finally:
            self._condition.release()

    def _act(self, thread: LoopThread, act: Callable[[V], None], value: V) -> None:
        with self._condition:  # the lock is reentrant
            callbacks, self._done_callbacks = self._done_callbacks, []
            act(value)
        if callbacks:
            thread.callbacks.put(functools.partial(self._call_back, callbacks))

    def _call_back(self, callbacks: Sequence[Callable[[CallFuture[R]], object]]) -> None:
        for callback in callbacks:
            try:
                callback(self)
            except BaseException:  # the application's code; other callbacks need the thread
                _log.exception("event=future_callback_failed")


def submit(start: Callable[[], asyncio.Future[R]]) -> CallFuture[R]:
    """Call `start` on the loop and return a future for threads with the outcome of the future that it returns.
    TooManyRequestsError while too many callbacks are due.
    """
    thread, outcome = loop_thread(), CallFuture[R]()
    if thread.callbacks.waiting >= CALLBACKS_MAX:
        raise TooManyRequestsError(
            f"{CALLBACKS_MAX} callbacks are due, which is the limit; make callbacks return sooner"
        )
    outcome.set_running_or_notify_cancel()  # here, before another thread can see it

    def begin() -> None:
        try:
            start().add_done_callback(end)
        except BaseException as error:  # the caller's, whose thread waits for it
            outcome.settle(thread, outcome.set_exception, error)

    def end(future: asyncio.Future[R]) -> None:
        error = concurrent.futures.CancelledError() if future.cancelled() else future.exception()
        if error is None:
            outcome.settle(thread, outcome.set_result, future.result())
        else:
            outcome.settle(thread, outcome.set_exception, error)

    thread.call(begin)
    return outcome


class SyncWrapper(Generic[C_co]):
    """Base of the synchronous classes: wraps an asyncio object."""

    def __init__(self, core: C_co) -> None:
        self.core = core
        """The asyncio object behind this one; it lives on the loop of `loop_thread()`."""


def arguments_of(kind: Callable[P, C]) -> Callable[[Callable[[S], None]], Callable[Concatenate[S, P], None]]:
    """An `__init__` with the arguments of the asyncio class `kind`; it wraps an object of that class."""

    def declare(_: Callable[[S], None]) -> Callable[Concatenate[S, P], None]:
        @functools.wraps(cast("type[C]", kind).__init__)
        def create(wrapper: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
            SyncWrapper.__init__(wrapper, kind(*args, **kwargs))

        return create

    return declare


def on_own_thread(callback: Callable[P, object]) -> Callable[P, object]:
    """The callback, called on a thread of its own, where it may use the synchronous classes; a coroutine function is
    returned as it is.
    """
    if is_coroutine(callback):
        return callback

    async def call(*args: P.args, **kwargs: P.kwargs) -> object:
        return await on_thread("orbitmq-callback", lambda: callback(*args, **kwargs))

    return call


def blocking(
    method: Callable[Concatenate[C, P], Coroutine[object, object, R]], undo: Callable[[C, R], object] | None = None
) -> Callable[Concatenate[SyncWrapper[C], P], R]:
    """A method that runs a coroutine method and waits for its result; `undo(core, result)` as in `wait`."""

    @functools.wraps(method)
    def call(wrapper: SyncWrapper[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        start: Callable[[], Coroutine[object, object, R]] = functools.partial(method, wrapper.core, *args, **kwargs)
        back: Callable[[R], object] | None = functools.partial(undo, wrapper.core) if undo is not None else None
        return wait(start, back)

    return call


def direct(method: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[SyncWrapper[C], P], R]:
    """A method that calls a plain method on the loop, where nothing else uses the object meanwhile."""

    @functools.wraps(method)
    def call(wrapper: SyncWrapper[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        async def on_the_loop() -> R:
            return method(wrapper.core, *args, **kwargs)

        return wait(on_the_loop)

    return call


def as_future(
    method: Callable[Concatenate[C, P], asyncio.Future[R]],
) -> Callable[Concatenate[SyncWrapper[C], P], concurrent.futures.Future[R]]:
    """A method that starts something and returns a future for threads at once."""

    @functools.wraps(method)
    def call(wrapper: SyncWrapper[C], /, *args: P.args, **kwargs: P.kwargs) -> concurrent.futures.Future[R]:
        context = contextvars.copy_context()
        return submit(lambda: context.run(method, wrapper.core, *args, **kwargs))

    return call
