"""Each rule speaks where its reason is there and is silent just beside it; live, a stopped and a failing group are
told apart.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import msgspec
import pytest

from orbitmq.admin.clients import ConsumerMember, ConsumerReport, RunningQueue, RunningTopic, Subscription
from orbitmq.admin.consumption import excerpt
from orbitmq.admin.diagnosis import diagnose
from orbitmq.admin.evidence import why
from orbitmq.admin.group_evidence import GroupEvidence, TopicPlace
from orbitmq.admin.groups import GroupRules, plan_create
from orbitmq.admin.progress import GroupProgress, GroupQueue, QueueState
from orbitmq.admin.results import Failure
from orbitmq.admin.session import Session
from orbitmq.admin.verdict import Severity
from orbitmq.client import ConsumeConcurrentlyStatus, ConsumeFromWhere, Message
from orbitmq.client.sync import Producer, PushConsumer
from orbitmq.testing.cluster import Cluster, ShiftedClock
from tests.support.process import wait_until
from tests.support.sessions import asked

NOW_MS = 10_000_000
SECOND = 1000
change = msgspec.structs.replace


def queue_lag(number: int = 0, lag: int = 0, broker: str = "broker-a", **more: object) -> GroupQueue:
    state = QueueState.BEHIND if lag else QueueState.CAUGHT_UP
    given = {"min_offset": 0, "max_offset": 1000, "consumer_offset": 1000 - lag, "lag_messages": lag, **more}
    return change(GroupQueue("T", broker, number, state), **given)


def queue(**more: object) -> RunningQueue:
    made = RunningQueue("T", "broker-a", 0, 0, 0, 0, 0, 0, True, False, 0, NOW_MS - SECOND, NOW_MS - SECOND, NOW_MS)
    return change(made, **more)


def report(*queues: RunningQueue, **more: object) -> ConsumerReport:
    made = ConsumerReport(
        "x", "V4_9_7", "CONSUME_PASSIVELY", orderly=False, threads=20, started_at_ms=NOW_MS - 3_600_000,
        name_servers="ns;",
        subscriptions=[Subscription("T", "*", "TAG", ["x"], conflict=False)], queues=list(queues), topics=[],
        properties={},
    )  # fmt: skip
    return change(made, **more)


def rules(**more: object) -> GroupRules:
    return change(GroupRules("g", "broker-a", True, True, True, 1, 16, 0, 1, True), **more)


def member(name: str = "x", **more: object) -> ConsumerMember:
    return change(ConsumerMember(name, "10.0.0.9:1", "JAVA", "V4_9_7", ["broker-a"]), **more)


def healthy() -> GroupEvidence:
    progress = GroupProgress(
        "g", 1, "CLUSTERING", lag_messages=0, known_lag_messages=0, retry_lag_messages=0, dead_letters=0,
        newest_dead_letter_at_ms=None, expired_messages=0, consume_tps=5.0, handed_out_tps=5.0, produce_tps=5.0,
        drain_seconds=0.0, skew=None, delay_ms=0,
        last_consumed_age_ms=0, latency_ms=0, unowned_queues=[], idle_clients=[], unread_queues=[],
        queues=[queue_lag(0), queue_lag(1)],
    )  # fmt: skip
    return GroupEvidence(
        "g", progress, NOW_MS, kind="CONSUME_PASSIVELY", start="CONSUME_FROM_FIRST_OFFSET", members=[member()],
        reports=[report(queue())], subscriptions=[Subscription("T", "*", "TAG", ["x"], conflict=False)],
        rules=[rules()], places=[TopicPlace("T", "broker-a", 6, 4, 4)], broker_perms={"broker-a": 6},
    )  # fmt: skip


Edit = Callable[[GroupEvidence], object]


def set_(**values: object) -> Edit:
    """Other evidence."""

    def edit(e: GroupEvidence) -> None:
        for name, value in values.items():
            setattr(e, name, value)

    return edit


def figures(**values: object) -> Edit:
    """Other figures of its progress."""

    def edit(e: GroupEvidence) -> None:
        e.progress = change(e.progress, **values)

    return edit


def lags(*queues: GroupQueue, **more: object) -> Edit:
    total = sum(one.lag_messages or 0 for one in queues)
    return figures(queues=list(queues), lag_messages=total, known_lag_messages=total, **more)


def all_of(*edits: Edit) -> Edit:
    def edit(e: GroupEvidence) -> None:
        for one in edits:
            one(e)

    return edit


def wants(expression: str, *tags: str) -> Edit:
    rows = [Subscription("T", expression, "TAG", ["x"], conflict=False)]
    return set_(subscriptions=rows, tags={"T": list(tags)})


NOBODY = all_of(set_(members=[], reports=[], subscriptions=[]), figures(members=0, model=None))
FAILED = Failure("broker-b (10.0.0.2:10911)", None, "TIMEOUT", "no answer", None, retryable=True)
FAILS = RunningTopic("T", 1.0, 1.0, 1.0, 0.0, 0.5, 30)

# rule: (the evidence in which it speaks, the evidence just beside it)
CASES: dict[str, tuple[Edit, Edit]] = {
    "unknown": (
        all_of(NOBODY, set_(rules=[]), figures(queues=[])),
        all_of(NOBODY, set_(rules=[], failures=[FAILED]), figures(queues=[], members=None)),
    ),
    "offline": (NOBODY, figures(members=None)),
    "disabled": (set_(rules=[rules(consume_enable=False)]), set_(rules=[rules(consume_broadcast_enable=False)])),
    "no-topic": (set_(missing_topics=["Gone"]), set_()),
    "broker-not-readable": (set_(broker_perms={"broker-a": 2}), set_(broker_perms={"broker-a": 4})),
    "topic-not-readable": (
        set_(places=[TopicPlace("T", "broker-a", 2, 4, 4)]),
        set_(places=[TopicPlace("T", "broker-a", 4, 4, 4)]),
    ),
    "subscriptions-differ": (
        set_(
            subscriptions=[
                Subscription("T", "a", "TAG", ["x"], conflict=True),
                Subscription("T", "b", "TAG", ["y"], conflict=True),
            ]
        ),
        set_(subscriptions=[Subscription("T", "*", "TAG", ["x", "y"], conflict=False)]),
    ),
    "not-subscribed": (set_(unsubscribed={"Old": 7}), set_(unsubscribed={"Old": 0})),
    "filter-matches-nothing": (wants("a || b", "c", "c", ""), wants("a || b", "c", "b")),
    "stuck-listener": (
        set_(reports=[report(queue(cached_messages=3, last_consume_at_ms=NOW_MS - 61 * SECOND))]),
        set_(reports=[report(queue(cached_messages=3, last_consume_at_ms=NOW_MS - 59 * SECOND))]),
    ),
    "not-locked": (
        set_(reports=[report(queue(locked=False), orderly=True)]),
        set_(reports=[report(queue(locked=False), orderly=False)]),
    ),
    "not-pulling": (
        all_of(lags(queue_lag(0, 5)), set_(reports=[report(queue(last_consume_at_ms=NOW_MS - 61 * SECOND))])),
        all_of(lags(queue_lag(0, 5)), set_(reports=[report(queue(last_consume_at_ms=NOW_MS - 59 * SECOND))])),
    ),
    "offset-ahead": (
        lags(queue_lag(0, state=QueueState.OFFSET_AHEAD, consumer_offset=2000)),
        lags(queue_lag(0, consumer_offset=1000)),
    ),
    "unread-queues": (
        all_of(set_(places=[TopicPlace("T", "broker-a", 6, 2, 4)]), figures(unread_queues=["T/broker-a/3"])),
        set_(places=[TopicPlace("T", "broker-a", 6, 2, 4)]),
    ),
    "unowned-queues": (
        figures(unowned_queues=["T/broker-a/1"]),
        all_of(figures(unowned_queues=["T/broker-a/1"]), set_(kind="CONSUME_ACTIVELY")),
    ),
    "shared-queues": (
        set_(reports=[report(queue()), report(queue(), client_id="y")]),
        set_(reports=[report(queue()), report(queue(dropped=True), client_id="y")]),
    ),
    "no-answer": (set_(failures=[FAILED]), set_()),
    "listener-fails": (set_(reports=[report(queue(), topics=[FAILS])]), set_(reports=[report(queue(), topics=[])])),
    "dead-letters": (figures(dead_letters=2), figures(dead_letters=None)),
    "flow-control": (
        set_(reports=[report(queue(cached_messages=950))]),
        set_(reports=[report(queue(cached_messages=950), properties={"pullThresholdForQueue": "2000"})]),
    ),
    "too-slow": (
        lags(queue_lag(0, 200), queue_lag(1, 200), consume_tps=4.0, produce_tps=5.0),
        lags(queue_lag(0, 200), queue_lag(1, 200), consume_tps=6.0, produce_tps=5.0),
    ),
    "hot-queue": (lags(queue_lag(0, 900), queue_lag(1), skew=4.0), lags(queue_lag(0, 90), queue_lag(1), skew=4.0)),
    "more-clients-than-queues": (
        all_of(set_(members=[member("x"), member("y"), member("z")]), figures(idle_clients=["z"])),
        all_of(set_(members=[member("x"), member("y")]), figures(idle_clients=["y"])),
    ),
    "one-broker": (
        lags(queue_lag(0, 900), queue_lag(0, 0, "broker-b")),
        lags(queue_lag(0, 900), queue_lag(0, 800, "broker-b")),
    ),
    "not-connected": (set_(members=[member(missing=["broker-b"])]), set_(members=[member()])),
    "expired": (
        lags(queue_lag(0, 5, state=QueueState.EXPIRED, expired_messages=9)),
        lags(queue_lag(0, 5, expired_messages=0)),
    ),
    "begins-at-the-end": (
        all_of(lags(queue_lag(0, 5, state=QueueState.NO_OFFSET)), set_(start="CONSUME_FROM_LAST_OFFSET")),
        all_of(lags(queue_lag(0, 5, state=QueueState.NO_OFFSET)), set_(start="CONSUME_FROM_FIRST_OFFSET")),
    ),
    "broadcast": (figures(model="BROADCASTING"), figures(model=None)),
    "different-versions": (
        set_(members=[member("x"), member("y", version="V4_3_0")]),
        set_(members=[member("x"), member("y", version=None)]),
    ),
    "different-name-servers": (
        set_(reports=[report(queue()), report(client_id="y", name_servers="other;")]),
        set_(reports=[report(queue()), report(client_id="y", name_servers=None)]),
    ),
}


def found(edit: Edit) -> list[str]:
    evidence = healthy()
    edit(evidence)
    return [one.rule for one in diagnose(evidence)]


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_speaks(rule: str) -> None:
    assert rule in found(CASES[rule][0])


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_is_silent_just_beside_it(rule: str) -> None:
    assert rule not in found(CASES[rule][1])


def test_a_group_that_is_well_is_told_so() -> None:
    (one,) = diagnose(healthy())
    assert (one.rule, one.severity) == ("well", Severity.WELL)
    assert "has consumed everything" in one.message


def test_the_worst_comes_first_and_every_reason_has_a_command() -> None:
    evidence = healthy()
    all_of(set_(members=[member(missing=["broker-b"])], rules=[rules(consume_enable=False)]))(evidence)
    told = diagnose(evidence)
    assert [one.severity for one in told] == [Severity.CRITICAL, Severity.WARNING]
    for speaks, _ in CASES.values():
        evidence = healthy()
        speaks(evidence)
        assert all(one.remedy for one in diagnose(evidence))


def test_a_tag_that_is_rare_is_no_fault_of_the_group() -> None:
    evidence = healthy()
    wants("rare", *["usual"] * 128)(evidence)
    (one,) = diagnose(evidence)
    assert (one.rule, one.severity) == ("filter-matches-nothing", Severity.WARNING)


def test_a_stack_is_cut_to_the_threads_that_listen() -> None:
    stack = "main\n at a\n\nConsumeMessageThread_1\n at Listener.consume\n\nother\n at b"
    assert excerpt(stack) == "ConsumeMessageThread_1\n at Listener.consume"
    assert excerpt("x" * 9000) == "x" * 2000
    assert excerpt(None) is None


# ----------------------------------------------------------------------------------------------------- a live cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        running.create_topic("T", 2)
        with Producer("producers", running.namesrv_address) as producer:
            for number in range(20):
                producer.send(Message("T", b"%d" % number, tags="red"))
        yield running


def reasons(cluster: Cluster, group: str) -> list[str]:
    return [one.rule for one in asked(cluster.namesrv_address, lambda session: why(session, group)).items]


def consumer(cluster: Cluster, group: str, listen: Callable[..., object], expression: str = "*") -> PushConsumer:
    made = PushConsumer(group, cluster.namesrv_address, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    made.subscribe("T", expression)
    made.set_listener(listen)  # type: ignore[arg-type]
    return made


def test_live_a_group_that_nobody_knows_and_one_without_members(cluster: Cluster) -> None:
    async def make(session: Session) -> None:
        await (await plan_create(session, "orphans", {"consume_enable": False})).make()

    assert reasons(cluster, "never-there") == ["unknown"]
    asked(cluster.namesrv_address, make)
    assert reasons(cluster, "orphans") == ["disabled", "offline"]


def test_live_a_filter_that_matches_nothing(cluster: Cluster) -> None:
    with consumer(cluster, "picky", lambda *_: ConsumeConcurrentlyStatus.CONSUME_SUCCESS, "blue || green"):
        wait_until(lambda: "filter-matches-nothing" in reasons(cluster, "picky"), 30, "the reason")


def test_live_a_listener_that_fails_and_one_that_hangs(cluster: Cluster) -> None:
    going = threading.Event()

    def hang(*_: object) -> ConsumeConcurrentlyStatus:
        going.wait(60)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    with (
        consumer(cluster, "failing", lambda *_: ConsumeConcurrentlyStatus.RECONSUME_LATER),
        consumer(cluster, "hanging", hang),
    ):
        try:
            wait_until(lambda: "listener-fails" in reasons(cluster, "failing"), 30, "the reason")

            def stuck() -> object:
                clock = ShiftedClock()
                clock.shift_ms = 180_000  # a listener that has just begun to hang has done so for long
                answer = asked(
                    cluster.namesrv_address,
                    lambda session: why(session, "hanging", clock=clock),
                )
                return next((one for one in answer.items if one.rule == "stuck-listener"), None)

            one = wait_until(stuck, 30, "the reason")
            assert "hang" in str(one.evidence["stack"]), "the stack says where it waits"  # type: ignore[attr-defined]
        finally:
            going.set()
