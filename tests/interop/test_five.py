"""Java clients and tools of 5.3.3 over the remoting protocol: at a broker of their own version, and at orbitmq.

What they ask first, and only brokers of 5.x know, is answered so that they go on as with a broker of 4.9.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.interop.conftest import SHORT_DELAYS, System
from tests.support.delivery import Row, assert_as_acknowledged, assert_each_once, by_queue, messages, results
from tests.support.java_rocketmq import ROCKETMQ_5, Driver, JavaSystem, run_driver
from tests.support.messages import index_of
from tests.support.mqadmin import Mqadmin, rows
from tests.support.orbit_process import OrbitUp
from tests.support.process import wait_until

CLUSTER, BROKER, TOPIC = "DefaultCluster", "broker-a", "FiveOrders"
COUNT = 100
_SYSTEMS = {
    "java": lambda: JavaSystem(ROCKETMQ_5, messageDelayLevel=SHORT_DELAYS),
    "orbitmq": lambda: OrbitUp(messageDelayLevel=SHORT_DELAYS),
}


@pytest.fixture(scope="module", params=_SYSTEMS)
def five(request: pytest.FixtureRequest) -> Iterator[System]:
    with _SYSTEMS[request.param]() as running:
        yield running


@pytest.fixture(scope="module")
def mqadmin(five: System) -> Iterator[Mqadmin]:
    with Mqadmin(five.namesrv_address, ROCKETMQ_5) as run:
        yield run


@pytest.fixture(scope="module")
def sent(five: System, mqadmin: Mqadmin) -> list[Row]:
    """What a producer was told about the first half of the messages of TOPIC; the second came in batches."""
    assert f"create topic to {five.address} success." in mqadmin(
        "updateTopic", "-c", CLUSTER, "-t", TOPIC, "-r", 4, "-w", 4
    )
    run = ("--count", COUNT, "--run", "five")
    told = results(run_driver("send", *_client(five), "--mode", "async", *run, version=ROCKETMQ_5))
    run_driver("send", *_client(five), "--mode", "batch", "--first", COUNT, *run, version=ROCKETMQ_5)
    return told


def _client(five: System) -> tuple[object, ...]:
    return ("--namesrv", five.namesrv_address, "--topic", TOPIC)


def _read(five: System, driver: str, *words: object) -> list[Row]:
    """The messages a driver received with a group of this name."""
    return messages(run_driver(driver, *_client(five), *words, version=ROCKETMQ_5))


def test_messages_arrive_as_they_were_acknowledged(five: System, sent: list[Row]) -> None:
    """Of a batch 5.x tells no ids of single messages."""
    received = _read(five, "consume", "--group", "five", "--expect", 2 * COUNT)
    assert_each_once(received, "five", range(2 * COUNT))
    assert_as_acknowledged([row for row in received if index_of(row) < COUNT], sent)


def test_a_failed_message_comes_back(five: System, sent: list[Row]) -> None:
    received = _read(five, "consume", "--group", "five-retries", "--fail-every", 50, "--expect", 2 * COUNT + 4)
    again = [row for row in received if row["reconsumeTimes"] > 0]
    assert sorted(map(index_of, again)) == [0, 50, 100, 150]


def test_ordered_consumption(five: System, sent: list[Row]) -> None:
    received = _read(five, "consume", "--group", "five-orders", "--orderly", "true", "--expect", 2 * COUNT)
    for queue in by_queue(received).values():
        assert [row["queueOffset"] for row in queue] == list(range(len(queue)))


def test_lite_pull_consumption(five: System, sent: list[Row]) -> None:
    """Its pulls have a code of their own, and no other way if that is not known."""
    received = _read(five, "litepull", "--group", "five-lite", "--steps", f"none:{2 * COUNT},begin:{2 * COUNT}")
    for step in (0, 1):
        assert_each_once([row for row in received if row["step"] == step], "five", range(2 * COUNT))


def test_tools(five: System, mqadmin: Mqadmin, sent: list[Row]) -> None:
    assert TOPIC in mqadmin("topicList").split()
    assert rows(mqadmin("topicRoute", "-t", TOPIC, "-l"), "#ClusterName")[0][:2] == [CLUSTER, BROKER]
    told = rows(mqadmin("sendMessage", "-t", TOPIC, "-p", "body", "-k", "five-key"), "#Broker Name")[0]
    assert told[2] == "SEND_OK"
    status = rows(mqadmin("topicStatus", "-t", TOPIC), "#Broker Name")
    assert [row[:3] for row in status] == [[BROKER, str(queue), "0"] for queue in range(4)]
    assert sum(int(row[3]) for row in status) > 2 * COUNT
    assert re.search(rf"^{CLUSTER} +{BROKER} +0 +{five.address} +V", mqadmin("clusterList"), re.MULTILINE)
    assert "brokerVersionDesc" in mqadmin("brokerStatus", "-b", five.address)
    made = mqadmin("updateSubGroup", "-c", CLUSTER, "-g", "five-made")
    assert f"create subscription group to {five.address} success." in made


def test_tools_about_a_group(five: System, mqadmin: Mqadmin, sent: list[Row]) -> None:
    group = "five-progress"
    words = ("--group", group, "--idle-ms", 600_000)
    with Driver("consume", *_client(five), *words, version=ROCKETMQ_5) as consumer:
        consumer.process.wait_for(lambda: len(messages(consumer.rows())) >= 2 * COUNT, 60, "all messages")
        (member,) = rows(mqadmin("consumerConnection", "-g", group), "#ClientId")
        assert member[2:] == ["JAVA", "V5_3_3"]

        def queues() -> list[str]:
            printed = mqadmin("consumerProgress", "-g", group)
            return re.findall(rf"^{TOPIC} +{BROKER} +(\d) ", printed, re.MULTILINE)

        wait_until(lambda: sorted(queues()) == list("0123"), 60, "the group's offsets to be stored")
