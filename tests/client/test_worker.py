"""Workers on a live broker: what is acknowledged, retried, given back, and what survives signals and kills."""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orbitmq.client import (
    ConfigurationError,
    InvalidStateError,
    Message,
    MessageExt,
    SimpleConsumer,
    run_worker,
    worker_processes,
)
from orbitmq.client.loops import protect
from orbitmq.client.sync import Producer
from orbitmq.client.sync import SimpleConsumer as BlockingConsumer
from orbitmq.client.worker import FINISHED, UNFINISHED, Ending, Worker, WorkerPlan
from orbitmq.client.worker_processes import Processes
from orbitmq.message.properties import DEAD_LETTER_REASON
from orbitmq.message.topics import dlq_topic
from orbitmq.testing import Cluster
from tests.client.worker_program import block, work
from tests.support.loops import LoopFactory, settle, until
from tests.support.popping import renewed
from tests.support.process import free_port, wait_until

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


def filled(cluster: Cluster, topic: str, *bodies: str) -> None:
    with Producer("p", cluster.namesrv_address) as producer:
        producer.create_topic(topic)
        for body in bodies:
            producer.send(Message(topic, body.encode()))


def left(cluster: Cluster, topic: str, group: str) -> list[str]:
    """What a group gets within a moment."""
    with BlockingConsumer(group, cluster.namesrv_address) as consumer:
        consumer.subscribe(topic)
        found = []
        while messages := consumer.receive(timeout=1.0):
            found += [message.body.decode() for message in messages]
            for message in messages:
                consumer.ack(message)
        return sorted(found)


def dead(cluster: Cluster, group: str) -> int:
    return cluster.message_count(dlq_topic(group))


# ------------------------------------------------------------------------------------------------------ in this process


def plan(cluster: Cluster, topic: str, handler: Any, **changed: Any) -> WorkerPlan:
    values: dict[str, Any] = {
        "handler": handler, "group": topic.lower(), "namesrv_addr": cluster.namesrv_address, "topic": topic,
        "expression": "*", "concurrency": 4, "timeout": 60.0, "grace": 10.0, "retry_delays": (0.1,),
        "dead_letter": (), "settings": {"invisible_ms": 1000}, **changed,
    }  # fmt: skip
    return WorkerPlan(**values)


async def ended(planned: WorkerPlan, when: Callable[[Worker], bool]) -> tuple[int, Worker]:
    """The exit code of a worker that is ended when something holds."""
    ending = Ending()
    worker = Worker(planned, ending)
    running = asyncio.create_task(worker.run())
    await until(lambda: running.done() or when(worker))
    ending.signal()
    return await running, worker


@pytest.mark.parametrize("kind", ["threads", "tasks"])
async def test_each_message_is_handled_once_and_no_more_than_allowed_at_a_time(cluster: Cluster, kind: str) -> None:
    topic = f"Handled-{kind}"
    filled(cluster, topic, *map(str, range(40)))
    seen: Counter[bytes] = Counter()
    now = most = 0

    def begin(message: MessageExt) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        seen[message.body] += 1

    def work(message: MessageExt) -> None:
        nonlocal now
        begin(message)
        time.sleep(0.01)
        now -= 1

    async def work_as_task(message: MessageExt) -> None:
        nonlocal now
        begin(message)
        await asyncio.sleep(0.01)
        now -= 1

    handler = work if kind == "threads" else work_as_task
    planned = plan(cluster, topic, handler, settings={"invisible_ms": 60_000})
    code, worker = await ended(planned, lambda worker: worker.status.done == 40)
    assert (code, worker.status.failed) == (FINISHED, 0)
    assert set(seen.values()) == {1}
    assert 1 < most <= 4
    assert left(cluster, topic, planned.group) == []


async def test_a_handler_may_take_longer_than_its_message_is_invisible(turned_clock: LoopFactory) -> None:
    calls, ending = 0, Ending()

    async def work(message: MessageExt) -> None:
        nonlocal calls
        calls += 1
        ending.signal()
        for _ in range(2):
            await renewed(own, [message], 2000)
        assert await asyncio.to_thread(left, own, "Long", "long") == []

    with Cluster() as own:
        filled(own, "Long", "one")
        planned = plan(own, "Long", work, timeout=None, grace=86_400.0, settings={"invisible_ms": 3_600_000})
        worker = Worker(planned, ending)
        assert await worker.run() == FINISHED
    assert (calls, worker.status.done, worker.status.failed) == (1, 1, 0)


