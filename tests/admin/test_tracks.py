"""What became of a message in a group, from what brokers say: each kind of answer, and none where nothing is known."""

from __future__ import annotations

import pytest

from orbitmq.admin.tracks import Evidence, TrackKind, track_of
from orbitmq.filter.tags import tag_subscription
from orbitmq.message.config import SQL92, SubscriptionData
from orbitmq.message.model import MessageExt
from orbitmq.wire.bodies import ClientConnection, ConsumerConnection, ConsumeType, MessageModel

MESSAGE = MessageExt(
    "Orders", b"x", 0, {"TAGS": "red", "price": "7"}, broker_name="broker-a", queue_id=1, queue_offset=10
)


def online(
    subscription: SubscriptionData | None, *, clients: tuple[str, ...] = ("c1",), **fields: object
) -> ConsumerConnection:
    known: dict[str, object] = {"consume_type": ConsumeType.CONSUME_PASSIVELY, "message_model": MessageModel.CLUSTERING}
    return ConsumerConnection(
        connection_set=[ClientConnection(client_id=client) for client in clients],
        subscription_table={} if subscription is None else {subscription.topic: subscription},
        **(known | fields),  # type: ignore[arg-type]
    )


ALL = tag_subscription("Orders", "*")


@pytest.mark.parametrize(
    ("expression", "offset", "expected"),
    [
        ("*", 11, TrackKind.CONSUMED),
        ("*", 10, TrackKind.NOT_CONSUME_YET),
        ("*", None, TrackKind.NOT_CONSUME_YET),
        ("red || blue", 11, TrackKind.CONSUMED),
        ("blue", 11, TrackKind.CONSUMED_BUT_FILTERED),
        ("blue", 10, TrackKind.NOT_CONSUME_YET),
    ],
)
def test_members_with_a_listener(expression: str, offset: int | None, expected: TrackKind) -> None:
    found = track_of(Evidence("g", [online(tag_subscription("Orders", expression))], offset), MESSAGE)
    assert (found.track, found.expression, found.clients) == (expected, expression, 1)
    assert found.passed == (None if offset is None else offset > 10)
    assert found.lag_messages == (None if offset is None else 0)


@pytest.mark.parametrize(
    ("expression", "kind"), [("price > 5", TrackKind.CONSUMED), ("price > 9", TrackKind.CONSUMED_BUT_FILTERED)]
)
def test_expressions_are_evaluated(expression: str, kind: TrackKind) -> None:
    subscription = SubscriptionData("Orders", expression, expression_type=SQL92)
    assert track_of(Evidence("g", [online(subscription)], 11), MESSAGE).track is kind


def test_what_cannot_be_told_is_not_guessed() -> None:
    pulling = online(ALL, consume_type=ConsumeType.CONSUME_ACTIVELY)
    broadcast = online(ALL, message_model=MessageModel.BROADCASTING)
    assert track_of(Evidence("g", [pulling], 11), MESSAGE).track is TrackKind.PULL
    assert track_of(Evidence("g", [broadcast], 0), MESSAGE).track is TrackKind.UNKNOWN
    offline = track_of(Evidence("g", [], 3), MESSAGE)
    assert (offline.track, offline.passed, offline.lag_messages) == (TrackKind.NOT_ONLINE, False, 7)
    unknown = track_of(Evidence("g", [online(ALL)], None, "not told by broker-b"), MESSAGE)
    assert (unknown.track, unknown.note) == (TrackKind.UNKNOWN, "not told by broker-b")
    other = track_of(Evidence("g", [online(None)], 11), MESSAGE)
    assert (other.track, other.filtered) == (TrackKind.NOT_CONSUME_YET, None)
    assert other.note


def test_members_are_counted_once_over_all_brokers_and_the_first_subscription_counts() -> None:
    both = [online(None, clients=("c1", "c2")), online(ALL, clients=("c2", "c3"))]
    found = track_of(Evidence("g", both, 11), MESSAGE)
    assert (found.clients, found.track) == (3, TrackKind.CONSUMED)
