"""Topics and offsets of groups move from one cluster to another: from RocketMQ to orbitmq, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from orbitmq.errors import ConfigurationError
from orbitmq.message.model import MessageQueue
from orbitmq.pipeline import migrate
from orbitmq.pipeline.job import Outcome
from orbitmq.pipeline.moves import Migration, load, paired
from orbitmq.pipeline.sending import Sent
from orbitmq.spark.cluster import Cluster as Asked
from orbitmq.spark.cluster import Retries
from orbitmq.spark.group_offsets import Mirror, stored_offsets
from orbitmq.testing import Cluster
from tests.spark import sinks
from tests.spark.conftest import QUEUES, System, create_topic
from tests.support.jobs import run_job

COUNT = 120
PROPERTIES = pa.map_(pa.string(), pa.string())
GROUPS = {"billing": 7, "shipping": 11}  # how far each is in every queue


@pytest.fixture(scope="module")
def other() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


def fill(name_server: str, topic: str, first: int, count: int) -> None:
    numbers = range(first, first + count)
    more = {
        "tags": pa.array([f"T{number % 3}" for number in numbers]),
        "flag": pa.array(list(numbers)),
        "properties": pa.array(
            [[("colour", "blue"), ("n", str(n))] for n in numbers], pa.map_(pa.string(), pa.string())
        ),
        "queueId": pa.array([number % QUEUES for number in numbers]),
    }
    options = sinks.options(nameServer=name_server, topic=topic, queueSelector="fixed", idempotencyKeyIn="none")
    sinks.run_task(options, [sinks.rows(numbers, **more)])


def asked(name_server: str) -> Asked:
    return Asked([name_server], 10_000, Retries(3, 200))


def offsets(name_server: str, topic: str, group: str) -> dict[int, int]:
    cluster = asked(name_server)
    places = {queue: place.addresses for queue, place in cluster.queues(topic).items()}
    return {queue.queue_id: offset for queue, offset in stored_offsets(cluster, group, places).items()}


def set_offsets(name_server: str, topic: str) -> None:
    cluster = asked(name_server)
    places = cluster.queues(topic)
    for group, offset in GROUPS.items():
        Mirror(cluster, group).tell(dict.fromkeys(places, offset), places)


def content(name_server: str, topic: str) -> dict[int, list[tuple[object, ...]]]:
    """What the application put into each queue, in its order."""
    return {
        queue.queue_id: [
            (m.body, m.keys.split()[0], m.tags, m.flag, m.properties["colour"], m.properties["n"]) for m in messages
        ]
        for queue, messages in sinks.stored(name_server, topic).items()
    }


class Killed(Exception):
    """What stands for the end of a run."""


@pytest.mark.parametrize("system", ["java"], indirect=True)  # the other side is orbitmq, and it goes both ways
def test_a_topic_moves_with_its_groups_and_back(
    spark: SparkSession, system: System, other: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = "moved"
    here, there = system.namesrv_address, other.namesrv_address
    create_topic(system, topic)
    fill(here, topic, 0, COUNT)
    set_offsets(here, topic)
    shared = {"topics": topic, "groups": "billing,shipping", "state": tmp_path / "state.json", "passRows": 20}

    def job(**more: object) -> Outcome:
        return run_job(migrate.JOB, spark, nameServer=here, toNameServer=there, **shared, **more)

    assert job(dryRun=True).counts == {"queues": QUEUES, "messages to copy": COUNT}
    assert not (tmp_path / "state.json").exists()

    # A run that dies when everything of its second pass is stored, and the state does not know it.
    done: list[Sent] = []

    def sent(frame: DataFrame, options: Mapping[str, str]) -> Sent:
        done.append(send(frame, options))
        if len(done) == 2:
            raise Killed
        return done[-1]

    send = migrate.send
    with monkeypatch.context() as patch:
        patch.setattr(migrate, "send", sent)
        with pytest.raises(Killed):
            job()
    fill(here, topic, COUNT, 8)  # comes while nobody copies

    outcome = job()
    assert outcome.failed == []
    assert outcome.counts["messages copied"] == COUNT + 8 - 20 * QUEUES
    assert (outcome.counts["queues"], outcome.counts["queues equal"]) == (QUEUES, QUEUES)
    assert outcome.counts["offsets carried"] == QUEUES * len(GROUPS)
    assert content(there, topic) == content(here, topic)
    for group, offset in GROUPS.items():
        assert offsets(there, topic, group) == dict.fromkeys(range(QUEUES), offset)

    again = job(verify=False)
    assert (again.counts["messages copied"], again.counts["copied before"], again.failed) == (0, COUNT + 8, [])

    back = f"{topic}-back"
    other.create_topic(back)
    fill(there, back, 0, COUNT)
    set_offsets(there, back)
    returned = run_job(
        migrate.JOB, spark, nameServer=there, toNameServer=here, topics=back, groups="*", state=tmp_path / "back.json"
    )
    assert returned.failed == []
    assert returned.counts["offsets carried"] == QUEUES * len(GROUPS)
    assert content(here, back) == content(there, back)

    fill(here, back, 500, 4)  # somebody writes into the copy
    spoiled = run_job(
        migrate.JOB, spark, nameServer=there, toNameServer=here, topics=back, state=tmp_path / "back.json", verify=False
    )
    assert len(spoiled.failed) == QUEUES
    assert "others write there, too" in spoiled.failed[0]


def queue(number: int, broker: str = "a") -> MessageQueue:
    return MessageQueue("t", broker, number)


def test_queues_keep_their_numbers_where_brokers_suffice_and_are_dealt_out_otherwise() -> None:
    sources = [queue(0, "a"), queue(1, "a"), queue(0, "b")]
    assert paired(sources, ["y", "x", "z"]) == {
        queue(0, "a"): queue(0, "x"), queue(1, "a"): queue(1, "x"), queue(0, "b"): queue(0, "y"),
    }  # fmt: skip
    dealt = paired([*sources, queue(3, "c")], ["x", "y"])
    assert dealt == {
        queue(0, "a"): queue(0, "x"), queue(1, "a"): queue(0, "y"), queue(0, "b"): queue(1, "x"),
        queue(3, "c"): queue(1, "y"),
    }  # fmt: skip


def test_passes_lead_to_the_goal_and_offsets_follow(tmp_path: Path) -> None:
    migration = Migration("m", ("here", "there"))
    migration.add(queue(0), queue(5, "x"), start=100, base=7)
    migration.add(queue(1), queue(6, "x"), start=0, base=0)
    goals = {queue(0): 125, queue(1): 0}
    ends = []
    while migration.plan(goals, 10):
        ends.append(migration.moves[0].end)
        migration.save(tmp_path / "state")
        assert load(tmp_path / "state", ("here", "there")) == migration  # a run that ends here goes on with this pass
        migration.finish()
    assert ends == [110, 120, 125]
    assert migration.passes == 3
    assert [migration.moves[0].offset_of(offset) for offset in (0, 100, 124, 999)] == [7, 7, 31, 32]


def test_a_state_of_other_clusters_is_refused(tmp_path: Path) -> None:
    Migration("m", ("here", "there")).save(tmp_path / "state")
    with pytest.raises(ConfigurationError, match="is of a migration from here to there"):
        load(tmp_path / "state", ("here", "elsewhere"))
    assert json.loads((tmp_path / "state").read_text())["clusters"] == ["here", "there"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topics": "t"}, "option nameServer is missing"),
        ({"nameServer": "n:1", "toNameServer": "m:1", "state": "s"}, "one of the options topics and topicPattern"),
    ],
)
def test_what_is_missing_is_named(options: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        migrate._check(migrate.MigrateJob.parse(options))
