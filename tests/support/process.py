"""Child processes of live tests: started with a log file, awaited with a deadline, never left behind.

Knows nothing of what it runs. Three nets keep a child from outliving the tests: `stop` in the context manager, an exit
hook of the interpreter, and the kernel's parent-death signal for the case where the interpreter itself is killed.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self, TypeVar

T = TypeVar("T")

_PR_SET_PDEATHSIG = 1
_POLL_INTERVAL_S = 0.02
_START_TIMEOUT_S = 90  # a Java broker takes 4 s alone, far longer when two cores are shared with other tests
# Below the kernel's ephemeral range, so that no outgoing connection takes a port between the probe and its use.
_PORTS = range(12_000, 32_000)
_WORKERS = 4  # test processes with a part of the ports each: what one has chosen and not taken yet is no other's choice
_chosen: set[int] = set()

_libc = ctypes.CDLL(None, use_errno=True)
# The parent-death signal fires when the *thread* that forked ends, so one thread that lives as long as we do forks all.
_forker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="forker")
_alive: set[ChildProcess] = set()


class ProcessFailed(AssertionError):
    """A child ended or stayed silent where the test needed it; carries the tail of its output."""


def free_port(*neighbours: int) -> int:
    """A port nobody listens on, with its `neighbours` (offsets to it) free as well."""
    size = len(_PORTS) // _WORKERS
    first = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS * size
    for _ in range(200):
        port = random.choice(_PORTS[first : first + size])
        wanted = {port, *(port + offset for offset in neighbours)}
        if wanted.isdisjoint(_chosen) and all(map(_is_free, wanted)):
            _chosen.update(wanted)
            return port
    raise ProcessFailed("no free port found")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


def wait_until(condition: Callable[[], T], timeout_s: float, what: str) -> T:
    """Poll until `condition` returns something true, and return that; ProcessFailed naming `what` at the deadline."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() >= deadline:
            raise ProcessFailed(f"waited {timeout_s:g} s in vain: {what}")
        time.sleep(_POLL_INTERVAL_S)
    return value


def accepts(port: int) -> bool:
    """Whether somebody accepts connections on this loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def write_properties(path: Path, properties: Mapping[str, object]) -> Path:
    """Write a Java properties file of plain values."""
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()), encoding="utf-8")
    return path


class ChildProcess:
    """One running child; standard output and standard error go to files. One that `listens` takes lines from `tell`."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        output: Path,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        listens: bool = False,
    ) -> None:
        self.command = list(command)
        self.output_path = output
        self.error_path = output.with_suffix(".err")
        self._listens = listens
        self._process = _forker.submit(self._start, {**os.environ, **(environment or {})}, cwd).result()
        _alive.add(self)

    def _start(self, environment: Mapping[str, str], cwd: Path | None) -> subprocess.Popen[bytes]:
        with self.output_path.open("wb") as out, self.error_path.open("wb") as err:
            return subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE if self._listens else subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environment,
                cwd=cwd,
                start_new_session=True,
                preexec_fn=lambda: _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative when a signal ended it."""
        return self._process.poll()

    def tell(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self._process.stdin is not None, "it does not listen"
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def output(self) -> str:
        return self.output_path.read_text(encoding="utf-8", errors="replace")

    def errors(self) -> str:
        return self.error_path.read_text(encoding="utf-8", errors="replace")

    def wait_for(self, condition: Callable[[], T], timeout_s: float, what: str) -> T:
        """Like `wait_until`, but fails at once when the child ends before the condition holds."""

        def check() -> T:
            ended = self.exit_code is not None
            value = condition()
            if ended and not value:
                raise self.failed(f"ended with {self.exit_code} while waiting: {what}")
            return value

        try:
            return wait_until(check, timeout_s, what)
        except ProcessFailed as error:
            if str(self.pid) in str(error):
                raise
            raise self.failed(str(error)) from None

    def wait(self, timeout_s: float) -> int:
        """Its exit code once it has ended by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(timeout_s)
            _alive.discard(self)
            return code
        raise self.failed(f"still running after {timeout_s:g} s")

    def failed(self, reason: str) -> ProcessFailed:
        errors = self.errors().splitlines()
        # A virtual machine that broke writes a long report, whose beginning says why.
        shown = errors if len(errors) <= 50 else [*errors[:25], *errors[-25:]]
        tail = "\n".join([*self.output().splitlines()[-15:], *shown])
        return ProcessFailed(f"{' '.join(self.command)[-300:]} (pid {self.pid}): {reason}\n{tail}")

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def freeze(self) -> None:
        """SIGSTOP; returns once it does nothing more."""
        self.signal(signal.SIGSTOP)
        wait_until(lambda: self._state() == "T", 10, f"pid {self.pid} to be stopped")

    def _state(self) -> str:
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]

    def stop(self, grace_s: float = 30) -> int:
        """SIGTERM, then SIGKILL after `grace_s`; returns the exit code."""
        if self.exit_code is None:
            self.signal(signal.SIGTERM)
        try:
            code = self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            code = self.kill()
        _alive.discard(self)
        return code

    def kill(self) -> int:
        """kill -9, as a power cut would do it to the process."""
        self._process.kill()
        code = self._process.wait()
        _alive.discard(self)
        return code

    def cpu_seconds(self) -> float:
        """Processor time of the process so far, user and system, without its children."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


class Daemon(ABC):
    """A server of a live test: one directory, one port, and a process to start, stop, kill and restart.

    Without a `home` it works in a temporary directory; when nothing in there outlives it (`throw_away`), leaving the
    context kills it, which saves the seconds of a clean stop.
    """

    def __init__(self, port: int, home: Path | None, *, throw_away: bool = True) -> None:
        self.port = port
        self.address = f"127.0.0.1:{port}"
        self.home = home or Path(tempfile.mkdtemp(prefix="daemon-"))
        self._owns_home = home is None
        self._throw_away = self._owns_home and throw_away
        self.process: ChildProcess | None = None

    @abstractmethod
    def _launch(self) -> ChildProcess:
        """Start the process, without waiting for it."""

    @abstractmethod
    def _is_ready(self, process: ChildProcess) -> bool:
        """Whether it serves now."""

    def start(self) -> Self:
        """Returns once it serves; ProcessFailed with the tail of its output if it does not."""
        process = self.process = self._launch()
        what = f"{type(self).__name__} to serve"
        process.wait_for(lambda: self._is_ready(process), _START_TIMEOUT_S, what)
        return self

    def stop(self) -> int:
        """Clean stop, as SIGTERM does it; the directory stays. Returns the exit code."""
        process, self.process = self.process, None
        return process.stop() if process else 0

    def kill(self) -> None:
        """kill -9; the directory stays."""
        process, self.process = self.process, None
        if process:
            process.kill()

    def check_alive(self) -> None:
        """ProcessFailed with its exit code when it has ended by itself. It is started again then, on what it has left,
        for others that share it.
        """
        process = self.process
        if process is not None and process.exit_code is not None:
            failure = process.failed(f"ended by itself with {process.exit_code}")
            self.start()
            raise failure

    def restart(self) -> Self:
        """Stops it if it still runs and starts it again on the same port and directory."""
        self.stop()
        return self.start()

    def __enter__(self) -> Self:
        try:
            return self if self.process else self.start()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *error: object) -> None:
        if self._throw_away:
            self.kill()
        self.stop()
        if self._owns_home:
            shutil.rmtree(self.home, ignore_errors=True)


@atexit.register
def _kill_leftovers() -> None:
    for child in list(_alive):
        child.kill()
