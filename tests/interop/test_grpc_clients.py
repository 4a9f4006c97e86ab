"""The official clients of RocketMQ 5 at the proxy of 5.3.3 and at orbitmq: each scenario with each client at both.

What a client refuses by itself never reaches a server; what servers refuse is in test_grpc_raw.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from tests.support.certificates import Authority
from tests.support.delivery import Row, assert_each_once, messages
from tests.support.fronts import Front, create_group, create_topic, member_ids, stored, units
from tests.support.grpc_clients import (
    CLIENTS,
    LACKS,
    GrpcDriver,
    GrpcProducer,
    GrpcPushConsumer,
    GrpcSimpleConsumer,
    Received,
    Refused,
)
from tests.support.java_rocketmq import run_driver
from tests.support.messages import message
from tests.support.process import wait_until

MIB = 1 << 20
EARLY_MS = 1000  # RocketMQ delivers at a full second, which may be the one before
COMES_AGAIN_S = 30  # RocketMQ looks for unacknowledged messages every few seconds
# Node's client knows no other policy, and takes a message that failed for dead.
SOON = {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 1000, "max": 2000, "multiplier": 2}}
WAIT_MAX_S = 20  # of a server
NEVER = 1000  # a message that fails so often always fails


@dataclass(frozen=True)
class Case:
    """One client at one system; topics and groups of a scenario have names of their own."""

    front: Front
    kind: str
    driver: GrpcDriver

    def topic(self, name: str, kind: str = "NORMAL", queues: int = 1) -> str:
        full = f"{name}-{self.kind}"
        create_topic(self.front, full, kind, read=queues, write=queues)
        return full

    def group(self, name: str, **config: object) -> str:
        full = f"{name}-readers-{self.kind}"
        create_group(self.front, full, **config)
        return full

    def producer(self, *topics: str, **fields: object) -> GrpcProducer:
        return self.driver.start_producer(self.front.endpoint, topics=topics, **fields)

    def simple(self, group: str, topic: str, **fields: object) -> GrpcSimpleConsumer:
        return self.driver.start_simple_consumer(self.front.endpoint, group, topic, **fields)

    @property
    def short_wait_s(self) -> int:
        """For a client that asks anew: RocketMQ answers one that waits only when its time is over. Rust's gives up when
        that time is over, too, and is lost for an answer unless the server waits for less, which is its longest wait.
        """
        return 2 * WAIT_MAX_S if self.kind == "rust" else 5

    def push(self, group: str, topic: str, **fields: object) -> GrpcPushConsumer:
        """It is not stopped: that takes as long as its last request waits for messages."""
        return self.driver.start_push_consumer(self.front.endpoint, group, topic, **fields)


Scenario = Callable[[Case], None]
_slow: list[Scenario] = []
_needs: dict[Scenario, str] = {}


def slow(work: Scenario) -> Scenario:
    """Most of a scenario is waiting: it is begun before the first test and goes on beside the others."""
    _slow.append(work)
    return work


def needs(ability: str) -> Callable[[Scenario], Scenario]:
    """For a scenario that is not for clients which lack this."""

    def note(work: Scenario) -> Scenario:
        _needs[work] = ability
        return work

    return note


def lack(kind: str, work: Scenario) -> str | None:
    """Why this client cannot do it."""
    return LACKS[kind].get(_needs.get(work, ""))


def skip_unless_able(kind: str, work: Scenario) -> None:
    if reason := lack(kind, work):
        pytest.skip(f"the client for {kind}: {reason}")


@dataclass(frozen=True)
class Stage:
    """All clients at one system."""

    cases: dict[str, Case]
    begun: dict[tuple[Scenario, str], Future[None]]


@pytest.fixture(scope="module")
def stage(front: Front, front_authority: Authority) -> Iterator[Stage]:
    with ExitStack() as stack, ThreadPoolExecutor(len(_slow) * len(CLIENTS)) as pool:
        started = pool.map(lambda kind: stack.enter_context(GrpcDriver(kind, front_authority.path)), CLIENTS)
        cases = {kind: Case(front, kind, driver) for kind, driver in zip(CLIENTS, started, strict=True)}
        able = [(work, kind) for work in _slow for kind in CLIENTS if not lack(kind, work)]
        yield Stage(cases, {(work, kind): pool.submit(work, cases[kind]) for work, kind in able})


@pytest.fixture(params=CLIENTS)
def case(stage: Stage, request: pytest.FixtureRequest) -> Case:
    skip_unless_able(request.param, request.function)
    return stage.cases[request.param]


@pytest.fixture
def ending(stage: Stage, case: Case) -> Callable[[Scenario], None]:
    """Waits for a scenario that was begun, and raises what went wrong in it."""

    def end(work: Scenario) -> None:
        skip_unless_able(case.kind, work)
        stage.begun[work, case.kind].result()

    return end


def bodies(received: list[Received]) -> list[bytes]:
    return [one.body for one in received]


@slow
def a_delayed_message_comes_when_due(case: Case) -> None:
    topic, group = case.topic("delayed", "DELAY"), case.group("delayed")
    with case.producer(topic) as producer, case.simple(group, topic) as consumer:
        due_ms = int((time.time() + 3) * 1000)
        sent = producer.send(topic, b"in three", deliver_at_ms=due_ms)
        (one,) = consumer.receive_all(1)
        assert (one.body, one.id) == (b"in three", sent.id)
        assert one.deliver_at_ms is not None
        assert abs(one.deliver_at_ms - due_ms) < 1000, "Python's and Rust's clients know whole seconds"
        assert time.time() * 1000 >= one.deliver_at_ms - EARLY_MS


@slow
@needs("recall")
def a_recalled_message_does_not_come(case: Case) -> None:
    topic, group = case.topic("recalled", "DELAY"), case.group("recalled")
    with case.producer(topic) as producer, case.simple(group, topic) as consumer:
        first = producer.send(topic, b"in two", deliver_in_s=2)
        recalled = producer.send(topic, b"recalled", deliver_in_s=12)
        producer.send(topic, b"after it", deliver_in_s=14)
        assert recalled.recall_handle is not None
        assert producer.recall(topic, recalled.recall_handle) == recalled.id
        assert [bodies(consumer.receive_all(1)) for _ in range(2)] == [[b"in two"], [b"after it"]]
        assert first.recall_handle is not None
        with pytest.raises(Refused) as refused:
            producer.recall(topic, first.recall_handle)
        assert refused.value.code == 50001
    assert stored(case.front, topic) == 2


@slow
def transactions_are_decided_by_their_producer_or_when_it_is_asked(case: Case) -> None:
    topic, group = case.topic("transaction", "TRANSACTION"), case.group("transaction")
    decisions = {"asked, committed": "COMMIT", "asked, rolled back": "ROLLBACK"}
    with (
        case.producer(topic, decisions=decisions) as producer,
        case.simple(group, topic, wait_s=case.short_wait_s) as consumer,
    ):
        producer.send_in_transaction(topic, b"rolled back", "rollback")
        sent = producer.send_in_transaction(topic, b"committed", "commit", tag="t", keys=["k"], properties={"p": "v"})
        (one,) = consumer.receive_all(1)
        assert (one.body, one.id, one.tag, one.keys) == (b"committed", sent.id, "t", ["k"])
        assert one.properties["p"] == "v"
        for body in decisions:
            producer.send_in_transaction(topic, body.encode())
        producer.wait_for_checks([body.encode() for body in decisions])
        assert bodies(consumer.receive_all(1)) == [b"asked, committed"]
        assert set(producer.checked()) == {body.encode() for body in decisions}, "and about no other"
    assert stored(case.front, topic) == 2


@slow
@needs("push")
def a_message_that_always_fails_is_dead_after_its_attempts(case: Case) -> None:
    topic, group = case.topic("failing"), case.group("failing", retry_max=1)
    with case.producer(topic) as producer:
        failures = {"once": 1, "always": NEVER}
        consumer = case.push(group, topic, failures=failures)
        ids = {body: producer.send(topic, body).id for body in (b"once", b"always", b"good")}
        came = consumer.wait_for({b"once": 2, b"always": 2, b"good": 1})
        assert sorted((one.body, one.attempt) for one in came) == [
            (b"always", 1), (b"always", 2), (b"good", 1), (b"once", 1), (b"once", 2)
        ]  # fmt: skip
        assert {one.body: one.id for one in came} == ids, "the same at each attempt"
        dead = f"%DLQ%{group}"
        wait_until(lambda: stored(case.front, dead), COMES_AGAIN_S, "the dead message")
        (unit,) = units(case.front, dead)
        assert unit.body == b"always"
        assert len(consumer.delivered()) == 5


@slow
def an_empty_receive_ends_without_an_error(case: Case) -> None:
    topic, group = case.topic("empty"), case.group("empty")
    with case.simple(group, topic, wait_s=case.short_wait_s) as consumer:
        begun = time.monotonic()
        assert consumer.receive() == []
        waited_s = min(case.short_wait_s, WAIT_MAX_S)
        assert -0.5 < time.monotonic() - begun - waited_s < 10


@slow
@needs("change_invisible_duration")
def a_message_comes_again_when_its_consumer_says(case: Case) -> None:
    topic, group = case.topic("hidden"), case.group("hidden")
    with case.producer(topic) as producer, case.simple(group, topic, wait_s=case.short_wait_s) as consumer:
        producer.send(topic, b"hidden")
        (first,) = consumer.receive_all(1, ack=False)
        consumer.change_invisible_duration(first, 60)
        consumer.change_invisible_duration(first, 1)
        (second,) = consumer.receive_all(1)
        assert (second.id, second.attempt) == (first.id, 2)


@slow
def an_unacknowledged_message_comes_again(case: Case) -> None:
    topic, group = case.topic("unacknowledged"), case.group("unacknowledged")
    with case.producer(topic) as producer, case.simple(group, topic, wait_s=case.short_wait_s) as consumer:
        sent = producer.send(topic, b"again", keys=["k"], properties={"p": "v"})
        (first,) = consumer.receive_all(1, invisible_s=10, ack=False)
        (second,) = consumer.receive_all(1)
        assert (first.attempt, second.attempt) == (1, 2)
        assert (second.id, second.body, second.keys, second.properties) == (sent.id, b"again", ["k"], {"p": "v"})


def test_messages_arrive_as_they_were_sent(case: Case) -> None:
    topic, group = case.topic("plain", queues=4), case.group("plain")
    with case.producer(topic) as producer, case.simple(group, topic) as consumer:
        body = "Grüße, 東京 🚀".encode()
        properties = {"city": "München", "empty-ish": "-", "emoji": "🚀"}
        full = producer.send(topic, body, tag="TagA", keys=["k1", "k2"], properties=properties)
        bare = producer.send(topic, bytes(range(256)))
        large = producer.send(topic, b"x" * (MIB - 1))
        received = {one.id: one for one in consumer.receive_all(3)}
        assert received == {
            full.id: Received(topic, body, "TagA", ["k1", "k2"], properties, None, None, full.id, 1),
            bare.id: Received(topic, bytes(range(256)), None, [], {}, None, None, bare.id, 1),
            large.id: Received(topic, b"x" * (MIB - 1), None, [], {}, None, None, large.id, 1),
        }


@needs("push")
def test_a_push_consumer_gets_what_is_sent(case: Case) -> None:
    topic, group = case.topic("pushed", queues=4), case.group("pushed")
    with case.producer(topic) as producer:
        consumer = case.push(group, topic)
        sent = {
            producer.send(topic, b"%d" % number, tag="t", keys=["k"], properties={"p": "v"}).id for number in range(10)
        }
        received = consumer.wait_for([b"%d" % number for number in range(10)])
        assert {one.id for one in received} == sent
        assert {(one.topic, one.tag, *one.keys, *one.properties.items(), one.attempt) for one in received} == {
            (topic, "t", "k", ("p", "v"), 1)
        }


@needs("push")
def test_a_push_consumer_gets_a_message_group_in_order(case: Case) -> None:
    topic, group = (
        case.topic("fifo-pushed", "FIFO", queues=4),
        case.group("fifo-pushed", orderly=True, groupRetryPolicy=SOON),
    )
    with case.producer(topic) as producer:
        for number in range(6):
            for name in ("left", "right"):
                producer.send(topic, f"{name} {number}".encode(), group=name)
        consumer = case.push(group, topic, failures={"left 2": 1})
        wanted = {f"{name} {number}".encode(): 1 for name in ("left", "right") for number in range(6)}
        received = consumer.wait_for(wanted | {b"left 2": 2})
        for name in ("left", "right"):
            came = [one.body.decode() for one in received if one.group == name]
            assert came == [
                f"{name} {number}" for number in range(6) for _ in range(2 if f"{name} {number}" == "left 2" else 1)
            ]


def test_a_simple_consumer_gets_a_message_group_in_order(case: Case) -> None:
    topic, group = case.topic("fifo-simple", "FIFO", queues=4), case.group("fifo-simple", orderly=True)
    with case.producer(topic) as producer, case.simple(group, topic) as consumer:
        ids = [producer.send(topic, b"%d" % number, group="one").id for number in range(5)]
        received = [one for _ in range(5) for one in consumer.receive_all(1)]
        assert bodies(received) == [b"%d" % number for number in range(5)]
        assert [(one.id, one.group, one.attempt) for one in received] == [(sent, "one", 1) for sent in ids]


def test_filters_select_by_tag_and_by_property(case: Case) -> None:
    topic, by_tag, by_property = case.topic("filtered"), case.group("by-tag"), case.group("by-property")
    tags = case.simple(by_tag, topic, expression="a || c")
    properties = case.simple(by_property, topic, sql="price > 10 AND TAGS <> 'd'")
    with case.producer(topic) as producer, tags, properties:
        for tag, price in (("a", 5), ("b", 15), ("c", 20), ("d", 30)):
            producer.send(topic, tag.encode(), tag=tag, properties={"price": str(price)})
        assert sorted(bodies(tags.receive_all(2))) == [b"a", b"c"]
        assert sorted(bodies(properties.receive_all(2))) == [b"b", b"c"]


def test_two_consumers_share_a_group(case: Case) -> None:
    topic, group = case.topic("shared", queues=2), case.group("shared")
    with case.producer(topic) as producer, case.simple(group, topic) as one, case.simple(group, topic) as other:
        sent = [b"%d" % number for number in range(12)]
        for body in sent:
            producer.send(topic, body)
        parts = [consumer.receive_all(3) for _ in range(2) for consumer in (one, other)]
        assert sorted(body for part in parts for body in bodies(part)) == sorted(sent)


def test_a_stopped_consumer_is_no_member(case: Case) -> None:
    topic, group = case.topic("left"), case.group("left")
    with case.simple(group, topic), case.simple(group, topic):
        wait_until(lambda: len(member_ids(case.front, group)) == 2, 10, "two members")
    assert member_ids(case.front, group) == []


def test_a_message_of_the_wrong_type_is_not_stored(case: Case) -> None:
    topic = case.topic("ordered-only", "FIFO")
    with case.producer(topic) as producer:
        with pytest.raises(Refused):
            producer.send(topic, b"of no group")
        with pytest.raises(Refused):
            producer.send(topic, b"delayed", deliver_in_s=5)
        producer.send(topic, b"of a group", group="g")
    assert bodies_stored(case.front, topic) == [b"of a group"]


def bodies_stored(front: Front, topic: str) -> list[bytes]:
    return [unit.body for unit in units(front, topic)]


def test_a_topic_of_any_type_takes_all(case: Case) -> None:
    topic = case.topic("mixed", "MIXED")
    with case.producer(topic) as producer:
        producer.send(topic, b"of no group")
        producer.send(topic, b"of a group", group="g")
        producer.send_in_transaction(topic, b"in a transaction", "commit")
    wait_until(lambda: stored(case.front, topic) == 3, 10, "the transaction's")
    assert bodies_stored(case.front, topic) == [b"of no group", b"of a group", b"in a transaction"]


def test_a_missing_topic_is_told(case: Case) -> None:
    with case.producer(case.topic("beside-missing")) as producer:
        with pytest.raises(Refused) as refused:
            producer.send(f"missing-{case.kind}", b"lost")
        assert refused.value.code == (None if case.kind == "python" else 40402), "Python's client keeps it for itself"


def test_a_body_that_is_too_large_is_not_stored(case: Case) -> None:
    topic = case.topic("too-large")
    with case.producer(topic) as producer:
        with pytest.raises(Refused):
            producer.send(topic, b"x" * (4 * MIB + 1))
        producer.send(topic, b"x" * 4 * MIB)
    assert stored(case.front, topic) == 1


def test_messages_of_old_producers_reach_new_consumers(case: Case) -> None:
    """The last is compressed with zlib, which RocketMQ passes on. Node's client knows only gzip, and Rust's nothing."""
    topic, group = case.topic("from-old", queues=4), case.group("from-old")
    messages_sent = 5 if case.kind in ("node", "rust") else 6
    target = ("--namesrv", case.front.namesrv_address, "--topic", topic, "--run", "old")
    with case.simple(group, topic) as consumer:
        rows = run_driver("send", *target, "--first", 44, "--count", messages_sent)
        ids = {row["msgId"]: row["index"] for row in rows if "msgId" in row}
        received = consumer.receive_all(messages_sent)
        assert {one.id for one in received} == set(ids)
        for one in received:
            wanted = message("old", ids[one.id])
            assert (one.body, one.tag, one.properties) == (wanted.body, wanted.tags, wanted.properties)
            assert one.keys == sorted(wanted.keys.split())


def test_messages_of_new_producers_reach_old_consumers(case: Case) -> None:
    topic, group = case.topic("from-new", queues=4), case.group("from-new")
    with case.producer(topic) as producer:
        ids = [send_numbered(producer, topic, "new", index) for index in range(8)]
    rows = consume_with_old(case.front, topic, group, 8)
    assert sorted(row["msgId"] for row in rows) == sorted(ids)
    sent = [message("new", ids.index(row["msgId"])) for row in rows]
    assert [set(row["keys"].split()) for row in rows] == [set(one.keys.split()) for one in sent]
    # Python's producer has keys in any order, and none has flags.
    known = [{**row, "keys": one.keys, "flag": one.flag} for row, one in zip(rows, sent, strict=True)]
    assert_each_once(known, "new", range(8))


def send_numbered(producer: GrpcProducer, topic: str, run: str, index: int) -> str:
    one = message(run, index)
    return producer.send(topic, one.body, tag=one.tags, keys=one.keys.split(), properties=dict(one.properties)).id


def consume_with_old(front: Front, topic: str, group: str, expected: int) -> list[Row]:
    words = ("--namesrv", front.namesrv_address, "--topic", topic, "--group", group, "--expect", expected)
    return messages(run_driver("consume", *words))


def test_old_and_new_consumers_of_a_group_take_turns(case: Case) -> None:
    topic, group = case.topic("turns"), case.group("turns")
    with case.producer(topic) as producer:
        for index in range(3):
            send_numbered(producer, topic, "turns", index)
        with case.simple(group, topic) as consumer:
            assert len(consumer.receive_all(3)) == 3
        for index in range(3, 6):
            send_numbered(producer, topic, "turns", index)
        assert sorted(int(row["properties"]["index"]) for row in consume_with_old(case.front, topic, group, 3)) == [
            3,
            4,
            5,
        ]
        send_numbered(producer, topic, "turns", 6)
        with case.simple(group, topic) as consumer:
            assert [one.properties["index"] for one in consumer.receive_all(1)] == ["6"]


@needs("encryption")
def test_a_client_that_encrypts_is_served_at_the_same_port(case: Case) -> None:
    topic, group = case.topic("encrypted"), case.group("encrypted")
    with case.producer(topic, tls=True) as producer, case.simple(group, topic, tls=True) as consumer:
        sent = producer.send(topic, b"secret")
        assert [(one.id, one.body) for one in consumer.receive_all(1)] == [(sent.id, b"secret")]


@pytest.mark.parametrize("case", CLIENTS[-1:], indirect=True)
def test_another_producer_is_asked_about_a_transaction_of_one_that_died(case: Case) -> None:
    topic, group = case.topic("orphan", "TRANSACTION"), case.group("orphan")
    with GrpcDriver(CLIENTS[-2:][0]) as dying:  # another client, if several are tested
        sent = dying.start_producer(case.front.endpoint, topics=[topic]).send_in_transaction(topic, b"orphan")
        dying.process.kill()
    decisions = {"orphan": "COMMIT"}
    with (
        case.producer(topic, decisions=decisions) as producer,
        case.simple(group, topic, wait_s=case.short_wait_s) as consumer,
    ):
        producer.wait_for_checks([b"orphan"])
        assert [(one.id, one.body) for one in consumer.receive_all(1)] == [(sent.id, b"orphan")]


def test_a_delayed_message_comes_when_due(ending: Callable[[Scenario], None]) -> None:
    ending(a_delayed_message_comes_when_due)


def test_a_recalled_message_does_not_come(ending: Callable[[Scenario], None]) -> None:
    ending(a_recalled_message_does_not_come)


def test_transactions_are_decided_by_their_producer_or_when_it_is_asked(ending: Callable[[Scenario], None]) -> None:
    ending(transactions_are_decided_by_their_producer_or_when_it_is_asked)


def test_an_empty_receive_ends_without_an_error(ending: Callable[[Scenario], None]) -> None:
    ending(an_empty_receive_ends_without_an_error)


def test_a_message_comes_again_when_its_consumer_says(ending: Callable[[Scenario], None]) -> None:
    ending(a_message_comes_again_when_its_consumer_says)


def test_an_unacknowledged_message_comes_again(ending: Callable[[Scenario], None]) -> None:
    ending(an_unacknowledged_message_comes_again)


def test_a_message_that_always_fails_is_dead_after_its_attempts(ending: Callable[[Scenario], None]) -> None:
    ending(a_message_that_always_fails_is_dead_after_its_attempts)
