"""What pages say while a broker is away, over answers that are made up: nothing is called empty, whole or exact that
only looks so, and what they ask and work for is bounded.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from orbitmq.admin import acl, brokers, message_pages, topic_changes, topic_summaries
from orbitmq.admin import messages as by_name
from orbitmq.admin import topics as topics_admin
from orbitmq.admin.cluster_view import ClusterView
from orbitmq.admin.group_verdicts import GroupVerdicts
from orbitmq.admin.groups import GroupSummary
from orbitmq.admin.message_pages import Paged
from orbitmq.admin.offsets import StoredOffset
from orbitmq.admin.progress import GroupProgress, GroupQueue, QueueState
from orbitmq.admin.results import Failure, Result
from orbitmq.admin.rosters import Roster
from orbitmq.admin.session import Node
from orbitmq.admin.topic_summaries import TopicSummary, TopicVolume
from orbitmq.admin.topics import TopicFlow, TopicHome, TopicQueue, TopicType
from orbitmq.dashboard import message_query
from orbitmq.dashboard.app import Dashboard, DashboardSettings
from orbitmq.dashboard.clusters import ClusterAccess, DashboardCluster, Moment
from orbitmq.dashboard.formats import environment
from orbitmq.dashboard.pages import brokers as broker_pages
from orbitmq.dashboard.pages import dead_letters, group, offsets, pending
from orbitmq.message.compression import compress
from orbitmq.message.flags import COMPRESSED
from orbitmq.message.model import MessageExt
from orbitmq.net.remoting import Remoting
from tests.support.dashboards import PLACE, seen

AWAY = Failure("broker-b (10.0.0.2:10911)", None, "UNREACHABLE", "does not answer", None, retryable=True)
NODE = Node("C", "broker-a", 0, "10.0.0.1:10911")
NAMED = "MQ_INST_1%abc"
TEMPLATES = environment()
"""Read once for all tests."""


@pytest.fixture
def place() -> DashboardCluster:
    """Whose name server nobody asks, so that no connection is made."""
    return DashboardCluster(PLACE, ClusterAccess(["127.0.0.1:1"], Remoting), sample_seconds=0)


@pytest.fixture
def dashboard(place: DashboardCluster) -> Dashboard:
    made = Dashboard(DashboardSettings([place]))
    made.templates = TEMPLATES
    return made


def answers(value: Any) -> Callable[..., Awaitable[Any]]:
    async def answer(*_: Any, **__: Any) -> Any:
        return value

    return answer


async def known(place: DashboardCluster, kept: Mapping[str, Any]) -> None:
    """Answers that pages find."""
    for key, value in kept.items():
        await place.cached(key, answers(value))


def at_the_moment(failures: list[Failure], *groups: GroupSummary) -> Moment:
    return Moment(Result([ClusterView([], [], list(groups), len(groups))], failures=failures), {})


def stored(number: int = 0, body: bytes = b"order", sys_flag: int = 0) -> MessageExt:
    return MessageExt(
        "Orders", body, sys_flag=sys_flag, offset_msg_id=f"{number:032X}", msg_id=f"M{number}", broker_name="broker-a",
        store_timestamp=1_700_000_000_000 + number,
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------- nothing is there

NOT_KNOWN = GroupSummary("notKnown", ["broker-a"], ["T"], False, known_lag_messages=0)
NOT_ASKED = GroupSummary("notAsked", ["broker-a"], ["T"], False)
CAUGHT_UP = GroupSummary(
    "caughtUp", ["broker-a"], ["T"], False, lag_messages=0, known_lag_messages=0, retry_lag_messages=0
)
BEHIND = GroupSummary("behind", ["broker-a"], ["T"], False, lag_messages=3, known_lag_messages=3)


async def test_a_group_whose_lag_is_not_known_is_not_caught_up(place: DashboardCluster, dashboard: Dashboard) -> None:
    now = at_the_moment([AWAY], BEHIND, NOT_KNOWN, NOT_ASKED, CAUGHT_UP)
    await known(place, {"moment": now, "roster": Roster(), "verdicts": GroupVerdicts()})
    rows = (await seen(dashboard, "")).table("Groups that need attention")
    assert [(row["Group"], row["Lag"]) for row in rows] == [("behind", "3"), ("notAsked", "–"), ("notKnown", "–")]
    listed = (await seen(dashboard, "groups?only=behind")).table("Groups")
    assert [row["Group"] for row in listed] == ["behind", "notKnown", "notAsked"]


async def test_a_group_that_has_taken_nothing_yet_is_not_behind(place: DashboardCluster, dashboard: Dashboard) -> None:
    await known(
        place,
        {"moment": at_the_moment([], BEHIND, NOT_ASKED, CAUGHT_UP), "roster": Roster(), "verdicts": GroupVerdicts()},
    )
    rows = (await seen(dashboard, "")).table("Groups that need attention")
    assert [row["Group"] for row in rows] == ["behind"]
    assert [row["Group"] for row in (await seen(dashboard, "groups?only=behind")).table("Groups")] == ["behind"]


EMPTY = {
    "": ["No group has a lag or a problem"],
    "groups": ["No group yet"],
    "groups?system=on&only=online": ["None of the 1 groups matches"],
    "clients": ["No consumer is online", "No producer is online"],
    "clients?producers=": ["No producer is online"],
    "config": ["All settings are the same", "All topics and groups are the same"],
    "brokers/broker-a/consumption": ["No group has a lag here"],
    "delayed": ["No delayed message is pending"],
    "half": ["No transaction is pending", "None: no transaction has reached the maximum number of checks"],
    "access": ["No account yet", "None"],
    "messages?topic=Orders": ["0 read; no more", "No message is stored here"],
    "messages?topic=Orders&key=k": ["No message of Orders has this key"],
    "dead-letters": ["No group has dead letters"],
    "dead-letters/g": ["0 read; no more", "g has none"],
    "topics": ["No topic yet"],
    "groups/g/offsets": ["No broker has an offset of this group"],
}
"""What pages say of nothing."""


@pytest.mark.parametrize("failures", [[], [AWAY]], ids=["whole", "partial"])
@pytest.mark.parametrize("path", EMPTY, ids=lambda path: path or "overview")
async def test_what_is_empty_is_so_as_far_as_is_known(
    place: DashboardCluster, dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch, path: str, failures: list[Failure]
) -> None:
    nothing = Result[Any](failures=list(failures))
    await known(
        place,
        {
            "moment": at_the_moment(failures),
            "verdicts": GroupVerdicts(),
            "groups of the system": Result([CAUGHT_UP], failures=list(failures)),
            "roster": Roster(),
            "producers ": nothing,
            "differences": (nothing, nothing),
            "topic names": Result(),
            "topics": nothing,
            "dead letters": nothing,
        },
    )
    for owner, name in (
        (brokers, "consumption"), (pending, "delayed"), (pending, "pending"), (acl, "listed"), (acl, "white_lists"),
        (acl, "versions"), (by_name, "by_key"), (offsets, "show"),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, answers(nothing))
    monkeypatch.setattr(broker_pages, "registered", answers(NODE))
    monkeypatch.setattr(message_pages, "page", answers(Paged(nothing)))
    monkeypatch.setattr(dead_letters, "reasons", answers(Result()))
    page = await seen(dashboard, path)
    assert page.status == 200, page.title
    for sentence in EMPTY[path]:
        assert f"{sentence}, as far as is known." in page.words if failures else f"{sentence}." in page.words


# ------------------------------------------------------------------------------------------------------ what is smaller


def _tell_topic(monkeypatch: pytest.MonkeyPatch, failures: list[Failure]) -> None:
    home = TopicHome("Orders", "C", "broker-a", {"0": NODE.address}, 2, 2, "RW-", None)
    queues = [TopicQueue("Orders", "broker-a", number, 0, 3 + number, 3 + number, None) for number in range(2)]
    flow = TopicFlow("Orders", None, None, None, None, None, None)
    monkeypatch.setattr(topics_admin, "route", answers(Result([home], failures=list(failures))))
    monkeypatch.setattr(topics_admin, "status", answers(Result(queues)))
    monkeypatch.setattr(topics_admin, "configurations", answers(Result()))
    monkeypatch.setattr(topics_admin, "flow", answers(Result([flow])))
    monkeypatch.setattr(topic_changes, "order_setting", answers(None))


async def test_queues_of_a_topic_are_at_least_those_that_are_known(
    dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    _tell_topic(monkeypatch, [])
    whole = await seen(dashboard, "topics/Orders")
    assert "Queues 2 on 1 broker Fullest queue 1.14 × the mean" in whole.words
    assert "Messages 7" in whole.words
    _tell_topic(monkeypatch, [AWAY])
    partial = await seen(dashboard, "topics/Orders")
    assert "Queues ≥ 2 on ≥ 1 brokers Fullest queue –" in partial.words
    assert "Messages –" in partial.words


async def test_who_has_not_told_what_topics_hold_is_named(
    place: DashboardCluster, dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = TopicSummary("Orders", TopicType.UNSPECIFIED, ["broker-a"], 4, 4, ["RW-"], False, [], 0, 0)
    await known(place, {"topics": Result([summary])})
    volumes = Result([TopicVolume("Orders")], failures=[AWAY])
    monkeypatch.setattr(topic_summaries, "volumes", answers(volumes))
    page = await seen(dashboard, "topics?volumes=1")
    assert "Partial: data of these nodes is missing below. broker-b" in page.words
    table = page.text.partition('<div id="topics"')[2]
    assert "Volumes are missing from broker-b (10.0.0.2:10911): does not answer" in table


# ------------------------------------------------------------------------------------------------------------ addresses


async def test_names_of_groups_are_escaped_in_links_of_lists(
    dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets, "show", answers(Result([StoredOffset("T", "broker-a", 0, 1, 0, 2, 1)])))
    queue = GroupQueue("T", "broker-a", 0, QueueState.BEHIND)
    told = GroupProgress(NAMED, *[None] * 3, 0, *[None] * 14, [], [queue])
    monkeypatch.setattr(group, "snapshot_soon", answers(None))
    monkeypatch.setattr(group, "progress", answers(Result([told])))
    monkeypatch.setattr(group, "rules_at", answers(Result()))
    for path in ("groups/MQ_INST_1%25abc/offsets", "groups/MQ_INST_1%25abc"):
        page = await seen(dashboard, path)
        assert page.status == 200, page.title
        sorted_by = [link for link in page.links if "sort=" in link]
        assert sorted_by
        assert all(link.startswith(f"/c/{PLACE}/{path}?") for link in sorted_by), sorted_by


# ------------------------------------------------------------------------------------------------------------- messages


def _tell_keys(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """So many messages with one key."""

    async def by_key(*_: Any, limit: int, **__: Any) -> Result[MessageExt]:
        return Result([stored(one) for one in range(number)][-limit:])

    monkeypatch.setattr(by_name, "by_key", by_key)


async def test_a_key_is_looked_up_oldest_first(
    place: DashboardCluster, dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    await known(place, {"topic names": Result()})
    _tell_keys(monkeypatch, 60)
    oldest = await seen(dashboard, "messages?topic=Orders&key=k&order=oldest&rows=20")
    assert [row["Message"] for row in oldest.table("Messages")] == [f"M{number}" for number in range(20)]
    assert "only the oldest 20 are shown" in oldest.words
    newest = await seen(dashboard, "messages?topic=Orders&key=k&rows=20")
    assert [row["Message"] for row in newest.table("Messages")] == [f"M{number}" for number in range(59, 39, -1)]
    assert "no more" not in oldest.words + newest.words
    _tell_keys(monkeypatch, 201)
    refused = await seen(dashboard, "messages?topic=Orders&key=k&order=oldest&rows=20")
    assert (refused.status, "order is 'oldest', but more than 200" in refused.title) == (400, True)


@pytest.mark.parametrize(
    "path", ["messages?topic=Orders", "tail?topic=Orders", "tail/rows?topic=Orders", "dead-letters/g", "half"]
)
async def test_bodies_of_a_list_are_unpacked_beside_the_loop(
    place: DashboardCluster, dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    await known(place, {"topic names": Result()})
    message = stored(body=compress(bytes(1 << 20)), sys_flag=COMPRESSED)
    monkeypatch.setattr(message_pages, "page", answers(Paged(Result([message]))))
    monkeypatch.setattr(pending, "pending", answers(Result()))
    monkeypatch.setattr(dead_letters, "reasons", answers(Result()))
    threads: list[threading.Thread] = []
    unpack = message_query.body_view

    def told(*given: Any, **more: Any) -> Any:
        threads.append(threading.current_thread())
        return unpack(*given, **more)

    monkeypatch.setattr(message_query, "body_view", told)
    if path.startswith("tail/rows"):
        path += f"&mark={message_pages.written(message_pages.PageCursor(False, 0, {}))}"
    page = await seen(dashboard, path)
    assert page.status == 200, page.title
    assert threads
    assert threading.current_thread() not in threads


async def test_traces_are_asked_for_the_first_dead_letters_only(
    dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    async def reasons(_session: Any, _group: str, letters: list[MessageExt]) -> Result[Any]:
        asked.append(len(letters))
        return Result()

    monkeypatch.setattr(dead_letters, "reasons", reasons)
    for shown in (200, 50):
        monkeypatch.setattr(message_pages, "page", answers(Paged(Result([stored(number) for number in range(shown)]))))
        page = await seen(dashboard, "dead-letters/g?rows=200")
        assert len(page.table("Dead letters")) == shown + 1, "with the row that ticks all"
        assert ("for the first 50" in page.words) == (shown > 50)
    assert asked == [50, 50]
