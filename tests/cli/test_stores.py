"""The store commands as an operator runs them."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from orbitmq.cli.main import app
from orbitmq.runtime.clock import ManualClock
from tests.support.golden import manifest, unpack
from tests.support.orbit_process import ORBITMQ
from tests.support.process import write_properties
from tests.support.stores import abandon, open_store, record

NOW = 1_700_000_000_000


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["store", *map(str, arguments)])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    clock = ManualClock(NOW)
    store = open_store(tmp_path / "store", clock)
    for number in range(60):
        store.put(record(b"%d" % number, "AB"[number % 2], properties=b"KEYS\x01k%d" % number))
        clock.advance(1000)
    store.close()
    return tmp_path / "store"


def damaged(root: Path) -> Path:
    path = root / "commitlog" / f"{0:020d}"
    path.write_bytes(path.read_bytes()[:-200] + b"\1" * 200)
    data = bytearray(path.read_bytes())
    data[88] ^= 1
    path.write_bytes(data)
    return root


def test_verify_says_sound(root: Path) -> None:
    result = run("verify", root)
    assert result.exit_code == 0
    assert f"{root}: sound; its broker has stopped cleanly\n" in result.stdout
    assert "60 messages" in result.stdout
    assert "2 queues with 60 entries" in result.stdout


def test_verify_speaks_the_language_of_the_user_and_json_does_not(root: Path) -> None:
    # In a process of its own: help that was built in one language stays in it.
    shown, document = (
        subprocess.run(
            [ORBITMQ, "store", "verify", root, *options], env={**os.environ, "LC_ALL": "zh_CN.UTF-8"},
            capture_output=True, text=True, check=True,
        ).stdout
        for options in ((), ("-o", "json"))
    )  # fmt: skip
    assert "：完好；" in shown
    assert " 条消息，从 0 到 " in shown
    assert not re.search("[\u4e00-\u9fff]", document)


def test_verify_names_the_damage(root: Path) -> None:
    result = run("verify", damaged(root))
    assert result.exit_code == 1
    assert f"{root}: DAMAGED" in result.stdout
    assert f"  damage  commitlog/{0:020d} at 0: the body of a message of topic A does not match" in result.stdout


def test_verify_prints_one_json_object(root: Path) -> None:
    assert json.loads(run("verify", root, "--json").stdout)["sound"] is True
    result = run("verify", damaged(root), "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert (found["sound"], found["state"], found["queues"]) == (False, "stopped", 2)
    first = found["findings"][0]
    assert (first["level"], first["path"], first["position"]) == ("damage", f"commitlog/{0:020d}", 0)
    assert first["text"]


@pytest.mark.parametrize("command", ["verify", "dump", "rebuild"])
def test_what_cannot_be_read_is_code_2(command: str, tmp_path: Path) -> None:
    result = run(command, tmp_path / "nothing")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "there is no such directory" in result.stderr


def test_a_running_broker_is_told_and_left_alone(root: Path) -> None:
    store = open_store(root)
    result = run("verify", root)
    assert (result.exit_code, "a broker is running" in result.stdout) == (0, True)
    assert run("dump", root).exit_code == 0
    refused = run("rebuild", root)
    assert (refused.exit_code, "in use" in refused.stderr) == (7, True)
    store.close()


def test_dump_prints_a_json_object_a_line(root: Path) -> None:
    rows = [json.loads(line) for line in run("dump", root).stdout.splitlines()]
    assert [row["queue_offset"] for row in rows] == [number // 2 for number in range(60)]
    assert "body" not in rows[0]
    with_body = json.loads(run("dump", root, "--body", "--limit", 1).stdout)
    assert base64.b64decode(with_body["body"]) == b"0"


def test_dump_steers_no_terminal_and_keeps_every_value(tmp_path: Path) -> None:
    hostile = "k\x1b[2J\x7f\x9b31m\u202egnp"
    store = open_store(tmp_path)
    store.put(record(b"x", properties=f"KEYS\x01{hostile}".encode()))
    store.close()
    printed = run("dump", tmp_path, "--body").stdout
    assert all(sign.isprintable() or sign == "\n" for sign in printed)
    assert json.loads(printed)["keys"] == hostile


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--topic", "B", "--limit", 2], ["k1", "k3"]),
        (["--key", "k9"], ["k9"]),
        (["--queue", 1], []),
        (["--from", NOW + 1000, "--to", NOW + 2000], ["k1", "k2"]),
        (["--from", "2023-11-14T22:13:21+00:00", "--to", "2023-11-14T22:13:22.000Z"], ["k1", "k2"]),
        (["--limit", 0], []),
    ],
)
def test_dump_chooses(root: Path, arguments: list[object], expected: list[str]) -> None:
    assert [json.loads(line)["keys"] for line in run("dump", root, *arguments).stdout.splitlines()] == expected


def test_dump_tells_damage_apart_from_messages(root: Path) -> None:
    result = run("dump", damaged(root))
    assert result.exit_code == 1
    assert all(json.loads(line)["keys"] for line in result.stdout.splitlines())
    assert f"commitlog/{0:020d} at 0: the body" in result.stderr


def test_dump_takes_no_odd_time(root: Path) -> None:
    result = run("dump", root, "--from", "yesterday")
    assert (result.exit_code, "--from yesterday" in result.stderr) == (2, True)


def test_dump_ends_quietly_when_nobody_reads(root: Path) -> None:
    command = f"{ORBITMQ} store dump {root} --body | head -n 1"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(result.stdout)["keys"] == "k0"
    assert result.stderr == ""


def test_rebuild_brings_lost_queues_back(root: Path, tmp_path: Path) -> None:
    shutil.rmtree(root / "consumequeue")
    assert run("verify", root).exit_code == 1
    conf = write_properties(
        tmp_path / "broker.conf", {"mappedFileSizeConsumeQueue": 200, "messageIndexEnable": "false"}
    )
    result = run("rebuild", root, "-c", conf)
    assert result.exit_code == 0
    assert "60 messages in 2 queues with 60 entries" in result.stdout
    assert run("verify", root).exit_code == 0
    open_store(root).close()


def test_rebuild_tells_where_the_log_is_damaged(root: Path) -> None:
    result = run("rebuild", damaged(root))
    assert result.exit_code == 1
    assert "the log ends at 0, where it is damaged: the body" in result.stderr


def test_a_store_of_java_needs_no_options(tmp_path: Path) -> None:
    root = unpack("delay", tmp_path)
    assert run("verify", root).exit_code == 0
    assert run("rebuild", root).exit_code == 0
    assert run("verify", root).exit_code == 0
    assert len(run("dump", root).stdout.splitlines()) == len(manifest("delay")["messages"])


def test_a_log_elsewhere_is_given(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store", store_path_commit_log=f"{tmp_path / 'a'},{tmp_path / 'b'}")
    for number in range(60):
        store.put(record(b"%d" % number))
    abandon(store)
    store.close()
    logs = ["--commit-log", tmp_path / "a", "--commit-log", tmp_path / "b"]
    assert run("verify", tmp_path / "store", *logs).exit_code == 0
    assert len(run("dump", tmp_path / "store", *logs).stdout.splitlines()) == 60
    assert run("rebuild", tmp_path / "store", *logs).exit_code == 0
    assert run("verify", tmp_path / "store").exit_code == 2
