"""Consumers that ask: lite pull with seeks and commits, plain pulls, and the questions an administrator asks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.interop.conftest import System
from tests.support.delivery import Row, assert_as_acknowledged, assert_each_once, by_queue, messages, results
from tests.support.first_offsets import make_known
from tests.support.java_rocketmq import JavaSystem, run_driver
from tests.support.messages import index_of

COUNT = 2000


@pytest.fixture
def sent(system: System, label: str) -> Sequence[Row]:
    """Send results of COUNT messages, spread evenly over the four queues of the topic `label`."""
    client = ("--namesrv", system.namesrv_address, "--topic", label)
    return results(run_driver("send", *client, "--count", COUNT, "--run", label))


@pytest.mark.parametrize("how", ["assign", "subscribe"])
def test_lite_pull_seeks_and_commits(system: System, label: str, sent: Sequence[Row], how: str) -> None:
    client = ("--namesrv", system.namesrv_address, "--topic", label, "--group", label)
    lite_pull = ("litepull", *client, "--assign", how == "assign")
    make_known(system.address, label, label)
    late = [row for row in sent if row["queueOffset"] >= 400]
    # Each seek finds the consumer idle: a Java consumer may deliver a pull twice that a seek overtakes.
    steps = f"none:{COUNT},400:{len(late)},begin:{COUNT},end:0,490:40"
    rows = messages(run_driver(*lite_pull, "--steps", steps))

    def polled(step: int) -> list[Row]:
        return [row for row in rows if row["step"] == step]

    assert_each_once(polled(0), label, range(COUNT))
    assert_each_once(polled(1), label, [row["index"] for row in late])
    assert_each_once(polled(2), label, range(COUNT))
    assert not polled(3)
    assert [len(queue) for queue in by_queue(polled(4)).values()] == [10] * 4
    for queue in by_queue(polled(2)).values():
        assert [row["queueOffset"] for row in queue] == list(range(COUNT // 4))

    # A consumer of the same group goes on behind what was committed last: nothing, until more is sent.
    run_driver(
        "send", "--namesrv", system.namesrv_address, "--topic", label, "--first", COUNT, "--count", 8, "--run", label
    )
    rows = messages(run_driver(*lite_pull, "--steps", "none:8"))
    assert_each_once(rows, label, range(COUNT, COUNT + 8))


def test_plain_pulls_read_every_queue_in_order(system: System, label: str, sent: Sequence[Row]) -> None:
    client = ("--namesrv", system.namesrv_address, "--topic", label)
    rows = run_driver("pull", *client)
    received = messages(rows)
    assert_each_once(received, label, range(COUNT))
    assert_as_acknowledged(received, sent)
    bounds = [(row["queueId"], row["minOffset"], row["maxOffset"]) for row in rows if row["event"] == "queue"]
    assert bounds == [(queue, 0, COUNT // 4) for queue in range(4)]

    tagged = messages(run_driver("pull", *client, "--expression", "TagB"))
    assert_each_once(tagged, label, range(1, COUNT, 3))


def test_messages_are_found_by_offset_id_and_by_time(system: System, label: str, sent: Sequence[Row]) -> None:
    client = ("--namesrv", system.namesrv_address, "--topic", label)
    some = sent[:: COUNT // 10]
    ids = ",".join(row["offsetMsgId"] for row in some)
    viewed = run_driver("admin", "--do", "view", *client, "--ids", ids)
    assert_each_once(viewed, label, [row["index"] for row in some])
    assert [row["id"] for row in viewed] == [row["offsetMsgId"] for row in some]

    pulled = {index_of(row): row for row in messages(run_driver("pull", *client))}
    middle = pulled[COUNT // 2]["storeTimestamp"]
    found = run_driver("admin", "--do", "search", *client, "--time", middle)
    for queue, rows in by_queue(pulled.values()).items():
        # RocketMQ 4.9 answers with any message of that millisecond or its neighbour.
        times = {row["queueOffset"]: row["storeTimestamp"] for row in rows}
        offset = next(row["offset"] for row in found if row["queueId"] == queue)
        if isinstance(system, JavaSystem):
            assert abs(times[offset] - middle) <= 50
        else:
            assert offset == min((at for at, time in times.items() if time >= middle), default=COUNT // 4)

    bounds = run_driver("admin", "--do", "bounds", *client)
    assert [(row["queueId"], row["minOffset"], row["maxOffset"]) for row in bounds] == [
        (queue, 0, COUNT // 4) for queue in range(4)
    ]
    for row in bounds:
        assert row["earliest"] == min(
            message["storeTimestamp"] for message in by_queue(pulled.values())[row["queueId"]]
        )
    routes = run_driver("admin", "--do", "route", *client)
    assert routes == [{"broker": "broker-a", "readQueues": 4, "writeQueues": 4, "perm": 6}]
