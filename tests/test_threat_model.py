"""The threat model claims nothing that no test shows, and its table of defaults is that of the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.main import get_command

from orbitmq.broker.options import BrokerOptions
from orbitmq.cli.main import app
from orbitmq.cli.nouns.dashboard import app as dashboard
from orbitmq.client.settings import ProducerSettings, options_of
from orbitmq.metrics.options import MetricsOptions
from orbitmq.namesrv.options import NamesrvOptions
from orbitmq.net.connection_options import ConnectionOptions
from orbitmq.net.tls_options import TlsOptions
from orbitmq.proxy.options import ProxyOptions
from orbitmq.runtime.options import as_text
from orbitmq.store.options import StoreOptions

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
TABLES = (BrokerOptions, StoreOptions, NamesrvOptions, ProxyOptions, ConnectionOptions, TlsOptions, MetricsOptions)
OPENS_A_DOOR = re.compile(
    r"acl\w+|bindAddress|brokerIP\d|\w+Host|connection\w+|frame\w+|ha\w+Address(es)?|autoCreate\w+|tls\..*(mode.*|auth\w*)|useTLS"
)
"""Keys that say who gets in; a new one has to stand in the table."""


class Row(NamedTuple):
    option: str
    owner: str
    default: str


def rows() -> list[Row]:
    section = PAGE.split("## Safe defaults\n")[1]
    found = re.findall(r"^\| `([^`]+)` \| (\w[\w ]*?) \|(?: `([^`]*)`)? \| \S.* \|$", section, re.MULTILINE)
    assert len(found) == len(re.findall(r"^\| `", section, re.MULTILINE)), "each row is read"
    return [Row(*one) for one in found]


def defaults() -> Iterator[Row]:
    for options in TABLES:
        for key, (_, declared) in options.table().items():
            yield Row(key, options.__name__, as_text(declared.default))
    for name, declared in options_of(ProducerSettings).items():
        yield Row(name, "ClientSettings", as_text(declared.default))
    own = get_command(app).commands  # type: ignore[attr-defined]
    for name, command in (("dashboard", get_command(dashboard)), *((one, own[one]) for one in ("exporter", "gateway"))):
        for flag in command.params:
            yield from (Row(word, f"orbitmq {name}", _shown(flag.default)) for word in flag.opts)


def _shown(default: object) -> str:
    return str(default).lower() if isinstance(default, bool) else "" if default is None else str(default)


def test_each_default_is_that_of_the_code() -> None:
    assert not [row for row in rows() if row not in set(defaults())]


def test_each_option_that_opens_a_door_is_listed() -> None:
    listed = {(row.option, row.owner) for row in rows()}
    doors = {(key, options.__name__) for options in TABLES for key in options.table() if OPENS_A_DOOR.fullmatch(key)}
    assert doors
    assert doors - listed == set()


@pytest.mark.parametrize("named", sorted(set(re.findall(r"`(tests/[\w/]+\.py::\w+)`", PAGE))))
def test_a_test_that_is_named_exists(named: str) -> None:
    path, _, name = named.partition("::")
    assert re.search(rf"^(?:async )?def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)


def test_each_threat_names_its_control_and_its_test() -> None:
    section = PAGE.split("## Threats and controls\n")[1].split("\n## ")[0]
    threats = re.findall(r"^\| (?!threat |---)(.*) \|$", section, re.MULTILINE)
    assert threats
    assert not [row for row in threats if len(row.split(" | ")) != 3 or "`tests/" not in row.split(" | ")[2]]
