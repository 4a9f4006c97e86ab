"""Promises of what reads texts of operators and for them: settings, accounts, addresses."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import yaml

from fuzz.promise import Target, is_refused, outcome
from orbitmq.broker.access.accounts import account_of
from orbitmq.broker.access.addresses import pattern
from orbitmq.broker.access.files import parse, parse_document
from orbitmq.errors import BodyError, ConfigurationError
from orbitmq.wire.settings import decode_settings, encode_settings

# ------------------------------------------------------------------------------------------------------------ settings


def check_settings(data: bytes) -> None:
    pairs = outcome(BodyError, lambda: decode_settings(data))
    if not is_refused(pairs):
        assert sum(len(key) + len(value) for key, value in pairs.items()) <= len(data)
        encode_settings(pairs)


def _settings_seeds() -> Iterator[bytes]:
    yield b"brokerName=broker-a\n# note\nlisten\\ port : 10911\nlong=a\\\n  b\nsign=\\u00e4\\t\n"


# ------------------------------------------------------------------------------------------------------------ accounts

_FILE = Path("plain_acl.yml")
_ADDRESSES = tuple(map(ip_address, ("10.1.2.3", "fe80::1")))


def check_accounts(data: bytes) -> None:
    outcome(ConfigurationError, lambda: _use_accounts(data))


def _use_accounts(data: bytes) -> None:
    file = parse(_FILE, parse_document(_FILE, data))
    for text in file.white:
        matches = pattern(text)
        assert all(matches(address) in (True, False) for address in _ADDRESSES)
    for found in file.accounts:
        account = account_of(found)
        assert account.secret
        assert found.secret_key not in repr(account).split("'")


def check_addresses(data: bytes) -> None:
    matches = outcome(ConfigurationError, lambda: pattern(data.decode(errors="replace")))
    if not is_refused(matches):
        assert all(matches(address) in (True, False) for address in _ADDRESSES)


def _account_seeds() -> Iterator[bytes]:
    account = {
        "accessKey": "orders-app", "secretKey": "long-enough", "whiteRemoteAddress": "10.0.0-5.*", "admin": False,
        "defaultTopicPerm": "DENY", "defaultGroupPerm": "SUB", "topicPerms": ["a=PUB|SUB"], "groupPerms": ["g=SUB"],
    }  # fmt: skip
    document = {
        "globalWhiteRemoteAddresses": ["10.*", "fe80::{1,2}"], "accounts": [account],
        "dataVersion": [{"counter": 1, "timestamp": 2}],
    }  # fmt: skip
    yield yaml.safe_dump(document).encode()
    yield yaml.safe_dump(document, default_flow_style=True).encode()


def _address_seeds() -> Iterator[bytes]:
    for text in ("*", "10.0.0.1", "10.0.0.{1,2}", "10.0-5.*.*", "::1,fe80::2", "fe80::*", "1:2:3:4:5:6:7-9:*"):
        yield text.encode()


_YAML_WORDS = (
    b"accounts:", b"accessKey: ", b"secretKey: ", b"topicPerms:", b"&a ", b"*a", b"- ", b"!!int ", b"!!bool ",
    b"!!float ", b"!!timestamp ", b"!!binary ", b"!!set ", b"!!omap ", b"!!pairs ", b"<<: ", b"{", b"[", b": ",
    b"> ", b"---\n",
)  # fmt: skip
TARGETS = (
    Target("settings", "pairs or BodyError", check_settings, _settings_seeds, 5, (b"\\u", b"\\\n", b"=", b":", b"#")),
    Target("accounts", "accounts or ConfigurationError", check_accounts, _account_seeds, 2, _YAML_WORDS),
    Target(
        "addresses", "a pattern or ConfigurationError", check_addresses, _address_seeds, 15,
        (b"*", b"-", b"{", b"}", b",", b"::", b"255", b"ffff"),
    ),
)  # fmt: skip
