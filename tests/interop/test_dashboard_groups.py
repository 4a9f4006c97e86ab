"""The pages of groups, offsets and clients over RocketMQ and orbitmq: what they show is so, and what they change is
read back by asking the brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import pytest

from orbitmq.admin import groups, offsets
from orbitmq.admin.session import Session
from orbitmq.client import ConsumeConcurrentlyStatus, ConsumeFromWhere, Message
from orbitmq.client.sync import Producer, PushConsumer
from orbitmq.errors import NotFound
from orbitmq.message.config import SubscriptionGroup, TopicConfig
from orbitmq.message.model import MessageQueue
from orbitmq.operations.groups import create_group
from orbitmq.operations.offsets import update_consumer_offset
from orbitmq.operations.topics import create_topic
from tests.interop.conftest import System
from tests.support.dashboards import OrbitDashboard, Page, Visitor
from tests.support.java_rocketmq import JavaSystem
from tests.support.process import wait_until
from tests.support.sessions import asked

T = TypeVar("T")
TOPIC, BROKER = "DashboardGroups", "broker-a"
ONLINE, OFFLINE, PRODUCERS = "dashboard-online", "dashboard-offline", "dashboard-producers"
QUEUES, EACH, TAKEN = 2, 5, 2
"""Messages of each queue, and how many of them the group that is offline has taken."""
PATIENCE_S = 60


@dataclass(frozen=True)
class World:
    """A system with a topic, a group that has read all of it and one that has left on the way."""

    system: System
    visitor: Visitor
    client_id: str

    def group(self, name: str) -> Page:
        return self.visitor.get(f"groups/{name}")

    def offsets(self, group: str) -> list[int]:
        found = asked(self.system.namesrv_address, lambda session: offsets.show(session, group, TOPIC))
        return [row.consumer_offset for row in found.items]

    def ask(self, path: str, found: Callable[[Page], T | None], what: str) -> T:
        """What is found on a page that is loaded until it is there."""
        return wait_until(lambda: found(self.visitor.get(path)), PATIENCE_S, what)


async def _prepare(session: Session) -> None:
    for node in await session.masters():
        await create_topic(session.remoting, node.address, TopicConfig(TOPIC, QUEUES, QUEUES))
        await create_group(session.remoting, node.address, SubscriptionGroup(OFFLINE))


async def _left(session: Session, group: str = OFFLINE) -> None:
    """The group has taken some, and is gone."""
    for node in await session.masters():
        for number in range(QUEUES):
            queue = MessageQueue(TOPIC, node.name, number)
            await update_consumer_offset(session.remoting, node.address, group, queue, TAKEN)


@pytest.fixture(scope="module")
def world(system: System, dashboard: OrbitDashboard) -> Iterator[World]:
    asked(system.namesrv_address, _prepare)
    asked(system.namesrv_address, _left)
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer = PushConsumer(ONLINE, system.namesrv_address, consume_from_where=first)
    consumer.subscribe(TOPIC)
    consumer.set_listener(lambda *_: ConsumeConcurrentlyStatus.CONSUME_SUCCESS)
    with Producer(PRODUCERS, system.namesrv_address) as producer:
        for number in range(QUEUES * EACH):
            producer.send(Message(TOPIC, b"%d" % number), queue=MessageQueue(TOPIC, BROKER, number % QUEUES))
        with consumer:
            yield World(system, dashboard.visitor(), consumer.client_id)


def _row(page: Page, caption: str, heading: str, name: str) -> dict[str, str] | None:
    return next((row for row in page.table(caption) if row[heading].split(" ")[0] == name), None)


def test_groups_are_listed_with_lag_and_members(world: World) -> None:
    def online(page: Page) -> dict[str, str] | None:
        row = _row(page, "Groups", "Group", ONLINE)
        return row if row is not None and row["Members"] == "1" else None

    row = world.ask("groups?containing=dashboard-o", online, "the member to be there")
    assert (row["Version"], row["Model"]) == ("V4_9_7", "shared, push")
    page = world.visitor.get("groups?containing=dashboard-o&sort=-members")
    assert [one["Group"].split(" ")[0] for one in page.table("Groups")] == [ONLINE, OFFLINE]
    left = _row(world.visitor.get("groups"), "Groups", "Group", OFFLINE)
    assert left is not None
    shown = (left["Lag"], left["Members"], left["Model"], left["Topics"])
    assert shown == (str(QUEUES * (EACH - TAKEN)), "0", "–", TOPIC)
    only = world.visitor.get("groups?containing=dashboard-o&only=online")
    assert [one["Group"] for one in only.table("Groups")] == [ONLINE]
    nothing = world.visitor.get("groups?containing=no-such-name")
    assert "None of the" in nothing.words


def test_a_group_that_is_offline_says_so_and_how_far_it_is(world: World) -> None:
    page = world.group(OFFLINE)
    assert page.status == 200
    assert f"no client of {OFFLINE} is online" in page.words
    rows = page.table("Queues")
    assert [(row["Queue"], row["Offset"], row["End"], row["Lag"], row["State"]) for row in rows] == [
        (str(number), str(TAKEN), str(EACH), str(EACH - TAKEN), "behind") for number in range(QUEUES)
    ]
    assert all(row["Lag in time"] not in ("–", "0 ms") for row in rows), "the next message waits since it was stored"
    (topic,) = page.table("Topics")
    assert (topic["Topic"], topic["Queues"], topic["Lag"]) == (TOPIC, str(QUEUES), str(QUEUES * (EACH - TAKEN)))
    why = world.visitor.get(f"groups/{OFFLINE}/why")
    assert f"orbitmq group connections {OFFLINE}" in why.words
    assert "lag messages" in why.words


def test_a_group_tells_who_has_which_queue(world: World) -> None:
    def owned(page: Page) -> Page | None:
        rows = [row for row in page.table("Queues") if row["Topic"] == TOPIC]
        return page if len(rows) == QUEUES and {row["Member"] for row in rows} == {world.client_id} else None

    page = world.ask(f"groups/{ONLINE}", owned, "the member to have the queues")
    member = _row(page, "Members", "Client", world.client_id)
    assert member is not None
    assert (member["Language"], member["Brokers"]) == ("PYTHON", BROKER)
    subscription = _row(page, "Subscriptions", "Topic", TOPIC)
    assert subscription is not None
    assert (subscription["Expression"], subscription["Clients"]) == ("*", world.client_id)
    assert {row["Setting"]: row[BROKER] for row in page.table("Configuration")}["Consume enable"] == "yes"


def test_a_group_nobody_knows_is_not_there(world: World) -> None:
    page = world.group("dashboard-nobody")
    assert (page.status, page.title) == (404, "there is no group dashboard-nobody")


def test_a_group_is_made_repaired_by_a_button_and_deleted(world: World) -> None:
    name = "dashboard-made"
    plan = world.visitor.get("new-group").submit("new-group", group=name, consume_enable="no", retry_max_times=3)
    assert plan.title == "Confirm this change"
    assert [row["Action"] for row in plan.table("Steps")] == ["create group"]
    with pytest.raises(NotFound):
        asked(world.system.namesrv_address, lambda session: groups.rules(session, name))
    done = plan.submit("plans/")
    assert [row["Outcome"] for row in done.table("Steps")] == ["confirmed"]

    why = world.visitor.get(f"groups/{name}/why")
    assert f"consuming is switched off for {name} on {BROKER}" in why.words
    again = why.submit(f"groups/{name}/change").submit("plans/")
    assert [row["Outcome"] for row in again.table("Steps")] == ["confirmed"]
    assert "orbitmq offset undo" in again.words
    (rules,) = asked(world.system.namesrv_address, lambda session: groups.rules(session, name)).items
    assert (rules.consume_enable, rules.retry_max_times) == (True, 3)

    delete = world.group(name).submit(f"groups/{name}/delete", offsets="on")
    assert delete.submit("plans/", typed="something else").status == 409
    gone = delete.submit("plans/", typed=name)
    assert [row["Outcome"] for row in gone.table("Steps")] == ["confirmed"]
    assert world.group(name).status == 404


MOVES = {
    "begin": ({"to": "begin", "force": "on"}, 0, QUEUES * TAKEN, 0),
    "end": ({"to": "end", "force": "on"}, EACH, 0, QUEUES * (EACH - TAKEN)),
    "time": ({"to": "time", "time": "@1h", "force": "on"}, 0, QUEUES * TAKEN, 0),
    "shift": ({"to": "shift", "shift": "-1", "force": "on"}, TAKEN - 1, QUEUES, 0),
    "offset": ({"to": "offset", "offset": "4", "force": "on"}, 4, 0, QUEUES * (4 - TAKEN)),
}


@pytest.mark.parametrize("way", MOVES)
def test_offsets_are_shown_before_they_are_moved(world: World, way: str) -> None:
    fields, after, replayed, skipped = MOVES[way]
    group = f"dashboard-{way}"
    asked(world.system.namesrv_address, partial(_left, group=group))
    plan = world.visitor.get(f"groups/{group}/offsets").submit("offsets/reset", fields)
    steps = plan.table("Steps")
    assert [(row["Subject"], row["Before"], row["After"]) for row in steps] == [
        (f"{TOPIC}/{BROKER}/{number}", str(TAKEN), str(after)) for number in range(QUEUES)
    ]
    assert f"{replayed} messages replayed, {skipped} skipped" in plan.words
    assert world.offsets(group) == [TAKEN] * QUEUES
    done = plan.submit("plans/")
    assert {row["Outcome"] for row in done.table("Steps")} == {"confirmed"}
    assert "orbitmq offset undo" in done.words
    assert world.offsets(group) == [after] * QUEUES


def test_one_queue_is_skipped_and_a_group_is_given_the_offsets_of_another(world: World) -> None:
    asked(world.system.namesrv_address, partial(_left, group="dashboard-source"))
    page = world.visitor.get("groups/dashboard-source/offsets")
    skipped = page.submit("offsets/skip", queues=f"{BROKER}/1").submit("plans/")
    assert [row["Outcome"] for row in skipped.table("Steps")] == ["confirmed"]
    assert world.offsets("dashboard-source") == [TAKEN, EACH]
    cloned = page.submit("offsets/clone", destination="dashboard-copy").submit("plans/")
    assert {row["Outcome"] for row in cloned.table("Steps")} == {"confirmed"}
    assert world.offsets("dashboard-copy") == [TAKEN, EACH]


def test_without_force_a_group_is_only_moved_back(world: World) -> None:
    plan = world.visitor.get(f"groups/{OFFLINE}/offsets").submit("offsets/reset", to="end", force=None)
    assert "Nothing to do: everything is as requested already" in plan.words


def test_one_queue_of_a_group_that_is_online_needs_a_broker_that_can(world: World) -> None:
    page = world.visitor.get(f"groups/{ONLINE}/offsets")
    answer = page.submit("offsets/reset", topic=TOPIC, to="begin", queues=f"{BROKER}/0")
    if isinstance(world.system, JavaSystem):
        assert answer.status == 409
        assert "can only move a whole topic to a time" in answer.title
    else:
        assert [row["Subject"] for row in answer.table("Steps")] == [f"{TOPIC}/{BROKER}/0"]


def test_clients_are_shown_with_what_they_consume_and_produce(world: World) -> None:
    def listed(page: Page) -> Page | None:
        return page if _row(page, "Consumers", "Client", world.client_id) else None

    page = world.ask(f"clients?producers={PRODUCERS}", listed, "the member to be listed")
    row = _row(page, "Consumers", "Client", world.client_id)
    assert row is not None
    assert ONLINE in row["Groups"]
    assert [one["Group"] for one in page.table("Producers")] == [PRODUCERS]
    assert "Partial" not in page.words

    def known(page: Page) -> Page | None:
        return page if f"Group {ONLINE}" in page.words else None

    (link,) = {one for one in page.links if one.endswith(row["Client"].replace("@", "%40").replace("#", "%23"))}
    told = world.ask(link, known, "the client to tell of itself")
    positions = [one for one in told.table(f"Queues in {ONLINE}") if one["Topic"] == TOPIC]
    assert [(one["Queue"], one["Offset"]) for one in positions] == [(str(n), str(EACH)) for n in range(QUEUES)]
    assert _row(told, f"Subscriptions in {ONLINE}", "Topic", TOPIC)
    stacks = world.visitor.get(next(one for one in told.links if "/stacks/" in one))
    assert ONLINE in stacks.words
    assert "call = self._waiting.get()" in stacks.words
    assert world.visitor.get("clients/nobody@1").status == 404


def test_all_producers_are_listed(world: World) -> None:
    page = world.visitor.get("clients")
    assert PRODUCERS in {row["Group"] for row in page.table("Producers")}
