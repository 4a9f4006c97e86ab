"""What a run of many minutes is at, and an end with a reason for one that has come to a standstill.

The limit of a test (pytest-timeout, faulthandler) is watched by the process that runs it. A process that is stopped, or
that waits between two tests, has none; the controller sees that it no longer reports.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

EVERY_SECONDS = 300.0
STANDSTILL_SECONDS = 900.0  # more than `faulthandler_timeout`, the longest limit of a test
SHOWN_CHARS = 150
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Progress:
    """Prints every few minutes which tests are running, and since when. When none has begun or ended for
    STANDSTILL_SECONDS, it prints the processes of the run as well, and ends it.
    """

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal
        self._running: dict[str, float] = {}
        self._done = 0
        self._begun = self._last = time.monotonic()
        self._ended = threading.Event()

    def pytest_sessionstart(self) -> None:
        threading.Thread(target=self._watch, name="progress", daemon=True).start()

    def pytest_sessionfinish(self) -> None:
        self._ended.set()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running[nodeid] = self._last = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._running.pop(nodeid, None)
        self._last = time.monotonic()
        self._done += 1

    def _watch(self) -> None:
        while not self._ended.wait(EVERY_SECONDS):
            now = time.monotonic()
            running = ", ".join(f"{name} for {now - since:.0f} s" for name, since in dict(self._running).items())
            minutes = (now - self._begun) / 60
            self._terminal.write_line(f"\nafter {minutes:.0f} min: {self._done:,} tests done; running: {running}")
            if now - self._last > STANDSTILL_SECONDS:
                self._terminal.write_line("\n".join(["no test has begun or ended since; processes:", *processes()]))
                os.kill(os.getpid(), signal.SIGINT)
                return


def processes() -> list[str]:
    """One line for each process under this one: its state, what it waits for in the kernel, CPU seconds, command."""
    found: dict[int, tuple[int, str]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # The command's name in parentheses may contain spaces.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            waits = (folder / "wchan").read_text()
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended
            continue
        state, parent, seconds = fields[0], int(fields[1]), (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND
        found[int(folder.name)] = parent, f"{folder.name} {state} {waits} {seconds:.0f} s {command[:SHOWN_CHARS]}"
    ours = {os.getpid()}
    while more := {pid for pid, (parent, _) in found.items() if parent in ours} - ours:
        ours |= more
    return [found[pid][1] for pid in sorted(ours)]
