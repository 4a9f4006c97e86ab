"""What a writing task promises when brokers are slow, silent, busy or gone; without Spark, on a cluster with faults."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from orbitmq.errors import SourceError
from orbitmq.net.remoting import Remoting
from orbitmq.operations import queries, routes, statistics
from orbitmq.spark import address_order, sink_sender
from orbitmq.spark.bodies.writer import BodyWriter
from orbitmq.spark.sink_keys import TaskIdentity, digest
from orbitmq.spark.sink_options import WriteOptions
from orbitmq.testing.cluster import Cluster
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers import SendMessageResponseHeader
from orbitmq.wire.requests import RequestCode
from tests.spark import sinks
from tests.spark.scripted_peer import ScriptedPeer, name_server_script
from tests.spark.sinks import ONCE, batches, run_task
from tests.support.process import wait_until

SMALL = {"batchBytes": 2048, "retryTimesWhenSendFailed": 3}
numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokerName="broker-a") as running:
        yield running


@pytest.fixture
def topic(cluster: Cluster) -> Iterator[str]:
    name = f"out{next(numbers)}"
    cluster.create_topic(name)
    yield name
    cluster.heal()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_sender, "PAUSE_FIRST_S", 0.01)
    monkeypatch.setattr(sink_sender, "PAUSE_MAX_S", 0.05)
    monkeypatch.setattr(sink_sender, "SETTLE_S", 0.05)


Settings = Callable[..., WriteOptions]


@pytest.fixture
def settings(cluster: Cluster, topic: str) -> Settings:
    usual = {"nameServer": cluster.namesrv_address, "topic": topic, **SMALL}
    return lambda **more: sinks.options(**{**usual, **more})


def test_a_task_returns_when_every_answer_has_come(cluster: Cluster, topic: str, settings: Settings) -> None:
    late = cluster.delay("send", 0.3, times=None, topic=topic)
    written = run_task(settings(), batches(50, 50))
    assert late.hits > 3
    assert cluster.message_count(topic) == 100  # stored late, and the task has waited for it
    assert written.messages == 100
    assert sum(span.count for span in written.queues.values()) == 100
    assert sinks.bodies(cluster.namesrv_address, topic) == list(range(100))


def test_a_rate_spaces_requests(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        if threading.current_thread() is not threading.main_thread():  # the cluster's
            return await sleep(seconds)
        slept.append(seconds)
        return await sleep(0)

    monkeypatch.setattr("orbitmq.spark.sink_sender.asyncio.sleep", note)
    run_task(settings(maxRowsPerSecond=10), batches(45))
    # Requests of a second's worth; nobody really waits here, so each has to wait for all those before it.
    assert [round(seconds) for seconds in slept if seconds] == [1, 2, 3, 4]


def test_a_task_whose_answers_do_not_come_fails(cluster: Cluster, topic: str, settings: Settings) -> None:
    cluster.drop("send", times=None, topic=topic)
    with pytest.raises(SourceError, match=r"ORBITMQ_BROKER_UNAVAILABLE: \d+ messages to queue \d of topic out"):
        run_task(settings(sendTimeoutMs=50, retryTimesWhenSendFailed=1), batches(20))


def test_no_more_requests_are_under_way_than_allowed(cluster: Cluster, topic: str, settings: Settings) -> None:
    seen: list[int] = []
    original = sink_sender.SinkSender._attempt

    async def counted(self: sink_sender.SinkSender, *arguments: object) -> None:
        seen.append(len(self._tasks))
        await original(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sink_sender.SinkSender, "_attempt", counted)
        run_task(settings(maxInFlight=3), batches(400))
    assert max(seen) == 3
    assert sinks.bodies(cluster.namesrv_address, topic) == list(range(400))


@pytest.mark.parametrize("guarantee", ["at-least-once", "effectively-once"])
def test_a_lost_answer_makes_a_copy_only_without_effectively_once(
    cluster: Cluster, topic: str, settings: Settings, guarantee: str
) -> None:
    once = guarantee == "effectively-once"
    # The first send of an effectively-once task carries the mark; lose the answer of a later one, too.
    lost = cluster.lose_response("send", times=2, topic=topic)
    written = run_task(settings(deliveryGuarantee=guarantee, sendTimeoutMs=400), batches(60))
    assert lost.hits == 2
    copies = sinks.copies(cluster.namesrv_address, topic)
    assert len(copies) == 60
    assert (max(copies.values()) == 1) is once
    assert written.messages == 60


def test_a_closed_connection_is_no_loss(cluster: Cluster, topic: str, settings: Settings) -> None:
    cut = cluster.disconnect("send", times=2, topic=topic)
    run_task(settings(**ONCE), batches(60))
    assert cut.hits == 2
    assert set(sinks.copies(cluster.namesrv_address, topic).values()) == {1}
    assert sinks.bodies(cluster.namesrv_address, topic) == list(range(60))


def test_a_busy_broker_is_waited_for_beyond_the_retries(cluster: Cluster, topic: str, settings: Settings) -> None:
    busy = cluster.refuse("send", ResponseCode.SYSTEM_BUSY, times=9, topic=topic)
    run_task(settings(retryTimesWhenSendFailed=0, maxInFlight=1), batches(60))
    assert busy.hits == 9
    assert sinks.bodies(cluster.namesrv_address, topic) == list(range(60))


def test_a_broker_that_stays_busy_fails_the_task(cluster: Cluster, topic: str, settings: Settings) -> None:
    cluster.refuse("send", ResponseCode.SYSTEM_BUSY, times=None, topic=topic)
    with pytest.raises(SourceError, match="ORBITMQ_BROKER_UNAVAILABLE: broker broker-a stays busy: code 2"):
        run_task(settings(busyTimeoutMs=30), batches(10))


def test_what_was_stored_before_a_failure_is_told(cluster: Cluster, topic: str, settings: Settings) -> None:
    def then_refused() -> Iterator[pa.RecordBatch]:
        yield from batches(30)
        wait_until(lambda: cluster.message_count(topic) == 30, 30, "the first rows are stored")
        cluster.refuse("send", ResponseCode.MESSAGE_ILLEGAL, times=None, topic=topic)
        yield sinks.rows(range(30, 40))

    with pytest.raises(SourceError, match=r"^ORBITMQ_BROKER_REFUSED: .*code 13.*; stored before: 30 messages in \d"):
        run_task(settings(), then_refused())


def test_a_repeated_task_sends_what_is_missing_and_nothing_twice(
    cluster: Cluster, topic: str, settings: Settings
) -> None:
    for sizes in ((40,), (40, 40), (40, 40, 40)):
        with pytest.raises(ConnectionError):
            run_task(settings(**ONCE), batches(*sizes, fails=True))
    written = run_task(settings(**ONCE), batches(40, 40, 40, 40))
    assert (written.skipped, written.messages) == (120, 40)
    assert set(sinks.copies(cluster.namesrv_address, topic).values()) == {1}
    assert sinks.bodies(cluster.namesrv_address, topic) == list(range(160))


def test_stored_messages_are_looked_for_after_the_brokers_dispatch(
    cluster: Cluster, topic: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocketMQ dispatches after its send response: what is searched before that misses an attempt's last messages."""
    behind = [300, 200, 0]
    seen: list[str] = []
    search = queries.query_messages

    async def info(*_given: object, **_more: object) -> dict[str, str]:
        seen.append("info")
        return {"commitLogMaxOffset": "1000", "dispatchBehindBytes": str(behind.pop(0) if behind else 0)}

    async def noted(*given: Any, **more: Any) -> Any:
        seen.append("search")
        return await search(*given, **more)

    monkeypatch.setattr(statistics, "runtime_info", info)
    monkeypatch.setattr(queries, "query_messages", noted)
    run_task(settings(**ONCE), batches(10))
    assert seen == ["info", "info", "info", "search"]


