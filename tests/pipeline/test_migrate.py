"""Topics and offsets of groups move from one cluster to another: from RocketMQ to orbitmq, and back."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from orbitmq.client import ConsumeConcurrentlyStatus, Message
from orbitmq.client.sync import Producer, PushConsumer
from orbitmq.errors import ConfigurationError, SourceError
from orbitmq.message.model import MessageQueue
from orbitmq.pipeline import migrate
from orbitmq.pipeline.datasets import Dataset, Lineage
from orbitmq.pipeline.job import JobResult
from orbitmq.pipeline.moves import Migration, load, paired
from orbitmq.pipeline.send import SendCounts
from orbitmq.spark.cluster_client import ClusterClient, Retries
from orbitmq.spark.group_offsets import OffsetReporter, running_consumers, stored_offsets
from orbitmq.spark.sink_keys import IDEMPOTENCY_KEY
from orbitmq.testing import Cluster
from tests.spark import sinks
from tests.spark.conftest import QUEUES, System, create_topic
from tests.support.jobs import run_job
from tests.support.process import wait_until
from tests.support.sparks import FAILURES

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
            [[("colour", "blue"), ("n", str(n)), ("__SHARDINGKEY", f"s{n % 5}")] for n in numbers],
            pa.map_(pa.string(), pa.string()),
        ),
        "queueId": pa.array([number % QUEUES for number in numbers]),
    }
    options = sinks.options(nameServer=name_server, topic=topic, queueSelector="fixed", idempotencyKeyIn="none")
    before = sinks.length(name_server, topic)
    sinks.run_task(options, [sinks.rows(numbers, **more)])
    # RocketMQ has queues know a message some time after its sender does.
    wait_until(lambda: sinks.length(name_server, topic) == before + count, 60, "the queues have all of it")


def asked(name_server: str) -> ClusterClient:
    return ClusterClient([name_server], 10_000, Retries(3, 200))


def offsets(name_server: str, topic: str, group: str) -> dict[int, int]:
    cluster = asked(name_server)
    places = {queue: place.addresses for queue, place in cluster.queues(topic).items()}
    return {queue.queue_id: offset for queue, offset in stored_offsets(cluster, group, places).items()}


def set_offsets(name_server: str, topic: str) -> None:
    cluster = asked(name_server)
    places = cluster.queues(topic)
    for group, offset in GROUPS.items():
        OffsetReporter(cluster, group).report(dict.fromkeys(places, offset), places)


def content(name_server: str, topic: str) -> dict[int, list[tuple[object, ...]]]:
    """What the application put into each queue, in its order."""
    return {
        queue.queue_id: [
            (m.body, m.keys.split()[0], m.tags, m.flag, *map(m.properties.get, ("colour", "n", "__SHARDINGKEY")))
            for m in messages
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

    def job(**more: object) -> JobResult:
        return run_job(migrate.JOB, spark, nameServer=here, toNameServer=there, **shared, **more)

    assert job(dryRun=True).counts == {"queues": QUEUES, "messages to copy": COUNT}
    assert not (tmp_path / "state.json").exists()

    # A run that dies when everything of its second pass is stored, and the state does not know it.
    done: list[SendCounts] = []

    def sent(frame: DataFrame, options: Mapping[str, str]) -> SendCounts:
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
    copied = COUNT + 8 - 20 * QUEUES
    assert outcome.lineage == Lineage(
        [Dataset(f"rocketmq://{here}", topic, copied)], [Dataset(f"rocketmq://{there}", topic, copied)]
    )
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
    assert "another producer writes there" in spoiled.failed[0]


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


def test_a_target_whose_queues_are_behind_what_it_took_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    migration = Migration("m", ("here", "there"))
    migration.add(queue(0), queue(5, "x"), start=0, base=7)
    assert migration.plan({queue(0): 3}, 10)
    migration.finish()
    ends = [8, 9, 10, 11]
    monkeypatch.setattr(migrate, "LOOK_SECONDS", 0)
    monkeypatch.setattr(migrate, "_bounds", lambda target, queues: {asked: (0, ends.pop(0)) for asked in queues})
    migrate.wait_for_queues(migration, asked("127.0.0.1:9"))
    assert ends == [11]

    now = iter(range(0, 100, 20))
    ends[:] = [8] * 9
    monkeypatch.setattr(migrate.time, "monotonic", lambda: next(now))
    migrate.wait_for_queues(migration, asked("127.0.0.1:9"))
    assert len(ends) == 7, "what never comes is not waited for for ever"


def test_what_is_deleted_before_it_is_copied_moves_what_is_behind_it(tmp_path: Path) -> None:
    migration = Migration("m", ("here", "there"))
    migration.add(queue(0), queue(5, "x"), start=100, base=7)
    (move,) = migration.moves
    assert migration.plan({queue(0): 200}, 10)
    migration.finish()  # 100 to 109 are there at 7 to 16
    assert migration.plan({queue(0): 200}, 50)
    migration.settle({queue(5, "x"): 3}, {queue(0): 130})  # 110 to 112 are there, and 113 to 129 are gone
    assert (move.done, move.end, move.copied, move.gone, move.top) == (130, 160, 13, 17, 20)
    assert migration.passes == 3  # what is left of the pass has another name: keys of the old one tell nothing of it
    assert [move.offset_of(offset) for offset in (105, 112, 113, 120, 129, 130, 200)] == [12, 19, 20, 20, 20, 20, 20]
    migration.save(tmp_path / "state")
    assert load(tmp_path / "state", ("here", "there")) == migration
    migration.finish()  # 130 to 159 are there at 20 to 49
    assert [move.offset_of(offset) for offset in (112, 129, 130, 159, 160)] == [19, 20, 20, 49, 50]
    assert move.shared(low=0, target_low=0) == (130, 20)
    assert move.shared(low=140, target_low=45) == (155, 45)
    assert move.shared(low=200, target_low=0) == (160, 50)
    migration.settle({}, {queue(0): 160})
    assert (move.gone, migration.passes) == (17, 3)


SHORT_LIVED = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "cleanResourceInterval": "20",
    "deleteCommitLogFilesInterval": "1",
    "deleteWhen": ";".join(map(str, range(24))),
}


def fill_large(cluster: Cluster, topic: str, count: int) -> None:
    """Ten messages fill a file of the log."""
    with Producer("senders", cluster.namesrv_address) as producer:
        for _ in range(count):
            producer.send(Message(topic, os.urandom(100_000)))


def test_what_retention_takes_is_left_out_when_told_and_the_rest_stays_equal(
    spark: SparkSession, other: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = "brief"
    with Cluster(tmp_path / "old", options=SHORT_LIVED) as old:
        old.create_topic(topic, queues=1)
        fill_large(old, topic, 15)
        here, there = old.namesrv_address, other.namesrv_address
        shared = {"topics": topic, "groups": "billing", "state": tmp_path / "state.json", "passRows": 5}

        def job(**more: object) -> JobResult:
            return run_job(migrate.JOB, spark, nameServer=here, toNameServer=there, **shared, **more)

        def broken_off(frame: DataFrame, options: Mapping[str, str]) -> SendCounts:
            """The second pass stores two of its five messages, and dies."""
            done.append(options["jobId"])
            if len(done) == 2:
                send(frame.orderBy("idempotencyKey").limit(2), options)
                raise Killed
            return send(frame, options)

        done: list[str] = []
        send = migrate.send
        with monkeypatch.context() as patch:
            patch.setattr(migrate, "send", broken_off)
            with pytest.raises(Killed):
                job()
        assert sinks.length(there, topic) == 7

        old.advance(73 * 3600)
        (found,) = sinks.bounds(here, topic)
        wait_until(lambda: sinks.bounds(here, topic)[found][0] > 7, 60, "the first file is removed")
        low, high = sinks.bounds(here, topic)[found]
        cluster, places = asked(here), asked(here).queues(topic)
        OffsetReporter(cluster, "billing").report({found: low + 1}, places)
        with pytest.raises(FAILURES, match="ORBITMQ_DATA_LOSS"):
            job()

        def too_late(_frame: DataFrame, _options: Mapping[str, str]) -> SendCounts:
            raise PySparkException("in a task: ORBITMQ_DATA_LOSS: offset 10 is gone")

        with monkeypatch.context() as patch:
            patch.setattr(migrate, "send", too_late)
            with pytest.raises(SourceError, match="while they were copied; the next run with this state skips them"):
                job(failOnDataLoss=False)

        outcome = job(failOnDataLoss=False)
        assert outcome.failed == []
        assert outcome.counts["deleted uncopied"] == low - 7
        assert outcome.counts["copied before"] == 7  # the two that were stored were found
        assert outcome.counts["messages copied"] == high - low
        assert (outcome.counts["messages compared"], outcome.counts["queues equal"]) == (high - low, 1)
        assert offsets(there, topic, "billing") == {0: 7 + 1}
        (ours,), (theirs,) = sinks.stored(here, topic).values(), sinks.stored(there, topic).values()
        assert [message.body for message in theirs[7:]] == [message.body for message in ours]
        assert len(theirs) == 7 + len(ours)


def test_who_else_wrote_behind_a_pass_that_broke_off_is_not_taken_for_it(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    migration = Migration("m", ("here", "there"))
    migration.add(queue(0), queue(5, "x"), start=100, base=7)
    migration.plan({queue(0): 110}, 10)
    options = migrate.MigrateJob(name_server="n:1", to_name_server="m:1")
    monkeypatch.setattr(migrate, "_bounds", lambda _cluster, _queues: {queue(5, "x"): (0, 9)})

    def stored_with(key: str) -> dict[MessageQueue, int]:
        kinds = "topic STRING, brokerName STRING, queueId INT, properties MAP<STRING, STRING>"
        frame = spark.createDataFrame([("t", "x", 5, {IDEMPOTENCY_KEY: key})], kinds)
        monkeypatch.setattr(migrate, "read", lambda *_: frame)
        return migrate.stored_of(spark, options, migration)

    assert stored_with(migrate._key(migration, queue(0), 101)) == {queue(5, "x"): 2}
    with pytest.raises(ConfigurationError, match="queue 0 of t on a: another producer writes into its copy"):
        stored_with("somebody else's")


def test_who_may_not_ask_for_all_groups_is_told_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise SourceError("ORBITMQ_NO_PERMISSION", "offsets of broker-a")

    monkeypatch.setattr(migrate, "groups", refused)
    nobody = asked("n:1")
    counts, failed = migrate.carry(migrate.MigrateJob(groups="*"), Migration("m", ("a", "b")), nobody, nobody)
    assert set(counts.values()) == {0}
    assert failed[0].startswith("group offsets are not copied: ORBITMQ_NO_PERMISSION: offsets of broker-a; ")


def test_a_group_that_runs_there_or_is_further_is_left_alone_and_others_are_carried(
    spark: SparkSession, other: Cluster, tmp_path: Path
) -> None:
    topic = "shared-with-groups"
    with Cluster() as old:
        old.create_topic(topic)
        fill(old.namesrv_address, topic, 0, COUNT)
        set_offsets(old.namesrv_address, topic)
        here, there = old.namesrv_address, other.namesrv_address
        shared = {"topics": topic, "groups": "*", "state": tmp_path / "state.json", "verify": False}

        def job(**more: object) -> JobResult:
            return run_job(migrate.JOB, spark, nameServer=here, toNameServer=there, **{**shared, **more})

        other.create_topic(topic)
        places = asked(there).queues(topic)

        def runs() -> bool:
            return bool(running_consumers(asked(there), "billing", places))

        other.create_topic(f"{topic}-too")
        consumer = PushConsumer("billing", there)
        consumer.subscribe(f"{topic}-too")  # the group is there, and its offsets of the topic stay
        consumer.set_listener(lambda messages, context: ConsumeConcurrentlyStatus.CONSUME_SUCCESS)
        with consumer:
            wait_until(runs, 60, "the group is there")
            outcome = job()
        wait_until(lambda: not runs(), 60, "the group has left")
        assert outcome.counts["offsets carried"] >= QUEUES
        (refused,) = outcome.failed
        assert refused.startswith("group billing is consuming on the target (")
        assert offsets(there, topic, "shipping") == dict.fromkeys(range(QUEUES), GROUPS["shipping"])

        # It goes on there, and what it has consumed stays consumed.
        OffsetReporter(asked(there), "shipping").report(dict.fromkeys(places, 20), places)
        OffsetReporter(asked(there), "billing").report(dict.fromkeys(places, 3), places)
        outcome = job()
        assert outcome.failed == []
        assert (outcome.counts["offsets carried"], outcome.counts["offsets further there"]) == (QUEUES, QUEUES)
        assert offsets(there, topic, "shipping") == dict.fromkeys(range(QUEUES), 20)
        assert offsets(there, topic, "billing") == dict.fromkeys(range(QUEUES), GROUPS["billing"])

        old.create_topic("never-read")  # by either group: a broker says 0 of it when it is asked, as RocketMQ does
        fill(here, "never-read", 0, QUEUES)
        outcome = job(rewindOffsets=True, topics=f"{topic},never-read")
        assert (outcome.failed, outcome.counts["offsets carried"]) == ([], 2 * QUEUES)
        assert offsets(there, topic, "shipping") == dict.fromkeys(range(QUEUES), GROUPS["shipping"])


def test_a_state_of_other_clusters_is_refused(tmp_path: Path) -> None:
    Migration("m", ("here", "there")).save(tmp_path / "state")
    with pytest.raises(ConfigurationError, match="belongs to a migration from here to there"):
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
