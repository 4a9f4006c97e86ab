"""What an effectively-once task promises where a topic is on two brokers and one of them dies, leaves the route or
comes back: each row once, or an error that names the broker. Without Spark, on a cluster with faults."""

from __future__ import annotations

import asyncio
import itertools
import pickle
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from orbitmq.errors import SourceError
from orbitmq.message.model import MessageExt, MessageQueue
from orbitmq.spark import sink_brokers, sink_sender
from orbitmq.spark.cluster_client import Retries
from orbitmq.spark.sink_brokers import NO_BROKERS, known_brokers
from orbitmq.spark.sink_keys import IDEMPOTENCY_KEY, TASK_BROKERS
from orbitmq.spark.sink_options import WriteOptions
from orbitmq.spark.sink_sender import SinkSender
from orbitmq.spark.sink_stored import StoredKeys
from orbitmq.spark.source import TopicSource
from orbitmq.testing.cluster import Cluster
from orbitmq.testing.faults import Fault
from orbitmq.wire.bodies import BrokerData, QueueData, TopicRouteData
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.objects import encode
from tests.spark import sinks
from tests.spark.scripted_peer import ScriptedPeer
from tests.spark.sinks import ONCE, TASK, batches, run_task
from tests.support.process import wait_until

BROKERS = {"broker-a", "broker-b"}
GONE = r"^ORBITMQ_BROKER_UNAVAILABLE: .*broker {}.*may hold messages of this task"
numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2) as running:
        yield running


@pytest.fixture
def topic(cluster: Cluster) -> Iterator[str]:
    name = f"pair{next(numbers)}"
    cluster.create_topic(name)
    yield name
    cluster.heal()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_sender, "PAUSE_FIRST_S", 0.01)
    monkeypatch.setattr(sink_sender, "PAUSE_MAX_S", 0.02)
    monkeypatch.setattr(sink_sender, "SETTLE_S", 0.05)
    monkeypatch.setattr(sink_brokers, "RETRIES", Retries(1, 10))


def settings(cluster: Cluster, topic: str, **more: object) -> WriteOptions:
    usual = {"nameServer": cluster.namesrv_address, "topic": topic, "batchBytes": 1024, "retryTimesWhenSendFailed": 3}
    return sinks.options(**{**usual, **ONCE, **more})


def kill(cluster: Cluster, broker: str) -> None:
    """The broker dies and the name server has forgotten it."""
    cluster.kill(broker)
    names = sinks.options(nameServer=cluster.namesrv_address)
    wait_until(lambda: broker not in sink_brokers.masters(sink_brokers.cluster_of(names)), 60, f"{broker} is forgotten")


def holders(cluster: Cluster, topic: str) -> dict[str, list[MessageExt]]:
    """The messages on each broker, in the order they were stored."""
    found: dict[str, list[MessageExt]] = {}
    for queue, messages in sinks.stored(cluster.namesrv_address, topic).items():
        found.setdefault(queue.broker_name, []).extend(messages)
    return {name: sorted(messages, key=lambda message: message.commit_log_offset) for name, messages in found.items()}


def each_once(cluster: Cluster, topic: str, count: int) -> None:
    assert sinks.bodies(cluster.namesrv_address, topic) == list(range(count))
    assert set(sinks.copies(cluster.namesrv_address, topic).values()) == {1}


@pytest.mark.parametrize("comes_back", ["during the task", "after it"])
def test_a_broker_that_dies_behind_what_it_stored_makes_no_copy(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch, comes_back: str
) -> None:
    lost: list[Fault] = []
    looks: list[MessageQueue] = []
    is_stored = SinkSender._is_stored

    async def after_a_kill(self: SinkSender, request: sink_sender.SendRequest, queue: MessageQueue) -> bool:
        if lost:  # a busy machine may make earlier requests doubtful, too
            looks.append(queue)
        if len(looks) == 1:
            await asyncio.to_thread(kill, cluster, queue.broker_name)
        elif len(looks) == 2 and comes_back == "during the task":
            await asyncio.to_thread(cluster.restart, looks[0].broker_name)
        return await is_stored(self, request, queue)

    def with_a_lost_answer() -> Iterator[pa.RecordBatch]:
        yield from batches(30)
        wait_until(lambda: cluster.message_count(topic) == 30, 60, "the first rows are stored")
        lost.append(cluster.lose_response("send", topic=topic))
        yield sinks.rows(range(30, 34))

    monkeypatch.setattr(SinkSender, "_is_stored", after_a_kill)
    options = settings(cluster, topic, sendTimeoutMs=1500)
    known = known_brokers(options)
    if comes_back == "during the task":
        assert run_task(options, with_a_lost_answer(), known=known).messages == 34
    else:
        with pytest.raises(
            SourceError, match=r"^ORBITMQ_BROKER_UNAVAILABLE: .*: cannot find out whether they are stored: .*broker-"
        ):
            run_task(options, with_a_lost_answer(), known=known)
        with pytest.raises(SourceError, match=GONE.format(looks[0].broker_name)):
            run_task(options, batches(30, 4), known=known)
        cluster.restart(looks[0].broker_name)
        assert run_task(options, batches(30, 4), known=known).skipped == 34
    each_once(cluster, topic, 34)


