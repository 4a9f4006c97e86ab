"""The Java 4.9.7 client sends in every way it has and consumes everything as it was sent."""

from __future__ import annotations

import pytest

from tests.interop.conftest import System
from tests.support.delivery import (
    assert_as_acknowledged,
    assert_each_once,
    assert_queues_without_gaps,
    by_queue,
    messages,
    results,
)
from tests.support.java_rocketmq import run_driver
from tests.support.messages import index_of

COUNT = 10_000
_COMPRESSED = 1


@pytest.mark.parametrize("mode", ["sync", "async", "oneway", "batch"])
def test_every_message_arrives_exactly_as_sent(system: System, label: str, mode: str) -> None:
    client = ("--namesrv", system.namesrv_address, "--topic", label)
    sent = results(run_driver("send", *client, "--mode", mode, "--count", COUNT, "--run", label))
    received = messages(run_driver("consume", *client, "--group", label, "--expect", COUNT))

    assert_each_once(received, label, range(COUNT))
    assert_queues_without_gaps(received, queue_count=4)
    assert {row["topic"] for row in received} == {label}
    assert {row["storeHost"] for row in received} == {system.address}
    assert {row["bornHost"] for row in received} == {"127.0.0.1"}
    # Java's asynchronous producer asks from several threads, which may open two connections at once on a busy machine.
    connections = len({row["bornPort"] for row in received})
    assert connections <= (2 if mode == "async" else 1), "one producer has one connection to a broker"
    assert all(row["bornTimestamp"] <= row["storeTimestamp"] for row in received)
    assert {row["reconsumeTimes"] for row in received} == {0}
    if mode != "oneway":
        assert len(sent) == COUNT
        assert_as_acknowledged(received, sent)
    if mode in {"sync", "batch"}:  # the next is sent when the last is acknowledged, so queues hold them in this order
        for rows in by_queue(received).values():
            rows.sort(key=lambda row: row["queueOffset"])
            assert [index_of(row) for row in rows] == sorted(map(index_of, rows))
    if mode != "batch":
        assert all(bool(row["sysFlag"] & _COMPRESSED) == (row["bodySize"] > 4096) for row in received)


def test_java_5_client_sends_and_consumes(system: System, label: str) -> None:
    client = ("--namesrv", system.namesrv_address, "--topic", label)
    sent = results(run_driver("send", *client, "--count", 1000, "--run", label, version="5.3.3"))
    received = messages(
        run_driver("consume", *client, "--group", label, "--expect", 1000, version="5.3.3", timeout_s=180)
    )
    assert_each_once(received, label, range(1000))
    assert_as_acknowledged(received, sent)


def test_tag_expression_selects(system: System, label: str) -> None:
    client = ("--namesrv", system.namesrv_address, "--topic", label)
    run_driver("send", *client, "--mode", "batch", "--count", 900, "--run", label)
    consume = ("consume", *client, "--group", label, "--expression", "TagA || TagC", "--expect", 600)
    received = messages(run_driver(*consume))
    assert_each_once(received, label, [i for i in range(900) if i % 3 != 1])