def test_a_broker_that_does_not_dispatch_fails_the_task(
    cluster: Cluster, topic: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def info(*_given: object, **_more: object) -> dict[str, str]:
        return {"commitLogMaxOffset": "1000", "dispatchBehindBytes": "300"}

    monkeypatch.setattr(statistics, "runtime_info", info)
    monkeypatch.setattr(statistics, "DISPATCH_SECONDS", 0.05)
    with pytest.raises(SourceError, match="broker broker-a does not dispatch what it stored"):
        run_task(settings(retryTimesWhenSendFailed=0, **ONCE), batches(10))


def test_at_least_once_repeats_under_the_same_keys(cluster: Cluster, topic: str, settings: Settings) -> None:
    with pytest.raises(ConnectionError):
        run_task(settings(), batches(40, fails=True))
    run_task(settings(), batches(40, 10))
    copies = sinks.copies(cluster.namesrv_address, topic)
    assert len(copies) == 50
    assert sorted(copies.values()) == [1] * 10 + [2] * 40  # a consumer can tell them apart by ORBIT_IK


def test_tasks_of_other_partitions_and_batches_are_not_taken_for_it(
    cluster: Cluster, topic: str, settings: Settings
) -> None:
    for task in (TaskIdentity("j", "1", 0), TaskIdentity("j", "1", 1), TaskIdentity("j", "2", 0)):
        assert run_task(settings(**ONCE), batches(10), task).messages == 10
    assert len(sinks.copies(cluster.namesrv_address, topic)) == 30


def test_the_first_message_alone_carries_the_mark(cluster: Cluster, topic: str, settings: Settings) -> None:
    run_task(settings(**ONCE), batches(30))
    messages = [message for queue in sinks.stored(cluster.namesrv_address, topic).values() for message in queue]
    marked = [message for message in messages if sinks.TASK.mark in message.keys.split()]
    assert [message.body for message in marked] == [b"0"]
    assert marked[0].keys == f"k0 {sinks.TASK.mark}"
    assert min(messages, key=lambda message: message.commit_log_offset).body == b"0"


def test_a_killed_broker_that_comes_back_has_each_message_once(tmp_path: object) -> None:
    with Cluster(brokerName="broker-a") as cluster:
        cluster.create_topic("out")

        def with_a_kill() -> Iterator[pa.RecordBatch]:
            yield from batches(50)
            cluster.kill()
            cluster.restart()
            yield sinks.rows(range(50, 100))

        given = sinks.options(nameServer=cluster.namesrv_address, topic="out", **SMALL, **ONCE)
        run_task(given, with_a_kill())
        assert set(sinks.copies(cluster.namesrv_address, "out").values()) == {1}
        assert sinks.bodies(cluster.namesrv_address, "out") == list(range(100))


@pytest.mark.parametrize("column", ["shardingKey", "queueKey"])
def test_rows_of_equal_keys_keep_their_order_whatever_is_refused(
    cluster: Cluster, topic: str, settings: Settings, column: str
) -> None:
    cluster.refuse("send", ResponseCode.SYSTEM_BUSY, times=7, topic=topic)
    count = 600
    sharding = pa.array([f"customer{number % 17}" for number in range(count)])
    run_task(settings(queueSelector="keyHash", batchBytes=1024), [sinks.rows(range(count), **{column: sharding})])
    queues = sinks.stored(cluster.namesrv_address, topic)
    for messages in queues.values():
        found = [int(message.body) for message in messages]
        assert found == sorted(found)  # all keys of a queue in the order of the rows
    home = {number % 17: queue for queue, messages in queues.items() for number in map(int, (m.body for m in messages))}
    assert len(home) == 17
    for queue, messages in queues.items():
        assert all(home[int(message.body) % 17] == queue for message in messages)
    assert sinks.bodies(cluster.namesrv_address, topic) == list(range(count))


def test_a_fixed_queue_is_the_one_that_is_used(cluster: Cluster, topic: str, settings: Settings) -> None:
    where = pa.array([number % 3 for number in range(30)], pa.int32())
    run_task(settings(queueSelector="fixed"), [sinks.rows(range(30), queueId=where)])
    for queue, messages in sinks.stored(cluster.namesrv_address, topic).items():
        assert [int(message.body) for message in messages] == list(range(queue.queue_id, 30, 3))[
            : 10 * (queue.queue_id < 3)
        ]
    with pytest.raises(SourceError, match="ORBITMQ_BAD_ROW: queue 9 of broker broker-a is not writable"):
        run_task(settings(queueSelector="fixed"), [sinks.rows([1], queueId=pa.array([9]))])


def test_rows_choose_their_topic(cluster: Cluster, topic: str) -> None:
    other = f"{topic}-b"
    cluster.create_topic(other)
    given = sinks.options(nameServer=cluster.namesrv_address, **SMALL, **ONCE)
    topics = pa.array([topic if number % 2 else other for number in range(40)])
    for expected in (40, 0):  # the second run finds both topics' marks
        assert run_task(given, [sinks.rows(range(40), topic=topics)]).messages == expected
    assert sinks.bodies(cluster.namesrv_address, topic) == list(range(1, 40, 2))
    assert sinks.bodies(cluster.namesrv_address, other) == list(range(0, 40, 2))


def test_a_namespace_stands_before_the_topic(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(f"NS%{topic}")
    given = {"nameServer": cluster.namesrv_address, "namespace": "NS"}
    run_task(sinks.options(**given, topic=topic), batches(3))
    run_task(sinks.options(**given), [sinks.rows([3], topic=pa.array([topic]))])
    assert sinks.bodies(cluster.namesrv_address, f"NS%{topic}") == [0, 1, 2, 3]
    assert cluster.message_count(topic) == 0


def test_a_large_message_fails_the_write_by_name(settings: Settings) -> None:
    with pytest.raises(SourceError, match=r"^ORBITMQ_OVERSIZE: a message to topic out\d+ has 11 bytes of body"):
        run_task(settings(maxMessageSize=10), [sinks.rows([1, 12345678901])])


def test_a_large_message_goes_to_the_topic_for_those(cluster: Cluster, topic: str, settings: Settings) -> None:
    dead = f"{topic}-large"
    cluster.create_topic(dead, 1)
    body = bytes(range(256)) * 400
    long_property = pa.array([None, None, [("note", "x" * 40_000)]], pa.map_(pa.string(), pa.string()))
    batch = pa.record_batch(
        {"body": pa.array([b"1", body, b"2"]), "keys": ["a", "b", "c"], "properties": long_property}
    )
    for _ in range(2):
        written = run_task(settings(maxMessageSize=100_000, onOversize=f"dlq:{dead}", **ONCE), [batch])
    assert (written.skipped, written.messages) == (1 + 2, 0)
    assert sinks.bodies(cluster.namesrv_address, topic) == [1]
    (large,) = sinks.stored(cluster.namesrv_address, dead).values()
    assert [(message.keys.split()[0], message.body) for message in large] == [("b", body[: 64 << 10]), ("c", b"2")]
    assert large[0].properties["ORBIT_ORIGIN_TOPIC"] == topic
    assert large[0].properties["ORBIT_BODY_SIZE"] == str(len(body))
    assert "note" not in large[1].properties


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"topic": "nowhere"}, "ORBITMQ_TOPIC_NOT_FOUND: topic nowhere does not exist; create it first"),
        ({"nameServer": "127.0.0.1:1"}, "ORBITMQ_NAMESERVER_UNAVAILABLE: topic out"),
    ],
)
def test_what_cannot_be_reached_is_told_by_name(settings: Settings, more: dict[str, str], name: str) -> None:
    with pytest.raises(SourceError) as caught:
        run_task(settings(**more), batches(1))
    assert str(caught.value).startswith(name)


