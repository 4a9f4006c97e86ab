"""Every command, given what is wrong, ends with the code of the documented table; and only what changes or removes
something wants to be confirmed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from orbitmq.cli import exit_codes
from orbitmq.cli.main import app
from orbitmq.client import Message
from orbitmq.client.sync import Producer
from orbitmq.testing.cluster import Cluster
from tests.support.commands import orbitmq

ROOT = Path(__file__).parents[2]
USAGE, NOT_FOUND, CONFLICT, CANCELLED = 2, 3, 7, 9
OFFSET_ID = "7F00000100002A9F00000000000000FF"

WRONG: dict[str, int] = {
    # A value that cannot be
    "topic create bad/name": USAGE, "topic create New --write-queues 0": USAGE, "topic create New --perm Z": USAGE,
    "topic alter Orders --write-queues 100000": USAGE, "topic permission Orders Z": USAGE,
    "topic order Orders nonsense": USAGE, "topic undo @nofile": USAGE, "topic undo @garbage": USAGE,
    "group create bad/name": USAGE, "group alter billing --retry-max-times nonsense": USAGE,
    "offset reset billing Orders --to 3x": USAGE, "offset reset billing Orders": USAGE,
    "offset reset billing Orders --to end --queue nonsense": USAGE, "offset undo @garbage": USAGE,
    "acl set short --secret-env SHORT": USAGE, "acl set long-enough --secret-env SHORT": USAGE,
    "acl set long-enough --secret-env LONG --topic Orders": USAGE, "acl undo @garbage": USAGE,
    "msg query Orders --from 3x": USAGE, "msg tail Orders --from 3x": USAGE,
    "msg count Orders --from 3x": USAGE, "broker clean nonsense": USAGE, "config undo @garbage": USAGE,
    "config apply -f @garbage": USAGE, "msg undo @garbage": USAGE, "msg resend": USAGE,
    "config diff -f @garbage": USAGE, "config export nonsense": USAGE,
    "wait nonsense": USAGE, "topic list -o nonsense": USAGE, "completion nonsense": USAGE,
    "broker config set nonsense": USAGE, "namesrv kv put none none": USAGE, "namesrv kv delete none": USAGE,
    "namesrv kv list": USAGE, "msg send Orders --body-file @nofile": USAGE,
    "namesrv config set nonsense": USAGE, "mqadmin nonsense": USAGE,
    "pipeline nonsense": USAGE, "context add x -n": USAGE, "bench send --seconds nonsense": USAGE,
    "bench consume --seconds nonsense": USAGE, "bench latency --seconds nonsense": USAGE, "top --watch nonsense": USAGE,
    "up --broker-port nonsense": USAGE, "host --count nonsense": USAGE, "exporter --port nonsense": USAGE,
    "gateway --port nonsense": USAGE, "gateway --host 0.0.0.0": USAGE, "gateway --tls-cert @nofile": USAGE,
    "group in-flight g --limit nonsense": USAGE,
    "schema check Orders @nofile": USAGE, "schema register Orders @nofile": USAGE,
    "msg recall nonsense": USAGE, "msg pending --limit nonsense": USAGE, "dashboard account x --role nonsense": USAGE,
    # What is not there
    "topic status unknown": NOT_FOUND, "topic route unknown": NOT_FOUND, "topic config unknown": NOT_FOUND,
    "topic clusters unknown": NOT_FOUND, "topic consumers unknown": NOT_FOUND, "topic stats unknown": NOT_FOUND,
    "topic alter unknown --write-queues 2": NOT_FOUND, "topic permission unknown R": NOT_FOUND,
    "topic delete unknown": NOT_FOUND, "group progress unknown": NOT_FOUND, "group lag unknown": NOT_FOUND,
    "group why unknown": NOT_FOUND, "group connections unknown": NOT_FOUND, "group subscriptions unknown": NOT_FOUND,
    "group config unknown": NOT_FOUND, "group alter unknown --retry-max-times 3": NOT_FOUND,
    "group delete unknown": NOT_FOUND, "offset show unknown": NOT_FOUND,
    "offset reset billing unknown --to end": NOT_FOUND,
    "offset skip billing unknown": NOT_FOUND, "offset clone unknown other": NOT_FOUND,
    "client consumers unknown": NOT_FOUND, "client show unknown": NOT_FOUND, "client stack unknown": NOT_FOUND,
    "client positions unknown Orders": NOT_FOUND, "msg find unknown": NOT_FOUND, "msg show unknown": NOT_FOUND,
    "msg query unknown": NOT_FOUND, "msg count unknown": NOT_FOUND, "msg tail unknown": NOT_FOUND,
    f"msg resend {OFFSET_ID}": NOT_FOUND, "msg resend --from-dlq unknown": NOT_FOUND,
    f"msg resume {OFFSET_ID}": NOT_FOUND,
    "broker status unknown": NOT_FOUND, "broker runtime unknown": NOT_FOUND,
    "broker consume-stats unknown": NOT_FOUND, "broker send-test unknown": NOT_FOUND,
    "broker switch unknown": NOT_FOUND,
    "broker maintenance unknown": NOT_FOUND,
    "broker forbid-writing unknown": NOT_FOUND, "broker allow-writing unknown": NOT_FOUND,
    "broker config show unknown": NOT_FOUND, "namesrv kv get none none": NOT_FOUND,
    "schema show unknown": NOT_FOUND, "schema remove unknown": NOT_FOUND,
    "cluster forget unknown": NOT_FOUND, "context use unknown": NOT_FOUND,
    "context remove unknown": NOT_FOUND, "acl list --broker unknown": NOT_FOUND,
    # What stands against it
    "topic create Orders --write-queues 5": CONFLICT, "group create billing --retry-max-times 3": CONFLICT,
    "acl set long-enough --secret-env LONG": CONFLICT,
    "acl delete long-enough": CONFLICT, "acl white set 10.0.0.1": CONFLICT,
}  # fmt: skip
"""Command -> exit code. Those in CONFLICT about accounts: access control is off."""
ELSEWHERE = {
    "health namesrv", "health broker", "store verify", "store dump", "store rebuild", "check ", "msg decode",
    "trace show", "trace graph",
}  # fmt: skip
"""Commands that have codes of their own, and say so in their help; docs/deployment.md has those of `health`. Any text
can be decoded, and a message without a trace is an answer."""


def walked(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    if hasattr(command, "commands"):
        for name in command.list_commands(None):
            yield from walked(command.get_command(None, name), (*words, name))
    else:
        yield " ".join(words), command


COMMANDS = dict(walked(get_command(app)))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        running.create_topic("Orders", 1)
        orbitmq("group", "create", "billing", "-n", running.namesrv_address)
        yield running


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> None:
    for variable in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setenv("NAMESRV_ADDR", cluster.namesrv_address)
    monkeypatch.setenv("SHORT", "short")
    monkeypatch.setenv("LONG", "long-enough")


def ended(words: str, tmp_path: Path) -> tuple[int, str]:
    from typer.testing import CliRunner

    garbage = tmp_path / "garbage.json"
    garbage.write_text('{"command": 7}')
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object"}')
    given = {"@nofile": str(tmp_path / "none"), "@garbage": str(garbage), "@schema": str(schema)}
    found = CliRunner().invoke(app, [given.get(word, word) for word in words.split()], prog_name="orbitmq")
    return found.exit_code, found.output


@pytest.mark.parametrize("words", WRONG)
def test_wrong_input_ends_with_the_code_of_the_table(words: str, tmp_path: Path) -> None:
    code, printed = ended(words, tmp_path)
    assert code == WRONG[words], printed
    assert "Traceback" not in printed


def test_each_command_is_given_something_wrong() -> None:
    given = {name for name in COMMANDS for words in WRONG if f"{words} ".startswith(f"{name} ")}
    without = {
        name
        for name, command in COMMANDS.items()
        if not name.startswith(tuple(given | ELSEWHERE))
        and any(one.param_type_name == "argument" for one in command.params)
    }
    assert without == set()


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_an_option_that_there_is_not_is_wrong_usage(name: str, tmp_path: Path) -> None:
    code, printed = ended(f"{name} --there-is-no-such-option", tmp_path)
    assert code == (USAGE if not name.startswith("check ") else 3), printed


def test_the_table_is_that_of_the_code() -> None:
    page = (ROOT / "docs" / "reference" / "commands.md").read_text()
    documented = {int(code) for code in re.findall(r"^\| (\d+) \| ", page.split("The commands of")[0], re.MULTILINE)}
    assert documented == {0, *(value for name, value in vars(exit_codes).items() if name.startswith("EXIT_"))}
    assert set(WRONG.values()) <= documented


ADDS = (
    "topic create Added", "group create added", "namesrv kv put added key value", "topic order Orders broker-a:1",
    "schema register Added @schema",
)  # fmt: skip
LOSES = (
    "topic alter Orders --write-queues 2", "topic permission Orders R", "topic delete Orders",
    "group alter billing --retry-max-times 3", "group delete billing",
    "broker clean unused-topics", "broker config set fileReservedTime=73", "namesrv kv put kept key other",
    "namesrv kv delete kept key", "offset reset billing Orders --to end", "offset skip billing Orders",
    "offset clone billing other", "schema remove Orders",
)  # fmt: skip
NEITHER = {
    "acl set": "access control is off here; tests/interop/test_acl.py", "acl delete": "", "acl undo": "",
    "acl white set": "", "broker forbid-writing": "nobody is asked where writing is forbidden already",
    "broker allow-writing": "", "config apply": "as its parts", "config undo": "as its parts", "msg resume": "",
    "msg recall": "tests/interop/test_timer_commands.py", "broker switch": "tests/failover/test_live_failover.py",
    "broker maintenance": "tests/failover/test_live_failover.py",
    "msg resend": "tests/interop/test_msg_commands.py", "namesrv config set": "", "offset undo": "", "topic undo": "",
    "msg undo": "tests/admin/test_resends.py",
}  # fmt: skip
"""Changes that are not walked here. They are confirmed, as every change is that does not say otherwise."""


@pytest.mark.parametrize("words", ADDS)
def test_what_only_adds_is_made_without_a_terminal(words: str, tmp_path: Path) -> None:
    code, printed = ended(words, tmp_path)
    assert code == 0, printed
    assert "confirmed" in printed or "done" in printed


@pytest.mark.parametrize("words", LOSES)
def test_what_changes_or_removes_is_not_done_unconfirmed(words: str, tmp_path: Path, cluster: Cluster) -> None:
    orbitmq("namesrv", "kv", "put", "kept", "key", "value", "--yes")
    assert ended("schema register Orders @schema", tmp_path)[0] == 0
    with Producer("senders", cluster.namesrv_address) as producer:
        producer.send(Message("Orders", b"x"))
    orbitmq("offset", "reset", "billing", "Orders", "--to", "begin", "--yes", "-q")
    code, printed = ended(words, tmp_path)
    assert code == CANCELLED, printed
    assert "--yes" in printed


def test_each_change_is_known_to_add_or_to_lose() -> None:
    asking = {name for name, one in COMMANDS.items() if any("--yes" in option.opts for option in one.params)}
    walked_here = {name for name in asking for words in (*ADDS, *LOSES) if f"{words} ".startswith(f"{name} ")}
    assert asking == walked_here | NEITHER.keys()


def test_accounts_are_told_plainly_where_access_control_is_off() -> None:
    for command in ("list", "versions", "white show"):
        found = orbitmq("acl", *command.split())
        assert "access control is off" in found.stderr
        assert "FAILED" not in found.stderr
        assert "partial" not in found.stderr
