"""Runs the suite of taskiq itself with its tasks on a live orbitmq (`make test-taskiq`). It is in the source
distribution of the version that is installed, and knows one broker, in memory: here that one sends each task and
receives it again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from orbitmq.testing import Cluster
from supply.celery_suites import unpacked

PLUGIN = '''
import asyncio
import itertools
import os

import pytest
from taskiq import InMemoryBroker
from taskiq.exceptions import UnknownTaskError

from orbitmq.integrations.taskiq import OrbitMQBroker

links = {}
numbers = itertools.count()
sent = received = 0


class Link:
    """The broker of orbitmq that a broker in memory sends its tasks through."""

    def __init__(self):
        self.broker = OrbitMQBroker(os.environ["TASKIQ_SUITE"], queue=f"suite-{next(numbers)}", queues=1)
        self.listening = self.broker.listen()
        self.turn = asyncio.Lock()

    async def work(self, receiver):
        global received
        async with self.turn:
            message = await anext(self.listening)
        received += 1
        await receiver.callback(message=message)


async def kick(self, message):
    global sent
    if self.find_task(message.task_name) is None:
        raise UnknownTaskError(task_name=message.task_name)
    if self not in links:
        links[self] = Link()
        await links[self].broker.startup()
    await links[self].broker.kick(message)
    sent += 1
    task = asyncio.create_task(links[self].work(self.receiver))
    self._running_tasks.add(task)
    task.add_done_callback(self._running_tasks.discard)
    if self.await_inplace:
        await task


InMemoryBroker.kick = kick


@pytest.fixture(autouse=True)
async def ended_links(anyio_backend):
    yield
    while links:
        _, link = links.popitem()
        await link.broker.shutdown()


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"{sent} tasks sent to orbitmq, {received} received")
'''
# What needs packages that orbitmq does not: of serializers, of telemetry, and those that only make data and clocks.
LEFT_OUT = (
    "tests/opentelemetry", "tests/serializers", "tests/test_task.py", "tests/middlewares/admin_middleware",
    "tests/scheduler/test_label_based_sched.py",
)  # fmt: skip

# Parts of names of what is so in memory alone.
NOT_MEANT = (
    "test_inmemory_success",  # nothing is left to do when the result is there; a task is acknowledged after it
    "preserve_contextvars",  # no broker is used; the fixture that shuts clients down has a context of its own
    # In memory a retry ignores its delay of 5 s; these wait 1 s for it.
    "test_per_task_exc_types_matching and SmartRetryMiddleware",
    "test_per_task_exc_types_override_global and SmartRetryMiddleware",
    "test_retry_of_custom_exc_types_of_smart_middleware",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tests", nargs="*", default=["tests"], help="such as tests/test_requeue.py (all)")
    chosen = parser.parse_args().tests
    with tempfile.TemporaryDirectory(prefix="suite-") as name, Cluster() as cluster:
        home = unpacked("taskiq", Path(name))
        (home / "orbitmq_links.py").write_text(PLUGIN)
        path = os.pathsep.join([str(home), *filter(None, [os.environ.get("PYTHONPATH")])])
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:orbitmq",
            "-p",
            "no:cacheprovider",
            "--timeout",
            "120",
        ]
        meant = f"not ({' or '.join(f'({one})' for one in NOT_MEANT)})"
        settings = ["-p", "orbitmq_links", "-o", "anyio_mode=auto", "-k", meant]
        settings += [f"--ignore={one}" for one in LEFT_OUT]
        return subprocess.run(
            [*command, *settings, *chosen],
            cwd=home,
            env={**os.environ, "PYTHONPATH": path, "TASKIQ_SUITE": cluster.namesrv_address},
            check=False,
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
