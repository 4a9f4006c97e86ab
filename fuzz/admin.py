"""Promises of what reads texts of operators and for them: settings, accounts, addresses, traces."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import yaml

from fuzz.promise import Target, is_refused, outcome
from orbitmq.broker.access.accounts import account_of
from orbitmq.broker.access.addresses import pattern
from orbitmq.broker.access.files import parse, parse_document
from orbitmq.client.core.trace import decode_trace, encode_record
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


# -------------------------------------------------------------------------------------------------------------- traces


def check_trace(data: bytes) -> None:
    records = outcome(BodyError, lambda: decode_trace(data))
    if is_refused(records):
        return
    text = "".join(map(encode_record, records))
    assert decode_trace(text.encode()) == records


def _trace_seeds() -> Iterator[bytes]:
    fields = {"Pub": 14, "SubBefore": 8, "SubAfter": 9, "EndTransaction": 13}
    for kind, count in fields.items():
        for value in ("1", "null", "true"):
            yield "\x01".join([kind, *[value] * count]).encode() + b"\x02"


_YAML_WORDS = (
    b"accounts:", b"accessKey: ", b"secretKey: ", b"topicPerms:", b"&a ", b"*a", b"- ", b"!!int ", b"!!bool ",
    b"!!float ", b"!!timestamp ", b"!!binary ", b"!!set ", b"!!omap ", b"!!pairs ", b"<<: ", b"{", b"[", b": ",
    b"> ", b"---\n",
)  # fmt: skip
TARGETS = (
    Target("settings", "pairs or BodyError", check_settings, _settings_seeds, 5, (b"\\u", b"\\\n", b"=", b":", b"#")),
    Target(
        "trace", "records or BodyError; written again they read the same", check_trace, _trace_seeds, 15,
        (b"Pub\x01", b"SubBefore\x01", b"SubAfter\x01", b"EndTransaction\x01", b"\x02", b"null"),
    ),
    Target("accounts", "accounts or ConfigurationError", check_accounts, _account_seeds, 2, _YAML_WORDS),
    Target(
        "addresses", "a pattern or ConfigurationError", check_addresses, _address_seeds, 15,
        (b"*", b"-", b"{", b"}", b",", b"::", b"255", b"ffff"),
    ),
)  # fmt: skip
