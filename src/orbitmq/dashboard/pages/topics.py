"""Topics: the list from a snapshot, one with its queues, routes, configurations and consumers, and their changes."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from orbitmq.admin import topic_changes, topic_summaries
from orbitmq.admin import topics as admin
from orbitmq.admin.plans import Plan
from orbitmq.admin.progress import skew
from orbitmq.admin.results import Result
from orbitmq.admin.topic_changes import MESSAGE_TYPES, QUEUES_MAX, TopicChanges
from orbitmq.admin.topic_summaries import TopicSummary, TopicVolume
from orbitmq.admin.topics import TopicType
from orbitmq.dashboard import charts
from orbitmq.dashboard.choices import registered_names
from orbitmq.dashboard.lists import Column, listing
from orbitmq.dashboard.roles import Role
from orbitmq.dashboard.routes import DashboardRequest, PageContent, plans, shows
from orbitmq.dashboard.words import N_
from orbitmq.message.topic_types import MessageType

SNAPSHOT_FRESH_SECONDS = 10.0
"""How long the page may use results: for them brokers sum up the lag of all groups."""
SNAPSHOT_WAIT_SECONDS = 0.15
"""How long the page waits for the first one; then it says so and updates itself."""
NAME_CHARS_MAX = 127
OWN, EVERY = "own", "every"
KINDS: Mapping[str, str] = {
    OWN: N_("application topics"),
    EVERY: N_("all topics"),
    TopicType.UNSPECIFIED: N_("normal"),
    TopicType.FIFO: N_("in order"),
    TopicType.RETRY: N_("retries"),
    TopicType.DLQ: N_("dead letters"),
    TopicType.SYSTEM: N_("system topics"),
}
"""The filters of the list, and their texts."""
_OWN = (TopicType.UNSPECIFIED, TopicType.FIFO)
PERMS = ("RW", "R", "W")
COLUMNS: tuple[Column[TopicSummary], ...] = (
    Column(N_("Topic"), "topic", lambda row: row.topic.lower()),
    Column(N_("Kind"), "type", lambda row: KINDS[row.type]),
    Column(N_("Brokers"), "brokers", lambda row: len(row.brokers), is_number=True),
    Column(N_("Queues"), "queues", lambda row: row.write_queues, is_number=True),
    Column(N_("Permission"), "perm", lambda row: row.perms),
    Column(N_("Groups"), "groups", lambda row: len(row.groups), is_number=True),
    Column(N_("Lag"), "lag", lambda row: row.known_lag_messages, is_number=True),
    Column(N_("Messages"), is_number=True),
    Column(N_("Produced/s"), is_number=True),
    Column(N_("Produced in 24 h"), is_number=True),
    Column(N_("Last message")),
)


@shows("topics", "topics.html")
async def topics(request: DashboardRequest) -> PageContent:
    """With `volumes` also message counts and rates of the topics on this page of the list: browsers request them after
    the list."""
    kind = request.query.choice("type", list(KINDS), OWN)
    containing = request.query.text("containing", at_most=NAME_CHARS_MAX)
    filters: dict[str, Any] = {"kinds": KINDS, "kind": kind, "containing": containing}
    cached = await request.cluster.cached_soon(
        "topics", topic_summaries.summaries, SNAPSHOT_FRESH_SECONDS, SNAPSHOT_WAIT_SECONDS
    )
    if cached is None:
        return PageContent({**filters, "list": None})
    rows = [row for row in cached.value.items if _is_meant(row, kind) and containing.lower() in row.topic.lower()]
    rows.sort(key=lambda row: (row.type not in _OWN, row.topic.lower()))  # the application's before the system's
    shown = listing(request, "topics", rows, COLUMNS, keep=("containing", "type"))
    values = {**filters, "list": shown, "volumes": None, "unreported": []}
    if not request.query.flag("volumes"):
        return PageContent(values, cached.value, age_seconds=cached.age_seconds)
    volumes = await _volumes(request, shown.rows)
    values["volumes"] = {one.topic: one for one in volumes.items}
    values["unreported"] = [
        one for one in volumes.failures if one.target not in {known.target for known in cached.value.failures}
    ]
    return PageContent(values, cached.value, volumes, age_seconds=cached.age_seconds)


def _is_meant(row: TopicSummary, kind: str) -> bool:
    return kind == EVERY or (row.type in _OWN if kind == OWN else row.type == kind)


async def _volumes(request: DashboardRequest, rows: Sequence[TopicSummary]) -> Result[TopicVolume]:
    """The volumes of these rows."""
    which = hashlib.sha256("\n".join(row.topic for row in rows).encode()).hexdigest()
    cached = await request.cluster.cached(f"volumes {which}", lambda session: topic_summaries.volumes(session, rows))
    return cached.value


@shows("topics/{topic}", "topic.html")
async def topic(request: DashboardRequest) -> PageContent:
    session, name = request.session, request.path["topic"]
    route = await admin.route(session, name)
    status, configurations, flow, ordered = await asyncio.gather(
        admin.status(session, name),
        admin.configurations(session, name),
        admin.flow(session, name),
        topic_changes.order_setting(session, name),  # routes have it only if name servers are configured so
    )
    request.cluster.watch(name)
    first = flow.items[0]
    is_whole = not (status.failures or route.failures)
    held = sum(row.messages for row in status.items) if is_whole else None
    values = {
        "topic": name,
        "route": route.items,
        "queues": status.items,
        "most": max((row.messages for row in status.items), default=0),
        "held": held,
        "is_whole": is_whole,
        "skew": skew([row.messages for row in status.items]) if is_whole else None,
        "configurations": configurations.items,
        "differs": len(
            {(one.read_queues, one.write_queues, one.perm, one.message_type) for one in configurations.items}
        )
        > 1,
        "groups": [row for row in flow.items if row.group is not None],
        "flow": first,
        "order": ordered,
        "charts": charts.of_topic(request.cluster.history, name, request.cluster.sample_ms),
        "lines_max": charts.GROUPS_MAX,
        "perms": PERMS,
        "message_types": MESSAGE_TYPES,
        "queues_max": QUEUES_MAX,
    }
    return PageContent(values, route, status, configurations, flow)


@shows("new-topic", "topic_new.html", Role.ADMIN)
async def new_topic(request: DashboardRequest) -> PageContent:
    masters = await request.session.masters()
    values = {
        "masters": masters,
        "new": topic_changes.NEW,
        "perms": PERMS,
        "message_types": MESSAGE_TYPES,
        "queues_max": QUEUES_MAX,
    }
    return PageContent(values)


@plans("new-topic", Role.ADMIN, back="topics")
async def create(request: DashboardRequest) -> Plan:
    form = request.form
    brokers = await registered_names(request.session, form.many("broker"))
    name = form.needed("topic", at_most=NAME_CHARS_MAX)
    return await topic_changes.plan_create(
        request.session, name, _wanted(request), brokers=brokers, ordered=form.flag("ordered")
    )


@plans("topics/{topic}/alter", Role.ADMIN, back="topics/{topic}")
async def alter(request: DashboardRequest) -> Plan:
    """Empty fields of the form stay unchanged."""
    brokers = await registered_names(request.session, request.form.many("broker"))
    return await topic_changes.plan_alter(request.session, request.path["topic"], _wanted(request), brokers=brokers)


def _wanted(request: DashboardRequest) -> TopicChanges:
    form = request.form
    perm = form.choice("perm", ["", *PERMS])
    message_type = form.choice("message_type", ["", *MESSAGE_TYPES])
    return TopicChanges(
        read_queues=form.optional("read_queues", low=1, high=QUEUES_MAX),
        write_queues=form.optional("write_queues", low=1, high=QUEUES_MAX),
        perm=topic_changes.perm_of(perm) if perm else None,
        message_type=MessageType(message_type) if message_type else None,
    )


@plans("topics/{topic}/order", Role.ADMIN, back="topics/{topic}")
async def order(request: DashboardRequest) -> Plan:
    setting = request.form.text("setting")
    return await topic_changes.plan_order(request.session, request.path["topic"], setting or None)


@plans("topics/{topic}/delete", Role.ADMIN, back="topics")
async def delete(request: DashboardRequest) -> Plan:
    return await topic_changes.plan_delete(request.session, request.path["topic"])
