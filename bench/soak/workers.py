"""Workers of one group: processes with a synchronous consumer that SIGTERM ends in the midst of their work, as a
supervisor does. `Workers` starts and restarts them; run as a program this is one of them.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.soak.disks import KEY_END
from bench.soak.history import Journal, Worked, now
from orbitmq.client import ConsumeFromWhere
from orbitmq.client.sync import LitePullConsumer
from orbitmq.errors import OrbitMQError
from tests.support.process import ChildProcess

ROOT = Path(__file__).parents[2]
GROUP = "soak-workers"
NAMES = ("worker-1", "worker-2")
WORK_S = 0.005  # with a message: SIGTERM finds a worker at it now and then
AFTER_ERROR_S = 0.5  # until a supervisor starts a worker anew that has failed, as without a name server
ENDS_S = 30  # a worker gives back what it has not done, and takes its leave
ROUTE_MS, HEARTBEAT_MS = 1000, 2000


class Workers:
    """All of them, until the end of the context; what they did is appended to `history`."""

    def __init__(self, namesrv: str, topic: str, history: Path) -> None:
        self._arguments = ["--namesrv", namesrv, "--topic", topic, "--history", str(history)]
        self._outputs = history.parent
        self._running: dict[str, ChildProcess] = {}

    def restart(self, name: str) -> None:
        """End it by SIGTERM and start it anew. ProcessFailed when it does not end."""
        self._end(name)
        self._start(name)

    def _start(self, name: str) -> None:
        command = [sys.executable, "-m", "bench.soak.workers", "--name", name, *self._arguments]
        self._running[name] = ChildProcess(command, output=self._outputs / f"{name}.out", cwd=ROOT)

    def _end(self, name: str) -> None:
        process = self._running.pop(name)
        process.signal(signal.SIGTERM)
        process.wait(ENDS_S)

    def __enter__(self) -> Self:
        for name in NAMES:
            self._start(name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._running.values():
            process.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--namesrv", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--history", type=Path, required=True)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    journal = Journal(arguments.history)
    while True:
        try:
            _work(arguments, journal)
        except OrbitMQError as error:
            print(f"{type(error).__name__}: {error}", flush=True)
            time.sleep(AFTER_ERROR_S)


def _work(arguments: argparse.Namespace, journal: Journal) -> None:
    consumer = LitePullConsumer(
        GROUP,
        arguments.namesrv,
        instance_name=arguments.name,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        poll_namesrv_interval_ms=ROUTE_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    with consumer:
        consumer.subscribe(arguments.topic)
        for message in consumer:
            time.sleep(WORK_S)
            journal.add(Worked(message.body.partition(KEY_END)[0].decode(), arguments.name, now()))


if __name__ == "__main__":
    main()
