"""What the figures of a group mean: a hundred states of queues and groups, and the same read from a running cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orbitmq.admin.clients import ConsumerMember, GroupMembership
from orbitmq.admin.progress import (
    GroupProgress,
    GroupQueue,
    GroupRates,
    QueueFacts,
    QueueState,
    drain_seconds,
    owners,
    progress,
    reading,
    skew,
    summary,
    vanished,
    warnings_of,
)
from orbitmq.admin.results import Failure, Result
from orbitmq.admin.session import Session
from orbitmq.client import ConsumeConcurrentlyStatus, Message
from orbitmq.client.sync import Producer, PushConsumer
from orbitmq.errors import NotFound
from orbitmq.message.model import MessageQueue
from orbitmq.operations.offsets import update_consumer_offset
from orbitmq.testing.cluster import Cluster
from orbitmq.wire.bodies import ConsumerRunningInfo, ProcessQueueInfo
from orbitmq.wire.requests import RequestCode
from tests.support.process import wait_until
from tests.support.sessions import asked

QUEUE = MessageQueue("T", "broker-a", 0)
NOW_MS, OLDEST_MS, NEWEST_MS, CONSUMED_MS, DELAY_MS = 100_000, 10_000, 99_000, 40_000, 50_000

# First and next offset of a queue; below them what the group has stored (-: nothing), and what that means:
# state, messages behind, messages expired.
STATES = """
0 0
    - noOffset 0 0
    0 caughtUp 0 0
    1 offsetAhead 0 0
    100 offsetAhead 0 0
0 1
    - noOffset 1 0
    0 behind 1 0
    1 caughtUp 0 0
    2 offsetAhead 0 0
    101 offsetAhead 0 0
0 10
    - noOffset 10 0
    0 behind 10 0
    1 behind 9 0
    5 behind 5 0
    9 behind 1 0
    10 caughtUp 0 0
    11 offsetAhead 0 0
    110 offsetAhead 0 0
5 10
    - noOffset 5 0
    0 expired 5 5
    4 expired 5 1
    5 behind 5 0
    6 behind 4 0
    7 behind 3 0
    9 behind 1 0
    10 caughtUp 0 0
    11 offsetAhead 0 0
    110 offsetAhead 0 0
10 10
    - noOffset 0 0
    0 expired 0 10
    9 expired 0 1
    10 caughtUp 0 0
    11 offsetAhead 0 0
    110 offsetAhead 0 0
7 107
    - noOffset 100 0
    0 expired 100 7
    6 expired 100 1
    7 behind 100 0
    8 behind 99 0
    57 behind 50 0
    106 behind 1 0
    107 caughtUp 0 0
    108 offsetAhead 0 0
    207 offsetAhead 0 0
1000 1001
    - noOffset 1 0
    0 expired 1 1000
    999 expired 1 1
    1000 behind 1 0
    1001 caughtUp 0 0
    1002 offsetAhead 0 0
    1101 offsetAhead 0 0
0 1000000
    - noOffset 1000000 0
    0 behind 1000000 0
    1 behind 999999 0
    500000 behind 500000 0
    999999 behind 1 0
    1000000 caughtUp 0 0
    1000001 offsetAhead 0 0
    1000100 offsetAhead 0 0
3000000000 3000000010
    - noOffset 10 0
    0 expired 10 3000000000
    2999999999 expired 10 1
    3000000000 behind 10 0
    3000000001 behind 9 0
    3000000005 behind 5 0
    3000000009 behind 1 0
    3000000010 caughtUp 0 0
    3000000011 offsetAhead 0 0
    3000000110 offsetAhead 0 0
1 2
    - noOffset 1 0
    0 expired 1 1
    1 behind 1 0
    2 caughtUp 0 0
    3 offsetAhead 0 0
    102 offsetAhead 0 0
99 100
    - noOffset 1 0
    0 expired 1 99
    98 expired 1 1
    99 behind 1 0
    100 caughtUp 0 0
    101 offsetAhead 0 0
    200 offsetAhead 0 0
2 50
    - noOffset 48 0
    0 expired 48 2
    1 expired 48 1
    2 behind 48 0
    3 behind 47 0
    26 behind 24 0
    49 behind 1 0
    50 caughtUp 0 0
    51 offsetAhead 0 0
    150 offsetAhead 0 0
