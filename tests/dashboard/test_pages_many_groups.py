"""Three thousand groups: the list is made of answers that are kept, and nothing is asked for a row of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from orbitmq.admin.session import IN_FLIGHT_MAX
from orbitmq.dashboard.app import Dashboard, DashboardSettings
from orbitmq.dashboard.clusters import Cached, ClusterAccess, DashboardCluster
from orbitmq.dashboard.lists import ROWS
from orbitmq.message.config import SubscriptionGroup, TopicConfig
from orbitmq.message.model import MessageQueue
from orbitmq.net.connection import Connection
from orbitmq.net.remoting import Remoting
from orbitmq.net.routing import Answer
from orbitmq.wire.bodies import (
    BrokerData,
    ClusterInfo,
    ConsumerOffsetTable,
    ConsumeStats,
    ConsumeStatsList,
    KVTable,
    ProducerTableInfo,
    QueueProgress,
    SubscriptionGroupTable,
    TopicTable,
)
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.objects import encode
from orbitmq.wire.requests import RequestCode
from tests.support.fake_system import BROKER, FakeSystem, fake_system
from tests.support.loops import until

GROUPS = 3000
PER_GROUP = RequestCode.GET_CONSUMER_CONNECTION_LIST
NAMES = [f"group-{number:04d}" for number in range(GROUPS)]


def _tell(system: FakeSystem, names: list[str], let_go: asyncio.Event) -> None:
    """The fake has these groups, each a few messages behind; who is online it tells once it is let go."""
    stats = [{name: [_behind(number)]} for number, name in enumerate(names)]
    bodies = {
        RequestCode.GET_BROKER_CLUSTER_INFO: ClusterInfo(
            {BROKER: BrokerData(BROKER, "C", {0: system.address})}, {"C": [BROKER]}
        ),
        RequestCode.GET_BROKER_RUNTIME_INFO: KVTable({"brokerVersionDesc": "V4_9_7"}),
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: SubscriptionGroupTable(
            groups={name: SubscriptionGroup(name) for name in names}
        ),
        RequestCode.GET_ALL_CONSUMER_OFFSET: ConsumerOffsetTable(offset_table={f"T@{name}": {0: 1} for name in names}),
        RequestCode.GET_ALL_TOPIC_CONFIG: TopicTable(topics={"T": TopicConfig("T", 1, 1)}),
        RequestCode.GET_BROKER_CONSUME_STATS: ConsumeStatsList(consume_stats_list=stats),
        RequestCode.GET_ALL_PRODUCER_INFO: ProducerTableInfo(),
    }
    for code, body in bodies.items():
        system.answers[code] = _with(encode(body))

    async def nobody(_: Connection, command: Command) -> Answer:
        await let_go.wait()
        return command.response(ResponseCode.CONSUMER_NOT_ONLINE, "nobody is online")

    system.answers[PER_GROUP] = nobody


def _with(body: bytes) -> Any:
    return lambda _, command: command.response(0, body=body)


def _behind(number: int) -> ConsumeStats:
    return ConsumeStats(1.0, {MessageQueue("T", BROKER, 0): QueueProgress(1 + number, 1)})


@asynccontextmanager
async def _dashboard(system: FakeSystem) -> AsyncIterator[Dashboard]:
    place = DashboardCluster("local", ClusterAccess([system.address], Remoting), sample_seconds=0)
    yield Dashboard(DashboardSettings([place]))
    await place.stop()


async def _get(dashboard: Dashboard, path: str) -> str:
    """A page, without a server."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    path, _, query = path.partition("?")
    headers = [(b"host", b"localhost")]
    scope = {"type": "http", "method": "GET", "path": f"/c/local/{path}", "query_string": query.encode(), "headers": headers}  # fmt: skip # noqa: E501
    await dashboard.asgi(scope, receive, send)
    assert sent[0]["status"] == 200, sent[-1]
    return b"".join(message.get("body", b"") for message in sent[1:]).decode()


def _asked(system: FakeSystem) -> Counter[int]:
    return Counter(command.code for command in system.asked)


async def test_nothing_is_asked_for_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    let_go = asyncio.Event()
    async with fake_system() as system, _dashboard(system) as dashboard:
        _tell(system, NAMES, let_go)
        first = await _get(dashboard, "groups?sort=-lag")
        assert first.count('<th scope="row">') == ROWS
        assert f"1–{ROWS} of {GROUPS:,}" in first
        assert NAMES[-1] in first, "the furthest behind"
        assert "Requesting the members from brokers" in first
        asked = _asked(system)
        assert asked.pop(PER_GROUP, 0) <= IN_FLIGHT_MAX, "who is online is asked beside the page, a few at a time"
        assert sum(asked.values()) < 20, asked

        let_go.set()
        await until(lambda: _asked(system)[PER_GROUP] == GROUPS, "the roster")
        await _get(dashboard, "groups?only=behind")
        before = _asked(system)
        monkeypatch.setattr(Cached, "age_seconds", 0.0)  # however long the machine takes for these pages
        for query in ("", "sort=name&from=200", "only=online", "containing=group-01", "sort=-members"):
            page = await _get(dashboard, f"groups?{query}")
            assert "Requesting the members" not in page
        assert _asked(system) == before, "further looks ask nothing"


async def test_where_nothing_is_yet_the_next_step_is_told() -> None:
    let_go = asyncio.Event()
    let_go.set()
    async with fake_system() as system, _dashboard(system) as dashboard:
        _tell(system, [], let_go)
        groups = await _get(dashboard, "groups")
        assert "No group yet" in groups
        assert "orbitmq group create NAME" in groups
        clients = await _get(dashboard, "clients")
        assert "No consumer is online" in clients
        assert "orbitmq msg send TOPIC" in clients


async def test_the_overview_requests_the_lag_of_all_groups_once() -> None:
    """Verdicts judge the groups of the moment: a second request for all of them would hold the first page up."""
    let_go = asyncio.Event()
    async with fake_system() as system, _dashboard(system) as dashboard:
        _tell(system, NAMES, let_go)
        await _get(dashboard, "")
        await until(lambda: _asked(system)[PER_GROUP] > 0, "verdicts are on their way")
        asked = _asked(system)
        assert (asked[RequestCode.GET_BROKER_CONSUME_STATS], asked[RequestCode.GET_ALL_CONSUMER_OFFSET]) == (1, 1)
        let_go.set()