def test_a_silent_name_server_costs_the_tasks_of_a_process_one_brief_wait(
    cluster: Cluster, topic: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[tuple[str, float]] = []
    route = routes.route

    async def noted(remoting: Remoting, address: str, *given: Any, timeout_ms: float) -> Any:
        limits.append((address, timeout_ms))
        return await route(remoting, address, *given, timeout_ms=timeout_ms)

    monkeypatch.setattr(routes, "route", noted)
    monkeypatch.setattr(address_order, "BRIEF_MS", 50)
    with ScriptedPeer(lambda asked: ()) as silent:
        names = f"{silent.address};{cluster.namesrv_address}"
        for _ in range(2):
            assert run_task(settings(nameServer=names, sendTimeoutMs=30_000), batches(5)).messages == 5
        assert [limit for address, limit in limits if address == silent.address] == [50]


@pytest.mark.parametrize("policy", ["stored", "safe"])
def test_a_message_that_is_not_confirmed_counts_by_the_policy(policy: str) -> None:
    def broker(asked: Command) -> list[Command]:
        assert asked.code == RequestCode.SEND_BATCH_MESSAGE
        header = SendMessageResponseHeader("0" * 32, 0, 0)
        return [asked.response(ResponseCode.SLAVE_NOT_AVAILABLE, "no slave", header)]

    with ScriptedPeer(broker) as peer, ScriptedPeer(name_server_script({"out": {"b": (1, peer.address)}})) as names:
        settings = sinks.options(nameServer=names.address, topic="out", ackPolicy=policy)
        if policy == "stored":
            written = run_task(settings, batches(5))
            assert written.unconfirmed == {"SLAVE_NOT_AVAILABLE": 5}
            assert "5 with SLAVE_NOT_AVAILABLE" in written.summary()
        else:
            with pytest.raises(SourceError, match=r"^ORBITMQ_NOT_SAFE: .*the response is SLAVE_NOT_AVAILABLE"):
                run_task(settings, batches(5))


def exploded(messages: Iterable[int], parts: Iterable[int] = range(3)) -> pa.RecordBatch:
    """Rows made of these messages; the first two rows of a message are equal."""
    rows = [(message, 10 * message + max(part, 1)) for message in messages for part in parts]
    offsets, bodies = zip(*rows, strict=True)
    origin = {"topic": ["orders"] * len(rows), "brokerName": ["b"] * len(rows), "queueId": [0] * len(rows)}
    return pa.record_batch({"body": list(map(str, bodies)), **origin, "queueOffset": offsets})


EXPLODED = sorted(10 * message + part for message in range(10) for part in (1, 1, 2))


def test_rows_made_of_one_message_are_all_stored_however_often_the_task_is_repeated(
    cluster: Cluster, topic: str, settings: Settings
) -> None:
    for expected in (30, 0):
        assert run_task(settings(**ONCE), [exploded(range(10))]).messages == expected
    assert sinks.bodies(cluster.namesrv_address, topic) == EXPLODED


def test_rows_made_of_one_message_are_told_apart_by_bodies_that_the_task_encodes(
    cluster: Cluster, topic: str, settings: Settings
) -> None:
    rows = exploded(range(10))
    rows = rows.set_column(0, "body", pa.StructArray.from_arrays([rows.column("body")], ["part"]))
    for expected in (30, 0):
        assert run_task(settings(**ONCE), [rows], bodies=BodyWriter("json", None)).messages == expected
    found = {message.body for queue in sinks.stored(cluster.namesrv_address, topic).values() for message in queue}
    assert found == {b'{"part":"%d"}' % part for part in EXPLODED}


def test_rows_made_of_one_message_may_come_in_another_order_when_the_task_is_repeated(
    cluster: Cluster, topic: str, settings: Settings
) -> None:
    def killed() -> Iterator[pa.RecordBatch]:
        yield exploded(range(10), [2])
        raise ConnectionError("the input broke off")

    with pytest.raises(ConnectionError):
        run_task(settings(**ONCE), killed())
    written = run_task(settings(**ONCE), [exploded(reversed(range(10)), [1, 2]), exploded(range(10), [0])])
    assert (written.skipped, written.messages) == (10, 20)
    assert sinks.bodies(cluster.namesrv_address, topic) == EXPLODED


def test_rows_made_of_one_message_may_be_in_several_tasks(cluster: Cluster, topic: str, settings: Settings) -> None:
    """A repeated task sees in the queues what others stored, and must not take it for its own."""

    def killed() -> Iterator[pa.RecordBatch]:
        yield exploded([0], [2])
        raise ConnectionError("the input broke off")

    other = TaskIdentity("job", "1", 1)
    run_task(settings(**ONCE), [exploded(range(10), [0])])
    with pytest.raises(ConnectionError):
        run_task(settings(**ONCE), killed(), other)
    assert run_task(settings(**ONCE), [exploded(range(10), [2])], other).messages == 9
    assert sinks.bodies(cluster.namesrv_address, topic) == sorted(10 * m + part for m in range(10) for part in (1, 2))


def test_two_rows_with_the_same_key_of_a_user_are_refused_by_name(
    cluster: Cluster, topic: str, settings: Settings
) -> None:
    def keyed(*keys: str) -> pa.RecordBatch:
        return sinks.rows(range(len(keys)), idempotencyKey=pa.array(keys))

    for given in ([keyed("a", "b", "a")], [keyed("a", "b"), keyed("c", "a")]):
        with pytest.raises(
            SourceError, match=rf"^ORBITMQ_BAD_ROW: two rows for topic {topic} have the idempotencyKey 'a'"
        ):
            run_task(settings(**ONCE), given)
    # At-least-once sends them: whoever gives two rows one key tells consumers that they are one message.
    assert run_task(settings(), [keyed("a", "b", "a")]).messages == 3
    other = f"{topic}-b"
    cluster.create_topic(other)
    topics = pa.array([topic, other])
    both = sinks.rows(range(2), idempotencyKey=pa.array(["d", "d"]), topic=topics)
    given = sinks.options(nameServer=cluster.namesrv_address, **SMALL, **ONCE)
    assert run_task(given, [both], TaskIdentity("job", "2", 0)).messages == 2  # one in each topic


def test_a_key_of_a_user_may_not_meet_itself_in_the_dead_letter_topic(
    cluster: Cluster, topic: str, settings: Settings
) -> None:
    other = f"{topic}-c"
    cluster.create_topic(other)
    topics = pa.array([topic, topic])
    large = sinks.rows([10**12, 1], idempotencyKey=pa.array(["a", "b"]), topic=topics)
    again = sinks.rows([10**12, 1], idempotencyKey=pa.array(["a", "b"]), topic=pa.array([other, other]))
    options = sinks.options(
        nameServer=cluster.namesrv_address, **SMALL, **ONCE, maxMessageSize=12, onOversize=f"dlq:{topic}-large"
    )
    cluster.create_topic(f"{topic}-large", 1)
    with pytest.raises(SourceError, match=rf"two rows for topic {topic}-large have the idempotencyKey '[0-9a-f]+'"):
        run_task(options, [large, again])


def test_keys_of_a_user_hold_across_jobs(cluster: Cluster, topic: str, settings: Settings) -> None:
    own = pa.array(["order-1", "order-2"])
    run_task(settings(**ONCE), [sinks.rows([1, 2], idempotencyKey=own)])
    assert set(sinks.copies(cluster.namesrv_address, topic)) == {digest("k", "order-1"), digest("k", "order-2")}