"""


def table() -> Iterator[tuple[int, int, int | None, QueueState, int, int]]:
    low = end = 0
    for line in STATES.strip().splitlines():
        words = line.split()
        if len(words) == 2:
            low, end = map(int, words)
        else:
            stored = None if words[0] == "-" else int(words[0])
            yield low, end, stored, QueueState(words[1]), int(words[2]), int(words[3])


def facts(low: int | None, end: int | None, stored: int | None, has_offset: bool | None) -> QueueFacts:
    return QueueFacts(QUEUE, end, low, stored, has_offset, NEWEST_MS, OLDEST_MS, CONSUMED_MS, DELAY_MS)


@pytest.mark.parametrize(("low", "end", "stored", "state", "lag", "expired"), list(table()))
def test_a_state_of_a_queue(low: int, end: int, stored: int | None, state: QueueState, lag: int, expired: int) -> None:
    found = reading(facts(low, end, stored, has_offset=stored is not None), NOW_MS)
    assert (found.state, found.lag_messages, found.expired_messages) == (state, lag, expired)
    assert (found.min_offset, found.max_offset, found.consumer_offset) == (low, end, stored)
    if not lag:
        assert (found.delay_ms, found.latency_ms) == (0, 0)
    elif state is QueueState.BEHIND:
        assert (found.delay_ms, found.latency_ms) == (DELAY_MS, DELAY_MS)
    else:
        assert (found.delay_ms, found.latency_ms) == (None, NOW_MS - OLDEST_MS), "the broker's own figure would be 0"
    assert found.last_consumed_age_ms == NEWEST_MS - CONSUMED_MS


@pytest.mark.parametrize(("low", "end", "stored", "state", "lag", "expired"), list(table())[::9])
def test_a_group_that_broadcasts_has_no_lag_at_the_broker(
    low: int, end: int, stored: int | None, state: QueueState, lag: int, expired: int
) -> None:
    found = reading(facts(low, end, stored, has_offset=stored is not None), NOW_MS, broadcasting=True)
    assert found.state is QueueState.BROADCAST
    assert (found.lag_messages, found.delay_ms, found.latency_ms) == (None, None, None)


@pytest.mark.parametrize(
    ("low", "end", "stored", "has_offset"), [(0, None, 3, True), (0, 10, None, True), (0, 10, None, None)]
)
def test_what_is_not_known_is_no_number(low: int, end: int | None, stored: int | None, has_offset: bool | None) -> None:
    found = reading(facts(low, end, stored, has_offset), NOW_MS)
    assert found.state is QueueState.UNKNOWN
    assert (found.lag_messages, found.expired_messages, found.delay_ms) == (None, None, None)


def test_clocks_that_differ_give_no_negative_age() -> None:
    early = QueueFacts(QUEUE, 10, 0, None, False, newest_at_ms=1, oldest_at_ms=NOW_MS + 1, last_consumed_at_ms=5)
    found = reading(early, NOW_MS)
    assert (found.latency_ms, found.last_consumed_age_ms) == (0, 0)


# -------------------------------------------------------------------------------------------------------------- groups


def queue(number: int, end: int, stored: int | None, topic: str = "T", low: int = 0) -> GroupQueue:
    at = MessageQueue(topic, "broker-a", number)
    return reading(QueueFacts(at, end, low, stored, stored is not None, reported_delay_ms=7), NOW_MS)


def members(*names: str, failed: bool = False) -> GroupMembership:
    failures = [Failure("broker-b", None, "TIMEOUT", "", None, retryable=True)] if failed else []
    return GroupMembership("g", [ConsumerMember(name, None, None, None, ["broker-a"]) for name in names], {}, failures)


def group(*queues: GroupQueue, rates: GroupRates | None = None, whole: bool = True) -> GroupProgress:
    return summary("g", list(queues), rates or GroupRates(), members(failed=not whole), None, whole=whole)


def test_retries_are_counted_apart() -> None:
    found = group(queue(0, 10, 4), queue(1, 10, 10), queue(0, 5, 2, "%RETRY%g"))
    assert (found.lag_messages, found.retry_lag_messages) == (6, 3)


def test_a_missing_broker_makes_sums_unknown_and_says_the_least() -> None:
    found = group(queue(0, 10, 4), whole=False)
    assert (found.lag_messages, found.known_lag_messages) == (None, 6)
    assert (found.members, found.consume_tps, found.retry_lag_messages) == (None, None, None)
    assert _maxima(found) == (None, None, None, None)


def _maxima(found: GroupProgress) -> tuple[float | None, ...]:
    return found.delay_ms, found.latency_ms, found.last_consumed_age_ms, found.skew


def test_the_worst_queue_is_known_when_all_are() -> None:
    aged = GroupQueue(
        "T", "broker-a", 1, QueueState.BEHIND, lag_messages=2, delay_ms=9, latency_ms=9, last_consumed_age_ms=5
    )
    assert _maxima(group(queue(0, 10, 4), aged)) == (9, 9, 5, 1.5)
    assert _maxima(group(queue(0, 10, 4), aged, reading(QueueFacts(QUEUE), NOW_MS))) == (None, None, None, None)


def test_a_delay_is_known_only_if_that_of_every_queue_with_a_lag_is() -> None:
    consumed, expired, fresh = queue(0, 10, 10), queue(1, 30, 4, low=20), queue(2, 10, None)
    for odd in (expired, fresh):
        assert odd.lag_messages
        assert group(consumed, odd).delay_ms is None
        assert group(consumed, odd).latency_ms is None
    assert (group(consumed).delay_ms, group(consumed, queue(1, 10, 4)).delay_ms) == (0, 7)


def test_an_unknown_queue_makes_the_sum_unknown() -> None:
    unknown = reading(QueueFacts(QUEUE), NOW_MS)
    found = group(queue(0, 10, 4), unknown)
    assert (found.lag_messages, found.known_lag_messages, found.drain_seconds) == (None, 6, None)


@pytest.mark.parametrize(
    ("lag", "consume", "produce", "seconds"),
    [(0, 0.0, 5.0, 0.0), (100, 30.0, 10.0, 5.0), (100, 10.0, 10.0, None), (None, 9.0, 1.0, None), (5, None, 1.0, None)],
)
def test_when_it_will_have_caught_up(
    lag: int | None, consume: float | None, produce: float | None, seconds: float | None
) -> None:
    assert drain_seconds(lag, consume, produce) == seconds


@pytest.mark.parametrize(("lags", "found"), [([], None), ([0, 0], None), ([5, 5], 1.0), ([9, 0, 0], 3.0)])
def test_skew(lags: list[int], found: float | None) -> None:
    assert skew(lags) == found


def test_queues_without_owner_and_members_without_queue() -> None:
    info = ConsumerRunningInfo(
        mq_table={
            MessageQueue("T", "broker-a", 0): ProcessQueueInfo(),
            MessageQueue("T", "broker-a", 1): ProcessQueueInfo(dropped=True),
        }
    )
    reports = {"x": info, "y": ConsumerRunningInfo()}
    at = owners(reports)
    rows = [
        GroupQueue(
            "T", "broker-a", n, QueueState.CAUGHT_UP, lag_messages=0, client_id=at.get(MessageQueue("T", "broker-a", n))
        )
        for n in range(2)
    ]
    found = summary("g", rows, GroupRates(), members("x", "y"), reports, whole=True)
    assert (found.unowned_queues, found.idle_clients) == (["T/broker-a/1"], ["y"])
    unasked = summary("g", rows, GroupRates(), members("x", "y"), None, whole=True)
    assert (unasked.unowned_queues, unasked.idle_clients) == (None, None)


def test_a_broker_that_only_members_remember_is_missing() -> None:
    held = {MessageQueue("T", "gone", 0): ProcessQueueInfo(), MessageQueue("T", "here", 0): ProcessQueueInfo()}
    left = {MessageQueue("T", "old", 0): ProcessQueueInfo(dropped=True)}
    reports = {"x": ConsumerRunningInfo(mq_table=held), "y": ConsumerRunningInfo(mq_table=left)}
    (one,) = vanished(reports, ["here", "other"])
    assert (one.target, one.name, one.retryable) == ("gone", "UNREACHABLE", True)


def test_readers_are_warned() -> None:
    said = warnings_of(group(queue(0, 10, 40), queue(1, 10, 2, low=5), queue(2, 10, None)))
    assert [text.split(" of ")[0] if "beyond" in text else text.split()[0] for text in said] == [
        "the stored offset is beyond the end", "3", "the",
    ]  # fmt: skip
    assert not warnings_of(group(queue(0, 10, 4)))


# ----------------------------------------------------------------------------------------------------- a live cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2) as running:
        running.create_topic("T", 2)
        with Producer("producers", running.namesrv_address) as producer:
            for number in range(20):
                name, queue_id = ("broker-a", "broker-b")[number % 2], number // 2 % 2
                producer.send(Message("T", b"x"), queue=MessageQueue("T", name, queue_id))
        yield running


async def _commit(session: Session, group: str, offset: int, *brokers: str) -> None:
    for node in await session.masters():
        if node.name in brokers:
            for number in range(2):
                at = MessageQueue("T", node.name, number)
                await update_consumer_offset(session.remoting, node.address, group, at, offset)


def test_a_group_that_has_stored_offsets_of_a_part(cluster: Cluster) -> None:
    async def look(session: Session) -> None:
        await _commit(session, "half", 3, "broker-a")
        found = await progress(session, "half")
        (one,) = found.items
        assert [(row.broker_name, row.state, row.lag_messages) for row in one.queues] == [
            ("broker-a", QueueState.BEHIND, 2), ("broker-a", QueueState.BEHIND, 2),
        ]  # fmt: skip
        (both,) = (await progress(session, "half", "T")).items
        assert [(row.broker_name, row.state, row.lag_messages) for row in both.queues][2:] == [
            ("broker-b", QueueState.NO_OFFSET, 5), ("broker-b", QueueState.NO_OFFSET, 5),
        ]  # fmt: skip
        assert (both.lag_messages, both.members, both.dead_letters) == (14, 0, 0)

    asked(cluster.namesrv_address, look)


def test_a_stored_zero_is_an_offset(cluster: Cluster) -> None:
    async def look(session: Session) -> None:
        await _commit(session, "zero", 0, "broker-a", "broker-b")
        (one,) = (await progress(session, "zero")).items
        assert {row.state for row in one.queues} == {QueueState.BEHIND}
        assert (one.lag_messages, one.skew) == (20, 1.0)
        assert all(row.delay_ms is not None and row.delay_ms >= 0 for row in one.queues)
        assert all(row.latency_ms == row.delay_ms for row in one.queues)

    asked(cluster.namesrv_address, look)


def test_an_offset_ahead_is_warned_of(cluster: Cluster) -> None:
    async def look(session: Session) -> None:
        await _commit(session, "ahead", 99, "broker-a", "broker-b")
        found = await progress(session, "ahead")
        assert found.items[0].lag_messages == 0
        assert "beyond the end" in found.warnings[0]

    asked(cluster.namesrv_address, look)


def test_a_broker_that_breaks_off_makes_the_lag_partial_and_never_smaller(cluster: Cluster) -> None:
    async def look(session: Session) -> None:
        await _commit(session, "partly", 1, "broker-a", "broker-b")
        cluster.disconnect(RequestCode.GET_CONSUME_STATS, times=None, broker="broker-b")
        try:
            found = await progress(session, "partly")
        finally:
            cluster.heal()
        assert ["broker-b" in failure.target for failure in found.failures] == [True]
        assert (found.items[0].lag_messages, found.items[0].known_lag_messages) == (None, 8)

    asked(cluster.namesrv_address, look)


def test_nobody_knows_the_group(cluster: Cluster) -> None:
    async def look(session: Session) -> None:
        with pytest.raises(NotFound, match="no broker has rules for the group nobody-at-all"):
            await progress(session, "nobody-at-all")

    asked(cluster.namesrv_address, look)


def test_queues_have_owners_while_members_are_online(cluster: Cluster) -> None:
    consumer = PushConsumer("online", cluster.namesrv_address, persist_offset_interval_ms=100)
    consumer.subscribe("T")
    consumer.set_listener(lambda *_: ConsumeConcurrentlyStatus.CONSUME_SUCCESS)

    def measured() -> GroupProgress | None:
        (one,) = asked(cluster.namesrv_address, lambda session: progress(session, "online")).items
        return one if one.unowned_queues == [] and one.lag_messages == 0 else None

    with consumer:
        one = wait_until(measured, 30, "all queues to have an owner")
        assert {row.client_id for row in one.queues if row.topic == "T"} == {consumer.client_id}
        assert (one.members, one.model, one.idle_clients) == (1, "CLUSTERING", [])
        cluster.disconnect(RequestCode.GET_CONSUMER_CONNECTION_LIST, times=None, broker="broker-b")
        try:
            (partly,) = asked(cluster.namesrv_address, lambda session: progress(session, "online")).items
        finally:
            cluster.heal()
        owners = {row.client_id for row in partly.queues if row.topic == "T"}
        assert owners == {consumer.client_id}, "who is known is asked all the same"
        assert (partly.members, partly.unowned_queues, partly.idle_clients) == (None, None, None)


def test_a_broker_that_dies_makes_the_lag_unknown_and_never_smaller(cluster: Cluster) -> None:
    """The last one. A name server forgets a dead broker at once; the members know better for a while."""
    consumer = PushConsumer("bereft", cluster.namesrv_address, persist_offset_interval_ms=100)
    consumer.subscribe("T")
    consumer.set_listener(lambda *_: ConsumeConcurrentlyStatus.CONSUME_SUCCESS)

    def measured() -> Result[GroupProgress]:
        return asked(cluster.namesrv_address, lambda session: progress(session, "bereft"))

    with consumer:
        wait_until(lambda: measured().items[0].unowned_queues == [], 30, "all queues to have an owner")
        cluster.kill("broker-b")
        try:
            found = wait_until(lambda: (one := measured()).partial and one, 30, "the missing broker to be named")
        finally:
            cluster.restart("broker-b")
        assert {failure.target.split()[0] for failure in found.failures} == {"broker-b"}
        assert found.items[0].lag_messages is None