async def test_what_fails_comes_again_and_is_a_dead_letter_in_the_end(cluster: Cluster) -> None:
    filled(cluster, "Failing", "twice", "always", "wrong", "value")
    calls: Counter[str] = Counter()

    def work(message: MessageExt) -> Any:
        what = message.body.decode()
        calls[what] += 1
        if what == "wrong":
            raise LookupError(what)
        if what == "always" or calls[what] == 1:
            raise ValueError(what)
        return "later" if what == "value" and calls[what] == 2 else None

    planned = plan(cluster, "Failing", work, dead_letter=(LookupError,), settings={"max_reconsume_times": 2})
    await ended(planned, lambda worker: worker.status.done == 2 and dead(cluster, "failing") == 2)
    assert calls == {"twice": 2, "always": 3, "wrong": 1, "value": 3}
    async with SimpleConsumer("undertaker", cluster.namesrv_address) as consumer:
        consumer.subscribe(dlq_topic("failing"))
        letters = [letter for _ in range(2) for letter in await consumer.receive(1, timeout=10)]
        assert {letter.body: letter.properties[DEAD_LETTER_REASON] for letter in letters} == {
            b"always": "ValueError: always", b"wrong": "LookupError: wrong",
        }  # fmt: skip


async def test_a_message_that_is_not_finished_in_time_goes_back(cluster: Cluster) -> None:
    filled(cluster, "Unfinished", "slow", "fast")

    async def work(message: MessageExt) -> None:
        await asyncio.sleep(3600 if message.body == b"slow" else 0)

    planned = plan(cluster, "Unfinished", work, grace=0.0, settings={"invisible_ms": 3_600_000})
    code, _ = await ended(planned, lambda worker: worker.status[1:] == (1, 1, 0))
    assert code == UNFINISHED
    assert left(cluster, "Unfinished", planned.group) == ["slow"]


async def test_a_second_signal_ends_the_grace(cluster: Cluster) -> None:
    filled(cluster, "Urgent", "slow")
    started, ending = asyncio.Event(), Ending()

    async def work(message: MessageExt) -> None:
        started.set()
        await asyncio.sleep(3600)

    running = asyncio.create_task(Worker(plan(cluster, "Urgent", work, grace=3600.0), ending).run())
    await started.wait()
    ending.signal()
    ending.signal()
    async with asyncio.timeout(30):
        assert await running == UNFINISHED


async def test_the_last_message_may_end_just_when_the_worker_does(cluster: Cluster) -> None:
    worker = Worker(plan(cluster, "Last", print), Ending())
    last = asyncio.create_task(settle(0))
    worker._tasks.add(last)
    last.add_done_callback(worker._ended)
    await asyncio.sleep(0)
    assert last.done()
    assert worker._tasks, "its callback runs in the next round of the loop"
    await worker._finish()


async def test_a_coroutine_that_takes_too_long_fails(cluster: Cluster) -> None:
    filled(cluster, "Overdue", "one")
    calls = 0

    async def work(message: MessageExt) -> None:
        nonlocal calls
        calls += 1
        await asyncio.sleep(3600 if calls == 1 else 0)

    code, worker = await ended(plan(cluster, "Overdue", work, timeout=0.2), lambda worker: worker.status.done == 1)
    assert (code, worker.status.failed, calls) == (FINISHED, 1, 2)


async def test_a_thread_that_takes_too_long_ends_the_worker(cluster: Cluster) -> None:
    filled(cluster, "Stuck", "one")

    def work(message: MessageExt) -> None:
        time.sleep(60)

    code, worker = await ended(plan(cluster, "Stuck", work, timeout=0.2), lambda worker: False)
    assert code == UNFINISHED
    assert worker.status.failure
    assert left(cluster, "Stuck", "stuck") == ["one"]


@pytest.mark.parametrize("kind", ["threads", "tasks"])
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
async def test_a_handler_that_raises_what_ends_programs_has_failed(
    cluster: Cluster, kind: str, error: type[BaseException]
) -> None:
    topic = f"Leaving-{kind}-{error.__name__}"
    filled(cluster, topic, "one")
    calls = 0
    protect(asyncio.get_running_loop())

    def work(message: MessageExt) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise error

    async def work_as_task(message: MessageExt) -> None:
        work(message)

    planned = plan(cluster, topic, work if kind == "threads" else work_as_task)
    code, worker = await ended(planned, lambda worker: worker.status.done == 1)
    assert (code, worker.status.failed) == (FINISHED, 1)


async def test_messages_come_again_after_a_broker_was_away(cluster: Cluster) -> None:
    with Cluster() as own:
        filled(own, "Away", "one")
        handled: list[bytes] = []
        ending = Ending()
        worker = Worker(plan(own, "Away", lambda message: handled.append(message.body)), ending)
        running = asyncio.create_task(worker.run())
        await until(lambda: len(handled) == 1)
        await asyncio.to_thread(own.kill)
        await until(lambda: worker._failing_since is not None)
        await asyncio.to_thread(own.restart)
        await asyncio.to_thread(filled, own, "Away", "two")
        await until(lambda: b"two" in handled)
        ending.signal()
        assert await running == FINISHED