def test_the_driver_tells_its_tasks_who_was_there(cluster: Cluster, topic: str) -> None:
    frame = StructType([StructField("body", StringType())])
    given = {"nameServer": cluster.namesrv_address, "topic": topic}
    for make in (TopicSource({**given, **ONCE}).writer, TopicSource({**given, **ONCE}).streamWriter):
        writer = pickle.loads(pickle.dumps(make(frame, False)))
        assert writer._known.of_topics == {topic: BROKERS}
    assert TopicSource(given).writer(frame, False)._known == NO_BROKERS  # at-least-once asks for nothing


def test_what_only_a_dead_broker_holds_is_not_sent_again(cluster: Cluster, topic: str) -> None:
    options = settings(cluster, topic)
    known = pickle.loads(pickle.dumps(known_brokers(options)))  # it travels to the executors
    run_task(options, batches(1), known=known)
    ((holder, _),) = [(name, messages) for name, messages in holders(cluster, topic).items() if messages]
    kill(cluster, holder)
    with pytest.raises(SourceError, match=GONE.format(holder)):
        run_task(options, batches(1, 20), known=known)
    cluster.restart(holder)
    assert run_task(options, batches(1, 20), known=known).skipped == 1
    each_once(cluster, topic, 21)


def test_a_driver_that_begins_later_learns_of_a_dead_broker_from_marks(cluster: Cluster, topic: str) -> None:
    with pytest.raises(ConnectionError):
        run_task(settings(cluster, topic), batches(40, fails=True))
    kill(cluster, "broker-a")
    with pytest.raises(SourceError, match=GONE.format("broker-a")):
        run_task(settings(cluster, topic), batches(40, 10))
    cluster.restart("broker-a")
    assert run_task(settings(cluster, topic), batches(40, 10)).skipped == 40
    each_once(cluster, topic, 50)


def test_a_topic_whose_brokers_are_all_gone_is_not_one_that_does_not_exist(cluster: Cluster, topic: str) -> None:
    options = settings(cluster, topic)
    known = known_brokers(options)
    for broker in BROKERS:
        kill(cluster, broker)
    with pytest.raises(SourceError, match=GONE.format("broker-a, broker-b")):
        run_task(options, batches(1), known=known)
    with pytest.raises(SourceError, match=r"^ORBITMQ_TOPIC_NOT_FOUND"):
        run_task(options, batches(1), known=NO_BROKERS)


@pytest.mark.parametrize("chosen_by", ["option", "rows"])
def test_a_broker_that_must_be_there_is_waited_for_and_named(cluster: Cluster, topic: str, chosen_by: str) -> None:
    options = settings(cluster, "" if chosen_by == "rows" else topic, expectBrokers="broker-a, broker-b")
    topics = pa.array([topic] * 5)
    kill(cluster, "broker-b")
    with pytest.raises(SourceError, match=GONE.format("broker-b")):
        run_task(options, [sinks.rows(range(5), topic=topics)])
    cluster.restart("broker-b")
    assert run_task(options, [sinks.rows(range(5), topic=topics)]).messages == 5
    each_once(cluster, topic, 5)


def test_a_broker_that_left_while_rows_choose_their_topics_is_named(cluster: Cluster, topic: str) -> None:
    options = settings(cluster, "")
    known = known_brokers(options)
    assert known.of_cluster == BROKERS
    kill(cluster, "broker-a")
    with pytest.raises(SourceError, match=GONE.format("broker-a")):
        run_task(options, [sinks.rows([0], topic=pa.array([topic]))], known=known)


@pytest.mark.parametrize("selector", ["roundRobin", "keyHash", "fixed"])
def test_the_first_message_to_each_broker_carries_the_mark(cluster: Cluster, topic: str, selector: str) -> None:
    count = 60
    more = {
        "roundRobin": {},
        "keyHash": {"shardingKey": pa.array([f"k{n % 13}" if n % 5 else None for n in range(count)])},
        "fixed": {
            "brokerName": pa.array(["broker-b" if n > 20 and n % 2 else "broker-a" for n in range(count)]),
            "queueId": pa.array([n % 3 for n in range(count)], pa.int32()),
        },
    }[selector]
    batch = sinks.rows(range(count), **more)
    run_task(settings(cluster, topic, queueSelector=selector), [batch.slice(0, 9), batch.slice(9, 30), batch.slice(39)])
    found = holders(cluster, topic)
    assert set(found) == BROKERS
    for messages in found.values():
        marked = [message for message in messages if TASK.mark in message.keys.split()]
        assert messages[0] in marked
        assert len(marked) <= 2 * len(BROKERS)  # rows for any queue and rows for a certain one may both carry some
        assert {message.properties[TASK_BROKERS] for message in marked} == {"broker-a,broker-b"}
    if selector != "roundRobin":
        for messages in sinks.stored(cluster.namesrv_address, topic).values():
            keyed = [n for n in (int(message.body) for message in messages) if selector == "fixed" or n % 5]
            assert keyed == sorted(keyed)
    each_once(cluster, topic, count)


