"""Workers of Celery with forked pools, killed at random: every task runs, those with an ETA when they are due."""

from __future__ import annotations

import os
import random
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from orbitmq.testing import Cluster
from tests.support.process import wait_until

ROOT = Path(__file__).parents[2]
POOL = 2  # processes of a worker
WORKERS = 2
RUN_S = 120  # for everything; some 30 are needed
LATE_MAX_S = 30.0  # of a task with an ETA: a worker that is killed holds it for its visibility timeout, and starts anew


class Run(NamedTuple):
    """That a task ran: its number, when, and when it should have, both in seconds. `again` is 1 if a worker had it
    before, which was killed.
    """

    number: int
    at: float
    due: float
    again: float


class Shop(NamedTuple):
    """A cluster, the application of `celery_app`, and the files of its workers."""

    cluster: Cluster
    application: Any
    notes: Path
    log: Path


class Worker:
    def __init__(self, number: int, environment: dict[str, str], log: Path) -> None:
        command = [sys.executable, "-m", "celery", "-A", "tests.integrations.celery_app", "worker"]
        self._name, self._log, self._begins = f"w{number}@", log, log.stat().st_size if log.exists() else 0
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [*command, "-c", str(POOL), "-n", f"{self._name}%h", "--loglevel", "INFO"],
                cwd=ROOT,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def children(self) -> list[int]:
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(child) for task in tasks for child in task.read_text().split()]

    def kill(self) -> None:
        """The worker and its pool at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def _is_ready(self) -> bool:
        log = self._log.read_bytes()[self._begins :].decode(errors="replace")
        return re.search(rf"{self._name}\S+ ready\.", log) is not None

    def stop(self) -> int:
        wait_until(self._is_ready, RUN_S, "the worker to be ready: SIGTERM ends one that is still starting")
        self.process.terminate()
        return self.process.wait(60)


@contextmanager
def workers(environment: dict[str, str], log: Path, count: int = WORKERS) -> Iterator[list[Worker]]:
    started = [Worker(number, environment, log) for number in range(count)]
    try:
        yield started
    finally:
        for worker in started:
            if worker.process.poll() is None:
                worker.kill()


class Killer:
    """Kills workers and processes of their pools, and starts workers that are gone."""

    def __init__(self, workers: list[Worker], choice: random.Random, log: Path, *, kills: int, pools: int) -> None:
        self.kills = self.pools = 0
        self._workers, self._choice, self._log = workers, choice, log
        self._kills_max, self._pools_max = kills, pools

    def until_done(self, notes: Path, count: int) -> None:
        """Until so many tasks have run and all kills are done."""
        deadline = time.monotonic() + RUN_S
        while len({run.number for run in runs(notes)}) < count or self.kills < self._kills_max:
            assert time.monotonic() < deadline, self._log.read_text()[-4000:]
            time.sleep(0.5)
            self._kill(self._choice.randrange(len(self._workers)))

    def _kill(self, place: int) -> None:
        worker = self._workers[place]
        if worker.process.poll() is not None:  # Celery gives up if its pool is killed while it starts
            self._workers[place] = Worker(place, dict(os.environ), self._log)
        elif self.kills < self._kills_max and self._choice.random() < 0.2:
            worker.kill()
            self._workers[place] = Worker(place, dict(os.environ), self._log)
            self.kills += 1
        elif self.pools < self._pools_max and (children := worker.children()):
            os.kill(self._choice.choice(children), signal.SIGKILL)
            self.pools += 1


def runs(notes: Path) -> list[Run]:
    found = []
    for file in notes.iterdir():
        for line in file.read_text().splitlines():
            number, *times = line.split()
            if len(times) == 3:  # a process may have been killed while it wrote
                found.append(Run(int(number), *map(float, times)))
    return found


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    notes = tmp_path / "notes"
    notes.mkdir()
    with Cluster() as cluster:
        monkeypatch.setenv("ORBITMQ_CELERY_BROKER", f"orbitmq://{cluster.namesrv_address}")
        monkeypatch.setenv("ORBITMQ_CELERY_NOTES", str(notes))
        monkeypatch.delitem(sys.modules, "tests.integrations.celery_app", raising=False)
        application = import_module("tests.integrations.celery_app")
        yield Shop(cluster, application, notes, tmp_path / "log")
        application.app.close()


def test_a_worker_goes_on_when_its_broker_has_crashed(shop: Shop) -> None:
    def ran(count: int) -> None:
        wait_until(lambda: {run.number for run in runs(shop.notes)} == set(range(count)), RUN_S, "the tasks")

    with workers(dict(os.environ), shop.log, 1) as (worker,):
        for number in range(20):
            shop.application.note.delay(number)
        ran(20)
        assert shop.application.app.control.ping(timeout=20, limit=1)
        shop.cluster.kill()
        shop.cluster.restart()
        for number in range(20, 40):
            shop.application.note.delay(number)
        ran(40)
        assert shop.application.app.control.ping(timeout=20, limit=1)
        assert worker.stop() == 0
    assert shop.cluster.message_count("%DLQ%celery") == 0


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_every_task_runs_though_workers_are_killed(count: int, shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    cluster, application, notes, log = shop
    choice = random.Random(count)
    with workers(dict(os.environ), log) as started:
        for number in range(count):
            application.note.delay(number)
        at_once = Killer(started, choice, log, kills=3, pools=count // 100)
        at_once.until_done(notes, count)
        # With an ETA once the others are done: else they would wait for those and not for their time.
        all_ = count + count // 20
        for number in range(count, all_):
            eta = datetime.now(UTC) + timedelta(seconds=choice.uniform(5, 15))
            application.note.apply_async((number, eta.timestamp()), eta=eta)
        later = Killer(started, choice, log, kills=1, pools=8)
        later.until_done(notes, all_)
        assert [worker.stop() for worker in started] == [0] * WORKERS
    assert cluster.message_count("%DLQ%celery") == 0
    all_runs = runs(notes)
    first = {run.number: run for run in sorted(all_runs, reverse=True)}
    late = [run.at - run.due for run in first.values() if run.due]
    held = sum(run.at - run.due > 1 for run in first.values() if run.due and run.again)
    with capsys.disabled():
        print(
            f"\n{all_} tasks ran {len(all_runs)} times; killed: {at_once.kills + later.kills} workers and "
            f"{at_once.pools + later.pools} processes of pools; {len(late)} ETAs, late by "
            f"{statistics.median(late):.2f} s at the median, {max(late):.2f} s at most, "
            f"{sum(one > 1 for one in late)} by more than a second, {held} of which were held by what was killed"
        )
    assert min(late) > -0.01, "a task ran before its ETA"
    assert max(late) < LATE_MAX_S