# --------------------------------------------------------------------------------------------------------- as a program


class Program:
    """A worker that was started."""

    def __init__(self, cluster: Cluster, notes: Path, **settings: Any) -> None:
        self.notes = notes
        self.log = notes.with_suffix(".log")
        given = {"namesrv_addr": cluster.namesrv_address, "invisible_ms": 2000, "retry_delays": [0.1], **settings}
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.client.worker_program", json.dumps(given)],
                cwd=ROOT,
                env={**os.environ, "NOTES": str(notes)},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def noted(self, event: str) -> list[str]:
        lines = self.notes.read_text().splitlines() if self.notes.exists() else []
        return [line.split()[1] for line in lines if line.startswith(event)]

    def processes(self) -> set[int]:
        """Those that have handled a message."""
        return {int(line.split()[2]) for line in self.notes.read_text().splitlines()} if self.notes.exists() else set()

    def ends(self) -> int:
        return self.process.wait(120)  # of a busy machine


@contextmanager
def program(cluster: Cluster, tmp_path: Path, **settings: Any) -> Iterator[Program]:
    started = Program(cluster, tmp_path / "notes", **settings)
    try:
        yield started
    except BaseException:
        print(started.log.read_text())
        raise
    finally:
        started.process.kill()
        started.process.wait()


