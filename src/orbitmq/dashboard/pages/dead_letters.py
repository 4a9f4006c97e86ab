"""Dead letters of groups: browse them, export them to a file, and deliver them again."""

from __future__ import annotations

import asyncio

from orbitmq.admin import message_pages
from orbitmq.admin.dead_letters import Reason, listed, reasons
from orbitmq.admin.message_pages import Paged
from orbitmq.admin.message_send import plan_resend
from orbitmq.admin.plans import Plan
from orbitmq.admin.resends import ResendWish, plan_resend_all
from orbitmq.admin.results import Result, failure_of
from orbitmq.admin.verdict import Finding
from orbitmq.dashboard.message_query import ID_CHARS_MAX, ROWS, files, rows, wanted
from orbitmq.dashboard.pages.group import snapshot_soon
from orbitmq.dashboard.roles import Role
from orbitmq.dashboard.routes import DashboardRequest, Download, PageContent, plans, shows
from orbitmq.errors import BadField, BrokerAway, NotFound, OrbitMQError
from orbitmq.message.topics import dlq_topic
from orbitmq.runtime.clock import SystemClock

AT_ONCE = 200  # as many as on a page
EXPLAINED = 50  # letters whose traces are looked up: each needs a request to every broker with traces
FILTERS = ("tag", "key", "text", "begin", "end", "rows")
NOT_OF_ALL = ("tag", "key", "text")
"""Filters of the list that a resend of all does not have."""
RATE_MAX = 1_000_000
LISTENER_WAIT_SECONDS = 0.5
"""How long the page waits for what the members report about their listener."""


@shows("dead-letters", "dead_letters.html")
async def groups(request: DashboardRequest) -> PageContent:
    containing = request.query.text("containing", at_most=255)
    if containing:
        found = await listed(request.session, containing)
        return PageContent({"groups": found.items, "containing": containing}, found)
    cached = await request.cluster.cached("dead letters", listed)
    return PageContent({"groups": cached.value.items, "containing": ""}, cached.value, age_seconds=cached.age_seconds)


@shows("dead-letters/{group}", "dead_letters_of.html")
async def letters(request: DashboardRequest) -> PageContent:
    paged, listener = await asyncio.gather(_page(request), _listener(request))
    why = await _why(request, paged)
    fields = {name: request.query.text(name) for name in FILTERS}
    values = {
        "group": request.path["group"],
        "topic": dlq_topic(request.path["group"]),
        "paged": paged,
        "rows": await rows(paged.found.items),
        "fields": fields,
        "given": {name: value for name, value in fields.items() if value},
        "why": {one.offset_msg_id: one.text for one in why.items},
        "explained": EXPLAINED,
        "listener": listener,
        "may_all": not any(fields[name] for name in NOT_OF_ALL),
        "rows_allowed": ROWS,
        "mark": request.query.text("mark", at_most=message_pages.MARK_CHARS_MAX),
    }
    return PageContent(values, paged.found, why)


async def _listener(request: DashboardRequest) -> Finding | None:
    """What is wrong with the listener of the group, with its last error; None if nothing is known to be."""
    try:
        seen = await snapshot_soon(request, request.path["group"], LISTENER_WAIT_SECONDS)
    except OrbitMQError:  # the page of the group shows it
        return None
    findings = [] if seen is None else seen.value.findings
    return next((one for one in findings if one.rule in ("listener-fails", "stuck-listener")), None)


async def _why(request: DashboardRequest, paged: Paged) -> Result[Reason]:
    """The last failures in the traces of the first ones; on errors, the list is shown without them."""
    try:
        return await reasons(request.session, request.path["group"], paged.found.items[:EXPLAINED])
    except OrbitMQError as error:
        return Result(failures=[failure_of("the trace topic", error)])


@shows("dead-letters/{group}/export", "dead_letters_of.html")
async def export(request: DashboardRequest) -> Download:
    form = request.query.choice("format", ("jsonl", "csv"), "jsonl")
    paged = await _page(request)
    return await asyncio.to_thread(files, paged.found.items, dlq_topic(request.path["group"]), form)


async def _page(request: DashboardRequest) -> Paged:
    """For a group without dead letters, an empty list."""
    mark = request.query.text("mark", at_most=message_pages.MARK_CHARS_MAX)
    query = message_pages.PageRequest(dlq_topic(request.path["group"]), wanted(request.query, request.now_ms))
    limit = int(request.query.choice("rows", ROWS, "50"))
    try:
        return await message_pages.page(
            request.session, query, mark=message_pages.read(mark) if mark else None, limit=limit, now_ms=request.now_ms
        )
    except NotFound:
        return Paged(Result())
    except BrokerAway as error:  # it may have all of them
        return Paged(Result(failures=[failure_of(query.topic, error)]))


@plans("dead-letters/{group}/again", Role.OPERATOR, back="dead-letters/{group}")
async def again(request: DashboardRequest) -> Plan:
    """Deliver the selected ones, or all of a time, to the group as retries or to a topic as new messages."""
    how = request.form.choice("how", ("group", "topic"), "group")
    to = request.form.needed("to", at_most=255) if how == "topic" else None
    if request.form.choice("which", ("selected", "all"), "selected") == "all":
        return await _all_again(request, to)
    return await _selected_again(request, to)


async def _all_again(request: DashboardRequest, to: str | None) -> Plan:
    """However many there are: they are sent in the background, and the plan shows how far it is."""
    form = request.form
    times = wanted(form, request.now_ms)
    if any(form.text(name) for name in NOT_OF_ALL):
        raise BadField(
            "which is all: a tag, a key and a text choose single messages", "select them, or remove the filter"
        )
    wish = ResendWish(
        request.path["group"], times.begin_ms, times.end_ms, to, form.optional("rate", low=1, high=RATE_MAX)
    )
    return await plan_resend_all(request.session, wish, SystemClock())


async def _selected_again(request: DashboardRequest, to: str | None) -> Plan:
    ids = list(dict.fromkeys(request.form.many("id")))
    if not ids:
        raise BadField("id is missing: no dead letter is selected", "go back and select some")
    if len(ids) > AT_ONCE:
        raise BadField(f"{len(ids)} dead letters are selected; at most {AT_ONCE} are delivered at once")
    if any(len(one) > ID_CHARS_MAX for one in ids):
        raise BadField("id is not an offset id")
    if request.form.text("rate"):
        raise BadField("rate is for all dead letters of a time, and some are selected", "leave it empty, or choose all")
    group = request.path["group"]
    plan = await plan_resend(
        request.session, ids, SystemClock(), topic=dlq_topic(group), to=to, group=None if to else group
    )
    number = f"{len(ids)} dead letters" if len(ids) != 1 else "1 dead letter"
    plan.title = f"deliver {number} of {group} again" + (f" to topic {to}" if to else "")
    return plan
