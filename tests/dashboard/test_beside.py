"""`orbitmq up` serves the page: in a process that begins with the first look and ends with it."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import orbitmq
from tests.support.dashboards import Visitor
from tests.support.orbit_process import ORBITMQ
from tests.support.process import ChildProcess, wait_until

PATIENCE_S = 60


@pytest.fixture
def started(tmp_path: Path) -> Iterator[ChildProcess]:
    command = [ORBITMQ, "up", "--data-dir", tmp_path / "data", "--namesrv-port", 0, "--broker-port", 0]
    environment = {"XDG_CONFIG_HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    child = ChildProcess(
        [*map(str, command), "--dashboard-port", "0"], output=tmp_path / "up.out", environment=environment
    )
    yield child
    child.kill()


def _visitor(started: ChildProcess) -> Visitor:
    pattern = re.compile(r"dashboard +(http://127\.0\.0\.1:\d+)/\n")
    found = started.wait_for(lambda: pattern.search(started.output()), PATIENCE_S, "the address")
    return Visitor(found.group(1), "local")


def _pages_of(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if b"dashboard" in Path(f"/proc/{child}/cmdline").read_bytes()]


def test_the_page_begins_with_the_first_look_and_ends_with_the_broker(started: ChildProcess) -> None:
    visitor = _visitor(started)
    assert _pages_of(started.pid) == []
    page = visitor.get("/")
    assert (page.status, page.title) == (200, "Overview")
    assert "DefaultCluster: all is well" in page.words
    (child,) = _pages_of(started.pid)
    assert visitor.get("/").status == 200
    assert _pages_of(started.pid) == [child]
    started.stop()
    assert not os.path.exists(f"/proc/{child}")  # noqa: PTH110 -- it is no file of ours


def test_it_does_not_outlive_a_broker_that_is_killed(started: ChildProcess) -> None:
    assert _visitor(started).get("/").status == 200
    (child,) = _pages_of(started.pid)
    started.kill()
    wait_until(lambda: not _is_alive(child), PATIENCE_S, "the page's process to end")


def _is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:1]
    except FileNotFoundError:
        return False


def test_a_port_of_one_s_own_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ports = ("--namesrv-port", 0, "--broker-port", 0, "--dashboard-port", port)
        result = orbitmq("up", "--data-dir", tmp_path, *ports, code=7)
    assert f"cannot listen on 127.0.0.1:{port}" in result.stderr
