"""Members of etcd, Debian's, as processes.

with Etcds(3) as etcds:
    etcds.urls       # where clients ask
    etcds.kill(0)
"""

from __future__ import annotations

import shutil
import tempfile
import urllib.request
from pathlib import Path
from typing import Self

from tests.support.process import ChildProcess, free_port, wait_until

READY_S = 30


class Etcds:
    """A cluster that nobody else has a part in; its data is gone when it ends."""

    def __init__(self, members: int = 1) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="etcd-"))
        self._peers = [f"http://127.0.0.1:{free_port()}" for _ in range(members)]
        self.urls = [f"http://127.0.0.1:{free_port()}" for _ in range(members)]
        self.processes: list[ChildProcess | None] = [None] * members

    def start(self, number: int) -> None:
        cluster = ",".join(f"m{at}={peer}" for at, peer in enumerate(self._peers))
        options = {
            "name": f"m{number}",
            "data-dir": self._home / f"m{number}",
            "listen-client-urls": self.urls[number],
            "advertise-client-urls": self.urls[number],
            "listen-peer-urls": self._peers[number],
            "initial-advertise-peer-urls": self._peers[number],
            "initial-cluster": cluster,
            "logger": "zap",
            "log-level": "error",
        }
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        output = self._home / f"m{number}.out"
        self.processes[number] = ChildProcess(["etcd", *words], output=output, cwd=self._home)

    def kill(self, number: int) -> None:
        process = self.processes[number]
        assert process is not None
        process.kill()
        self.processes[number] = None

    def __enter__(self) -> Self:
        try:
            for number in range(len(self.processes)):
                self.start(number)
            for url in self.urls:
                wait_until(lambda url=url: _is_healthy(url), READY_S, f"etcd at {url}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.processes:
            if process is not None:
                process.kill()
        shutil.rmtree(self._home, ignore_errors=True)


def _is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as response:
            return b'"true"' in response.read()
    except OSError:
        return False
