"""The promises of cli.mqadmin that need no cluster: every command is there, words are read as the stock tool reads
them, a failure is an exit code. What the commands print is tested in tests/interop/test_mqadmin.py.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from orbitmq.cli.mqadmin.forms import perm, pretty
from orbitmq.cli.mqadmin.table import ALIASES, ROWS, Stock, command
from orbitmq.cli.mqadmin.times import timestamp_ms
from orbitmq.cli.mqadmin.words import read
from orbitmq.errors import ConfigurationError
from tests.support.commands import orbitmq
from tests.support.process import free_port

TOPIC = Stock("someTopic", "topics", "b brokerAddr|, c clusterName|, t topic*, r readQueueNums, l list!")
CHOSEN = {"b": "a:1", "t": "T"}


def test_each_command_is_carried_out_by_its_module() -> None:
    modules = {module for module, _ in ROWS.values()}
    there = {name: module for module in modules for name in import_module(f"orbitmq.cli.mqadmin.{module}").COMMANDS}
    assert there == {name: module for name, (module, _) in ROWS.items()}
    assert set(ALIASES.values()) < set(ROWS)


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("-b a:1 -t T", CHOSEN),
        ("-ba:1 -tT", CHOSEN),
        ("--brokerAddr a:1 --topic T", CHOSEN),
        ("--brokerAddr=a:1 --topic=T", CHOSEN),
        ("-brokerAddr a:1 -topic T", CHOSEN),
        ("--broker a:1 --top T", CHOSEN),
        ("-b a:1 -t -T -l", {"b": "a:1", "t": "-T", "l": ""}),
        ("-c C -t T -n x:1;y:2 -r 4", {"c": "C", "t": "T", "n": "x:1;y:2", "r": "4"}),
    ],
)
def test_words_are_read_in_every_form(words: str, values: dict[str, str]) -> None:
    assert read(TOPIC, words.split()).values == values


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("-b a:1", "needs -t topic"),
        ("-t T", "needs -b brokerAddr or -c clusterName"),
        ("-b a:1 -t", "-t needs a value"),
        ("-b a:1 -t T -z", "has no option -z"),
        ("-b a:1 -t T extra", "'extra' is not an option"),
        ("-b a:1 -t T --nothing", "has no option --nothing"),
    ],
)
def test_a_word_that_means_nothing_is_named(words: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        read(TOPIC, words.split())


def test_names_are_taken_in_whatever_case() -> None:
    for name in ("clusterlist", "CLUSTERLIST", "getAccessConfigSubCommand", "querymsgtracebyid"):
        assert command(name) is not None
    assert command("nothing") is None


def test_every_failure_has_an_exit_code() -> None:
    assert "there is no command" in orbitmq("mqadmin", "clusterLst", code=2).stderr
    assert "needs -t topic" in orbitmq("mqadmin", "topicRoute", code=2).stderr
    here = f"127.0.0.1:{free_port()}"
    assert here in orbitmq("mqadmin", "clusterList", "-n", here, code=5).stderr
    assert "host:port" in orbitmq("mqadmin", "clusterList", "-n", "nowhere", code=2).stderr
    assert "clusterList" in orbitmq("mqadmin").stdout
    assert "--topic" in orbitmq("mqadmin", "help", "topicRoute").stdout


def test_forms() -> None:
    assert [perm(value) for value in (6, 4, 2, 0)] == ["RW-", "R--", "-W-", "---"]
    assert pretty({"b": [], "a": {0: "x"}, "n": None}) == '{\n\t"a":{0:"x"\n\t},\n\t"b":[]\n}'
    assert (timestamp_ms("now"), timestamp_ms("17"), timestamp_ms("tomorrow")) == (-1, 17, None)
    at = timestamp_ms("2026-11-22#06:14:00:059")
    assert at is not None
    assert at % 1000 == 59


@pytest.mark.parametrize(("flag", "word"), [("readonly", "readonly"), ("protected", "does not prompt")])
def test_a_context_that_takes_no_change_takes_none_of_these(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flag: str, word: str
) -> None:
    here = f"127.0.0.1:{free_port()}"
    (tmp_path / "config.toml").write_text(f'current = "p"\n[contexts.p]\nnameServers = ["{here}"]\n{flag} = true\n')
    monkeypatch.setenv("ORBITMQ_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert word in orbitmq("mqadmin", "deleteTopic", "-c", "C", "-t", "T", code=4).stderr
    assert (
        word
        in orbitmq(
            "mqadmin", "queryMsgById", "-i", "7F0000010000425E0000000000000000", "-g", "G", "-d", "C", code=4
        ).stderr
    )
    assert here in orbitmq("mqadmin", "queryMsgById", "-i", "7F0000010000425E0000000000000000", code=5).stderr
