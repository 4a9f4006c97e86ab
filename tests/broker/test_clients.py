"""Members of groups come with heartbeats and go with their connection, and the others hear of it."""

from __future__ import annotations

import pytest

from orbitmq.broker import clients as clients_module
from orbitmq.broker.clients import EXPIRY_MS, EXPRESSION_SHARE, ConnectedClient, Consumers, Producers
from orbitmq.message.config import SubscriptionData
from orbitmq.wire.bodies import ConsumeFromWhere, ConsumerData, ConsumeType, MessageModel
from orbitmq.wire.command import Command
from orbitmq.wire.headers import NotifyConsumerIdsChangedHeader
from orbitmq.wire.requests import RequestCode


class Line:
    """All of a connection that the tables use: what is sent to it stays in `heard`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.heard: list[Command] = []

    def send(self, command: Command) -> None:
        self.heard.append(command)

    def notices(self) -> list[str]:
        """The groups this member was told of since the last look."""
        heard, self.heard = self.heard, []
        assert all(command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED and command.is_oneway for command in heard)
        return [command.header(NotifyConsumerIdsChangedHeader).consumer_group for command in heard]

    def client(self, seen_ms: int = 0) -> ConnectedClient:
        return ConnectedClient(self, self.name, "JAVA", 407, seen_ms)  # type: ignore[arg-type]


def member(*subscriptions: SubscriptionData, group: str = "g", **fields: object) -> ConsumerData:
    """One group of a heartbeat."""
    return ConsumerData(group, subscription_data_set=list(subscriptions), **fields)  # type: ignore[arg-type]


def on(topic: str, expression: str = "*", version: int = 1) -> SubscriptionData:
    return SubscriptionData(topic, expression, version=version)


@pytest.fixture
def anna() -> Line:
    return Line("anna")


@pytest.fixture
def bert() -> Line:
    return Line("bert")


# ---------------------------------------------------------------------------------------------------------- consumers


def test_all_members_hear_of_one_that_joins(anna: Line, bert: Line) -> None:
    consumers = Consumers()
    assert consumers.register(member(on("Orders")), anna.client())
    assert anna.notices() == ["g"]
    assert consumers.register(member(on("Orders")), bert.client())
    assert (anna.notices(), bert.notices()) == (["g"], ["g"])
    assert consumers.groups["g"].client_ids() == ["anna", "bert"]


def test_a_heartbeat_that_changes_nothing_is_not_told(anna: Line) -> None:
    consumers = Consumers()
    consumers.register(member(on("Orders")), anna.client())
    anna.notices()
    assert not consumers.register(member(on("Orders")), anna.client(30_000))
    assert anna.notices() == []


def test_the_others_hear_of_one_that_leaves(anna: Line, bert: Line) -> None:
    consumers = Consumers()
    for line in (anna, bert):
        consumers.register(member(on("Orders")), line.client())
    for line in (anna, bert):
        line.notices()
    consumers.unregister("g", bert)  # type: ignore[arg-type]
    assert (anna.notices(), bert.notices()) == (["g"], [])
    consumers.unregister("g", bert)  # type: ignore[arg-type]
    consumers.unregister("unknown", anna)  # type: ignore[arg-type]
    assert anna.notices() == []
    consumers.unregister("g", anna)  # type: ignore[arg-type]
    assert consumers.groups == {}


def test_a_lost_connection_leaves_all_its_groups(anna: Line, bert: Line) -> None:
    consumers = Consumers()
    for group in ("g", "h"):
        consumers.register(member(on("Orders"), group=group), anna.client())
    consumers.register(member(on("Orders"), group="h"), bert.client())
    bert.notices()
    consumers.forget(anna)  # type: ignore[arg-type]
    assert bert.notices() == ["h"]
    assert list(consumers.groups) == ["h"]


def test_a_group_that_wants_no_notices_gets_none(anna: Line) -> None:
    consumers = Consumers(lambda group: group != "quiet")
    consumers.register(member(on("Orders"), group="quiet"), anna.client())
    consumers.register(member(on("Orders"), group="g"), anna.client())
    assert anna.notices() == ["g"]


def test_the_newest_subscription_of_a_topic_holds(anna: Line, bert: Line) -> None:
    consumers = Consumers()
    consumers.register(member(on("Orders", "TagA", 5)), anna.client())
    consumers.register(member(on("Orders", "TagB", 4)), bert.client())
    assert consumers.groups["g"].subscriptions["Orders"].expression == "TagA"
    consumers.register(member(on("Orders", "TagC", 6)), bert.client())
    assert consumers.groups["g"].subscriptions["Orders"].expression == "TagC"


def test_a_topic_no_longer_named_is_dropped_and_told(anna: Line) -> None:
    consumers = Consumers()
    consumers.register(member(on("Orders"), on("Bills")), anna.client())
    anna.notices()
    assert consumers.register(member(on("Bills")), anna.client())
    assert anna.notices() == ["g"]
    assert list(consumers.groups["g"].subscriptions) == ["Bills"]


def test_what_a_heartbeat_leaves_out_stays_as_it_was(anna: Line) -> None:
    consumers = Consumers()
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumers.register(
        member(
            consume_type=ConsumeType.CONSUME_ACTIVELY,
            message_model=MessageModel.BROADCASTING,
            consume_from_where=first,
        ),
        anna.client(),
    )
    consumers.register(member(consume_type=None, message_model=None, consume_from_where=None), anna.client())
    group = consumers.groups["g"]
    assert group.consume_type is ConsumeType.CONSUME_ACTIVELY
    assert group.message_model is MessageModel.BROADCASTING
    assert group.consume_from_where is first


def test_a_member_is_expired_two_minutes_after_its_last_heartbeat(anna: Line, bert: Line) -> None:
    consumers = Consumers()
    consumers.register(member(), anna.client(0))
    consumers.register(member(), bert.client(0))
    consumers.register(member(), bert.client(30_000))
    assert EXPIRY_MS == 120_000
    assert consumers.expired(120_000) == set()
    assert consumers.expired(120_001) == {anna}
    assert consumers.expired(150_001) == {anna, bert}


# ---------------------------------------------------------------------------------------------------------- producers


def test_producers_come_and_go_by_group(anna: Line, bert: Line) -> None:
    producers = Producers()
    for group, line in (("p", anna), ("p", bert), ("q", bert)):
        producers.register(group, line.client())
    producers.unregister("p", anna)  # type: ignore[arg-type]
    producers.unregister("unknown", anna)  # type: ignore[arg-type]
    assert {
        group: [client.client_id for client in clients.values()] for group, clients in producers.groups.items()
    } == {
        "p": ["bert"],
        "q": ["bert"],
    }
    producers.forget(bert)  # type: ignore[arg-type]
    assert producers.groups == {}


def test_a_silent_producer_is_expired(anna: Line, bert: Line) -> None:
    producers = Producers()
    producers.register("p", anna.client(0))
    producers.register("q", bert.client(1))
    assert producers.expired(120_001) == {anna}


# ------------------------------------------------------------------------------------------------------------- limits


def test_what_members_subscribe_has_a_limit_that_those_who_agree_meet_once(
    anna: Line, bert: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long expression counts as several topics. What is known may stay, and what is gone leaves its room."""
    monkeypatch.setattr(clients_module, "SUBSCRIPTIONS_MAX", 3)
    consumers = Consumers()
    assert consumers.register(member(on("Orders"), on("Bills")), anna.client())
    assert consumers.register(member(on("Orders"), on("Bills")), bert.client())
    assert consumers._weight == 2
    assert not consumers.register(member(on("Orders"), on("Bills"), group="h"), anna.client())
    assert not consumers.register(member(on("Orders", "t" * EXPRESSION_SHARE), group="h"), anna.client())
    assert consumers.register(member(on("Orders"), group="h"), anna.client())
    assert not consumers.register(member(on("Notes"), group="i"), bert.client())
    assert not consumers.register(member(on("Orders"), on("Bills")), bert.client()), "nothing has changed"
    assert set(consumers.groups) == {"g", "h"}
    consumers.forget(anna)  # type: ignore[arg-type]
    assert consumers._weight == 2, "the other member of g has the same"
    consumers.forget(bert)  # type: ignore[arg-type]
    assert consumers._weight == 0


