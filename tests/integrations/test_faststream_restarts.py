"""An application of FastStream that is ended by SIGTERM again and again under load: it handles every message, and none
is cut off.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orbitmq.client import Message, Producer
from orbitmq.testing import Cluster
from tests.support.loops import until

ROOT = Path(__file__).parents[2]
EXIT_S = 30  # the application waits 15 s for its handlers, which take 20 ms
SENT, HANDLED = 100, 60  # between two restarts: the application always has more to do when it is ended


class Application:
    """One process."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.integrations.faststream_app"],
                cwd=ROOT, env={**os.environ, **environment}, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(EXIT_S)


@contextmanager
def application(environment: dict[str, str], log: Path) -> Iterator[Application]:
    running = Application(environment, log)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait()


def noted(notes: Path, what: str) -> Counter[int]:
    """How often each number was noted."""
    lines = (line.split() for file in notes.iterdir() for line in file.read_text().splitlines())
    return Counter(int(number) for kind, number in lines if kind == what)


@pytest.mark.parametrize("restarts", [3, pytest.param(20, marks=pytest.mark.long)])
async def test_every_message_is_handled_though_the_application_is_restarted(
    tmp_path: Path, restarts: int, capsys: pytest.CaptureFixture[str]
) -> None:
    notes, log, sent = tmp_path / "notes", tmp_path / "log", 0
    notes.mkdir()
    with Cluster() as cluster:
        environment = {"NAMESRV_ADDR": cluster.namesrv_address, "ORBITMQ_FASTSTREAM_NOTES": str(notes)}
        async with Producer("load", cluster.namesrv_address) as producer:
            for _ in range(restarts):
                bodies = [str(number).encode() for number in range(sent, sent + SENT)]
                await asyncio.gather(*(producer.send(Message("work", body)) for body in bodies))
                sent += SENT
                with application(environment, log) as running:
                    goal = len(noted(notes, "end")) + HANDLED
                    await until(lambda: len(noted(notes, "end")) >= goal)  # noqa: B023
                    assert await asyncio.to_thread(running.stop) == 0, log.read_text()[-4000:]
        with application(environment, log) as running:
            await until(lambda: len(noted(notes, "end")) == sent)
            assert await asyncio.to_thread(running.stop) == 0, log.read_text()[-4000:]
        begun, ended = noted(notes, "begin"), noted(notes, "end")
        assert ended.keys() == set(range(sent)), "messages were lost"
        assert begun == ended, "handlers were cut off"
        assert cluster.backlog("workers", "work") == 0
    with capsys.disabled():
        print(f"\n{restarts} restarts: {sent} messages, 0 lost, handled {ended.total()} times, no handler cut off")
