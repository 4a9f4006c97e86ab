"""A run that has come to a standstill says where, and ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from tests.support import progress
from tests.support.progress import Progress, processes


class Terminal:
    def __init__(self) -> None:
        self.text = ""
        self.is_written = threading.Event()

    def write_line(self, line: str) -> None:
        self.text += line + "\n"
        self.is_written.set()


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once the run would have been ended."""
    happened = threading.Event()
    monkeypatch.setattr(progress, "EVERY_SECONDS", 0.001)
    monkeypatch.setattr(progress.os, "kill", lambda *of: of == (os.getpid(), signal.SIGINT) and happened.set())
    return happened


def test_a_standstill_ends_the_run_and_shows_the_test_and_the_processes(
    monkeypatch: pytest.MonkeyPatch, ended: threading.Event
) -> None:
    monkeypatch.setattr(progress, "STANDSTILL_SECONDS", 0.0)
    terminal = Terminal()
    watched = Progress(terminal)  # type: ignore[arg-type]
    watched.pytest_runtest_logstart("test_slow.py::test_one")
    watched.pytest_sessionstart()
    assert ended.wait(10)
    assert "0 tests done; running: test_slow.py::test_one for" in terminal.text
    assert f"\n{os.getpid()} " in terminal.text


def test_a_run_that_goes_on_is_not_ended(monkeypatch: pytest.MonkeyPatch, ended: threading.Event) -> None:
    terminal = Terminal()
    watched = Progress(terminal)  # type: ignore[arg-type]
    watched.pytest_runtest_logfinish("test_slow.py::test_one")
    watched.pytest_sessionstart()
    assert terminal.is_written.wait(10)
    watched.pytest_sessionfinish()
    assert "1 tests done" in terminal.text
    assert not ended.is_set()


def test_stopped_processes_are_shown_as_such() -> None:
    with subprocess.Popen([sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"]) as stopped:
        try:
            os.waitid(os.P_PID, stopped.pid, os.WSTOPPED)
            assert any(line.startswith(f"{stopped.pid} T ") for line in processes())
        finally:
            stopped.kill()
