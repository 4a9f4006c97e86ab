"""Groups, offsets and clients from the command line, against a running cluster: answers by their schemas, changes with
preview, confirmation and a way back, and the exit code of each way it can end.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from orbitmq.admin.diagnosis import diagnose
from orbitmq.admin.offsets import plan_skip
from orbitmq.admin.session import Session
from orbitmq.cli.lazy_commands import NOUNS
from orbitmq.cli.main import app
from orbitmq.client import ConsumeConcurrentlyStatus, ConsumeFromWhere, Message
from orbitmq.client.sync import Producer, PushConsumer
from orbitmq.message.model import MessageQueue
from orbitmq.testing.cluster import Cluster
from orbitmq.wire.requests import RequestCode
from tests.admin.test_diagnosis import CASES, healthy
from tests.support.commands import answer, items, orbitmq
from tests.support.process import wait_until
from tests.support.sessions import asked

EACH = 5  # messages in each of two queues of each of two brokers


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Undo files of the test alone."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2) as running:
        running.create_topic("T", 2)
        with Producer("producers", running.namesrv_address) as producer:
            for number in range(4 * EACH):
                name = ("broker-a", "broker-b")[number % 2]
                producer.send(Message("T", b"x"), queue=MessageQueue("T", name, number // 2 % 2))
        yield running


@pytest.fixture(scope="module")
def online(cluster: Cluster) -> Iterator[PushConsumer]:
    """A group with one member that has consumed everything."""
    consumer = PushConsumer(
        "online",
        cluster.namesrv_address,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        persist_offset_interval_ms=100,
    )
    consumer.subscribe("T")
    consumer.set_listener(lambda *_: ConsumeConcurrentlyStatus.CONSUME_SUCCESS)
    with consumer:

        def caught_up() -> bool:
            (row,) = items("group", "progress", "online", "-n", cluster.namesrv_address)
            return bool(row["lagMessages"] == 0 and row["members"] == 1 and row["unownedQueues"] == [])

        wait_until(caught_up, 30, "the group to have consumed")
        yield consumer


def at(cluster: Cluster) -> tuple[str, str]:
    return ("-n", cluster.namesrv_address)


def test_lag_queue_by_queue_and_who_has_the_queue(cluster: Cluster, online: PushConsumer) -> None:
    rows = [row for row in items("group", "lag", "online", *at(cluster)) if row["topic"] == "T"]
    assert [(row["brokerName"], row["queueId"], row["maxOffset"], row["lagMessages"]) for row in rows] == [
        ("broker-a", 0, EACH, 0), ("broker-a", 1, EACH, 0), ("broker-b", 0, EACH, 0), ("broker-b", 1, EACH, 0),
    ]  # fmt: skip
    assert {row["clientId"] for row in rows} == {online.client_id}
    assert {row["state"] for row in rows} == {"caughtUp"}
    assert all(row["lastConsumedAt"].endswith("Z") for row in rows)


def test_members_subscriptions_and_reports(cluster: Cluster, online: PushConsumer) -> None:
    for command in (("group", "connections"), ("client", "consumers")):
        (member,) = items(*command, "online", *at(cluster))
        assert (member["clientId"], member["brokers"]) == (online.client_id, ["broker-a", "broker-b"])
    (row,) = items("group", "subscriptions", "online", *at(cluster))
    assert (row["topic"], row["expression"], row["conflict"]) == ("T", "*", False)
    (report,) = items("client", "show", "online", "--client", online.client_id, *at(cluster))
    assert report["kind"] == "CONSUME_PASSIVELY"
    assert {queue["topic"] for queue in report["queues"]} >= {"T"}
    places = items("client", "positions", "online", "T", *at(cluster))
    assert {(row["brokerName"], row["queueId"], row["offset"], row["clientId"]) for row in places} == {
        (broker, number, EACH, online.client_id) for broker in ("broker-a", "broker-b") for number in range(2)
    }
    stack = orbitmq("client", "stack", "online", "-o", "template=$stack", *at(cluster)).stdout
    assert "thread MainThread" in stack


def test_producers_while_they_are_connected(cluster: Cluster) -> None:
    with Producer("senders", cluster.namesrv_address) as producer:
        producer.send(Message("Other", b"x"))
        (row,) = wait_until(lambda: items("client", "producers", "-g", "senders", *at(cluster)), 30, "a heartbeat")
        assert row["language"] == "PYTHON"
        assert row["brokers"]


def test_a_group_that_is_well_and_one_that_is_not(cluster: Cluster, online: PushConsumer) -> None:
    (row,) = items("group", "why", "online", *at(cluster))
    assert (row["severity"], row["rule"]) == ("well", "well")
    orbitmq("group", "create", "switched-off", "--no-consume-enable", "-y", *at(cluster))
    rows = items("group", "why", "switched-off", *at(cluster), code=8)
    assert [row["rule"] for row in rows] == ["disabled", "offline"]
    repair = rows[0]["remedy"].split()[1:]
    orbitmq(*repair, "-y", *at(cluster))
    assert [row["rule"] for row in items("group", "why", "switched-off", *at(cluster))] == ["offline"]


def test_rules_are_made_changed_shown_and_removed(cluster: Cluster) -> None:
    made = answer("group", "create", "short", "--retry-max-times", 3, "-y", *at(cluster))
    assert [step["outcome"] for step in made["items"]] == ["confirmed"] * 2
    orbitmq("group", "alter", "short", "--no-consume-broadcast-enable", "-y", *at(cluster))
    rows = items("group", "config", "short", *at(cluster))
    assert {(row["retryMaxTimes"], row["consumeBroadcastEnable"]) for row in rows} == {(3, False)}
    orbitmq("group", "create", "short", "-y", *at(cluster), code=7)
    same = ("group", "alter", "short", "--retry-max-times", 3, "-y", *at(cluster))
    orbitmq(*same)
    orbitmq(*same, "--fail-if-unchanged", code=10)
    assert [row["name"] for row in items("group", "list", "--match", "sho?t", *at(cluster))] == ["short"]
    orbitmq("group", "delete", "short", *at(cluster), code=9)
    orbitmq("group", "delete", "short", "-y", *at(cluster))
    orbitmq("group", "config", "short", *at(cluster), code=3)
    orbitmq("group", "delete", "short", "-y", *at(cluster), code=3)


def _offsets(cluster: Cluster, group: str) -> list[int]:
    return [row["consumerOffset"] for row in items("offset", "show", group, *at(cluster))]


def test_offsets_are_moved_previewed_and_brought_back(cluster: Cluster, home: Path) -> None:
    orbitmq("offset", "skip", "mover", "T", "-y", *at(cluster))
    assert _offsets(cluster, "mover") == [EACH] * 4
    reset = ("offset", "reset", "mover", "T")
    told = answer(*reset, "--shift", -2, "--dry-run", *at(cluster))
    assert [(step["before"], step["after"], step["action"]) for step in told["items"]] == [
        (EACH, EACH - 2, "replay 2 messages")
    ] * 4
    assert _offsets(cluster, "mover") == [EACH] * 4, "only shown"
    orbitmq(*reset, "--to", "begin", "-y", *at(cluster))
    assert _offsets(cluster, "mover") == [0] * 4
    (file,) = (home / "orbitmq" / "undo").iterdir()
    orbitmq("offset", "undo", file, "-y", *at(cluster))
    assert _offsets(cluster, "mover") == [EACH] * 4
    orbitmq(*reset, "--offset", 1, "--queue", "broker-b/1", "-y", *at(cluster))
    assert _offsets(cluster, "mover") == [EACH, EACH, EACH, 1]
    orbitmq("offset", "clone", "mover", "twin", "-y", *at(cluster))
    assert _offsets(cluster, "twin") == [EACH, EACH, EACH, 1]
    lag = orbitmq("group", "lag", "twin", "--fail-above", 3, *at(cluster), code=8)
    assert "behind" in lag.stdout
    orbitmq("group", "lag", "twin", "--fail-above", 4, *at(cluster))


def test_a_lag_is_waited_for(cluster: Cluster) -> None:
    """A group that has moved to the end meanwhile is not behind any more; one that stays fails when time is up."""
    orbitmq("offset", "reset", "waited", "T", "--to", "begin", "-y", *at(cluster))
    waiting = ("group", "lag", "waited", "--fail-above", 0, *at(cluster), "--wait")
    orbitmq(*waiting, 0.1, code=8)

    async def skip(session: Session) -> None:
        await (await plan_skip(session, "waited", "T")).make()

    skipping = threading.Timer(0.3, lambda: asked(cluster.namesrv_address, skip))
    skipping.start()
    try:
        orbitmq(*waiting, 30)
    finally:
        skipping.join()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("offset", "reset", "g", "T"), 2),
        (("offset", "reset", "g", "T", "--to", "end", "--shift", "1"), 2),
        (("offset", "reset", "g", "T", "--to", "soon"), 2),
        (("offset", "reset", "g", "NoSuchTopic", "--to", "end"), 3),
        (("offset", "show", "nobody-ever"), 3),
        (("offset", "undo", "/does/not/exist"), 2),
        (("offset", "clone", "nobody-ever", "g"), 3),
        (("group", "connections", "nobody-ever"), 3),
        (("group", "progress", "nobody-ever"), 3),
        (("group", "why", "nobody-ever"), 3),
        (("client", "show", "nobody-ever"), 3),
    ],
)
def test_what_cannot_be_done_says_so_by_its_exit_code(cluster: Cluster, words: tuple[str, ...], code: int) -> None:
    result = orbitmq(*words, *at(cluster), code=code)
    assert code == 8 or not result.stdout, "results only on standard output"


def test_a_group_that_is_online_is_not_deleted(cluster: Cluster, online: PushConsumer) -> None:
    told = orbitmq("group", "delete", "online", "-y", *at(cluster), code=7)
    assert online.client_id in told.stderr
    orbitmq("offset", "clone", "online", "online", "-y", *at(cluster), code=7)


def test_a_broker_that_does_not_answer_makes_it_partial(cluster: Cluster, online: PushConsumer) -> None:
    cluster.disconnect(RequestCode.GET_CONSUME_STATS, times=None, broker="broker-b")
    try:
        told = answer("group", "progress", "online", *at(cluster), code=5)
    finally:
        cluster.heal()
    assert told["partial"]
    assert "broker-b" in told["errors"][0]["target"]
    assert told["items"][0]["lagMessages"] is None


def _verbs(words: list[str]) -> list[str]:
    """What the help of the command must know."""
    return [word for word in words if not word.startswith("-")]


@pytest.mark.parametrize("rule", CASES)
def test_the_commands_of_reasons_exist(rule: str) -> None:
    evidence: Any = healthy()
    CASES[rule][0](evidence)
    for one in diagnose(evidence):
        noun, *rest = (one.remedy or "").removeprefix("orbitmq ").split()
        assert noun in NOUNS
        for depth in (2, 1):
            result = CliRunner().invoke(app, [noun, *_verbs(rest)[:depth], "--help"])
            if result.exit_code == 0 and "Examples" in result.output:
                break
        else:
            raise AssertionError(f"{one.remedy}: {result.output}")
        flags = [word for word in rest if word.startswith("--")]
        assert all(flag in result.output for flag in flags), f"{one.remedy}: {json.dumps(flags)}"


def test_a_list_of_groups_has_their_members_and_lag(cluster: Cluster, online: PushConsumer) -> None:
    (row,) = [row for row in items("group", "list", *at(cluster)) if row["name"] == "online"]
    assert (row["members"], row["lagMessages"], row["topics"]) == (1, 0, ["T"])
    (row,) = items("group", "list", "--match", "online", "--no-members", "--no-lag", *at(cluster))
    assert (row["members"], row["lagMessages"]) == (None, None)
    assert orbitmq("group", "list", *at(cluster)).stdout.split()[:3] == ["GROUP", "MEMBERS", "LAG"]


def test_a_list_of_topics_has_their_queues_messages_rate_and_lag(cluster: Cluster, online: PushConsumer) -> None:
    (row,) = [row for row in items("topic", "list", *at(cluster)) if row["topic"] == "T"]
    assert (row["topic"], row["writeQueues"], row["messages"]) == ("T", 4, 4 * EACH)
    assert row["knownLagMessages"] is not None
    assert row["inPerS"] is not None
    assert "online" in row["groups"]
    heading = orbitmq("topic", "list", *at(cluster)).stdout.split()[:5]
    assert heading == ["TOPIC", "QUEUES", "MESSAGES", "PRODUCED/S", "LAG"]
    (quick,) = [row for row in items("topic", "list", "--quick", *at(cluster)) if row["topic"] == "T"]
    assert (quick["topic"], quick["messageTypes"], quick["messages"]) == ("T", ["NORMAL"], None)


def test_stacks_keep_their_lines(cluster: Cluster, online: PushConsumer) -> None:
    told = orbitmq("client", "stack", "online", *at(cluster)).stdout.splitlines()
    assert told[0] == online.client_id
    assert len([line for line in told if line.startswith((" ", "\t"))]) > 3, "a line for each frame"
