"""A load is measured on RocketMQ's brokers as on orbitmq's, and nothing of it is left there."""

from __future__ import annotations

import pytest

from orbitmq.admin.loads import NAME
from tests.interop.conftest import System
from tests.support.commands import items


@pytest.mark.parametrize(
    "words",
    [
        ("send", "--way", "batch", "--messages", 64, "--warm-up", 0, "--in-flight", 2),
        ("send", "--way", "transaction", "--messages", 10, "--warm-up", 0, "--in-flight", 2),
        ("consume", "--messages", 200),
        ("latency", "--rate", 100, "--seconds", 1, "--warm-up", 0.2),
    ],
)
def test_a_load_is_measured_and_leaves_nothing(system: System, words: tuple[object, ...]) -> None:
    at = ("-n", system.namesrv_address)
    (report,) = items("bench", *words, *at)
    wanted = {"send": words[words.index("--messages") + 1] if "--messages" in words else 0, "consume": 200}
    assert report["messages"] == wanted.get(str(words[0]), report["messages"]) > 0
    assert (report["failed"], report["missing"] or 0) == (0, 0)
    left = {row["topic"] for row in items("topic", "list", "--all", *at)}
    left |= {row["name"] for row in items("group", "list", *at)}
    assert not {name for name in left if NAME in name}
