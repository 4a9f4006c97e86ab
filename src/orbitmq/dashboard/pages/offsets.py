"""Offsets of one group: the offsets that brokers store, and plans to move them that show each queue first."""

from __future__ import annotations

from orbitmq.admin.offsets import StoredOffset, plan_clone, plan_reset, plan_skip, show
from orbitmq.admin.plans import Plan
from orbitmq.admin.results import Result
from orbitmq.admin.targets import Target, Where, parsed_queues
from orbitmq.admin.time_texts import moment_ms
from orbitmq.dashboard.formats import part
from orbitmq.dashboard.lists import Column, listing
from orbitmq.dashboard.roles import Role
from orbitmq.dashboard.routes import DashboardRequest, Fields, PageContent, plans, shows
from orbitmq.dashboard.words import N_
from orbitmq.errors import AdminError, BadField, NotFound
from orbitmq.message.topics import RETRY_PREFIX

COLUMNS: tuple[Column[StoredOffset], ...] = (
    Column(N_("Topic"), "topic", lambda one: one.topic),
    Column(N_("Broker"), "broker", lambda one: one.broker_name),
    Column(N_("Queue"), "queue", lambda one: one.queue_id, is_number=True),
    Column(N_("Offset"), "offset", lambda one: one.consumer_offset, is_number=True),
    Column(N_("First offset"), "first", lambda one: one.min_offset, is_number=True),
    Column(N_("End"), "end", lambda one: one.max_offset, is_number=True),
    Column(N_("Lag"), "lag", lambda one: one.lag_messages, is_number=True),
)
SHIFT_MAX = 1 << 62


@shows("groups/{group}/offsets", "offsets.html")
async def offsets(request: DashboardRequest) -> PageContent:
    name, topic = request.path["group"], request.query.text("topic")
    try:
        found = await show(request.session, name, topic or None)
    except NotFound:  # the group may get its first offsets here
        found = Result()
    topics = sorted({row.topic for row in found.items})
    own = [one for one in topics if not one.startswith(RETRY_PREFIX)]
    values = {
        "name": name,
        "topic": topic,
        "topics": topics,
        "likeliest": topic or (own[0] if len(own) == 1 else ""),
        "list": listing(request, f"groups/{part(name)}/offsets", found.items, COLUMNS, keep=("topic",)),
    }
    return PageContent(values, found)


def target_of(form: Fields, now_ms: int) -> Target:
    """The target that the form selects. BadField names an invalid field."""
    where = Where(form.choice("to", [one.value for one in Where]))
    if where is Where.OFFSET:
        return Target(where, form.number("offset"))
    if where is Where.SHIFT:
        return Target(where, form.number("shift", low=-SHIFT_MAX, high=SHIFT_MAX))
    if where is Where.TIME:
        try:
            return Target(where, moment_ms(form.needed("time"), now_ms))
        except AdminError as error:
            raise BadField(f"time: {error}", error.hint) from error
    return Target(where)


def queues_of(form: Fields) -> list[str]:
    """Queues as `broker-a/0`, separated by blanks, commas or line ends; none for all. BadField for an invalid one."""
    found = form.text("queues").replace(",", " ").split()
    try:
        parsed_queues(found)
    except AdminError as error:
        raise BadField(f"queues: {error}", error.hint) from error
    return found


@plans("groups/{group}/offsets/reset", Role.OPERATOR, back="groups/{group}/offsets")
async def reset(request: DashboardRequest) -> Plan:
    form = request.form
    return await plan_reset(
        request.session,
        request.path["group"],
        form.needed("topic"),
        target_of(form, request.now_ms),
        queues=queues_of(form),
        force=form.flag("force"),
    )


@plans("groups/{group}/offsets/skip", Role.OPERATOR, back="groups/{group}/offsets")
async def skip(request: DashboardRequest) -> Plan:
    return await plan_skip(
        request.session, request.path["group"], request.form.needed("topic"), queues=queues_of(request.form)
    )


@plans("groups/{group}/offsets/clone", Role.OPERATOR, back="groups/{group}/offsets")
async def clone(request: DashboardRequest) -> Plan:
    form = request.form
    return await plan_clone(
        request.session,
        request.path["group"],
        form.needed("destination"),
        form.text("topic") or None,
        force=form.flag("force"),
    )
