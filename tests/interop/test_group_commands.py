"""Commands over groups, offsets and clients against RocketMQ and orbitmq: the same answers, and of the same data the
figures of RocketMQ's own tool.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orbitmq.admin.evidence import why
from orbitmq.admin.session import Session
from orbitmq.admin.verdict import Severity
from orbitmq.client import ConcurrentContext, ConsumeConcurrentlyStatus, ConsumeFromWhere, Message, MessageExt
from orbitmq.client.sync import LitePullConsumer, Producer, PushConsumer
from orbitmq.message.model import MessageQueue
from orbitmq.operations.offsets import update_consumer_offset
from tests.interop.conftest import System, is_five
from tests.support.commands import answer, items, orbitmq
from tests.support.delivery import messages
from tests.support.java_rocketmq import Driver, JavaSystem
from tests.support.mqadmin import Mqadmin, rows
from tests.support.process import wait_until
from tests.support.sessions import asked

TOPIC, GROUP, BROKER = "GroupCommands", "group-commands", "broker-a"
QUEUES, EACH = 4, 5
PATIENCE_S = 60


@dataclass(frozen=True)
class World:
    """A system with a topic and a Java consumer that has read it."""

    system: System
    stock: Mqadmin

    def items(self, *words: object, code: int = 0) -> list[dict[str, Any]]:
        return items(*words, "-n", self.system.namesrv_address, "--timeout", 30, code=code)

    def change(self, *words: object, code: int = 0) -> list[dict[str, Any]]:
        told = answer(*words, "-y", "-n", self.system.namesrv_address, "--timeout", 30, code=code)
        found: list[dict[str, Any]] = told["items"]
        return found

    def offsets(self, group: str) -> list[int]:
        return [row["consumerOffset"] for row in self.items("offset", "show", group, "--topic", TOPIC)]


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Undo files of these tests alone."""
    with pytest.MonkeyPatch.context() as patch:
        place = tmp_path_factory.mktemp("home")
        patch.setenv("XDG_STATE_HOME", str(place))
        patch.setenv("XDG_CONFIG_HOME", str(place))
        yield place


@pytest.fixture(scope="module")
def world(system: System) -> Iterator[World]:
    with Mqadmin(system.namesrv_address) as stock:
        stock("updateTopic", "-b", system.address, "-t", TOPIC, "-r", QUEUES, "-w", QUEUES)
        with Producer("group-commands-p", system.namesrv_address) as producer:
            for number in range(QUEUES * EACH):
                queue = MessageQueue(TOPIC, BROKER, number % QUEUES)
                producer.send(Message(TOPIC, b"%d" % number, tags="red"), queue=queue)
        client = ("--namesrv", system.namesrv_address, "--topic", TOPIC)
        with Driver("consume", *client, "--group", GROUP, "--idle-ms", 600_000) as consumer:
            consumer.wait_for_event("started")
            consumer.process.wait_for(
                lambda: len(messages(consumer.rows())) == QUEUES * EACH, PATIENCE_S, "all messages"
            )
            asked(system.namesrv_address, _committed)
            yield World(system, stock)


async def _committed(session: Session) -> None:
    """What the consumer itself would do in ten seconds, but now."""
    for node in await session.masters():
        for number in range(QUEUES):
            queue = MessageQueue(TOPIC, node.name, number)
            await update_consumer_offset(session.remoting, node.address, GROUP, queue, EACH)


def _of_topic(queues: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in queues if row["topic"] == TOPIC]


