"""The promises of cli.configuration: the file is taken as it is, and odd keys are named."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from orbitmq.cli import configuration
from orbitmq.errors import ConfigurationError
from orbitmq.runtime.options import Options, option, read_properties


@dataclass(frozen=True)
class Shop(Options):
    """An option table of its own, so that these tests do not follow the broker's."""

    listen_port: int = option("listenPort", 10911, "Port.", minimum=0, maximum=65535)
    sign: str = option("signText", "open", "What hangs in the door.")


def _file(directory: Path, text: str) -> Path:
    path = directory / "broker.conf"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_flag_wins_over_the_file_and_a_flag_not_given_does_not(tmp_path: Path) -> None:
    file = _file(tmp_path, "listenPort=1\nsignText=closed\n")
    pairs, remarks = configuration.read(file, {"listenPort": "2", "signText": None}, Shop)
    assert pairs == {"listenPort": "2", "signText": "closed"}
    assert remarks == []


def test_a_setting_stands_between_flag_and_file(tmp_path: Path) -> None:
    file = _file(tmp_path, "listenPort=1\nsignText=closed\n")
    settings = ["listenPort=3", "signText=a=b"]
    assert configuration.read(file, {}, Shop, settings=settings)[0] == {"listenPort": "3", "signText": "a=b"}
    assert configuration.read(file, {"listenPort": "2"}, Shop, settings=settings)[0]["listenPort"] == "2"


@pytest.mark.parametrize(
    ("setting", "reason"),
    [("listenProt=1", "no such option; did you mean listenPort?"), ("listenPort", "use KEY=VALUE")],
)
def test_a_setting_that_sets_nothing_is_refused(setting: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^--set listenP.*{reason[:12]}"):
        configuration.read(None, {}, Shop, settings=[setting])


def test_an_unknown_key_is_named_with_the_nearest_known_one(tmp_path: Path) -> None:
    file = _file(tmp_path, "listenProt=1\nxyzzy=2\n")
    _, remarks = configuration.read(file, {}, Shop)
    assert remarks == [
        f"{file}: unknown key listenProt is ignored; did you mean listenPort?",
        f"{file}: unknown key xyzzy is ignored",
    ]


def test_a_key_without_effect_gets_its_reason(tmp_path: Path) -> None:
    _, remarks = configuration.read(_file(tmp_path, "sendMessageThreadPoolNums=16\n"), {}, Shop)
    assert len(remarks) == 1
    assert "sendMessageThreadPoolNums has no effect in orbitmq: one event loop serves all requests" in remarks[0]


def test_replication_is_never_ignored_in_silence(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="enableDLegerCommitLog: value 'true' is not allowed; use false"):
        configuration.read(_file(tmp_path, "enableDLegerCommitLog=true\n"), {}, Shop)
    assert configuration.read(_file(tmp_path, "enableDLegerCommitLog=false\n"), {}, Shop)[1] == []


def test_a_key_of_the_broker_is_known_in_the_file_of_a_name_server(tmp_path: Path) -> None:
    _, remarks = configuration.read(_file(tmp_path, "rocketmqHome=/opt/rocketmq\n"), {}, Shop)
    assert "rocketmqHome has no effect in orbitmq: a name server reads no files there" in remarks[0]


def test_a_missing_file_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.conf"):
        configuration.read(tmp_path / "nowhere.conf", {}, Shop)


@pytest.mark.parametrize("sign", ["a\\b", "two\nlines", " leading", "trailing ", "k=v:#!", "打烊"])
def test_the_printed_configuration_reads_back_as_it_was(tmp_path: Path, sign: str) -> None:
    printed = configuration.as_properties(Shop(sign=sign))
    assert read_properties(_file(tmp_path, printed)) == {"listenPort": "10911", "signText": sign}
