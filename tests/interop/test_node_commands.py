"""`orbitmq cluster`, `broker`, `topic` and `namesrv` against RocketMQ and orbitmq: the figures are those the stock
`mqadmin` tells of the same data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.interop.conftest import System, is_five
from tests.support.commands import answer, items, orbitmq
from tests.support.java_rocketmq import Driver, run_driver
from tests.support.mqadmin import Mqadmin, rows
from tests.support.process import wait_until

CLUSTER, BROKER = "DefaultCluster", "broker-a"
TOPIC, GROUP, COUNT = "NodeOrders", "node-orders", 10
GROUPS = "groups"  # of which other tests leave some that messages wait for


@dataclass(frozen=True)
class World:
    """A running system with a topic that a group has read, the stock tool, and where to ask."""

    system: System
    stock: Mqadmin

    @property
    def here(self) -> tuple[str, str]:
        return "-n", self.system.namesrv_address


@pytest.fixture(scope="module")
def world(system: System) -> Iterator[World]:
    here = ("-n", system.namesrv_address)
    orbitmq("topic", "create", TOPIC, "--queues", 4, "--yes", *here)
    client = ("--namesrv", system.namesrv_address, "--topic", TOPIC)
    with Mqadmin(system.namesrv_address) as stock, Driver("consume", *client, "--group", GROUP) as consumer:
        consumer.wait_for_event("started")
        run_driver("send", *client, "--count", COUNT, "--run", "n")
        consumer.process.wait_for(
            lambda: len([row for row in consumer.rows() if row["event"] == "message"]) == COUNT, 60, "all messages"
        )
        yield World(system, stock)


def pairs(printed: str, separator: str) -> dict[str, str]:
    lines = (line.partition(separator) for line in printed.splitlines() if separator in line)
    return {name.strip(): value.removeprefix(" ") for name, _, value in lines}


# ------------------------------------------------------------------------------------------------- RocketMQ 5.3.3, too


@pytest.mark.with_five
def test_what_there_is_and_that_it_is_well(system: System, tmp_path: Path) -> None:
    here = ("-n", system.namesrv_address)
    name = "NodeFive"
    orbitmq("topic", "create", name, "--queues", 2, "--yes", *here)
    (member,) = items("cluster", "list", *here)
    assert (member["broker"], member["answers"], member["address"]) == (BROKER, True, system.address)
    looked_at = items("doctor", *here, code=None)
    assert not [row for row in looked_at if row["severity"] == "critical" and row["check"] != GROUPS]
    (status,) = items("broker", "status", BROKER, *here)
    assert status["runtime"]["diskFreeBytes"] > 0
    assert status["runtime"]["transferredPerS"].keys() == {"last10S", "last60S", "last600S"}
    assert {row["topic"]: row["type"] for row in items("topic", "list", "--all", *here)}[name] == "UNSPECIFIED"
    assert [row["messages"] for row in items("topic", "status", name, *here)] == [0, 0]
    assert items("topic", "consumers", name, *here) == []
    file = tmp_path / "cluster.yaml"
    orbitmq("config", "export", "-f", file, *here)
    assert items("config", "diff", "-f", file, "--prune", *here) == []
    orbitmq("check", "broker", "-w", 20_000, "-c", 30_000, *here)
    if not is_five(system):  # 5.3.3 fails to delete a topic where its timer wheel is off, as it is here
        assert [step["outcome"] for step in items("topic", "delete", name, "--yes", *here)] == ["confirmed"] * 2


# -------------------------------------------------------------------------------------------------- cluster and broker


def test_checks_of_a_group(world: World) -> None:
    def caught_up() -> bool:
        return "is 0 messages behind" in orbitmq("check", "lag", GROUP, *world.here).stdout

    wait_until(caught_up, 60, "the group's offsets to be stored")
    orbitmq("check", "dlq", GROUP, *world.here)
    orbitmq("check", "replica", *world.here)


def test_the_cluster_is_well(world: World) -> None:
    (row,) = items("cluster", "overview", *world.here)
    assert (row["cluster"], row["masters"], row["slaves"], row["unreachable"]) == (CLUSTER, 1, 0, [])
    assert row["versions"] == ["V4_9_7"]
    told = answer("cluster", "health", "--expect", BROKER, *world.here, code=None)
    assert not told["errors"]
    assert not [row for row in told["items"] if row["severity"] == "critical" and row["check"] != GROUPS]
    missed = answer("cluster", "health", "--expect", "broker-z", *world.here, code=8)
    assert "broker broker-z is not registered" in [row["message"] for row in missed["items"]]


def test_brokers_as_the_stock_tool_lists_them(world: World) -> None:
    (mine,) = items("cluster", "list", *world.here)
    printed = world.stock("clusterList")
    assert f"{mine['cluster']}  {mine['broker']}  ".split() == printed.splitlines()[1].split()[:2]
    assert re.search(rf"{mine['address']} +{mine['version']} ", printed)
    share = re.search(r" ([\d.]+)$", printed.splitlines()[1].rstrip())
    assert share
    assert float(share[1]) == pytest.approx(mine["diskRatio"], abs=0.02)


# What moves between two looks.
_MOVING = re.compile(
    r"(?i)tps$|^runtime$|capacity$|Ratio|latency|distribute|time|queue|^remain|pageCache|get|scheduleM"
)


def test_the_runtime_table_is_the_stock_tools(world: World) -> None:
    def look() -> tuple[dict[str, str], dict[str, str], dict[str, Any]] | None:
        """The stock tool's view and ours, when nothing was stored between two looks of ours around them."""
        (before,) = items("broker", "status", world.system.address, *world.here)
        stock = pairs(world.stock("brokerStatus", "-b", world.system.address), ":")
        mine = {row["key"]: row["value"] for row in items("broker", "runtime", BROKER, *world.here)}
        (status,) = items("broker", "status", world.system.address, *world.here)
        unmoved = before["runtime"]["logEndOffset"] == status["runtime"]["logEndOffset"]
        return (stock, mine, status) if unmoved else None

    stock, mine, status = wait_until(look, 60, "a moment in which nobody sends")  # type: ignore[misc]
    assert mine.keys() == stock.keys()
    still = [key for key in mine if not _MOVING.search(key)]
    assert len(still) >= 8
    assert {key: mine[key] for key in still} == {key: stock[key].strip() for key in still}
    assert status["runtime"]["bootedAtMs"] == int(stock["bootTimestamp"])
    assert status["runtime"]["logEndOffset"] == int(stock["commitLogMaxOffset"])
    assert status["runtime"]["putTotal"] == int(stock["putMessageTimesTotal"])