def test_progress_is_that_of_the_stock_tool(world: World) -> None:
    told = world.stock("consumerProgress", "-g", GROUP)
    theirs = {(row[1], int(row[2])): (int(row[3]), int(row[4]), int(row[5])) for row in rows(told, "#Topic") if row[0] == TOPIC}  # fmt: skip # noqa: E501
    found = _of_topic(world.items("group", "lag", GROUP))
    ours = {(r["brokerName"], r["queueId"]): (r["maxOffset"], r["consumerOffset"], r["lagMessages"]) for r in found}
    assert ours == theirs
    assert {row["state"] for row in found} == {"caughtUp"}
    assert {(row["delayMs"], row["latencyMs"], row["lastConsumedAgeMs"]) for row in found} == {(0, 0, 0)}
    (row,) = [row for row in rows(world.stock("consumerProgress"), "#Group") if row[0] == GROUP]
    (ours_row,) = world.items("group", "list", "--match", GROUP, "--lag", "--members")
    assert (str(ours_row["members"]), ours_row["version"], ours_row["model"]) == (row[1], row[2], row[4])
    assert str(ours_row["lagMessages"] + ours_row["retryLagMessages"]) == row[-1]


def test_members_are_those_of_the_stock_tool(world: World) -> None:
    theirs = rows(world.stock("consumerConnection", "-g", GROUP), "#ClientId")
    (ours,) = world.items("group", "connections", GROUP)
    assert [[ours["clientId"], ours["address"], ours["language"], ours["version"]]] == [row[:4] for row in theirs]
    (subscription,) = world.items("group", "subscriptions", GROUP)
    assert (subscription["topic"], subscription["conflict"]) == (TOPIC, False)


def test_a_member_tells_its_queues_and_where_its_threads_stand(world: World) -> None:
    (one,) = world.items("client", "show", GROUP)
    assert len(_of_topic(one["queues"])) == QUEUES
    assert (one["kind"], one["version"], one["orderly"]) == ("CONSUME_PASSIVELY", "V4_9_7", False)
    assert one["stack"] is None
    (deep,) = world.items("client", "stack", GROUP)
    assert "ConsumeMessageThread" in deep["stack"] or "PullMessageService" in deep["stack"]


def test_rules_are_read_before_they_are_changed(world: World) -> None:
    world.change("group", "create", "gc-rules", "--retry-max-times", 3)
    world.change("group", "alter", "gc-rules", "--no-consume-enable")
    told = world.stock("getConsumerConfig", "-g", "gc-rules")
    assert "retryMaxTimes" in told
    (rules,) = world.items("group", "config", "gc-rules")
    assert (rules["retryMaxTimes"], rules["consumeEnable"], rules["retryQueueNums"]) == (3, False, 1)
    theirs = {line.split("=")[0].strip(): line.split("=")[1].strip() for line in told.splitlines() if "=  " in line}
    assert theirs["retryMaxTimes"] == "3"
    assert theirs["consumeEnable"] == "false"
    reasons = [row["rule"] for row in world.items("group", "why", "gc-rules", code=8)]
    assert reasons == ["disabled", "offline"]
    world.change("group", "delete", "gc-rules")
    orbitmq("group", "config", "gc-rules", "-n", world.system.namesrv_address, code=3)


