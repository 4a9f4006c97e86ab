"""What became of a message in a group, from what brokers say: each kind of answer, and none where nothing is known."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from orbitmq.admin import tracks as module
from orbitmq.admin.in_flight_messages import in_flight_messages
from orbitmq.admin.search import _passed
from orbitmq.admin.session import Session
from orbitmq.admin.tracks import Evidence, Track, TrackKind, track_of, tracks
from orbitmq.filter.tags import tag_subscription
from orbitmq.message.config import SQL92, SubscriptionData
from orbitmq.message.model import MessageExt
from orbitmq.net.connection import Connection
from orbitmq.net.remoting import Remoting
from orbitmq.wire.bodies import ClientConnection, ConsumerConnection, ConsumeType, GroupList, MessageModel
from orbitmq.wire.bodies_pop import InFlightList, InFlightMessages
from orbitmq.wire.command import Command
from orbitmq.wire.headers_pop import InFlightHeader
from orbitmq.wire.objects import encode, encode_standard
from orbitmq.wire.requests import RequestCode
from tests.support.fake_system import FakeSystem, fake_system

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


# ------------------------------------------------------------------------------------------------ what is in flight

IN_FLIGHT = [InFlightMessages("Orders", 1, [8, 9], 1, 50), InFlightMessages("Orders", 1, [10], 2, 60)]


@asynccontextmanager
async def popped() -> AsyncIterator[tuple[FakeSystem, Session]]:
    """The group g has been given all of a queue by POP, and has the offsets 8 to 10 in flight."""
    remoting = Remoting()
    async with fake_system() as system:
        system.topics["Orders"] = 2
        system.offsets["g", "Orders", 1] = 11
        bodies = {
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: encode(GroupList(["g"])),
            RequestCode.GET_CONSUMER_CONNECTION_LIST: encode_standard(online(ALL)),
        }
        for code, body in bodies.items():
            system.answers[code] = lambda _, command, body=body: command.response(0, body=body)
        report(system, is_complete=True)
        yield system, Session(remoting, [system.address])
        await remoting.close()


def report(system: FakeSystem, *, is_complete: bool) -> None:
    def in_flight(_: Connection, command: Command) -> Command:
        listed = IN_FLIGHT[: command.header(InFlightHeader).limit]
        return command.response(0, body=encode(InFlightList(3, is_complete, listed)))

    system.answers[RequestCode.GET_IN_FLIGHT] = in_flight


async def track_at(session: Session, offset: int) -> tuple[Track, bool | None]:
    """Of a message of the topic; and whether a retry at that place would be passed."""
    message = MessageExt("Orders", b"x", 0, {}, broker_name="broker-a", queue_id=1, queue_offset=offset)
    (found,) = (await tracks(session, message)).items
    retry = MessageExt("%RETRY%g", b"x", 0, {}, broker_name="broker-a", queue_id=1, queue_offset=offset)
    return found, (await _passed(session, [retry], "Orders"))["g"]


async def test_a_message_is_consumed_only_if_all_in_flight_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with popped() as (system, session):
        system.offsets["g", "%RETRY%g", 1] = 11
        assert [(await track_at(session, offset))[0].track for offset in (7, 10)] == [
            TrackKind.CONSUMED,
            TrackKind.IN_FLIGHT,
        ]
        assert (await track_at(session, 7))[1] is True
        monkeypatch.setattr(module, "IN_FLIGHT_LIMIT", 1)
        cut, is_passed = await track_at(session, 10)
        note = "broker-a lists only a part of what is in flight"
        assert (cut.track, cut.note, is_passed) == (TrackKind.UNKNOWN, note, None)
        assert (await track_at(session, 9))[0].track is TrackKind.IN_FLIGHT
        monkeypatch.setattr(module, "IN_FLIGHT_LIMIT", 1000)
        report(system, is_complete=False)
        started, is_passed = await track_at(session, 7)
        assert (started.track, started.note, is_passed) == (TrackKind.UNKNOWN, note, None)
        system.answers[RequestCode.GET_IN_FLIGHT] = lambda _, command: command.response(1, "no")
        silent, is_passed = await track_at(session, 7)
        assert (silent.track, is_passed) == (TrackKind.UNKNOWN, None)


async def test_a_list_of_what_is_in_flight_says_what_it_lacks() -> None:
    async with popped() as (system, session):
        whole = await in_flight_messages(session, "g", None, 3)
        assert ([one.queue_offset for one in whole.items], whole.warnings) == ([8, 9, 10], [])
        cut = await in_flight_messages(session, "g", None, 1)
        assert ([one.queue_offset for one in cut.items], cut.warnings) == (
            [8],
            ["3 messages are in flight; 1 of them are shown"],
        )
        report(system, is_complete=False)
        started = await in_flight_messages(session, "g", None, 3)
        assert started.warnings == ["broker-a has just started and does not know yet all that is in flight"]