def test_settings_are_the_stock_tools_and_are_changed(world: World) -> None:
    def stock() -> dict[str, str]:
        return pairs(world.stock("getBrokerConfig", "-b", world.system.address), "=  ")

    told = stock()
    mine = {row["key"]: row["value"] for row in items("broker", "config", "show", BROKER, *world.here)}
    assert {key: value.strip() for key, value in mine.items()} == {key: value.strip() for key, value in told.items()}
    other = "70" if told["fileReservedTime"].strip() != "70" else "71"
    change = ("broker", "config", "set", f"fileReservedTime={other}", *world.here)
    assert orbitmq(*change, "--dry-run").exit_code == 0
    assert stock()["fileReservedTime"].strip() != other
    (step,) = items(*change, "--yes")
    assert (step["before"], step["after"], step["outcome"]) == (told["fileReservedTime"].strip(), other, "confirmed")
    assert stock()["fileReservedTime"].strip() == other
    orbitmq(*change, "--yes", "--fail-if-unchanged", code=10)
    orbitmq("broker", "config", "set", "storePathRootDir=/etc", "--yes", *world.here, code=7)
    orbitmq("broker", "config", "set", "noSuchKey=1", "--yes", *world.here, code=3)


def test_consumption_is_the_stock_tools(world: World) -> None:
    def caught_up() -> bool:
        found = items("broker", "consume-stats", BROKER, *world.here)
        mine = [row for row in found if (row["topic"], row["group"]) == (TOPIC, GROUP)]
        return len(mine) == 4 and not any(row["lagMessages"] for row in mine)

    wait_until(caught_up, 60, "the group's offsets to be stored")
    mine = {
        (row["topic"], row["group"], str(row["queueId"])): (row["brokerOffset"], row["consumerOffset"])
        for row in items("broker", "consume-stats", BROKER, *world.here)
    }
    told = rows(world.stock("brokerConsumeStats", "-b", world.system.address), "#Topic")
    stock = {(row[0], row[1], row[3]): (int(row[4]), int(row[5])) for row in told if row[1] == GROUP}
    assert stock
    assert {key: mine[key] for key in stock} == stock


