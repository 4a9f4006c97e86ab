"""Dead letters of a real consumer group are looked at and sent again, each once; the same on RocketMQ and orbitmq."""

from __future__ import annotations

import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from orbitmq.client import ConcurrentContext, ConsumeConcurrentlyStatus, ConsumeFromWhere, Message, MessageExt
from orbitmq.client.sync import Producer, PushConsumer, SimpleConsumer
from orbitmq.errors import ConfigurationError, SourceError
from orbitmq.message.topics import retry_topic
from orbitmq.pipeline import dlq
from orbitmq.pipeline.datasets import Dataset, Lineage
from orbitmq.pipeline.dlq import DlqJob, RedeliveryPlan, deliver, plan_redelivery
from orbitmq.pipeline.job import Advance, JobContext
from orbitmq.pipeline.ledger import Chunk, Origin, open_ledger
from orbitmq.pipeline.send import SendCounts
from tests.spark import sinks
from tests.spark.conftest import System, create_topic
from tests.support.jobs import run_job
from tests.support.popping import received
from tests.support.process import wait_until

GROUP, TOPIC = "billing", "invoices"
LETTERS = f"%DLQ%{GROUP}"
COUNT = 6


@contextmanager
def consumer(system: System, *, fails: bool) -> Iterator[list[MessageExt]]:
    """The group at work; with `fails` it takes nothing, and the broker gives up at once."""
    seen: list[MessageExt] = []

    def work(messages: list[MessageExt], _context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        seen.extend(messages)
        return ConsumeConcurrentlyStatus.RECONSUME_LATER if fails else ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    worker = PushConsumer(
        GROUP, system.namesrv_address, max_reconsume_times=0 if fails else 16, consume_from_where=first
    )
    worker.subscribe(TOPIC)
    worker.set_listener(work)
    with worker:
        yield seen


def letters_of(system: System) -> list[bytes]:
    return sorted(message.body for queue in sinks.stored(system.namesrv_address, LETTERS).values() for message in queue)


@pytest.fixture(scope="module")
def letters(system: System) -> System:
    """Messages the group could not consume, one that nobody knows the origin of, and one that was sent too often."""
    create_topic(system, TOPIC)
    for name in (retry_topic(GROUP), LETTERS):  # a broker that makes one waits for its disk, and clients send again
        create_topic(system, name, queues=1)
    bodies = [b"%d" % number for number in range(COUNT)]
    with Producer("invoicing", system.namesrv_address) as producer:
        for body in bodies:
            properties = {"colour": "blue"}
            producer.send(Message(TOPIC, body, keys=f"k{body.decode()}", tags="T", properties=properties))
        with consumer(system, fails=True):
            wait_until(lambda: set(letters_of(system)) == set(bodies), 90, "all messages are dead letters")
        assert letters_of(system) == bodies, "each once"
        producer.send(Message(LETTERS, b"homeless"))
        worn = Message(LETTERS, b"worn", properties={dlq.REDELIVERIES: "3"})
        worn.properties["RETRY_TOPIC"] = TOPIC
        producer.send(worn)
    return system


def test_dead_letters_are_told_apart_and_each_is_sent_once(
    spark: SparkSession, letters: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = {"nameServer": letters.namesrv_address, "group": GROUP, "where": "keys <> 'k5' OR keys IS NULL"}
    ledger = tmp_path / "ledger"

    told = run_job(dlq.JOB, spark, **shared)
    assert told.counts == {"dead letters": COUNT + 2, "chosen": COUNT + 1}
    heaps = {(row["origin"], row["redelivered"]): row["messages"] for row in told.table}
    assert heaps == {(TOPIC, 0): COUNT, (TOPIC, 3): 1, ("unknown", 0): 1}

    with monkeypatch.context() as small:
        small.setattr(dlq, "PARTITION_RECORDS_MAX", 3)  # the places of a partition are on the driver at once
        read = dlq.dead_letters(spark, DlqJob.parse({"nameServer": letters.namesrv_address, "group": GROUP}))
        sizes = read.rdd.mapPartitions(lambda rows: [len(list(rows))]).collect()
        assert (sum(sizes), max(sizes)) == (COUNT + 2, 3)

    dry = run_job(dlq.JOB, spark, **shared, ledger=ledger, dryRun=True)
    assert (dry.counts["to send"], dry.counts["redelivered too often"]) == (COUNT - 1, 1)
    assert "sent" not in dry.counts

    with consumer(letters, fails=False) as seen:
        outcome = run_job(dlq.JOB, spark, **shared, ledger=ledger)
        assert (outcome.counts["sent"], outcome.counts["gone meanwhile"]) == (COUNT - 1, 0)
        assert outcome.failed == ["messages whose topic is not known or does not exist: 1; name a topic with --to"]
        namespace = f"rocketmq://{letters.namesrv_address}"
        assert outcome.lineage == Lineage(
            [Dataset(namespace, LETTERS, COUNT + 2)], [Dataset(namespace, retry_topic(GROUP), COUNT - 1)]
        )
        again = run_job(dlq.JOB, spark, **shared, ledger=ledger)
        assert (again.counts["sent"], again.counts["sent before"], again.counts["to send"]) == (0, COUNT - 1, 0)

        # A run that dies behind the send: the last message is stored, and the ledger does not know it.
        options = DlqJob.parse({key: str(value) for key, value in shared.items()})
        with open_ledger(ledger) as opened:
            (last,) = dlq.dead_letters(spark, options).where("keys = 'k5'").collect()
            place = Origin(LETTERS, last.brokerName, last.queueId, last.queueOffset, last.msgId)
            opened.select([place])
            chunk = opened.plan("retry", 1)
            assert chunk is not None
            assert deliver(spark, options, chunk).messages == 1
        resumed = run_job(dlq.JOB, spark, **shared, ledger=ledger)
        assert resumed.counts["in flight when a run ended"] == 1
        assert (resumed.counts["sent"], resumed.counts["found stored"]) == (0, 1)

        wait_until(lambda: len(redelivered(seen)) >= COUNT, 60, "the group has them all")
    retries = sinks.stored(letters.namesrv_address, f"%RETRY%{GROUP}")
    sent = Counter(message.body for messages in retries.values() for message in messages)
    assert sent == {b"%d" % number: 1 for number in range(COUNT)}
    # What the group does with them is its own affair: a consumer may see a message again when it is started anew.
    assert {message.body for message in redelivered(seen)} == sent.keys()
    for message in redelivered(seen):
        assert message.topic == TOPIC  # the group sees it as a message of its topic
        assert (message.tags, message.properties["colour"]) == ("T", "blue")
        assert message.keys.split()[0] == f"k{int(message.body)}"


def redelivered(seen: list[MessageExt]) -> list[MessageExt]:
    return [message for message in seen if message.properties.get(dlq.REDELIVERIES) == "1"]


def test_a_target_that_does_not_exist_binds_no_message(spark: SparkSession, letters: System, tmp_path: Path) -> None:
    shared = {"nameServer": letters.namesrv_address, "group": GROUP, "ledger": tmp_path / "ledger"}
    for wrong in ("ordres", "orders.copy"):
        with pytest.raises(SourceError, match=f"ORBITMQ_TOPIC_NOT_FOUND: topic {wrong}"):
            run_job(dlq.JOB, spark, **shared, to=wrong)
    with Producer("invoicing", letters.namesrv_address) as producer:
        lost = Message(LETTERS, b"lost", keys="lost")
        lost.properties["RETRY_TOPIC"] = "deleted"
        producer.send(lost)
    outcome = run_job(dlq.JOB, spark, **shared, to="origin", where="keys = 'lost'")
    assert (outcome.counts["to send"], outcome.counts["sent"]) == (0, 0)
    assert outcome.failed == ["messages whose topic is not known or does not exist: 1; name a topic with --to"]
    assert run_job(dlq.JOB, spark, **shared, to=TOPIC, where="keys = 'lost'").counts["sent"] == 1


def test_a_planned_message_that_no_broker_has_stays_in_flight(
    spark: SparkSession, letters: System, tmp_path: Path
) -> None:
    """As when the master is away, and a slave that is behind stands for it."""
    shared = {"nameServer": letters.namesrv_address, "group": GROUP}
    (row, *_) = dlq.dead_letters(spark, DlqJob.parse(shared)).select("brokerName", "queueId").limit(1).collect()
    with open_ledger(tmp_path / "ledger") as ledger:
        ledger.select([Origin(LETTERS, row.brokerName, row.queueId, 10_000, "x")])
        assert ledger.plan("retry", 1) is not None
    outcome = run_job(dlq.JOB, spark, **shared, ledger=tmp_path / "ledger", where="keys = 'none'")
    assert (outcome.counts["sent"], outcome.counts["gone meanwhile"]) == (0, 0)
    assert outcome.failed == [
        "planned messages that no broker has now: 1; if a master is away, run it again when it is back"
    ]
    with open_ledger(tmp_path / "ledger") as ledger:
        assert ledger.in_flight == 1


@pytest.mark.parametrize("system", ["orbitmq"], indirect=True)  # RocketMQ 4.9 has no POP
def test_members_that_pop_get_them_where_they_read(spark: SparkSession, system: System, tmp_path: Path) -> None:
    """One was rejected as it came first, the other as a retry, whose origin is the retry topic then. Of another topic
    there are no retries yet, so there is no topic for them.
    """
    group, topic, fresh = "popping", "popped-invoices", "popped-at-once"
    create_topic(system, topic)
    create_topic(system, fresh)

    with (
        Producer("invoicing", system.namesrv_address) as producer,
        SimpleConsumer(group, system.namesrv_address) as member,
    ):
        member.subscribe(topic)
        producer.send(Message(topic, b"one"))
        received(member, invisible=1)
        member.reject(*received(member))
        producer.send(Message(topic, b"two"))
        member.reject(*received(member))
        member.subscribe(fresh)
        producer.send(Message(fresh, b"three"))
        member.reject(*received(member))
        shared = {"nameServer": system.namesrv_address, "group": group, "ledger": tmp_path / "ledger"}
        outcome = run_job(dlq.JOB, spark, **shared)
        assert outcome.counts["sent"] == 2
        assert {row["origin"] for row in outcome.table} == {topic, fresh}
        assert outcome.failed == ["messages whose topic is not known or does not exist: 1; name a topic with --to"]
        again: list[MessageExt] = []
        while len(again) < 2:
            again += received(member)
        assert {(message.topic, message.body) for message in again} == {(topic, b"one"), (topic, b"two")}
        for message in again:
            member.ack(message)


def test_a_condition_that_spark_cannot_read_is_named(spark: SparkSession, letters: System) -> None:
    with pytest.raises(ConfigurationError, match=r"option where: .*orgin.*origin"):
        run_job(dlq.JOB, spark, nameServer=letters.namesrv_address, group=GROUP, where="orgin = 'orders'")


def test_times_are_those_that_a_condition_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as there:
        there.setenv("TZ", "Europe/Berlin")
        time.tzset()
        assert dlq._utc(datetime.fromtimestamp(0)) == "1970-01-01 00:00:00Z"  # noqa: DTZ006 - as Spark collects it
    time.tzset()


def test_a_run_with_a_rate_tells_how_far_it_is_every_half_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []

    @contextmanager
    def progress(_what: str, _unit: str) -> Iterator[Advance]:
        yield lambda done, total: told.append(done)

    monkeypatch.setattr(dlq, "deliver", lambda _spark, _options, chunk: SendCounts(len(chunk.messages)))
    context = JobContext(DlqJob(group="g", rate=2), lambda: None, progress)  # type: ignore[arg-type,return-value]
    new = [Origin("t", "b", 0, offset, f"id{offset}") for offset in range(130)]
    with open_ledger(tmp_path / "ledger") as ledger:
        ledger.select(new)
        counts, failed = dlq.redeliver(context, ledger, RedeliveryPlan(len(new)))
    assert told == [0, 60, 120, 130]
    assert (counts["sent"], counts["gone meanwhile"], failed) == (130, 0, [])


def test_a_ledger_serves_one_run_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with open_ledger(path), pytest.raises(ConfigurationError, match="database is locked"), open_ledger(path):
        pass


def test_a_file_that_is_no_ledger_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("these are notes and no database at all" * 20)
    refused = pytest.raises(ConfigurationError, match=r"option ledger: .*notes: file is not a database")
    with refused, open_ledger(tmp_path / "notes"):
        pass


def test_a_chunk_is_known_from_the_moment_it_is_planned(tmp_path: Path) -> None:
    messages = [Origin("t", "b", 0, offset, f"id{offset}") for offset in range(5)]
    with open_ledger(tmp_path / "ledger") as ledger:
        ledger.select(reversed(messages))
        chunk = ledger.plan("retry", 3)
        assert chunk is not None
        assert chunk.messages == messages[:3], "in the order of their places"
        assert ledger.selected == 2
    with open_ledger(tmp_path / "ledger") as ledger:
        assert [ledger.knows(message) for message in messages] == [True] * 3 + [False] * 2
        assert list(ledger.unfinished()) == [chunk]
        assert (ledger.selected, ledger.in_flight, ledger.sent) == (0, 3, 0)
        ledger.finish(chunk)
        assert list(ledger.unfinished()) == []
        assert (ledger.in_flight, ledger.sent) == (0, 3)
        assert ledger.knows(messages[0])
        assert ledger.plan("retry", 3) is None


def test_the_memory_of_the_driver_does_not_grow_with_the_letters(spark: SparkSession, tmp_path: Path) -> None:
    """Each of their places takes more than 200 bytes in memory."""
    letters, options = 60_000, DlqJob(group=GROUP, target=TOPIC)
    places = f.lit("broker-a").alias("brokerName"), f.lit(0).alias("queueId"), f.col("id").alias("queueOffset")
    others = f.format_string("%032d", "id").alias("msgId"), f.lit(0).alias("redeliveries"), f.lit(TOPIC).alias("origin")
    frame = spark.range(0, letters, 1, letters // 5000).select(*places, *others)
    with open_ledger(tmp_path / "ledger") as ledger:
        sent = [Origin(LETTERS, "broker-a", 0, offset, f"{offset:032}") for offset in range(0, letters, 2)]
        ledger.select(sent)
        chunk = ledger.plan("retry", letters)
        assert chunk is not None
        ledger.finish(chunk)
        del sent, chunk
        tracemalloc.start()
        try:
            plan = plan_redelivery(frame, options, ledger)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert plan == RedeliveryPlan(letters // 2, sent_before=letters // 2)
        assert peak < letters * 100
        last = ledger.plan("retry", 1)
        assert last is not None
        assert last.messages == [Origin(LETTERS, "broker-a", 0, 1, f"{1:032}")]


def test_a_chunk_reads_no_more_than_its_queues_and_offsets() -> None:
    messages = [Origin("t", "b", 0, 7, "x"), Origin("t", "b", 0, 3, "y"), Origin("t", "c", 1, 5, "z")]
    assert dlq._range_of(Chunk("n", "retry", messages)) == {
        "assign": '{"t": {"b": [0], "c": [1]}}',
        "startingOffsets": '{"t": {"b": {"0": 3}, "c": {"1": 5}}}',
        "endingOffsets": '{"t": {"b": {"0": 8}, "c": {"1": 6}}}',
    }
