"""A cluster becomes what a document says, and nothing else in it changes; what it has is written down."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.admin import config_as_code, groups, offsets
from orbitmq.admin.declared import Document, GroupEntry, TopicEntry
from orbitmq.admin.results import Failure
from orbitmq.admin.session import Node, Session
from orbitmq.errors import AdminError, RemotingTimeout
from orbitmq.testing.cluster import Cluster
from orbitmq.wire.requests import RequestCode
from tests.support.commands import items, orbitmq
from tests.support.sessions import asked, without_master

DOCUMENT = """\
topics:
- {name: CodeOrders, readQueues: 4, writeQueues: 4, order: "broker-a:4;broker-b:4"}
- {name: CodeAudit, readQueues: 2, writeQueues: 2, messageType: fifo, brokers: [broker-a]}
groups:
- {name: code-billing, retryMaxTimes: 5, consumeMessageOrderly: true}
"""


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with Cluster(brokers=2) as started:
        yield started


@pytest.fixture
def here(running: Cluster) -> tuple[str, str]:
    return "-n", running.namesrv_address


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(DOCUMENT)
    return path


def test_apply_makes_what_is_said_and_then_has_nothing_to_do(here: tuple[str, str], file: Path) -> None:
    orbitmq("topic", "create", "CodeOther", "--yes", *here)
    planned = items("config", "diff", "-f", file, *here, code=8)
    made = items("config", "apply", "-f", file, "--yes", *here)
    assert [(step["target"].partition(" ")[0], step["action"], step["subject"]) for step in made] == [
        ("broker-a", "create topic", "CodeAudit"),
        ("broker-a", "create topic", "CodeOrders"),
        ("broker-b", "create topic", "CodeOrders"),
        (here[1], "put", "CodeOrders"),
        ("broker-a", "create group", "code-billing"),
        ("broker-b", "create group", "code-billing"),
    ]
    assert {step["outcome"] for step in made} == {"confirmed"}
    assert [step["subject"] for step in planned] == [step["subject"] for step in made]
    assert items("config", "diff", "-f", file, *here) == []
    orbitmq("config", "apply", "-f", file, "--yes", "--fail-if-unchanged", *here, code=10)
    assert "CodeOther" in {row["topic"] for row in items("topic", "list", *here)}


def test_what_is_not_said_stays(here: tuple[str, str], file: Path) -> None:
    orbitmq("config", "apply", "-f", file, "--yes", *here)
    orbitmq("topic", "permission", "CodeOrders", "R", "--yes", *here)
    file.write_text("topics: [{name: CodeOrders, readQueues: 6}]")
    steps = items("config", "apply", "-f", file, "--yes", *here)
    assert [step["after"] for step in steps] == [{"readQueues": 6, "writeQueues": 4, "perm": "R--"}] * 2


def test_a_group_without_retry_topic_is_refused_before_anything_is_made(here: tuple[str, str], file: Path) -> None:
    file.write_text(f"topics: [{{name: CodeNever}}]\ngroups: [{{name: {'g' * 121}}}]")
    refused = orbitmq("config", "apply", "-f", file, "--yes", *here, code=2)
    assert "has 121 characters, at most 120 are allowed" in refused.stderr
    assert "CodeNever" not in {row["topic"] for row in items("topic", "list", *here)}


def test_an_export_is_a_fixed_point_and_always_the_same(here: tuple[str, str], file: Path) -> None:
    orbitmq("config", "apply", "-f", file, "--yes", *here)
    text = orbitmq("config", "export", *here).stdout
    assert text == orbitmq("config", "export", *here).stdout
    assert "messageType: FIFO\n  brokers:\n  - broker-a\n" in text
    assert "consumeMessageOrderly: true\n" in text
    assert "TBW102" not in text
    file.write_text(text)
    assert items("config", "diff", "-f", file, "--prune", *here) == []
    only = file.with_name("topics.yaml")
    orbitmq("config", "export", "topics", "-f", only, *here)
    assert "groups:" not in only.read_text()
    orbitmq("config", "export", "queues", *here, code=2)


def test_prune_deletes_what_a_section_does_not_name(here: tuple[str, str], file: Path) -> None:
    orbitmq("config", "apply", "-f", file, "--yes", *here)
    orbitmq("topic", "create", "CodeSurplus", "--yes", *here)
    text = orbitmq("config", "export", *here).stdout
    file.write_text("\n".join(line for line in text.splitlines() if line).replace("CodeSurplus", "CodeInstead"))
    orbitmq("config", "apply", "-f", file, "--prune", *here, code=9)
    steps = items("config", "apply", "-f", file, "--prune", "--yes", *here)
    deleted = {step["subject"] for step in steps if step["action"] == "delete topic"}
    assert deleted == {"CodeSurplus"}
    names = {row["topic"] for row in items("topic", "list", "--all", *here)}
    assert "CodeSurplus" not in names
    assert {"CodeInstead", "TBW102", "broker-a"} <= names


def test_where_masters_differ(here: tuple[str, str], file: Path) -> None:
    orbitmq("config", "apply", "-f", file, "--yes", *here)
    rows = {row["name"]: row["values"] for row in items("config", "compare", *here)}
    assert rows["CodeAudit"]["broker-b"] is None
    assert "CodeOrders" not in rows


def test_wrong_documents_and_names(here: tuple[str, str], file: Path) -> None:
    file.write_text("topics: [{name: TBW102}]")
    orbitmq("config", "apply", "-f", file, "--yes", *here, code=7)
    file.write_text("topics: [{name: A, brokers: [broker-z]}]")
    orbitmq("config", "apply", "-f", file, "--yes", *here, code=3)
    file.write_text("topic: []")
    assert "unknown field `topic`" in orbitmq("config", "diff", "-f", file, *here, code=2).stderr
    orbitmq("config", "diff", "-f", file.with_name("none.yaml"), *here, code=2)


def test_an_incomplete_export_is_not_written(running: Cluster, here: tuple[str, str], tmp_path: Path) -> None:
    running.disconnect(RequestCode.GET_ALL_TOPIC_CONFIG, times=None, broker="broker-b")
    try:
        told = orbitmq("config", "export", "-f", tmp_path / "cluster.yaml", *here, code=5)
    finally:
        running.heal()
    assert "broker-b" in told.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_broker_without_master_makes_it_incomplete(running: Cluster) -> None:
    async def look(session: Session) -> list[list[Failure]]:
        await without_master(session)
        pruned = await config_as_code.plan_apply(session, Document(topics=[], groups=[]), lambda _: None, prune=True)
        exported, compared = await config_as_code.export(session), await config_as_code.compare(session)
        return [exported.failures, compared.failures, pruned.failures]

    for failures in asked(running.namesrv_address, look):
        assert [(one.target, one.message) for one in failures] == [("broker-z", "it has no master now")]


def test_a_document_is_doubted_as_a_command_is(running: Cluster) -> None:
    async def narrowed(session: Session) -> list[str]:
        await (await config_as_code.plan_apply(session, _one_topic(4), lambda _: None)).make()
        assert (await config_as_code.plan_apply(session, _one_topic(4), lambda _: None)).warnings == []
        return (await config_as_code.plan_apply(session, _one_topic(2), lambda _: None)).warnings

    written, left = asked(running.namesrv_address, narrowed)
    assert written.startswith("queues 2 to 3 of CodeDoubted are written and never read")
    assert "lower the write queues first" in left
    for queues in (0, 5_000_000):
        with pytest.raises(AdminError, match=r"CodeDoubted cannot have .* queues: a topic has 1 to 65536"):
            asked(
                running.namesrv_address,
                lambda session, queues=queues: config_as_code.plan_apply(session, _one_topic(queues), lambda _: None),
            )


def _one_topic(read_queues: int) -> Document:
    return Document(topics=[TopicEntry("CodeDoubted", read_queues, 4)])


def test_accounts_nobody_could_tell_are_not_called_pruned(running: Cluster) -> None:
    """Access control is off here, so that no broker tells any."""

    async def look(session: Session) -> tuple[bool, list[str]]:
        plan = await config_as_code.plan_apply(session, Document(accounts=[]), lambda _: None, prune=True)
        return plan.changing, [one.target.partition(" ")[0] for one in plan.failures]

    assert asked(running.namesrv_address, look) == (False, ["broker-a", "broker-b"])


def test_a_broker_that_does_not_answer_is_waited_for_once() -> None:
    asked_nodes: list[Node] = []

    async def read(node: Node) -> dict[str, object]:
        asked_nodes.append(node)
        raise RemotingTimeout("no answer")

    async def compare() -> None:
        told = config_as_code.CurrentSettings(read)
        for name in ("A", "B"):
            with pytest.raises(RemotingTimeout):
                await told.of(Node("C", "broker-a", 0, "127.0.0.1:1"), name)

    asyncio.run(compare())
    assert len(asked_nodes) == 1


def test_groups_that_are_pruned_or_altered_have_one_way_back(running: Cluster) -> None:
    async def look(session: Session) -> object:
        for name in ("code-kept", "code-pruned"):
            await (await groups.plan_create(session, name, {"retry_max_times": 3})).make()
        document = Document(groups=[GroupEntry("code-kept", retry_max_times=9)])
        plan = await config_as_code.plan_apply(session, document, lambda _: None, prune=True)
        assert plan.undo is not None
        await plan.make()
        await (await offsets.plan_undo(session, plan.undo)).make()
        return [
            {row.retry_max_times for row in (await groups.rules(session, name)).items}
            for name in ("code-kept", "code-pruned")
        ]

    assert asked(running.namesrv_address, look) == [{3}, {3}]
