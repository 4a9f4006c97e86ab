"""Runs a handler for the messages of a topic until a signal ends it: in this process, or in several.

def work(message: MessageExt) -> None: ...

if __name__ == "__main__":
    sys.exit(run_worker(work, "workers", topic="jobs"))
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

from orbitmq.client.core.selectors import Selector
from orbitmq.client.loops import is_failure
from orbitmq.client.settings import SimpleSettings, complete
from orbitmq.client.settling import settle
from orbitmq.client.simple import SimpleConsumer
from orbitmq.client.threads import on_thread
from orbitmq.client.workers import is_coroutine
from orbitmq.errors import OrbitMQError
from orbitmq.message.model import MessageExt
from orbitmq.message.pop import MAX_MESSAGES

if TYPE_CHECKING:
    from orbitmq.net.http_server import HttpResponse, HttpServer

_log = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[MessageExt], None] | Callable[[MessageExt], Awaitable[None]]
"""Gets a message: a function, called on threads, or a coroutine function. When it returns, the message is acknowledged;
when it raises, or returns anything but None, the message is delivered again.
"""

PAUSE_S: Final = 1.0  # after a failed request for messages
UNHEALTHY_S: Final = 60.0  # of failed requests: a broker that starts again is back sooner
RETURN_S: Final = 5.0  # for giving back what is not finished
AT_ONCE_S: Final = 0.001  # 0 is not allowed by brokers of RocketMQ

FINISHED, UNFINISHED = 0, 1


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """What a worker does; it is pickled for other processes."""

    handler: Handler
    group: str
    namesrv_addr: str | list[str] | None
    topic: str
    expression: Selector
    concurrency: int
    timeout: float | None
    grace: float
    retry_delays: tuple[float, ...]
    dead_letter: tuple[type[Exception], ...]
    settings: SimpleSettings


class Status(NamedTuple):
    """What a process of a worker does."""

    failure: str | None = "starting"
    """Why it is not healthy."""
    running: int = 0
    """Messages in progress."""
    done: int = 0
    failed: int = 0

    def __str__(self) -> str:
        counts = f"{self.running} in progress, {self.done} done, {self.failed} failed"
        return f"{self.failure or 'ok'}: {counts}"


class Ending:
    """The signals that end a worker: the first lets it finish what is in progress, the second does not."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.at_once = asyncio.Event()

    def watch(self, *numbers: signal.Signals) -> None:
        """Listen to these from now on."""
        for number in numbers:
            asyncio.get_running_loop().add_signal_handler(number, self.signal)

    def signal(self) -> None:
        """One more."""
        (self.at_once if self.begun.is_set() else self.begun).set()


