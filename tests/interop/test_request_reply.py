"""Requests that wait for a reply: a Java requester and a Java consumer that replies."""

from __future__ import annotations

from tests.interop.conftest import System
from tests.support.java_rocketmq import run_driver

COUNT = 20


def test_every_request_gets_its_reply_and_an_ignored_one_times_out(system: System, label: str) -> None:
    topic = ("--namesrv", system.namesrv_address, "--topic", label)
    run_driver("admin", "--do", "create", *topic, "--queues", 4, "--broker", system.address)
    rows = run_driver("requestreply", *topic, "--group", label, "--count", COUNT)
    replies = [row for row in rows if row["event"] == "reply"]
    assert sorted(int(row["body"].removesuffix("!")) for row in replies) == list(range(COUNT))
    for row in replies:
        index = int(row["body"].removesuffix("!"))
        assert row["how"] == ("async" if index % 2 else "sync")
        assert row["size"] == (10_000 if index % 3 == 0 else len(row["body"])), "compressed ones arrive unpacked"
        assert (row["topic"], row["type"]) == ("DefaultCluster_REPLY_TOPIC", "reply")
        assert row["pushed"]
    answered = [row for row in rows if row["event"] == "answered"]
    assert {row["status"] for row in answered} == {"SEND_OK"}
    assert [row for row in rows if row["event"] in ("timeout", "failed")] == [{"event": "timeout"}]


def test_replies_are_stored_in_the_reply_topic(system: System, label: str) -> None:
    """They are the only messages there, whatever test made them."""
    topic = ("--namesrv", system.namesrv_address, "--topic", label)
    run_driver("admin", "--do", "create", *topic, "--queues", 4, "--broker", system.address)
    place = ("--namesrv", system.namesrv_address, "--topic", "DefaultCluster_REPLY_TOPIC")
    (before,) = run_driver("admin", "--do", "bounds", *place)
    run_driver("requestreply", *topic, "--group", label, "--count", 4)
    (after,) = run_driver("admin", "--do", "bounds", *place)
    assert after["maxOffset"] - before["maxOffset"] == 4
