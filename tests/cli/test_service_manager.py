"""The promises of notify_manager: a manager that asks is told, and nobody else notices."""

from __future__ import annotations

import socket
import uuid
from pathlib import Path

import pytest

from orbitmq.cli.daemons import READY, SOCKET_VARIABLE, notify_manager


@pytest.mark.parametrize("is_abstract", [False, True])
def test_a_manager_is_told_over_its_socket(tmp_path: Path, is_abstract: bool) -> None:
    name = f"@orbitmq-{uuid.uuid4()}" if is_abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name.replace("@", "\0", 1))
        assert notify_manager(READY, {SOCKET_VARIABLE: name})
        manager.settimeout(5)
        assert manager.recv(100) == b"READY=1"


def test_without_a_manager_nothing_is_sent() -> None:
    assert not notify_manager(READY, {})


def test_a_manager_that_is_gone_fails_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert not notify_manager(READY, {SOCKET_VARIABLE: str(tmp_path / "gone")})
    assert "event=manager_not_notified fact=READY=1" in caplog.text