class Worker:
    """Receives messages and calls the handler, in one process."""

    def __init__(self, plan: WorkerPlan, ending: Ending) -> None:
        self._plan = plan
        self._ending = ending
        self._consumer = SimpleConsumer(plan.group, plan.namesrv_addr, **plan.settings)
        settings = complete(SimpleSettings, plan.settings)
        self._held_s = settings["invisible_ms"] / 1000
        self._redeliveries_max = settings["max_reconsume_times"]
        self._is_coroutine = is_coroutine(plan.handler)
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        """Set when a task has ended."""
        self._failing_since: float | None = None
        self._stuck = ""
        """The message whose handler cannot be stopped."""
        self._returned = 0
        """Messages that went back unfinished."""
        self._done = self._failed = 0

    @property
    def status(self) -> Status:
        """What it does now."""
        failure = None
        if not self._consumer.is_running:
            failure = "starting"
        elif self._stuck:
            failure = f"the handler of message {self._stuck} cannot be stopped"
        elif self._ending.begun.is_set():
            failure = "ending"
        elif self._failing_since is not None and _now() - self._failing_since > UNHEALTHY_S:
            failure = "no messages can be received; the log says why"
        return Status(failure, len(self._tasks), self._done, self._failed)

    async def run(self) -> int:
        """Work until the end is signalled: FINISHED, or UNFINISHED when messages went back. BrokerError, ClientError,
        RemotingError when it cannot start.
        """
        self._consumer.subscribe(self._plan.topic, self._plan.expression)
        async with self._consumer:
            await self._receive()
            await self._finish()
        return UNFINISHED if self._returned or self._stuck else FINISHED

    async def _receive(self) -> None:
        while not self._ending.begun.is_set():
            room = min(self._plan.concurrency - len(self._tasks), MAX_MESSAGES)
            if room <= 0:
                self._changed.clear()
                await first(self._changed.wait(), self._ending.begun.wait())
                continue
            try:
                # What a broker delivers to a call that is cancelled would be invisible until its time is over.
                messages = await self._consumer.receive(room, timeout=0, renew=True)
                if not messages:
                    await first(self._consumer.wait(), self._ending.begun.wait())
            except OrbitMQError as error:
                if self._failing_since is None:
                    self._failing_since = _now()
                    _log.warning("event=receive_failed group=%s error=%s", self._plan.group, error)
                await first(asyncio.sleep(PAUSE_S), self._ending.begun.wait())
            else:
                self._failing_since = None
                for message in messages:
                    task = asyncio.create_task(self._handle(message))
                    self._tasks.add(task)
                    task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._changed.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("event=message_not_settled group=%s", self._plan.group, exc_info=error)

    async def _finish(self) -> None:
        """Wait for the messages in progress, then give back the rest."""
        if tasks := set(self._tasks):  # a copy: it may be empty by the time that the wait begins
            await first(asyncio.wait(tasks, timeout=self._plan.grace), self._ending.at_once.wait())
        rest = set(self._tasks)
        self._returned = len(rest)
        for task in rest:
            task.cancel()
        if rest:
            await asyncio.wait(rest, timeout=RETURN_S)

    async def _handle(self, message: MessageExt) -> None:
        expired = asyncio.timeout(self._plan.timeout)
        try:
            async with expired:
                await self._call(message)
        except BaseException as error:
            if not is_failure(error):  # the end of the worker
                await self._settle(message, self._given_back(AT_ONCE_S))
                raise
            self._failed += 1
            if expired.expired() and not self._is_coroutine:
                self._stuck = message.msg_id
                self._ending.begun.set()
            await self._fail(message, error)
        else:
            self._done += 1
            await self._settle(message, self._consumer.ack)

    async def _call(self, message: MessageExt) -> None:
        if self._is_coroutine:
            result = await cast("Callable[[MessageExt], Awaitable[object]]", self._plan.handler)(message)
        else:
            function = cast("Callable[[MessageExt], object]", self._plan.handler)
            result = await on_thread(f"orbitmq-worker-{message.msg_id}", lambda: function(message))
        if result is not None:
            raise TypeError(f"the handler returned {result!r:.80}; return nothing, raise to have the message again")

    async def _fail(self, message: MessageExt, error: BaseException) -> None:
        times = message.reconsume_times
        work: Callable[[MessageExt], Awaitable[None]]
        if isinstance(error, self._plan.dead_letter) or times >= self._redeliveries_max:
            reason = f"{type(error).__name__}: {error}"
            work, fate = partial(self._consumer.reject, reason=reason), "it is a dead letter"
        else:
            delay_s = self._plan.retry_delays[min(times, len(self._plan.retry_delays) - 1)]
            work, fate = self._given_back(delay_s), f"again in {delay_s:g} s"
        _log.warning(
            "event=handler_failed group=%s message=%s attempt=%d; %s",
            self._plan.group, message.msg_id, times + 1, fate, exc_info=error,
        )  # fmt: skip
        await self._settle(message, work)

    def _given_back(self, seconds: float) -> Callable[[MessageExt], Awaitable[None]]:
        return lambda message: self._consumer.change_invisible(message, max(seconds, AT_ONCE_S))

    async def _settle(self, message: MessageExt, work: Callable[[MessageExt], Awaitable[None]]) -> None:
        try:
            await settle(work, message, self._held_s)
        except OrbitMQError as error:
            text = "event=message_not_settled group=%s message=%s error=%s; it is delivered again"
            _log.warning(text, self._plan.group, message.msg_id, error)


async def first(*waits: Awaitable[object]) -> None:
    """Return when one of them has, with its error."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


def _now() -> float:
    return asyncio.get_running_loop().time()


class Health:
    """`/healthz`: 200 while every process is healthy, otherwise 503. A line for each process."""

    def __init__(self, statuses: Callable[[], Sequence[Status]]) -> None:
        self._statuses = statuses
        self._http: HttpServer | None = None

    async def _page(self) -> HttpResponse:
        from orbitmq.net.http_server import HttpResponse

        statuses = self._statuses()
        text = "\n".join(map(str, statuses))
        return HttpResponse(f"{text}\n".encode(), status=503 if any(one.failure for one in statuses) else 200)

    async def start(self, host: str, port: int) -> None:
        """ConfigurationError if it cannot listen on the port."""
        from orbitmq.net.http_server import HttpServer  # Spark's executors have the client without h11

        self._http = HttpServer({"/healthz": self._page})
        await self._http.start(host, port, "health_port")

    async def stop(self) -> None:
        if self._http is not None:
            await self._http.stop()