@pytest.mark.parametrize("what", ["expired-queues", "unused-topics", "expired-log"])
def test_cleaning(world: World, what: str) -> None:
    (step,) = items("broker", "clean", what, "--broker", BROKER, "--yes", *world.here)
    assert step["outcome"] == "done"


def test_sends_are_timed(world: World) -> None:
    (row,) = items("broker", "send-test", BROKER, "--count", 3, *world.here)
    assert (row["sent"], row["failed"]) == (3, 0)
    assert row["shortestMs"] <= row["meanMs"] <= row["longestMs"]


def test_writing_is_forbidden_and_allowed(world: World) -> None:
    try:
        (step,) = items("broker", "forbid-writing", BROKER, "--yes", *world.here)
        assert (step["before"], step["after"], step["outcome"]) == (True, False, "confirmed")
        assert '"perm":4' in world.stock("topicRoute", "-t", TOPIC)
    finally:  # other tests send to this broker
        (step,) = items("broker", "allow-writing", BROKER, "--yes", *world.here)
    assert step["outcome"] == "confirmed"
    assert '"perm":6' in world.stock("topicRoute", "-t", TOPIC)


# ------------------------------------------------------------------------------------------------------------ topics


def test_topics_are_those_of_the_stock_tool(world: World) -> None:
    everything = {row["topic"]: row["type"] for row in items("topic", "list", "--all", *world.here)}
    assert set(everything) == set(world.stock("topicList").split())
    assert everything[f"%RETRY%{GROUP}"] == "RETRY"
    assert {everything[name] for name in (BROKER, CLUSTER, "TBW102", "SCHEDULE_TOPIC_XXXX")} == {"SYSTEM"}
    shown = {row["topic"] for row in items("topic", "list", *world.here)}
    assert shown == {name for name, kind in everything.items() if kind in ("UNSPECIFIED", "FIFO")}


def test_queues_hold_what_the_stock_tool_says(world: World) -> None:
    mine = [
        (row["broker"], str(row["queueId"]), str(row["minOffset"]), str(row["maxOffset"]))
        for row in items("topic", "status", TOPIC, *world.here)
    ]
    assert mine == [tuple(row[:4]) for row in rows(world.stock("topicStatus", "-t", TOPIC), "#Broker Name")]
    assert sum(row["messages"] for row in items("topic", "status", TOPIC, *world.here)) == COUNT


def test_routes_and_clusters(world: World) -> None:
    (mine,) = items("topic", "route", TOPIC, *world.here)
    stock = rows(world.stock("topicRoute", "-t", TOPIC, "-l"), "#ClusterName")[0]
    assert [mine["cluster"], mine["broker"], str(mine["readQueues"]), str(mine["writeQueues"])] == [
        *stock[:2], *stock[3:5],
    ]  # fmt: skip
    assert (mine["addresses"], mine["perm"]) == ({"0": world.system.address}, "RW-")
    (cluster,) = items("topic", "clusters", TOPIC, *world.here)
    assert [cluster["cluster"]] == world.stock("topicClusterList", "-t", TOPIC).split()
    told = orbitmq("topic", "route", "NodeNone", "-o", "json", *world.here, code=3)
    assert json.loads(told.stdout)["errors"][0]["hint"].startswith("did you mean NodeOrders")


