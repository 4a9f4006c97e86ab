"""Measures how long a listener takes, computation and waiting separately, for functions and for coroutines.

    timed = Timed(listener)
    consumer.set_listener(timed.listener)
    ...
    print(timed.times.threads())

Knows nothing of consumers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Generic, TypeVar, cast

from orbitmq.client.core.capacity import Times
from orbitmq.client.core.model import ConcurrentContext, ConsumeConcurrentlyStatus
from orbitmq.client.workers import CoroutineListener, FunctionListener, Listener, is_coroutine
from orbitmq.message.model import MessageExt

R = TypeVar("R")
Clock = Callable[[], float]


class Timed:
    """`listener` wraps the given listener and measures it; `times` holds the measurements so far. Thread-safe."""

    def __init__(
        self, listener: Listener, *, compute: Clock = time.thread_time, elapsed: Clock = time.perf_counter
    ) -> None:
        self.times = Times()
        self._compute = compute
        self._elapsed = elapsed
        self._guard = threading.Lock()
        if is_coroutine(listener):
            self.listener: Listener = self._coroutine(cast("CoroutineListener", listener))
        else:
            self.listener = self._function(cast("FunctionListener", listener))

    def reset(self) -> None:
        """Reset the measurements."""
        with self._guard:
            self.times = Times()

    def _add(self, messages: int, compute_s: float, elapsed_s: float) -> None:
        with self._guard:
            self.times = self.times.add(messages, compute_s, elapsed_s)

    def _function(self, listener: FunctionListener) -> FunctionListener:
        def timed(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus | None:
            computed, began = self._compute(), self._elapsed()
            try:
                return listener(messages, context)
            finally:
                self._add(len(messages), self._compute() - computed, self._elapsed() - began)

        return timed

    def _coroutine(self, listener: CoroutineListener) -> CoroutineListener:
        async def timed(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus | None:
            began, steps = self._elapsed(), _Steps(listener(messages, context), self._compute)
            try:
                return await steps
            finally:
                self._add(len(messages), steps.compute_s, self._elapsed() - began)

        return timed


class _Steps(Generic[R]):
    """Awaits something and adds up the CPU time of its own steps: between them the loop runs other tasks."""

    def __init__(self, work: Awaitable[R], compute: Clock) -> None:
        self._work = work
        self._compute = compute
        self.compute_s = 0.0

    def __await__(self) -> Generator[object, object, R]:
        steps = self._work.__await__()
        step: Callable[[], object] = lambda: next(steps)  # noqa: E731 - each turn makes the next one
        while True:
            began = self._compute()
            try:
                wanted = step()
            except StopIteration as done:
                return cast("R", done.value)
            finally:
                self.compute_s += self._compute() - began
            try:
                sent = yield wanted
            except BaseException as error:
                if not hasattr(steps, "throw"):
                    raise
                step = _throwing(steps, error)
            else:
                step = _sending(steps, sent)


def _sending(steps: Generator[object, object, object], value: object) -> Callable[[], object]:
    return lambda: steps.send(value) if hasattr(steps, "send") else next(steps)


def _throwing(steps: Generator[object, object, object], error: BaseException) -> Callable[[], object]:
    return lambda: steps.throw(error)