def test_a_broker_that_takes_no_mark_gets_nothing(cluster: Cluster, topic: str) -> None:
    full = cluster.refuse("send", ResponseCode.SERVICE_NOT_AVAILABLE, times=None, topic=topic, broker="broker-b")
    with pytest.raises(ConnectionError):
        run_task(settings(cluster, topic), batches(40, 40, fails=True))
    assert full.hits
    full.end()
    kill(cluster, "broker-b")
    # Its marks tell of broker-b, for it might have been sent to.
    with pytest.raises(SourceError, match=GONE.format("broker-b")):
        run_task(settings(cluster, topic), batches(40, 40, 40), known=NO_BROKERS)
    cluster.restart("broker-b")
    assert run_task(settings(cluster, topic), batches(40, 40, 40)).skipped == 80
    each_once(cluster, topic, 120)
    assert TASK.mark in holders(cluster, topic)["broker-b"][0].keys.split()


def test_a_first_row_that_is_too_large_takes_no_mark_with_it(cluster: Cluster, topic: str) -> None:
    dead = f"{topic}-large"
    cluster.create_topic(dead, 1)
    options = settings(cluster, topic, maxMessageSize=12, onOversize=f"dlq:{dead}")
    large = sinks.rows([10**12, 0, 1])
    with pytest.raises(ConnectionError):
        run_task(options, itertools.chain([large], batches(0, fails=True)))
    written = run_task(options, [large, sinks.rows(range(2, 6))])
    assert (written.skipped, written.messages) == (2 + 1, 4)
    each_once(cluster, topic, 6)
    assert set(sinks.copies(cluster.namesrv_address, dead).values()) == {1}


@pytest.mark.parametrize("cut", [(range(25), range(25, 50)), (range(25, 50), range(25))])
def test_rows_cut_into_other_partitions_are_never_left_out(
    cluster: Cluster, topic: str, cut: tuple[range, range]
) -> None:
    """They may be there twice then, under two keys: nothing tells which place a row had before."""
    with pytest.raises(ConnectionError):
        run_task(settings(cluster, topic), batches(50, fails=True))
    for partition, part in enumerate(cut):
        run_task(settings(cluster, topic), [sinks.rows(part)], sinks.TaskIdentity(TASK.job, TASK.batch, partition))
    assert set(sinks.bodies(cluster.namesrv_address, topic)) == set(range(50))
    by_key: dict[str, set[bytes]] = {}
    for message in itertools.chain(*holders(cluster, topic).values()):
        by_key.setdefault(message.properties[IDEMPOTENCY_KEY], set()).add(message.body)
    assert {len(bodies) for bodies in by_key.values()} == {1}  # whoever drops copies by their keys drops no message


def test_a_slave_is_not_believed_that_nothing_is_stored() -> None:
    route = TopicRouteData(
        broker_datas=[BrokerData("broker-a", "c", {1: "127.0.0.1:1"})], queue_datas=[QueueData("broker-a", 6, 1, 1)]
    )

    def names(asked: Command) -> list[Command]:
        return [asked.response(ResponseCode.SUCCESS, None, None, encode(route))]

    with ScriptedPeer(names) as peer:
        stored = StoredKeys(sinks.options(nameServer=peer.address, topic="out", **ONCE))
        with pytest.raises(SourceError, match=GONE.format("broker-a")):
            stored.since("out", 0, ["broker-a"], MessageQueue("out", "broker-a", 0))


@pytest.mark.parametrize(
    ("perm", "ids", "text"),
    [
        (4, {0: "127.0.0.1:1"}, r"^ORBITMQ_NO_PERMISSION: topic out has no writable queue \(broker-a\)"),
        (6, {1: "127.0.0.1:1"}, r"^ORBITMQ_BROKER_UNAVAILABLE: topic out: no master is registered for broker broker-a"),
    ],
)
def test_a_topic_that_takes_no_messages_says_why(perm: int, ids: dict[int, str], text: str) -> None:
    route = TopicRouteData(
        broker_datas=[BrokerData("broker-a", "c", ids)], queue_datas=[QueueData("broker-a", perm, 1, 1)]
    )

    def names(asked: Command) -> list[Command]:
        return [asked.response(ResponseCode.SUCCESS, None, None, encode(route))]

    with ScriptedPeer(names) as peer, pytest.raises(SourceError, match=text):
        run_task(sinks.options(nameServer=peer.address, topic="out"), batches(1))
