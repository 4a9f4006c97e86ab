"""A read is complete, or says which broker is missing or may not be read: decisions against scripted name servers, and
batches, streams and writes against two live brokers, one of which stops or forbids."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from orbitmq.client.sync import Producer
from orbitmq.errors import SourceError
from orbitmq.message.flags import PERM_READ, PERM_WRITE
from orbitmq.message.model import Message, MessageQueue
from orbitmq.spark.cluster_client import ClusterClient, Retries, Routes
from orbitmq.spark.options import read_options
from orbitmq.spark.queue_selection import queue_selection
from orbitmq.spark.read_brokers import Witness, complete_queues, require_witnessed
from orbitmq.wire.bodies import QueueData, TopicRouteData
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.objects import encode
from tests.spark.scripted_peer import ScriptedPeer, name_server_script, queue
from tests.support.commands import orbitmq
from tests.support.orbit_process import OrbitBroker, OrbitNameServer
from tests.support.process import wait_until
from tests.support.streams import finished, patiently

NOWHERE = "127.0.0.1:1"
BOTH = {"broker-a": (2, NOWHERE), "broker-b": (1, NOWHERE)}
ONE = {"broker-a": (2, NOWHERE)}
MISSING = r"ORBITMQ_BROKER_UNAVAILABLE: broker broker-b: no name server knows a queue of {} there, but {}"
COUNT = 200  # messages of a broker


# ---------------------------------------------------------------------------------------------------------- decisions


def found(
    name_server: ScriptedPeer, seen: Iterable[Witness] = (), topic: str = "orders", **options: object
) -> set[MessageQueue]:
    texts = {name: str(value) for name, value in options.items()}
    if not options.keys() & {"assign", "subscribePattern"}:
        texts.setdefault("subscribe", topic)
    given = read_options({"nameServer": name_server.address, **texts})
    cluster = ClusterClient(given.name_servers, 5000, Retries(0, 0))
    return set(complete_queues(cluster, given, queue_selection(given), seen))


@pytest.fixture
def half() -> Iterator[ScriptedPeer]:
    """Topic `orders` with queues on broker-a alone; the order configuration of `sorted` names broker-b as well."""
    routes = {"orders": ONE, "sorted": ONE, "payments": {"broker-c": (1, NOWHERE)}}
    with ScriptedPeer(name_server_script(routes, {"sorted": "broker-a:2;broker-b:4"})) as peer:
        yield peer


def test_without_a_witness_nothing_is_known_to_be_missing(half: ScriptedPeer) -> None:
    assert found(half) == {queue(0), queue(1)}


def test_a_broker_that_the_options_name_must_have_a_queue_even_of_a_lenient_read(half: ScriptedPeer) -> None:
    for strict in (True, False):
        with pytest.raises(
            SourceError, match=MISSING.format("this read", "option expectBrokers names it.*leave it out of expectBr")
        ):
            found(half, expectBrokers="broker-a, broker-b", failOnDataLoss=strict)
        with pytest.raises(SourceError, match=MISSING.format("topic orders", "option assign names it")):
            found(half, assign='{"orders":{"broker-a":[0],"broker-b":[0]}}', failOnDataLoss=strict)
    assert found(half, expectBrokers="broker-a") == {queue(0), queue(1)}
    with pytest.raises(SourceError, match="ORBITMQ_BROKER_UNAVAILABLE: broker broker-c"):
        found(half, expectBrokers="broker-c")  # it is there, but has nothing of this read
    both = found(half, topic="orders,payments", expectBrokers="broker-c,broker-a")
    assert {each.broker_name for each in both} == {"broker-a", "broker-c"}


def test_the_order_configuration_of_a_topic_names_its_brokers(half: ScriptedPeer) -> None:
    expected_error = MISSING.format(
        "topic sorted", "the order configuration of the topic names it.*failOnDataLoss=false"
    )
    for options in ({"topic": "sorted"}, {"subscribePattern": "s.*"}):
        with pytest.raises(SourceError, match=expected_error):
            found(half, **options)
    assert len(found(half, topic="sorted", failOnDataLoss=False)) == 2
    assert len(found(half, assign='{"sorted":{"broker-a":[1]}}')) == 1


def test_what_the_caller_saw_before_must_be_there(half: ScriptedPeer) -> None:
    seen = [Witness("broker-b", "orders", "there was one yesterday", "forget it")]
    expected_error = MISSING.format("topic orders", "there was one yesterday.*if it is gone for good, forget it")
    with pytest.raises(SourceError, match=expected_error):
        found(half, seen)
    assert len(found(half, seen, failOnDataLoss=False)) == 2
    half.script = name_server_script({"payments": ONE})
    with pytest.raises(SourceError, match=expected_error):
        found(half, seen)  # not that the topic does not exist
    with pytest.raises(SourceError, match="ORBITMQ_TOPIC_NOT_FOUND"):
        found(half)


def test_the_first_missing_broker_is_named() -> None:
    there = {queue(0), queue(0, "payments", "broker-b")}
    require_witnessed([Witness("broker-a", "orders", "", ""), Witness("broker-b", "", "", "")], there)
    with pytest.raises(
        SourceError, match="broker broker-b: no name server knows a queue of topic orders there, but x;"
    ):
        require_witnessed([Witness("broker-c", "", "", ""), Witness("broker-b", "orders", "x", "y")], there)


@pytest.mark.parametrize(
    ("options", "topic", "brokers"),
    [
        ({"subscribe": "orders"}, "orders", "broker-b"),
        ({"subscribe": "orders", "failOnDataLoss": "false"}, "orders", "broker-b"),
        ({"subscribePattern": "orders"}, "orders", "broker-b"),
        ({"subscribe": "orders", "expectBrokers": "broker-b"}, "orders", "broker-b"),
        ({"assign": '{"orders":{"broker-b":[0]}}'}, "orders", "broker-b"),
        ({"subscribe": "letters"}, "letters", "broker-a, broker-b"),
    ],
)
def test_a_queue_that_may_not_be_read_is_an_error_that_says_how_to_allow_it(
    options: dict[str, str], topic: str, brokers: str
) -> None:
    perms = {("orders", "broker-b"): 2, ("letters", "broker-a"): 2, ("letters", "broker-b"): 3}
    expected_error = (
        rf"^ORBITMQ_NO_PERMISSION: topic {topic} may not be read on {brokers}: .* -W.*orbitmq topic permission {topic}"
    )
    with ScriptedPeer(name_server_script({"orders": BOTH, "letters": BOTH}, perms=perms)) as peer:
        with pytest.raises(SourceError, match=expected_error):
            found(peer, **options)
        assert found(peer, assign='{"orders":{"broker-a":[0,1]}}') == {queue(0), queue(1)}
        with pytest.raises(SourceError, match=expected_error):
            ClusterClient([peer.address], 5000, Retries(0, 0)).queues(topic)


def test_the_topics_that_brokers_keep_of_their_own_names_are_no_obstacle() -> None:
    routes = {"orders": ONE, "broker-a": ONE, "c": ONE}
    with ScriptedPeer(name_server_script(routes, perms={("broker-a", "broker-a"): 1, ("c", "broker-a"): 1})) as peer:
        assert found(peer, subscribePattern=".*", includeSystemTopics=True) == {queue(0), queue(1)}


def test_a_broker_without_an_address_is_unavailable_and_not_left_out() -> None:
    route = TopicRouteData(queue_datas=[QueueData("broker-a", 6, 1, 1)])

    def names(asked: Command) -> list[Command]:
        return [asked.response(ResponseCode.SUCCESS, None, None, encode(route))]

    with ScriptedPeer(names) as peer:
        cluster = ClusterClient([peer.address], 5000, Retries(0, 0))
        (place,) = cluster.look_up(["orders"]).queues.values()
        with pytest.raises(SourceError, match="ORBITMQ_BROKER_UNAVAILABLE: broker broker-a: no address is known"):
            cluster.bounds({queue(0): place.addresses})


# --------------------------------------------------------------------------------------------------------------- live


@dataclass
class Pair:
    """Two brokers, and a topic of which each has one queue with COUNT messages."""

    name_server: str
    brokers: dict[str, OrbitBroker]
    topic: str = ""

    def routes(self) -> Routes:
        return ClusterClient([self.name_server], 10_000, Retries(3, 200)).look_up([self.topic])

    def until_perm(self, broker: str, *, is_open: bool) -> None:
        place = MessageQueue(self.topic, broker, 0)
        wait_until(
            lambda: place in (self.routes().queues if is_open else self.routes().closed), 60, "the route to follow"
        )

    def stop(self, broker: str) -> None:
        """As SIGTERM does it: the broker leaves the route before it ends."""
        self.brokers[broker].stop()
        wait_until(lambda: broker not in {q.broker_name for q in self.routes().queues}, 60, f"{broker} to leave")

    def fill(self, first: int) -> None:
        with Producer("pair-senders", self.name_server) as producer:
            for broker in sorted(self.brokers):
                there = MessageQueue(self.topic, broker, 0)
                for start in range(first, first + COUNT, 100):
                    producer.send_batch(
                        [Message(self.topic, b"%d" % n) for n in range(start, start + 100)], queue=there
                    )

    def load(self, spark: SparkSession, **options: object) -> DataFrame:
        texts = {name: str(value) for name, value in options.items()}
        return spark.read.format("orbitmq").option("nameServer", self.name_server).options(**texts).load(self.topic)

    def stream(self, spark: SparkSession, **options: object) -> DataFrame:
        reader = spark.readStream.format("orbitmq").option("nameServer", self.name_server)
        texts = {name.replace("__", "."): str(value) for name, value in options.items()}
        return reader.options(startingOffsets="earliest", columns="brokerName,queueOffset", **texts).load(self.topic)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    kept = tmp_path_factory.mktemp("namesrv") / "kvConfig.json"  # the default place outlives the test
    with (
        OrbitNameServer(kvConfigPath=kept) as names,
        OrbitBroker(names.address) as a,
        OrbitBroker(names.address, name="broker-b") as b,
    ):
        yield Pair(names.address, {"broker-a": a, "broker-b": b})


numbers = itertools.count()


@pytest.fixture
def pair(brokers: Pair) -> Iterator[Pair]:
    made = Pair(brokers.name_server, brokers.brokers, f"halves{next(numbers)}")
    orbitmq("topic", "create", made.topic, "--queues", 1, "--yes", "-n", made.name_server)
    wait_until(lambda: len(made.routes().queues) == 2, 60, "both brokers to have the topic")
    made.fill(0)
    yield made
    for broker in made.brokers.values():
        if broker.process is None:
            broker.start()


def count(frame: DataFrame) -> int:
    return patiently(frame.count)


def test_a_batch_reads_all_of_a_topic_or_names_the_broker_that_left(spark: SparkSession, pair: Pair) -> None:
    loaded = pair.load(spark)
    assert count(loaded) == 2 * COUNT
    pair.stop("broker-b")
    with pytest.raises(
        PySparkException, match=f"ORBITMQ_BROKER_UNAVAILABLE: queue 0 of topic {pair.topic} on broker-b"
    ):
        count(loaded)  # it reads what its first query planned
    with pytest.raises(PySparkException, match=MISSING.format("this read", "option expectBrokers names it")):
        count(pair.load(spark, expectBrokers="broker-a,broker-b"))
    assert count(pair.load(spark)) == COUNT, "a new read has nothing to compare with"
    pairs = ("ORDER_TOPIC_CONFIG", pair.topic, "broker-a:1;broker-b:1", "--yes", "-n", pair.name_server)
    orbitmq("namesrv", "kv", "put", *pairs)
    with pytest.raises(PySparkException, match=MISSING.format(f"topic {pair.topic}", "the order configuration")):
        count(pair.load(spark))
    assert count(pair.load(spark, failOnDataLoss=False)) == COUNT
    pair.brokers["broker-b"].start()
    assert count(loaded) == count(pair.load(spark, expectBrokers="broker-a,broker-b")) == 2 * COUNT


def test_a_stream_skips_no_row_of_a_broker_that_leaves_between_two_triggers(
    spark: SparkSession, pair: Pair, tmp_path: Path
) -> None:
    def run(**options: object) -> None:
        writer = pair.stream(spark, **options).writeStream.format("parquet").option("path", str(tmp_path / "rows"))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        finished(lambda: writer.trigger(availableNow=True).start())

    run()
    pair.fill(COUNT)
    pair.stop("broker-b")
    with pytest.raises(StreamingQueryException, match="ORBITMQ_BROKER_UNAVAILABLE: broker broker-b"):
        run(brokerUnavailableTimeoutMs=500, fetchOffset__retryIntervalMs=100)
    pair.brokers["broker-b"].start()
    run()
    rows = spark.read.parquet(str(tmp_path / "rows")).collect()
    wanted = [(broker, offset) for broker in pair.brokers for offset in range(2 * COUNT)]
    assert sorted((row.brokerName, row.queueOffset) for row in rows) == wanted


def test_a_topic_that_may_not_be_read_or_written_is_an_error_of_its_name(
    spark: SparkSession, pair: Pair, tmp_path: Path
) -> None:
    def permit(perm: str, *where: object) -> None:
        orbitmq("topic", "permission", pair.topic, perm, *where, "--yes", "-n", pair.name_server)

    def run() -> None:
        writer = pair.stream(spark).writeStream.format("noop").option("checkpointLocation", str(tmp_path))
        finished(lambda: writer.trigger(availableNow=True).start())

    closed = "ORBITMQ_NO_PERMISSION: topic {} may not be read on {}: "
    run()
    permit("W", "--broker", "broker-b")
    pair.until_perm("broker-b", is_open=False)
    with pytest.raises(PySparkException, match=closed.format(pair.topic, "broker-b")):
        count(pair.load(spark))
    with pytest.raises(StreamingQueryException, match=closed.format(pair.topic, "broker-b")):
        run()
    permit("W")
    pair.until_perm("broker-a", is_open=False)
    with pytest.raises(PySparkException, match=closed.format(pair.topic, "broker-a, broker-b")):
        count(pair.load(spark))
    permit("R")
    pair.until_perm("broker-a", is_open=True)
    pair.until_perm("broker-b", is_open=True)
    row = spark.createDataFrame([("x",)], "body STRING")
    writer = row.write.format("orbitmq").option("nameServer", pair.name_server).mode("append")
    with pytest.raises(PySparkException, match=rf"ORBITMQ_NO_PERMISSION: topic {pair.topic} has no writable queue"):
        patiently(lambda: writer.save(pair.topic))
    assert count(pair.load(spark)) == 2 * COUNT


def test_a_whole_broker_that_may_not_be_read_is_an_error(spark: SparkSession, pair: Pair) -> None:
    def permit(perm: int) -> None:
        where = ("--broker", "broker-b", "--yes", "-n", pair.name_server)
        orbitmq("broker", "config", "set", f"brokerPermission={perm}", *where)
        pair.until_perm("broker-b", is_open=bool(perm & PERM_READ))

    permit(PERM_WRITE)
    try:
        with pytest.raises(PySparkException, match=f"ORBITMQ_NO_PERMISSION: topic {pair.topic} may not .* on broker-b"):
            count(pair.load(spark))
    finally:
        permit(PERM_READ | PERM_WRITE)
    assert count(pair.load(spark)) == 2 * COUNT
