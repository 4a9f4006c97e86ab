"""The web page over RocketMQ and orbitmq: brokers, topics, name servers and configuration, seen and changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from orbitmq.client.sync import Producer
from orbitmq.message.model import Message
from tests.interop.conftest import System
from tests.support.commands import items, orbitmq
from tests.support.dashboards import OrbitDashboard, Page, Visitor

BROKER = "broker-a"
TOPIC, GROUP = "PageOrders", "page-orders"
COUNT, LATE = 12, 3


@dataclass(frozen=True)
class World:
    """A running system whose topic a group has read in part, and somebody who looks at its page."""

    system: System
    visitor: Visitor

    @property
    def here(self) -> tuple[str, str]:
        return "-n", self.system.namesrv_address


@pytest.fixture(scope="module")
def world(system: System, dashboard: OrbitDashboard) -> Iterator[World]:
    here = ("-n", system.namesrv_address)
    visitor = dashboard.visitor()
    with Producer("pages", system.namesrv_address) as producer:
        done(visitor.get("new-topic").submit("new-topic", topic=TOPIC, write_queues=4, read_queues=4))
        orbitmq("group", "create", GROUP, "--yes", *here)
        for number in range(COUNT + LATE):
            if number == COUNT:
                orbitmq("offset", "skip", GROUP, TOPIC, "--yes", *here)
            producer.send(Message(TOPIC, b"order %d" % number))
        yield World(system, visitor)


def done(plan: Page, **typed: Any) -> Page:
    """Confirm it: every step is made, and read back where that can be."""
    made = plan.submit("plans/", **typed)
    assert {row["Outcome"] for row in made.table("Steps")} <= {"confirmed", "done", "unchanged"}, made.words
    return made


def test_the_figures_of_a_broker_are_those_of_the_command_line(world: World) -> None:
    (row,) = world.visitor.get("brokers").table("Brokers")
    (member,) = items("cluster", "list", *world.here)
    assert (row["Broker"], row["Address"], row["Version"]) == (BROKER, world.system.address, member["version"])
    page = world.visitor.get(f"brokers/{row['Address']}")
    told = {one["key"]: one["value"] for one in items("broker", "runtime", BROKER, *world.here)}
    shown = {one["Key"]: one["Value"] for one in page.table("Runtime keys")}
    assert shown.keys() == told.keys()
    assert shown["bootTimestamp"] == told["bootTimestamp"]
    settings = {one["key"]: one["value"] for one in items("broker", "config", "show", BROKER, *world.here)}
    assert {one["Key"] for one in page.table("Settings")} == settings.keys()
    assert "Writes allowed by name servers yes" in page.words


def test_a_setting_is_changed_and_changed_back(world: World) -> None:
    here = f"brokers/{world.system.address}/settings"
    plan = world.visitor.get(here).submit("settings/change", {"set:fileReservedTime": "73"})
    (step,) = plan.table("Steps")
    assert (step["Subject"], step["After"]) == ("fileReservedTime", "73")
    done(plan)
    done(world.visitor.get(here).submit("settings/change", {"set:fileReservedTime": step["Before"]}))


def test_writing_and_cleaning(world: World) -> None:
    here = f"brokers/{world.system.address}"
    try:
        done(world.visitor.get(here).submit("writing", writing="forbid"))
        assert "Writes allowed by name servers no" in world.visitor.get(here).words
    finally:  # other tests send to this broker
        done(world.visitor.get(here).submit("writing", writing="allow"))
    assert "Writes allowed by name servers yes" in world.visitor.get(here).words
    for what in ("expired-queues", "unused-topics", "expired-log"):
        done(world.visitor.get(here).submit("cleaning", what=what))


def test_a_topic_with_its_queues_and_its_consumers(world: World) -> None:
    page = world.visitor.get(f"topics/{TOPIC}")
    queues = page.table("Queues")
    assert [row["Queue"] for row in queues] == ["0", "1", "2", "3"]
    assert sum(int(row["Messages"]) for row in queues) == COUNT + LATE
    (group,) = page.table("Consumers")
    assert (group["Group"], group["Lag"]) == (GROUP, str(LATE))
    (row,) = world.visitor.get(f"topics?containing={TOPIC}&volumes=1").table("Topics")
    assert (row["Kind"], row["Queues"], row["Permission"], row["Groups"], row["Lag"], row["Messages"]) == (
        "normal", "4", "RW-", "1", str(LATE), str(COUNT + LATE),
    )  # fmt: skip
    behind = world.visitor.get(f"brokers/{BROKER}/consumption").table("Queues with a lag")
    assert sum(int(one["Lag"]) for one in behind if one["Group"] == GROUP and one["Topic"] == TOPIC) == LATE


def test_a_topic_is_made_altered_put_in_order_and_deleted(world: World) -> None:
    name = "PageMade"
    done(world.visitor.get("new-topic").submit("new-topic", topic=name, write_queues=2, read_queues=2, ordered="on"))
    page = world.visitor.get(f"topics/{name}")
    assert f"{BROKER}:2" in page.words
    done(page.submit("alter", write_queues=3, read_queues=3, perm="R"))
    (row,) = world.visitor.get(f"topics/{name}").table("Configuration")
    assert (row["Write queues"], row["Read queues"], row["Permission"]) == ("3", "3", "R--")
    done(page.submit("order", setting=""))
    done(world.visitor.get(f"topics/{name}").submit("delete"), typed=name)
    assert world.visitor.get(f"topics/{name}").status == 404
    assert name not in [row["Topic"] for row in world.visitor.get("topics").table("Topics")]


def test_name_servers_and_what_they_keep(world: World) -> None:
    page = world.visitor.get("nameservers")
    (row,) = page.table("Name servers")
    assert (row["Address"], row["Brokers"]) == (world.system.namesrv_address, "1")
    done(page.submit("nameservers/pairs", key="page-colour", value="blue"))
    pairs = {
        row["Key"]: row["Value"] for row in world.visitor.get("nameservers").table("Entries of ORDER_TOPIC_CONFIG")
    }
    assert pairs["page-colour"] == "blue"
    done(page.submit("nameservers/pairs", key="page-colour", value="red"))
    removing = world.visitor.get("nameservers").submit("pairs/remove", key="page-colour")
    assert removing.table("Steps")[0]["Before"] == "red"
    done(removing)
    plan = page.submit("nameservers/settings", key="orderMessageEnable", value="true")
    before = plan.table("Steps")[0]["Before"]
    done(plan)
    done(page.submit("nameservers/settings", key="orderMessageEnable", value=before))


def test_the_cluster_as_a_document(world: World) -> None:
    saved = world.visitor.get("config/export?section=topics&section=groups")
    document = yaml.safe_load(saved.text)
    assert TOPIC in [one["name"] for one in document["topics"]]
    page = world.visitor.get("config")
    assert "All settings are the same" in page.words
    entry = {"apiVersion": "orbitmq/v1", "kind": "ClusterConfig"}
    alone = yaml.safe_dump({**entry, "topics": [{"name": "PageWritten", "readQueues": 2, "writeQueues": 2}]})
    done(page.submit("config/apply", document=alone))
    (row,) = world.visitor.get("topics/PageWritten").table("Configuration")
    assert row["Read queues"] == "2"
    done(world.visitor.get("topics/PageWritten").submit("delete"), typed="PageWritten")


def test_access_that_is_off_is_told(world: World) -> None:
    page = world.visitor.get("access")
    assert f"Access control is off at {BROKER}" in page.words
    assert "Partial" not in page.words
