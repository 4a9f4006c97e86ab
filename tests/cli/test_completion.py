"""Shells complete the names of topics, groups, brokers and contexts: in bash, zsh and fish themselves, where they are
here. An answer is kept for a while, a cluster that does not answer is not waited for, the terminal is left in peace.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from orbitmq.cli import completion
from orbitmq.cli.completion import FRESH_SECONDS, SCRIPTS
from orbitmq.cli.main import app
from orbitmq.testing.cluster import Cluster
from tests.support.commands import orbitmq
from tests.support.orbit_process import ORBITMQ

BASH = r"""
source <(orbitmq completion bash)
COMP_LINE="$1"; COMP_POINT=${#1}
_orbitmq_completion orbitmq
printf '%s\n' "${COMPREPLY[@]}"
"""
# The function that the script defines is called in the place of zsh's editor, which needs a terminal.
ZSH = r"""
compdef() { : }
compadd() { shift; print -l -- "$@" }
_files() { print files }
source <(orbitmq completion zsh)
words=(${(z)1}); [[ $1 == *' ' ]] && words+=('')
CURRENT=$#words
_orbitmq
"""
FISH = "orbitmq completion fish | source; complete --do-complete $argv[1]"
CALLS = {
    "bash": ["bash", "--norc", "-c", BASH, "bash"],
    "zsh": ["zsh", "-f", "-c", ZSH, "zsh"],
    "fish": ["fish", "--no-config", "-c", FISH],
}

ODD = ["x\x1b[2J", "a|reboot", "|reboot", "$(id)", "a;b", "-rf", "a b"]
"""Names that nobody is offered; the second and third are legal ones."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2) as running:
        running.create_topic("Orders")
        running.create_topic("Orders-eu")
        running.create_topic("Payments")
        orbitmq("group", "create", "billing", "-n", running.namesrv_address, "--yes")
        yield running


def asked(line: str, **environment: str) -> list[str]:
    """What the command tells a shell."""
    words = line.split()
    at = len(words) if line.endswith(" ") else len(words) - 1
    variables = {"COMP_WORDS": line, "COMP_CWORD": str(at), "_ORBITMQ_COMPLETE": "complete_bash"}
    told = CliRunner().invoke(app, [], env={**variables, **environment}, prog_name="orbitmq")
    assert (told.exit_code, told.stderr) == (0, "")
    return str(told.stdout).split()


@pytest.mark.parametrize("shell", SCRIPTS)
def test_a_shell_completes_names_of_the_cluster_that_is_meant(cluster: Cluster, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here")
    variables = {**os.environ, "PATH": f"{ORBITMQ.parent}{os.pathsep}{os.environ['PATH']}"}

    def complete(line: str) -> set[str]:
        told = subprocess.run([*CALLS[shell], line], env=variables, capture_output=True, text=True, check=False)
        assert told.stderr == ""
        return set(told.stdout.split())

    at = f"-n {cluster.namesrv_address}"
    assert complete(f"orbitmq topic status {at} Or") == {"Orders", "Orders-eu"}
    assert complete(f"orbitmq group lag {at} ") == {"billing"}
    assert complete("orbitmq topic sta") == {"status", "stats"}


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("orbitmq topic route {at} Pa", ["Payments"]),
        ("orbitmq group lag billing {at} --topic O", ["Orders", "Orders-eu"]),
        ("orbitmq msg tail {at} Orders", ["Orders", "Orders-eu"]),
        ("orbitmq broker status {at} b", ["broker-a", "broker-b"]),
        ("orbitmq topic config {at} Orders --broker broker", []),
        ("orbitmq topic alter {at} Orders --broker broker", ["broker-a", "broker-b"]),
        ("orbitmq check lag {at} b", ["billing"]),
        ("orbitmq cluster forget {at} b", ["broker-a", "broker-b"]),
        ("orbitmq topic list --context pro", ["production"]),
        ("orbitmq context use st", ["staging"]),
    ],
)
def test_each_place_of_a_name_is_completed(cluster: Cluster, line: str, names: list[str], tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[contexts.production]\n[contexts.staging]\n")
    assert asked(line.format(at=f"-n {cluster.namesrv_address}"), ORBITMQ_CONFIG=str(config)) == names


def test_an_answer_is_kept_for_a_while_and_then_asked_for_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: list[str] = []
    now = 1_000_000.0
    monkeypatch.setattr(time, "time", lambda: now)
    monkeypatch.setattr(completion, "_of_cluster", lambda kind, _given: rounds.append(kind) or ["Orders", *ODD])
    given = completion.typer.Context(completion.typer.main.get_command(_app()))
    given.params = {"name_servers": ["n:1"]}
    assert completion._names("topics", given, "") == ["Orders"], (
        "and no text that does something to a terminal or a shell"
    )
    assert completion._names("topics", given, "X") == []
    assert rounds == ["topics"]
    assert completion._names("groups", given, "") == ["Orders"]
    assert rounds == ["topics", "groups"]
    now += FRESH_SECONDS + 1
    completion._names("topics", given, "")
    assert rounds == ["topics", "groups", "topics"]
    given.params = {"name_servers": ["n:2"]}
    completion._names("topics", given, "")
    assert len(rounds) == 4, "another cluster"


def _app() -> completion.typer.Typer:
    made = completion.typer.Typer()
    made.command()(lambda: None)
    return made


def test_a_cluster_that_does_not_answer_is_told_as_it_was_known_and_not_asked_at_each_tab(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = completion.typer.Context(completion.typer.main.get_command(_app()))
    given.params = {"name_servers": ["n:1"]}
    now, rounds = 1_000_000.0, 0

    def silent(_kind: str, _given: object) -> list[str]:
        nonlocal rounds
        rounds += 1
        time.sleep(60)
        return []

    monkeypatch.setattr(time, "time", lambda: now)
    monkeypatch.setattr(completion, "_of_cluster", lambda *_: ["Orders"])
    completion._names("topics", given, "")
    monkeypatch.setattr(completion, "_of_cluster", silent)
    monkeypatch.setattr(completion, "QUERY_SECONDS", 0.1)
    now += FRESH_SECONDS + 1
    assert completion._names("topics", given, "") == completion._names("topics", given, "") == ["Orders"]
    assert rounds == 1


def test_what_goes_wrong_completes_nothing_and_says_nothing(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("this is no toml")
    assert asked("orbitmq topic list --context p", ORBITMQ_CONFIG=str(config)) == []
    assert asked("orbitmq topic status O", ORBITMQ_CONFIG=str(config), NAMESRV_ADDR="no address") == []