def test_offsets_of_a_group_that_is_offline(world: World, home: Path) -> None:
    group = "gc-offline"
    world.change("offset", "clone", GROUP, group, "--topic", TOPIC)
    assert world.offsets(group) == [EACH] * QUEUES
    steps = world.change("offset", "reset", group, TOPIC, "--shift", -2)
    assert [(step["outcome"], step["action"]) for step in steps] == [("confirmed", "replay 2 messages")] * QUEUES
    assert [row["lagMessages"] for row in world.items("group", "lag", group)] == [2] * QUEUES
    delays = world.items("group", "lag", group)
    assert all(row["delayMs"] > 0 and row["latencyMs"] == row["delayMs"] for row in delays)
    assert "No topic route info" in world.stock("consumerProgress", "-g", group), "it looks for a retry topic"
    world.change("offset", "reset", group, TOPIC, "--offset", 1, "--queue", f"{BROKER}/3")
    assert world.offsets(group) == [EACH - 2] * 3 + [1]
    world.change("offset", "reset", group, TOPIC, "--to", "@1h")
    assert world.offsets(group) == [0] * QUEUES
    assert not world.stock("skipAccumulatedMessage", "-g", group, "-t", TOPIC).startswith("Error")
    assert world.offsets(group) == [EACH] * QUEUES
    newest = max((home / "orbitmq" / "undo").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    world.change("offset", "undo", newest)
    assert world.offsets(group) == [EACH - 2] * 3 + [1]


def test_a_group_that_never_came_is_unknown(world: World) -> None:
    told = orbitmq("group", "why", "gc-nobody", "-n", world.system.namesrv_address, code=3).stderr
    assert "gc-nobody" in told
    orbitmq("group", "progress", "gc-nobody", "-n", world.system.namesrv_address, code=3)


def test_reasons_are_found_by_what_consumers_and_brokers_say(world: World) -> None:
    """One consumer fails, one wants what nobody sends, one polls and commits nothing."""

    def listener(answer: ConsumeConcurrentlyStatus) -> Any:
        return lambda *_: answer

    def consumer(group: str, expression: str, status: ConsumeConcurrentlyStatus) -> PushConsumer:
        first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        made = PushConsumer(group, world.system.namesrv_address, consume_from_where=first)
        made.subscribe(TOPIC, expression)
        made.set_listener(listener(status))
        return made

    with (
        consumer("gc-failing", "*", ConsumeConcurrentlyStatus.RECONSUME_LATER),
        consumer("gc-picky", "blue", ConsumeConcurrentlyStatus.CONSUME_SUCCESS),
        LitePullConsumer("gc-polling", world.system.namesrv_address) as polling,
    ):
        polling.subscribe(TOPIC)
        for group, severity, reason in (
            ("gc-failing", Severity.CRITICAL, "listener-fails"),
            ("gc-picky", Severity.WARNING, "filter-matches-nothing"),
        ):

            def is_reported(group: str = group, severity: Severity = severity, reason: str = reason) -> bool:
                answer = asked(world.system.namesrv_address, lambda session: why(session, group), timeout_ms=30_000)
                worst = answer.items[0]
                return (worst.severity, worst.rule) == (severity, reason)

            wait_until(is_reported, PATIENCE_S, f"{reason} to be reported of {group}")
            assert reason in _told(world, group, code=8 if severity is Severity.CRITICAL else 0)


def _told(world: World, group: str, code: int = 8) -> list[str]:
    words = ("group", "why", group, "-o", "template=$rule", "-n", world.system.namesrv_address, "--timeout", 30)
    return str(orbitmq(*words, code=code).stdout).split()


def test_reasons_are_found_in_offsets_queues_and_permissions(world: World) -> None:
    """Nobody is online here: what brokers and name servers say is enough."""
    at = ("-y", "-n", world.system.namesrv_address, "--timeout", 30)

    async def ahead(session: Session) -> None:
        for node in await session.masters():
            queue = MessageQueue(TOPIC, node.name, 0)
            await update_consumer_offset(session.remoting, node.address, "gc-ahead", queue, EACH + 90)

    asked(world.system.namesrv_address, ahead)
    assert "offset-ahead" in _told(world, "gc-ahead")
    (row,) = [row for row in world.items("group", "lag", "gc-ahead") if row["queueId"] == 0]
    assert (row["state"], row["lagMessages"], row["consumerOffset"]) == ("offsetAhead", 0, EACH + 90)
    orbitmq("topic", "create", "gc-narrow", "--write-queues", 2, "--read-queues", 2, *at)
    with Producer("group-commands-p", world.system.namesrv_address) as producer:
        producer.send(Message("gc-narrow", b"x"), queue=MessageQueue("gc-narrow", BROKER, 1))
    orbitmq("offset", "skip", "gc-narrowed", "gc-narrow", *at)
    orbitmq("topic", "alter", "gc-narrow", "--read-queues", 1, *at)
    wait_until(lambda: "unread-queues" in _told(world, "gc-narrowed"), PATIENCE_S, "the route to change")
    orbitmq("topic", "permission", "gc-narrow", "W", *at)
    wait_until(lambda: "topic-not-readable" in _told(world, "gc-narrowed"), PATIENCE_S, "the route to change")


def test_members_that_subscribe_differently_are_named(world: World) -> None:
    members = []
    for tag in ("red", "blue"):
        member = PushConsumer("gc-differing", world.system.namesrv_address, instance_name=tag)
        member.subscribe(TOPIC, tag)
        member.set_listener(lambda *_: ConsumeConcurrentlyStatus.CONSUME_SUCCESS)
        members.append(member)
    with members[0], members[1]:
        wait_until(lambda: "subscriptions-differ" in _told(world, "gc-differing"), PATIENCE_S, "the reason")
        rows = world.items("group", "subscriptions", "gc-differing")
        assert [(row["expression"], row["conflict"], len(row["clients"])) for row in rows] == [
            ("blue", True, 1), ("red", True, 1),
        ]  # fmt: skip


def test_a_group_that_is_online_is_moved_and_it_is_seen(world: World) -> None:
    group = "gc-online"
    world.change("offset", "skip", group, TOPIC)
    consumer = PushConsumer(group, world.system.namesrv_address, persist_offset_interval_ms=200)
    consumer.subscribe(TOPIC)
    got: list[bytes] = []

    def listen(received: Sequence[MessageExt], _context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        got.extend(message.body for message in received)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    consumer.set_listener(listen)
    with consumer:
        wait_until(lambda: len(_owned(world, group)) == QUEUES, PATIENCE_S, "the queues to have an owner")
        steps = world.change("offset", "reset", group, TOPIC, "--to", "begin")
        moved = [(step["before"], step["after"], step["outcome"]) for step in steps]
        assert moved == [(EACH, 0, "confirmed")] * QUEUES
        wait_until(lambda: len(got) == QUEUES * EACH, PATIENCE_S, "all messages once more")
        told = orbitmq("offset", "clone", GROUP, group, "-y", "-n", world.system.namesrv_address, code=7)
        assert "is online" in told.stderr


def _owned(world: World, group: str) -> list[dict[str, Any]]:
    return [row for row in _of_topic(world.items("group", "lag", group)) if row["clientId"]]


@pytest.mark.with_five
def test_one_queue_of_a_group_that_is_online_is_moved_where_brokers_can_do_that(system: System, label: str) -> None:
    """RocketMQ 4.9 moves whole topics only: there it is refused before anything is sent."""
    at = ("-n", system.namesrv_address, "--timeout", 30)
    old = isinstance(system, JavaSystem) and not is_five(system)
    with Producer(f"p-{label}", system.namesrv_address) as producer:
        queue = producer.send(Message(label, b"0")).queue
        for number in range(1, EACH):
            producer.send(Message(label, b"%d" % number), queue=queue)
    got: list[bytes] = []

    def listen(received: Sequence[MessageExt], _context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        got.extend(message.body for message in received)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    consumer = PushConsumer(
        label,
        system.namesrv_address,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        persist_offset_interval_ms=200,
    )
    consumer.subscribe(label)
    consumer.set_listener(listen)
    place = f"{queue.broker_name}/{queue.queue_id}"
    reset = ("offset", "reset", label, label, "--shift", -2, "--queue", place, "-y", *at)

    def stored() -> bool:
        rows = items("group", "lag", label, "--topic", label, *at)
        return any(row["queueId"] == queue.queue_id and row["consumerOffset"] == EACH for row in rows)

    with consumer:
        wait_until(stored, PATIENCE_S, "the commit")
        if old:
            assert "only move a whole topic" in orbitmq(*reset, code=7).stderr
            return
        (step,) = answer(*reset)["items"]
        assert (step["before"], step["after"], step["outcome"]) == (EACH, EACH - 2, "confirmed")
        with Producer(f"p-{label}", system.namesrv_address) as producer:
            producer.send(Message(label, b"5"), queue=queue)  # 5.3.3 tells the member with the answer to its next pull
        wait_until(lambda: len(got) == EACH + 3, PATIENCE_S, "the last two once more")
        assert sorted(got)[-5:] == [b"3", b"3", b"4", b"4", b"5"]
