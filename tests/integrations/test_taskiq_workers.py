"""Workers of taskiq, killed at random: every task runs, those with an ETA when they are due."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path

import pytest

from orbitmq.testing import Cluster

ROOT = Path(__file__).parents[2]
COUNT, ETAS = 1000, 50
KILLS = 6
BETWEEN = 100  # tasks that run between two kills, so that no worker is killed before it works
RUN_S = 120  # for everything; some 30 are needed


def worker(log: Path) -> subprocess.Popen[bytes]:
    """One with two processes."""
    command = [
        sys.executable,
        "-m",
        "taskiq",
        "worker",
        "--workers",
        "2",
        "--max-async-tasks",
        "4",
        "--ack-type",
        "when_executed",
    ]
    with log.open("ab") as output:
        return subprocess.Popen(
            [*command, "--ack-type", "when_executed", "tests.integrations.taskiq_app:broker"],
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def runs(notes: Path) -> list[tuple[int, float, float]]:
    """Number, time and due time of each task that ran."""
    found = []
    for file in notes.iterdir():
        for line in file.read_text().splitlines():
            number, *times = line.split()
            if len(times) == 2:  # a process may have been killed while it wrote
                found.append((int(number), float(times[0]), float(times[1])))
    return found


def test_every_task_runs_though_workers_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    notes, log = tmp_path / "notes", tmp_path / "log"
    notes.mkdir()
    choice = random.Random(COUNT)
    with Cluster() as cluster:
        monkeypatch.setenv("ORBITMQ_TASKIQ_BROKER", cluster.namesrv_address)
        monkeypatch.setenv("ORBITMQ_TASKIQ_NOTES", str(notes))
        monkeypatch.delitem(sys.modules, "tests.integrations.taskiq_app", raising=False)
        application = import_module("tests.integrations.taskiq_app")

        async def publish(numbers: range, *, have_etas: bool) -> None:
            await application.broker.startup()
            for number in numbers:
                eta = datetime.now(UTC) + timedelta(seconds=choice.uniform(2, 6))
                kicker = application.note.kicker().with_labels(eta=eta) if have_etas else application.note.kicker()
                await kicker.kiq(number, eta.timestamp() if have_etas else 0.0)
            await application.broker.shutdown()

        def until_done(count: int) -> Iterator[int]:
            deadline = time.monotonic() + RUN_S
            while (ran := len({number for number, *_ in runs(notes)})) < count:
                assert time.monotonic() < deadline, log.read_text()[-4000:]
                yield ran
                time.sleep(0.1)

        asyncio.run(publish(range(COUNT), have_etas=False))
        workers, kills, next_kill = [worker(log), worker(log)], 0, BETWEEN
        try:
            for ran in until_done(COUNT):
                if ran >= next_kill and kills < KILLS:
                    place = choice.randrange(2)
                    os.killpg(workers[place].pid, signal.SIGKILL)
                    workers[place].wait()
                    workers[place] = worker(log)
                    kills, next_kill = kills + 1, ran + BETWEEN
            # With an ETA once the others are done: else they would wait for those and not for their time.
            asyncio.run(publish(range(COUNT, COUNT + ETAS), have_etas=True))
            for _ in until_done(COUNT + ETAS):
                pass
        finally:
            for one in workers:
                os.killpg(one.pid, signal.SIGKILL)
                one.wait()
        assert cluster.message_count("%DLQ%shop") == 0
    all_runs = runs(notes)
    late = [at - due for _, at, due in all_runs if due]
    with capsys.disabled():
        print(
            f"\n{COUNT + ETAS} tasks ran {len(all_runs)} times; {kills} workers killed; {ETAS} ETAs, late by "
            f"{statistics.median(late):.2f} s at the median, {max(late):.2f} s at most"
        )
    assert kills == KILLS
    assert min(late) > -0.01, "a task ran before its ETA"
