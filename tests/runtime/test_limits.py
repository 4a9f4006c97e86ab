"""A daemon may open as many files as the administrator allows, whatever shell it was started from."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from orbitmq.runtime.limits import open_files, raise_open_files
from tests.support.orbit_process import ORBITMQ
from tests.support.process import ChildProcess, free_port

FEW = 256


@pytest.fixture
def few_files() -> object:
    """A process that may open few files, and is allowed more."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1] - 1, before[1]))
    yield before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_soft_limit_becomes_the_hard_one(few_files: int) -> None:
    assert raise_open_files() == few_files
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (few_files, few_files)


def test_a_system_that_refuses_leaves_the_limit_as_it_was(few_files: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert raise_open_files() == few_files - 1


def test_no_limit_is_a_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system tells it as -1."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert open_files() > 1 << 40


def test_a_daemon_raises_its_limit_when_it_starts(tmp_path: Path) -> None:
    command = f"ulimit -Sn {FEW} && exec {ORBITMQ} namesrv --port {free_port()}"
    child = ChildProcess(
        ["sh", "-c", command], output=tmp_path / "out", cwd=tmp_path, environment={"HOME": str(tmp_path)}
    )
    try:
        child.wait_for(lambda: "name server" in child.output(), 60, "the name server to serve")
        limits = Path(f"/proc/{child.pid}/limits").read_text()
        (line,) = [line for line in limits.splitlines() if line.startswith("Max open files")]
        soft, hard = line.split()[3:5]
        assert soft == hard != str(FEW)
    finally:
        child.stop()
