"""A worker that reads with auto-commit is restarted by SIGTERM while it works: every message is processed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.client import Message, sync
from tests.support.orbit_process import OrbitUp
from tests.support.process import ChildProcess

COUNT = 1500
RESTARTS = 5


@pytest.fixture(scope="module")
def system() -> Iterator[OrbitUp]:
    with OrbitUp() as running:
        yield running


def done(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


@pytest.mark.parametrize("way", ["poll", "iteration", "coroutine"])
def test_rolling_restarts_of_a_worker_lose_no_message(system: OrbitUp, tmp_path: Path, way: str) -> None:
    path, topic = tmp_path / "done", f"Restarts-{way}"
    with sync.Producer("p", system.namesrv_address) as producer:
        for n in range(COUNT):
            producer.send(Message(topic, b"%d" % n))
    command = [sys.executable, "-m", "tests.support.restarted_worker", way, system.namesrv_address, topic, str(path)]
    for restart in range(1, RESTARTS + 2):
        enough = COUNT * restart // (RESTARTS + 1)
        with ChildProcess(command, output=tmp_path / f"worker-{restart}.out") as worker:
            worker.wait_for(lambda enough=enough: len(set(done(path))) >= enough, 60, f"{enough} messages")  # type: ignore[misc]
            assert worker.stop() == 0, worker.errors()
    found = done(path)
    print(
        f"{way}: {RESTARTS} restarts, {COUNT - len(set(found))} of {COUNT} lost, {len(found) - len(set(found))} twice"
    )
    assert set(found) == set(map(str, range(COUNT)))