def test_consumers_and_what_flows(world: World) -> None:
    (group,) = items("topic", "consumers", TOPIC, *world.here)
    assert (group["group"], group["brokers"]) == (GROUP, [BROKER])

    def counted() -> dict[str, object] | None:
        """The broker takes samples every ten seconds."""
        (row,) = items("topic", "stats", TOPIC, *world.here)
        return row if row["in24H"] == COUNT and row["out24H"] == COUNT else None

    row = wait_until(counted, 60, "the broker to have counted")
    assert row["group"] == GROUP  # type: ignore[index]
    (stock,) = [row for row in rows(world.stock("statsAll", "-t", TOPIC), "#Topic") if row[:2] == [TOPIC, GROUP]]
    assert [int(cell) for cell in stock[5:7]] == [COUNT, COUNT]


def test_a_topic_is_made_altered_and_deleted(world: World) -> None:
    name = "NodeShort"
    made = ("topic", "create", name, "--read-queues", 3, "--write-queues", 2, "--yes", *world.here)
    (step,) = items(*made)
    assert step["outcome"] == "confirmed"
    assert items(*made)[0]["outcome"] == "unchanged"
    orbitmq("topic", "create", name, "--queues", 9, "--yes", *world.here, code=7)
    items("topic", "alter", name, "--write-queues", 3, "--yes", *world.here)
    items("topic", "permission", name, "R", "--yes", *world.here)
    (config,) = items("topic", "config", name, *world.here)
    assert (config["readQueues"], config["writeQueues"], config["perm"]) == (3, 3, "R--")
    wait_until(lambda: '"perm":4' in world.stock("topicRoute", "-t", name), 60, "the route to follow")
    orbitmq("topic", "delete", name, *world.here, code=9)
    steps = items("topic", "delete", name, "--yes", *world.here)
    assert [(step["action"], step["outcome"]) for step in steps] == [
        ("delete topic", "confirmed"),
        ("forget topic", "confirmed"),
    ]
    assert name not in world.stock("topicList").split()
    orbitmq("topic", "delete", name, "--yes", *world.here, code=3)


@pytest.mark.parametrize("name", ["TBW102", BROKER, CLUSTER, "rmq_sys_x"])
def test_topics_of_the_system_stay(world: World, name: str) -> None:
    orbitmq("topic", "delete", name, "--yes", *world.here, code=7)
    orbitmq("topic", "create", name, "--yes", *world.here, code=7)


# ------------------------------------------------------------------------------------------------------- name servers


def test_settings_of_name_servers(world: World) -> None:
    stock = pairs(world.stock("getNamesrvConfig"), "=  ")
    mine = {row["key"]: row["value"] for row in items("namesrv", "config", "show", *world.here)}
    assert {key: value.strip() for key, value in mine.items()} == {key: value.strip() for key, value in stock.items()}
    (server,) = items("namesrv", "list", *world.here)
    assert (server["address"], server["brokers"], server["missingBrokers"]) == (world.system.namesrv_address, 1, [])
    orbitmq("namesrv", "config", "set", "kvConfigPath=/etc/passwd", "--yes", *world.here, code=7)


def test_order_settings_and_pairs(world: World) -> None:
    (step,) = items("topic", "order", TOPIC, f"{BROKER}:4", "--yes", *world.here)
    assert step["outcome"] == "confirmed"
    assert f"orderConf=[{BROKER}:4]" in world.stock("updateOrderConf", "-t", TOPIC, "-m", "get")
    kinds = {row["topic"]: row["type"] for row in items("topic", "list", *world.here)}
    assert kinds[TOPIC] == "FIFO"
    (pair,) = items("namesrv", "kv", "get", "ORDER_TOPIC_CONFIG", TOPIC, *world.here)
    assert (pair["value"], pair["differs"]) == (f"{BROKER}:4", False)
    (step,) = items("topic", "order", TOPIC, "--yes", *world.here)
    assert step["outcome"] == "confirmed"
    orbitmq("namesrv", "kv", "get", "ORDER_TOPIC_CONFIG", TOPIC, *world.here, code=3)
