"""The processes of a worker: started, replaced when they die, ended together. They share nothing: each is a new
interpreter with a consumer of its own, and reports its status through a pipe. Handles no messages.

SIGTERM may come twice to a process, from the parent and from what signals the whole group, as systemd does. So it means
one thing there, and that the time to finish is over comes through the pipe.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import signal
from multiprocessing.connection import Connection
from typing import Final

from orbitmq.client.loops import protect
from orbitmq.client.worker import (
    FINISHED,
    UNFINISHED,
    UNHEALTHY_S,
    Ending,
    Health,
    Status,
    Worker,
    WorkerPlan,
    first,
)
from orbitmq.errors import ClientError

_log = logging.getLogger(__name__)

REPORT_S: Final = 1.0  # between two reports
RESTART_S: Final = 1.0  # before a process is replaced
FAILED_STARTS_MAX: Final = 3  # in a row: what ends before it works will not work the next time
KILL_S: Final = 10.0  # beyond the grace: for what a process gives back, and for its exit

_spawn = multiprocessing.get_context("spawn")


class _Process:
    """One process."""

    def __init__(self, plan: WorkerPlan) -> None:
        self.was_ready = False
        self.ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._status = Status()
        self._reported_at: float | None = None
        self._pipe, pipe = _spawn.Pipe()
        self.process = _spawn.Process(target=_work, args=(plan, pipe))
        self.process.start()
        pipe.close()
        self._loop.add_reader(self._pipe.fileno(), self._read)
        self._loop.add_reader(self.process.sentinel, self._end)

    @property
    def status(self) -> Status:
        """Its last report. One whose event loop is blocked reports nothing, and renews and acknowledges nothing."""
        silent_s = 0.0 if self._reported_at is None else self._loop.time() - self._reported_at
        if silent_s > UNHEALTHY_S:
            return self._status._replace(failure=f"its event loop has been blocked for {silent_s:.0f} s")
        return self._status

    def finish(self) -> None:
        """Have it end when what is in progress is finished."""
        if self.process.is_alive():
            self.process.terminate()

    def end_at_once(self) -> None:
        """Have it end now."""
        with contextlib.suppress(OSError):  # it has ended
            self._pipe.send(None)

    def _read(self) -> None:
        try:
            self._status = self._pipe.recv()
        except (EOFError, OSError):
            self._loop.remove_reader(self._pipe.fileno())
        else:
            self._reported_at = self._loop.time()
            self.was_ready |= self._status.failure is None

    def _end(self) -> None:
        self._loop.remove_reader(self.process.sentinel)
        self._loop.remove_reader(self._pipe.fileno())
        self._pipe.close()
        self.process.join()
        self.ended.set()


class Processes:
    """All processes of a worker."""

    def __init__(self, plan: WorkerPlan, count: int, ending: Ending) -> None:
        self._plan = plan
        self._ending = ending
        self._now: list[_Process | None] = [None] * count

    @property
    def statuses(self) -> list[Status]:
        """Of each process."""
        return [Status() if one is None or one.ended.is_set() else one.status for one in self._now]

    async def run(self) -> int:
        """Keep the processes until the end is signalled: FINISHED, or UNFINISHED when one of them was. ClientError when
        one does not start.
        """
        passing = asyncio.create_task(self._pass_on())
        try:
            codes = await asyncio.gather(*map(self._keep, range(len(self._now))), return_exceptions=True)
        finally:
            passing.cancel()
        for code in codes:
            if isinstance(code, BaseException):
                raise code
        return max(code for code in codes if not isinstance(code, BaseException))

    async def _pass_on(self) -> None:
        """End the processes as this one is signalled."""
        for event, pass_on in ((self._ending.begun, _Process.finish), (self._ending.at_once, _Process.end_at_once)):
            await event.wait()
            for one in filter(None, self._now):
                pass_on(one)

    async def _keep(self, number: int) -> int:
        try:
            return await self._kept(number)
        finally:
            self._ending.begun.set()  # what one of them raises ends the others

    async def _kept(self, number: int) -> int:
        failures = 0
        while not self._ending.begun.is_set():
            one = self._now[number] = _Process(self._plan)
            await first(one.ended.wait(), self._ending.begun.wait())
            if self._ending.begun.is_set():
                return await self._end(one)
            failures = 0 if one.was_ready else failures + 1
            code = one.process.exitcode
            _log.warning("event=worker_process_ended group=%s process=%d exit=%s", self._plan.group, number, code)
            if failures >= FAILED_STARTS_MAX:
                raise ClientError(
                    10003,
                    f"process {number} of the worker ended {failures} times before it worked, with code {code}; its "
                    "errors are above",
                )
            await first(asyncio.sleep(RESTART_S), self._ending.begun.wait())
        return FINISHED

    async def _end(self, one: _Process) -> int:
        try:
            async with asyncio.timeout(self._plan.grace + KILL_S):
                await one.ended.wait()
        except TimeoutError:
            _log.warning("event=worker_process_killed group=%s pid=%s", self._plan.group, one.process.pid)
            one.process.kill()
            await one.ended.wait()
        # It may be signalled before it handles signals, and has received nothing then.
        return FINISHED if one.process.exitcode in (FINISHED, -signal.SIGTERM) else UNFINISHED


async def work_in_processes(plan: WorkerPlan, count: int, health: tuple[str, int] | None) -> int:
    """Work in so many processes."""
    ending = Ending()
    ending.watch(signal.SIGTERM, signal.SIGINT)
    processes = Processes(plan, count, ending)
    page = Health(lambda: processes.statuses)
    if health is not None:
        await page.start(*health)
    try:
        return await processes.run()
    finally:
        await page.stop()


# ---------------------------------------------------------------------------------------------------- in such a process


def _work(plan: WorkerPlan, pipe: Connection[Status | None, Status | None]) -> None:
    import uvloop

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the parent decides
    raise SystemExit(uvloop.run(_work_and_report(plan, pipe)))


async def _work_and_report(plan: WorkerPlan, pipe: Connection[Status | None, Status | None]) -> int:
    loop, ending = asyncio.get_running_loop(), Ending()
    protect(loop)
    loop.add_signal_handler(signal.SIGTERM, ending.begun.set)
    loop.add_reader(pipe.fileno(), _listen, pipe, ending)
    worker = Worker(plan, ending)
    reporting = asyncio.create_task(_report(worker, pipe))
    try:
        return await worker.run()
    finally:
        reporting.cancel()
        loop.remove_reader(pipe.fileno())


def _listen(pipe: Connection[Status | None, Status | None], ending: Ending) -> None:
    try:
        pipe.recv()
    except (EOFError, OSError):
        _log.warning("event=parent_lost; this process ends")
        asyncio.get_running_loop().remove_reader(pipe.fileno())
    else:
        ending.at_once.set()
    ending.begun.set()


async def _report(worker: Worker, pipe: Connection[Status | None, Status | None]) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the parent is lost, which `_listen` notices
        while True:
            with contextlib.suppress(BlockingIOError):  # the parent is busy, and has not read the last ones
                pipe.send(worker.status)
            await asyncio.sleep(REPORT_S)