def test_one_client_leaves_room_for_what_others_subscribe(
    anna: Line, bert: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In all its groups together, whatever others subscribe alike."""
    monkeypatch.setattr(clients_module, "SUBSCRIPTIONS_OF_ONE_MAX", 3)
    consumers = Consumers()
    assert consumers.register(member(on("Orders"), on("Bills")), anna.client())
    assert consumers.register(member(on("Orders"), on("Bills"), on("Notes")), bert.client())
    assert not consumers.register(member(on("Orders"), on("Bills"), group="h"), anna.client())
    assert consumers.register(member(on("Orders"), group="h"), anna.client())
    consumers.unregister("g", anna)  # type: ignore[arg-type]
    assert consumers.register(member(on("Orders"), on("Bills"), group="i"), anna.client())
    consumers.forget(anna)  # type: ignore[arg-type]
    consumers.forget(bert)  # type: ignore[arg-type]
    assert not consumers._weights


def test_a_member_whose_new_subscriptions_find_no_room_lives_with_those_it_had(
    anna: Line, bert: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients_module, "SUBSCRIPTIONS_MAX", 2)
    consumers = Consumers()
    consumers.register(member(on("Orders")), anna.client(0))
    consumers.register(member(on("Bills"), group="h"), bert.client(0))
    assert not consumers.register(member(on("Orders"), on("Notes")), anna.client(EXPIRY_MS))
    assert consumers.expired(EXPIRY_MS + 1) == {bert}
    assert set(consumers.groups["g"].subscriptions) == {"Orders"}


def test_one_client_leaves_room_for_the_groups_of_others(
    anna: Line, bert: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients_module, "MEMBERSHIPS_OF_ONE_MAX", 2)
    producers = Producers()
    for group in ("p", "q", "r"):
        producers.register(group, anna.client())
    producers.register("r", bert.client())
    assert {
        group: [client.client_id for client in members.values()] for group, members in producers.groups.items()
    } == {
        "p": ["anna"],
        "q": ["anna"],
        "r": ["bert"],
    }
