"""Every line reaches the file, which only its owner reads and which does not grow for ever."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orbitmq.dashboard import audit
from orbitmq.dashboard.audit import AuditLog
from orbitmq.errors import ConfigurationError
from orbitmq.runtime.clock import ManualClock


def test_lines_are_kept_and_told_the_newest_first(tmp_path: Path) -> None:
    path = tmp_path / "state" / "audit.jsonl"
    log = AuditLog(path, ManualClock(1_700_000_000_000))
    log.open()
    log.write("anna", "admin", "127.0.0.1", "delete topic \ud800 Ä", "begun", cluster="local")
    log.write("ben", "viewer", "127.0.0.1", "log in", "refused")
    assert path.stat().st_mode & 0o777 == 0o600
    first, second = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert (first["at"], first["who"], first["cluster"]) == ("2023-11-14T22:13:20.000Z", "anna", "local")
    assert second["outcome"] == "refused"
    with path.open("ab") as file:
        file.write(b'{"cut')
    again = AuditLog(path, ManualClock())
    again.open()
    assert [line["who"] for line in again.latest()] == ["ben", "anna"]


def test_the_file_is_renamed_when_it_is_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "FILE_BYTES_MAX", 1000)
    log = AuditLog(tmp_path / "a", ManualClock())
    log.open()
    for number in range(100):
        log.write("anna", "admin", "p", f"change {number}", "done")
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(sizes) == 2
    assert sum(sizes) < 3000
    assert len(log.latest()) == 100


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match=r"audit log .*file/audit"):
        AuditLog(tmp_path / "file" / "audit", ManualClock()).open()


def test_many_may_write_at_once_and_no_line_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "FILE_BYTES_MAX", 60_000)
    logs = [AuditLog(tmp_path / "a", ManualClock()) for _ in range(2)]
    with ThreadPoolExecutor(8) as together:
        wrote = [
            together.submit(logs[number % 2].write, "anna", "admin", "p", f"change {number}", "done")
            for number in range(800)
        ]
    for one in wrote:
        one.result()
    lines = [line for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    assert {json.loads(line)["what"] for line in lines} == {f"change {number}" for number in range(800)}
    assert len(list(tmp_path.iterdir())) == 2, "the file was renamed meanwhile"


def test_a_line_that_was_cut_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b'{"at": "x", "cut')
    log = AuditLog(path, ManualClock())
    log.open()
    log.write("anna", "admin", "p", "a change", "done")
    assert json.loads(path.read_bytes().splitlines()[1])["what"] == "a change"


def test_lines_of_others_in_the_file_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text('{"hello": 1}\n[]\n')
    log = AuditLog(path, ManualClock())
    log.open()
    assert log.latest() == []
