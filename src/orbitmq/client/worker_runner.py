"""Runs a worker as the whole of a program: checks what it is given, handles signals, returns the exit code.

def work(message: MessageExt) -> None: ...

if __name__ == "__main__":
    sys.exit(run_worker(work, "workers", topic="jobs"))
"""

from __future__ import annotations

import asyncio
import math
import pickle
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Unpack

from orbitmq.client.core.arguments import checks_arguments
from orbitmq.client.core.selectors import Selector
from orbitmq.client.loops import protect, running_loop
from orbitmq.client.settings import DAY_MS, SimpleSettings
from orbitmq.client.worker import Ending, Handler, Health, Worker, WorkerPlan
from orbitmq.client.worker_processes import work_in_processes
from orbitmq.errors import ConfigurationError, InvalidStateError

RETRY_DELAYS: Final = (
    10.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 420.0, 480.0, 540.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0,
)  # fmt: skip
RETRY_DELAY_MAX_S: Final = 7 * DAY_MS / 1000  # as long as a message may be invisible
CONCURRENCY_MAX: Final = 1000  # as that of a push consumer
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
PROCESSES_MAX: Final = 256  # each of them is a whole interpreter with connections of its own


async def work_here(plan: WorkerPlan, health: tuple[str, int] | None) -> int:
    """Work in this process."""
    protect(asyncio.get_running_loop())
    ending = Ending()
    ending.watch(*SIGNALS)
    worker = Worker(plan, ending)
    page = Health(lambda: [worker.status])
    if health is not None:
        await page.start(*health)
    try:
        return await worker.run()
    finally:
        await page.stop()


@checks_arguments
def run_worker(
    handler: Handler,
    group: str,
    namesrv_addr: str | Iterable[str] | None = None,
    *,
    topic: str,
    expression: Selector = "*",
    concurrency: int = 8,
    processes: int = 1,
    timeout: float | None = 900.0,
    grace: float = 25.0,
    retry_delays: Sequence[float] = RETRY_DELAYS,
    dead_letter: Sequence[type[Exception]] = (),
    health_port: int | None = None,
    health_host: str = "127.0.0.1",
    **settings: Unpack[SimpleSettings],
) -> int:
    """Call `handler` for the messages of `topic` until SIGTERM or SIGINT. Returns the exit code of the program: 0 when
    everything in progress was finished, 1 when messages went back to the broker.

    `concurrency` messages (1 to 1000) are in progress at a time, as tasks if the handler is a coroutine function, else
    on threads. With `processes` above 1 so many new interpreters do that, each with `concurrency` of its own: for
    handlers that compute. One that dies is replaced. The handler must be importable then, and the call must stand
    below `if __name__ == "__main__":`.

    A message is acknowledged when the handler returns. No other member gets it before: its time (`invisible_ms`) is
    extended while the handler runs, up to `timeout` seconds (None: no limit). Then a coroutine is cancelled, which
    counts as a failure. A thread cannot be stopped, so the worker ends with code 1 to be started again; a process of
    several is replaced.

    When the handler raises, its message comes again after the first of `retry_delays` (seconds, a week at most; by
    default those of RocketMQ's push consumers, 10 s to 2 h), then after the second, and after the last for ever, at
    most `max_reconsume_times` (16) times; then, and at once for an error of `dead_letter`, it is a dead letter.

    After a signal nothing more is received. What is in progress has `grace` seconds to finish; a second signal ends
    that time. The rest goes back and is delivered again at once, with one more in `reconsume_times`. The handlers that
    the program has for these signals are set again when the call returns.

    With `health_port` `/healthz` responds 200, or 503 and the reason: starting, ending, a handler that cannot be
    stopped, no contact with the brokers for a minute. Further keywords are `SimpleSettings`.

    ConfigurationError for values that are not allowed and a handler that cannot be passed to processes;
    InvalidStateError outside the main thread and in a running event loop; BrokerError, ClientError, RemotingError when
    it cannot start.
    """
    import uvloop  # Spark's executors have the client without it

    check_main_thread("run_worker")
    check_range("concurrency", concurrency, 1, CONCURRENCY_MAX)
    check_range("processes", processes, 1, PROCESSES_MAX)
    check_range("grace", grace, 0, math.inf)
    check_range("timeout", 1 if timeout is None else timeout, 0.001, math.inf)
    for delay in retry_delays:
        check_range("retry_delays", delay, 0, RETRY_DELAY_MAX_S)
    if not retry_delays:
        raise ConfigurationError("retry_delays is empty; name at least one time in seconds")
    names = namesrv_addr if namesrv_addr is None or isinstance(namesrv_addr, str) else list(namesrv_addr)
    plan = WorkerPlan(
        handler, group, names, topic, expression, concurrency, timeout, grace, tuple(retry_delays), tuple(dead_letter),
        settings,
    )  # fmt: skip
    health = None if health_port is None else (health_host, health_port)
    if processes == 1:
        with handlers_kept():
            return uvloop.run(work_here(plan, health))
    try:
        pickle.dumps(plan)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigurationError(
            f"the handler or a setting cannot be passed to processes: {error}; use a function of a module"
        ) from error
    with handlers_kept():
        return uvloop.run(work_in_processes(plan, processes, health))


def check_main_thread(name: str) -> None:
    """InvalidStateError unless the caller may handle signals, and no event loop runs here."""
    if running_loop() is not None or threading.current_thread() is not threading.main_thread():
        raise InvalidStateError(f"{name} handles signals in an event loop of its own: call it in the main thread")


@contextmanager
def handlers_kept() -> Iterator[None]:
    """Have the program's own handlers of signals back afterwards."""
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            if handler is not None:  # one that was not set by Python cannot be set again
                signal.signal(number, handler)


def check_range(name: str, value: float, lowest: float, highest: float) -> None:
    """ConfigurationError, which names both ends, for a value outside."""
    if not lowest <= value <= highest:
        raise ConfigurationError(f"{name} {value} is not allowed; use {lowest:g} to {highest:g}")
