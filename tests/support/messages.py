"""The messages of live tests, each a function of its index: the same as the Java drivers' class Messages makes.

Knows nothing of any client; `differences` compares the row of a received message with what must have been sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CITIES = ("München", "東京", "São Paulo", "Kraków", "Αθήνα")
_RISING = bytes(range(256)) * 2
USER_PROPERTIES = ("run", "index", "city", "note")


@dataclass(frozen=True)
class TestMessage:
    """What is sent under one index."""

    __test__ = False  # for pytest: not a test class

    body: bytes
    tags: str
    keys: str
    flag: int
    properties: Mapping[str, str]


def body(index: int) -> bytes:
    """5000 + index % 1000 bytes when index % 50 = 49 (a client compresses it), otherwise 20 + index % 300."""
    size = 5000 + index % 1000 if index % 50 == 49 else 20 + index % 300
    first = 31 * index % 256
    period = _RISING[first : first + 61]
    return (period * (size // 61 + 1))[:size]


def message(run: str, index: int) -> TestMessage:
    """The message of this index; `run` is the label a test gives its messages."""
    properties = {
        "run": run,
        "index": str(index),
        "city": CITIES[index % len(CITIES)],
        "note": f'🚀 no. {index} "quoted" \\ {{a=b;c}}',
    }
    return TestMessage(
        body(index), "Tag" + "ABC"[index % 3], f"order-{index} customer-{index % 97}", index % 7, properties
    )


def index_of(row: Mapping[str, Any]) -> int:
    return int(row["properties"]["index"])


def differences(row: Mapping[str, Any], run: str) -> dict[str, tuple[object, object]]:
    """Fields of a received message that differ from what was sent: name -> (received, sent). Empty when all is well."""
    sent = message(run, index_of(row))
    expected: dict[str, object] = {
        "tags": sent.tags,
        "keys": sent.keys,
        "flag": sent.flag,
        "bodySize": len(sent.body),
        "bodySha256": hashlib.sha256(sent.body).hexdigest(),
        **sent.properties,
    }
    received = {**row, **{name: row["properties"].get(name) for name in USER_PROPERTIES}}
    return {name: (received[name], value) for name, value in expected.items() if received[name] != value}