def health(port: int) -> tuple[int, str]:
    """Status and text; 0 while nothing listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_handler_finish(cluster: Cluster, tmp_path: Path, number: signal.Signals) -> None:
    topic, port = f"Signalled-{number.name}", free_port()
    filled(cluster, topic, "slow:2")
    with program(cluster, tmp_path, group=topic, topic=topic, health_port=port) as worker:
        wait_until(lambda: worker.noted("began"), 30, "the handler")
        assert health(port) == (200, "ok: 1 in progress, 0 done, 0 failed\n")
        worker.process.send_signal(number)
        wait_until(lambda: health(port)[0] == 503, 30, "the end in /healthz")
        assert health(port)[1].startswith("ending: 1 in progress")
        assert worker.ends() == FINISHED
        assert worker.noted("done") == ["slow:2"]
    assert left(cluster, topic, topic) == []


def test_a_process_that_dies_is_replaced(cluster: Cluster, tmp_path: Path) -> None:
    filled(cluster, "Processes", *(f"{number}:0.2" for number in range(20)))
    settings: dict[str, Any] = {"group": "processes", "topic": "Processes", "processes": 2, "concurrency": 2}
    port = free_port()
    sent = 20

    def worked(processes: int) -> bool:
        """More messages are sent until so many processes have handled some."""
        nonlocal sent
        filled(cluster, "Processes", f"{sent}:0.2")
        sent += 1
        return len(worker.processes()) == processes

    with program(cluster, tmp_path, **settings, health_port=port) as worker:
        wait_until(lambda: worked(2), 60, "both processes")
        killed = min(worker.processes())
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: health(port)[0] == 503, 30, "its death in /healthz")
        wait_until(lambda: health(port)[0] == 200, 30, "the new process")
        assert len(health(port)[1].splitlines()) == 2
        wait_until(lambda: worked(3), 60, "the new process at work")
        wait_until(lambda: len(set(worker.noted("done"))) == sent, 60, "all messages")
        worker.process.terminate()
        assert worker.ends() == FINISHED
        wait_until(lambda: not any(map(_lives, worker.processes())), 30, "the end of all processes")


def test_processes_finish_although_each_is_signalled_as_well(cluster: Cluster, tmp_path: Path) -> None:
    """As by systemd, which signals all processes of a service."""
    filled(cluster, "Grouped", "slow:3")
    with program(cluster, tmp_path, group="grouped", topic="Grouped", processes=2) as worker:
        wait_until(lambda: worker.noted("began"), 30, "the handler")
        (busy,) = worker.processes()
        os.kill(busy, signal.SIGTERM)
        worker.process.terminate()
        assert worker.ends() == FINISHED
        assert worker.noted("done") == ["slow:3"]


def test_a_second_signal_ends_processes_at_once(cluster: Cluster, tmp_path: Path) -> None:
    filled(cluster, "Hurried", "slow:3600")
    settings: dict[str, Any] = {"group": "hurried", "topic": "Hurried", "processes": 2, "grace": 3600.0}
    port = free_port()
    with program(cluster, tmp_path, **settings, health_port=port) as worker:
        wait_until(lambda: worker.noted("began"), 30, "the handler")
        worker.process.terminate()
        wait_until(lambda: "ending: 1 in progress" in health(port)[1], 30, "the end in /healthz")
        worker.process.terminate()
        assert worker.ends() == UNFINISHED
    assert left(cluster, "Hurried", "hurried") == ["slow:3600"]


async def test_a_process_whose_loop_is_blocked_is_not_healthy(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(cluster, "Blocked", "blocks:3600")
    monkeypatch.setattr(worker_processes, "UNHEALTHY_S", 3 * worker_processes.REPORT_S)
    monkeypatch.setattr(worker_processes, "KILL_S", 0.0)
    ending = Ending()
    processes = Processes(plan(cluster, "Blocked", block, grace=0.0), 1, ending)
    running = asyncio.create_task(processes.run())
    await until(lambda: running.done() or "blocked" in (processes.statuses[0].failure or ""))
    ending.signal()
    assert await running == UNFINISHED


async def test_a_process_that_cannot_be_made_ends_the_others(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class Process:
        def __init__(self, _plan: WorkerPlan) -> None:
            if made:
                raise BlockingIOError("no more processes")
            made.append(self)
            self.ended = asyncio.Event()
            self.process = SimpleNamespace(exitcode=0)

        def finish(self) -> None:
            self.ended.set()

    Process.end_at_once = Process.finish  # type: ignore[attr-defined]
    monkeypatch.setattr(worker_processes, "_Process", Process)
    async with asyncio.timeout(30):
        with pytest.raises(BlockingIOError):
            await Processes(plan(cluster, "Unmade", work), 2, Ending()).run()


def test_a_worker_leaves_the_signal_handlers_of_the_program(cluster: Cluster) -> None:
    filled(cluster, "Handlers", "one")

    def stop(_message: MessageExt) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    def own(*_: object) -> None: ...

    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, own) for number in numbers}
    try:
        assert run_worker(stop, "handlers", cluster.namesrv_address, topic="Handlers") == FINISHED
        assert [signal.getsignal(number) for number in numbers] == [own, own]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_processes_end_with_the_program(cluster: Cluster, tmp_path: Path) -> None:
    filled(cluster, "Orphans", *map(str, range(20)))
    with program(cluster, tmp_path, group="orphans", topic="Orphans", processes=2) as worker:
        wait_until(lambda: worker.processes(), 30, "a message")
        worker.process.kill()
        wait_until(lambda: not any(map(_lives, worker.processes())), 30, "the end of its processes")


def test_a_process_that_cannot_start_ends_the_program(cluster: Cluster, tmp_path: Path) -> None:
    with program(cluster, tmp_path, group="bad", topic="Bad", processes=2) as worker:
        assert worker.ends() == 1
        assert "ended 3 times before it worked" in worker.log.read_text()


def test_no_message_is_lost_when_workers_are_killed(cluster: Cluster, tmp_path: Path) -> None:
    count, rng = 300, random.Random(7)
    filled(cluster, "Killed", *(f"{number}:0.02" for number in range(count)))
    settings: dict[str, Any] = {"group": "killed", "topic": "Killed", "concurrency": 4}
    kills = 0
    with program(cluster, tmp_path, **settings, processes=2) as forked, program(cluster, tmp_path, **settings) as first:
        alone, done = first, first.noted("done")

        def more() -> list[str]:
            return found if len(found := alone.noted("done")) > len(done) else []

        while len(set(done)) < count:
            done = wait_until(more, 60, "progress")
            victims = sorted(pid for pid in alone.processes() if _lives(pid))
            if kills < 8 and victims:
                os.kill(rng.choice(victims), signal.SIGKILL)
                kills += 1
                if alone.process.poll() is not None:
                    alone = Program(cluster, tmp_path / "notes", **settings)
        alone.process.kill()
        alone.process.wait()
        ran = len(forked.noted("done"))
    assert set(left(cluster, "Killed", "killed")) <= set(done), "what was done may not be acknowledged yet"
    print(f"\n{count} messages, {kills} processes killed: each was done, {ran - count} more than once")


def test_what_cannot_work_is_named(cluster: Cluster) -> None:
    def run(**settings: Any) -> int:
        return run_worker(settings.pop("handler", print), "g", cluster.namesrv_address, topic="T", **settings)

    for wrong, named in [
        ({"concurrency": 0}, "concurrency 0"), ({"processes": 0}, "processes 0"), ({"grace": -1}, "grace -1"),
        ({"timeout": 0}, "timeout 0"), ({"retry_delays": []}, "retry_delays"),
        ({"retry_delays": [math.inf]}, "retry_delays inf"), ({"dead_letter": [1]}, "dead_letter"),
        ({"handler": lambda message: None, "processes": 2}, "cannot be passed to processes"),
        ({"handler": lambda: None}, "handler"), ({"invisible_ms": 0}, "invisible_ms"),
    ]:  # fmt: skip
        with pytest.raises(ConfigurationError, match=named):
            run(**wrong)


async def test_a_worker_is_not_run_inside_of_a_loop() -> None:
    with pytest.raises(InvalidStateError, match="main thread"):
        run_worker(print, "g", "127.0.0.1:1", topic="T")
