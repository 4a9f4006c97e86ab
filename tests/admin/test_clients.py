"""Answers of several brokers become one list of members; what clients say of themselves is compared and kept whole."""

from __future__ import annotations

from orbitmq.admin.clients import compared, members_of, running_of
from orbitmq.admin.session import Node
from orbitmq.message.config import SubscriptionData
from orbitmq.message.model import MessageQueue
from orbitmq.wire.bodies import (
    ClientConnection,
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumeStatus,
    ProcessQueueInfo,
)

A, B, C = (Node("c", f"broker-{letter}", 0, f"10.0.0.1:{port}") for letter, port in (("a", 1), ("b", 2), ("c", 3)))


def connection(*clients: str) -> ConsumerConnection:
    return ConsumerConnection([ClientConnection(f"10.0.0.9:{len(one)}", one, "JAVA", 407) for one in clients])


def test_members_are_the_union_of_what_brokers_know() -> None:
    found = members_of({A: connection("x", "y"), B: connection("y"), C: None})
    assert [(one.client_id, one.brokers, one.missing) for one in found] == [
        ("x", ["broker-a"], ["broker-b"]),
        ("y", ["broker-a", "broker-b"], []),
    ]
    assert {one.version for one in found} == {"V4_9_7"}


def test_equal_subscriptions_are_one_row_and_no_conflict() -> None:
    wanted = [SubscriptionData("T", "a || b"), SubscriptionData("%RETRY%g")]
    (row,) = compared("g", {"x": wanted, "y": wanted})
    assert (row.topic, row.expression, row.clients, row.conflict) == ("T", "a || b", ["x", "y"], False)


def test_other_expressions_and_missing_topics_are_conflicts() -> None:
    rows = compared("g", {"x": [SubscriptionData("T", "a"), SubscriptionData("U")], "y": [SubscriptionData("T", "b")]})
    assert [(row.topic, row.expression, row.clients, row.conflict) for row in rows] == [
        ("T", "a", ["x"], True),
        ("T", "b", ["y"], True),
        ("U", "*", ["x"], True),
        ("U", None, ["y"], True),
    ]


def test_a_member_without_any_subscription_differs_from_those_that_have_one() -> None:
    rows = compared("g", {"x": [SubscriptionData("T")], "y": []})
    assert [row.clients for row in rows if row.conflict] == [["x"], ["y"]]


def test_a_report_is_read_whole_and_zero_times_are_unknown() -> None:
    queue = MessageQueue("T", "broker-a", 3)
    info = ConsumerRunningInfo(
        jstack="thread main",
        mq_table={queue: ProcessQueueInfo(cached_msg_count=7, commit_offset=11, last_consume_timestamp=5, locked=True)},
        properties={
            "PROP_CONSUMEORDERLY": "true",
            "PROP_THREADPOOL_CORE_SIZE": "20",
            "PROP_CONSUMER_START_TIMESTAMP": "1700000000000",
            "PROP_CLIENT_VERSION": "V4_9_7",
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
        },
        status_table={"T": ConsumeStatus(consume_failed_msgs=2, consume_ok_tps=1.5)},
        subscription_set=[SubscriptionData("T", "a")],
    )
    found = running_of("x", info)
    assert (found.orderly, found.threads, found.started_at_ms, found.stack) == (
        True, 20, 1_700_000_000_000, "thread main",
    )  # fmt: skip
    (one,) = found.queues
    assert (one.queue_id, one.cached_messages, one.commit_offset, one.locked) == (3, 7, 11, True)
    assert (one.last_consume_at_ms, one.last_pull_at_ms) == (5, None)
    assert (found.topics[0].consume_ok_tps, found.topics[0].failed_last_hour) == (1.5, 2)


def test_a_report_without_properties_claims_nothing() -> None:
    found = running_of("x", ConsumerRunningInfo())
    assert (found.orderly, found.threads, found.started_at_ms, found.version, found.kind) == (None,) * 5
