"""A broker that is killed makes figures partial, with its name, and no figure smaller: not at the first look after its
end, when its name server has forgotten it already, nor at the next one. RocketMQ's and orbitmq's name servers and
brokers are told alike.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from orbitmq.client import Message
from orbitmq.client.sync import Producer
from orbitmq.message.config import SubscriptionGroup
from orbitmq.message.model import MessageQueue
from orbitmq.operations.groups import create_group
from orbitmq.operations.offsets import update_consumer_offset
from tests.support.commands import answer, orbitmq
from tests.support.java_rocketmq import JavaBroker, JavaNameServer
from tests.support.orbit_process import OrbitBroker, OrbitNameServer
from tests.support.peers import remoting
from tests.support.process import wait_until
from tests.support.registration import is_registered

TOPIC, GROUP, KEY = "Orders", "billing", "order-1"
QUEUES, EACH, DONE = 2, 3, 1
LEFT = 2 * QUEUES * (EACH - DONE)
PATIENCE_S = 60
LOOKS: dict[str, tuple[object, ...]] = {
    "topics": ("topic", "list"),
    "topic": ("topic", "status", TOPIC),
    "route": ("topic", "route", TOPIC),
    "rates": ("topic", "stats", TOPIC),
    "consumers": ("topic", "consumers", TOPIC),
    "groups": ("group", "list", "--lag"),
    "progress": ("group", "progress", GROUP),
    "lag": ("group", "lag", GROUP),
    "rules": ("group", "config", GROUP),
    "offsets": ("offset", "show", GROUP),
    "brokers": ("cluster", "list"),
    "overview": ("cluster", "overview"),
    "message": ("msg", "find", KEY, "-t", TOPIC),
    "query": ("msg", "query", TOPIC),
    "tags": ("msg", "count", TOPIC),
}


@dataclass
class Pair:
    """One name server with a broker of each kind, each with the same messages and offsets."""

    names: JavaNameServer | OrbitNameServer
    brokers: dict[str, JavaBroker | OrbitBroker]

    def at(self, *arguments: object) -> tuple[object, ...]:
        return (*arguments, "-n", self.names.address)

    def looks(self, code: int) -> dict[str, dict[str, Any]]:
        return {name: answer(*self.at(*arguments), code=code) for name, arguments in LOOKS.items()}

    def wait_for(self, name: str, *, there: bool) -> None:
        wait_until(lambda: is_registered(self.names.address, name) is there, PATIENCE_S, f"{name} {there=}")


@pytest.fixture(scope="module", params=[JavaNameServer, OrbitNameServer])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with (
        request.param() as names,
        JavaBroker(names.address, name="broker-java") as theirs,
        OrbitBroker(names.address, name="broker-orbit") as ours,
    ):
        running = Pair(names, {theirs.name: theirs, ours.name: ours})
        for name in running.brokers:
            running.wait_for(name, there=True)
        orbitmq(*running.at("topic", "create", TOPIC, "--queues", QUEUES, "--yes"))
        with Producer("p", names.address) as producer:
            for name in running.brokers:
                for number in range(QUEUES * EACH):
                    queue = MessageQueue(TOPIC, name, number % QUEUES)
                    producer.send(Message(TOPIC, b"%d" % number, tags=name, keys=KEY), queue=queue)
        asyncio.run(_consumed(running))
        yield running


async def _consumed(running: Pair) -> None:
    async with remoting() as mine:
        for name, broker in running.brokers.items():
            await create_group(mine, broker.address, SubscriptionGroup(GROUP), timeout_ms=5000)
            for number in range(QUEUES):
                queue = MessageQueue(TOPIC, name, number)
                await update_consumer_offset(mine, broker.address, GROUP, queue, DONE, timeout_ms=5000)


def figures(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What an operator reads off: None of it is smaller without its name than it is with everybody."""
    (rate,), (group,) = found["rates"]["items"], found["groups"]["items"]
    (progress,), (overview,) = found["progress"]["items"], found["overview"]["items"]
    return {
        "lag of the topic": rate["lagMessages"],
        "lag of the list": group["lagMessages"],
        "lag of the group": progress["lagMessages"],
        "dead letters": progress["deadLetters"],
        "members": progress["members"],
        "put today": overview["putToday"],
    }


@pytest.mark.parametrize(
    ("pair", "name"), [(JavaNameServer, "broker-orbit"), (OrbitNameServer, "broker-java")], indirect=["pair"]
)
def test_a_broker_that_is_killed_makes_figures_partial_and_none_smaller(pair: Pair, name: str) -> None:
    whole = pair.looks(0)
    assert not any(found["partial"] for found in whole.values())
    before = figures(whole)
    assert before["lag of the topic"] == before["lag of the list"] == before["lag of the group"] == LEFT
    pair.brokers[name].kill()
    pair.wait_for(name, there=False)
    for found in (pair.looks(5), pair.looks(5)):
        for look, told in found.items():
            assert told["partial"], look
            assert name in {error["target"].split(" ")[0] for error in told["errors"]}, look
            assert any("orbitmq cluster forget" in (error["hint"] or "") for error in told["errors"]), look
        assert set(figures(found).values()) == {None}, "no figure of a part is told as that of the whole"
        (progress,) = found["progress"]["items"]
        assert progress["knownLagMessages"] == LEFT // 2
        rows = {row["broker"]: row for row in found["brokers"]["items"]}
        assert (rows[name]["answers"], rows[name]["registeredAtMs"] is not None) == (False, True)
    followed = orbitmq(*pair.at("msg", "tail", TOPIC, "--from", "begin", "--until", "end", "-o", "jsonl"), code=5)
    assert len(followed.stdout.splitlines()) == QUEUES * EACH
    assert name in followed.stderr
    checked = orbitmq(*pair.at("check", "lag", GROUP, "--format", "json"), code=3)
    assert name in json.loads(checked.stdout)["message"]
    critical = orbitmq(*pair.at("check", "broker", "--format", "json"), code=2)
    assert name in json.loads(critical.stdout)["message"]
    (worst, *_) = answer(*pair.at("cluster", "health"), code=5)["items"]
    assert (worst["severity"], name in worst["subject"]) == ("critical", True)
    told = orbitmq(*pair.at("broker", "status", name), code=5)
    assert "cluster forget" in told.stderr
    _its_topic_is_not_said_to_be_missing(pair, name)
    _changes_go_on(pair, name)


def _its_topic_is_not_said_to_be_missing(pair: Pair, name: str) -> None:
    told = orbitmq(*pair.at("topic", "status", "OnlyThere"), code=5)
    assert name in told.stderr
    told = orbitmq(*pair.at("topic", "route", "OnlyThere"), code=5)
    assert name in told.stderr


def _changes_go_on(pair: Pair, name: str) -> None:
    """At the brokers that are left; that one is left out is told."""
    told = orbitmq(*pair.at("group", "create", "another", "--dry-run"))
    assert f"{name} has no master now" in told.stderr
    told = orbitmq(*pair.at("offset", "reset", GROUP, TOPIC, "--to", "begin", "--dry-run"), code=5)
    assert name in told.stderr
