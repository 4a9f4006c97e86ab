"""Messages of a topic, one message with all details, files of both, and redelivery."""

from __future__ import annotations

import asyncio
from typing import Any

from orbitmq.admin import message_pages
from orbitmq.admin import messages as by_name
from orbitmq.admin.bodies import ANY_CHARSET, SHOWN_BYTES, BodyForm, shown, unique_id
from orbitmq.admin.clients import membership
from orbitmq.admin.message_pages import Paged
from orbitmq.admin.message_send import plan_resend
from orbitmq.admin.plans import Plan
from orbitmq.admin.results import Result, failure_of
from orbitmq.admin.scan import BUDGET
from orbitmq.admin.schemas import named_by
from orbitmq.admin.session import Session
from orbitmq.admin.topics import Topic, TopicType, listed
from orbitmq.admin.traces import Traced, trace
from orbitmq.admin.tracks import Track, tracks
from orbitmq.dashboard.message_query import ROWS, MessageQuery, files, message_query, one_message, rows, with_body
from orbitmq.dashboard.roles import Role
from orbitmq.dashboard.routes import DashboardRequest, Download, PageContent, plans, shows
from orbitmq.dashboard.trace_chart import charts
from orbitmq.errors import BadField, OrbitMQError, UnitError
from orbitmq.message.compression import decompress
from orbitmq.message.model import MessageExt
from orbitmq.message.topics import is_system_topic
from orbitmq.runtime.clock import SystemClock

TOPICS_SHOWN = 500  # names that a field suggests
TOPICS_FRESH_SECONDS = 30.0
OLDEST_MAX = 200  # messages with one key: the index returns the newest, so with more of them the oldest are unknown
CHARSETS = (
    "auto", "utf-8", "gbk", "gb18030", "big5", "shift_jis", "euc-jp", "euc-kr", "utf-16", "latin-1", "windows-1251",
    "windows-1252", "koi8-r",
)  # fmt: skip
FORMS_OF_BODIES = tuple(one.value for one in BodyForm)
HOW = ("retry", "direct", "copy")
TYPES = (TopicType.UNSPECIFIED, TopicType.FIFO, TopicType.DLQ, TopicType.RETRY, TopicType.SYSTEM)
"""The order in which topics are suggested."""


async def topic_names(request: DashboardRequest) -> Result[Topic]:
    """Names that fields suggest, those of the application first; none if that takes too long."""
    cached = await request.cluster.cached_soon("topic names", _names, TOPICS_FRESH_SECONDS)
    return Result() if cached is None else cached.value


async def _names(session: Session) -> Result[Topic]:
    found = await listed(session, everything=True)
    found.items.sort(key=lambda one: (TYPES.index(one.type), one.topic))
    return found


@shows("messages", "messages.html")
async def browse(request: DashboardRequest) -> PageContent:
    query = message_query(request) if request.query.text("topic") else None
    names = await topic_names(request)
    offered = [one.topic for one in names.items][:TOPICS_SHOWN]
    common = {"topics": offered, "rows_allowed": ROWS, "budget_default": BUDGET, "query": query}
    if query is None:
        own = [one for one in names.items if one.type is not TopicType.SYSTEM][:TOPICS_SHOWN]
        return PageContent({**common, "own": own, "fields": {}}, names)
    paged = await _page(request.session, query, request.now_ms)
    schemas = await named_by(request.session, paged.found.items)
    values = {"fields": query.fields, "paged": paged, "rows": await rows(paged.found.items, schemas.items)}
    return PageContent({**common, **values}, paged.found, schemas)


@shows("messages/export", "messages.html")
async def export(request: DashboardRequest) -> Download:
    """The page that these fields show."""
    query, form = message_query(request), request.query.choice("format", ("jsonl", "csv"), "jsonl")
    paged = await _page(request.session, query, request.now_ms)
    return await asyncio.to_thread(files, paged.found.items, query.request.topic, form)


async def _page(session: Session, query: MessageQuery, now_ms: int) -> Paged:
    if not query.is_key_only:
        return await message_pages.page(
            session, query.request, mark=query.mark, newest_first=query.newest_first, limit=query.rows,
            budget=query.budget, now_ms=now_ms,
        )  # fmt: skip
    wanted = query.request.wanted
    found = await by_name.by_key(
        session, query.request.topic, wanted.key or "", begin_ms=wanted.begin_ms or 0,
        end_ms=by_name.EVER_MS if wanted.end_ms is None else wanted.end_ms,
        limit=query.rows if query.newest_first else OLDEST_MAX + 1,
    )  # fmt: skip
    if query.newest_first:
        found.items.reverse()
        return Paged(found)
    return Paged(_oldest(found, query.rows))


def _oldest(found: Result[MessageExt], rows_max: int) -> Result[MessageExt]:
    """BadField if there are so many that the found ones may not be the oldest."""
    if len(found.items) > OLDEST_MAX:
        text = f"order is 'oldest', but more than {OLDEST_MAX} messages have this key, and brokers return the newest"
        raise BadField(text, "choose newest first, or an earlier end")
    if len(found.items) > rows_max:
        found.warnings.append(f"only the oldest {rows_max} are shown: choose more rows, or a later start")
        del found.items[rows_max:]
    return found


# -------------------------------------------------------------------------------------------------------- one message


@shows("messages/{topic}/{id}", "message.html")
async def message(request: DashboardRequest) -> PageContent:
    form = BodyForm(request.query.choice("form", FORMS_OF_BODIES, "auto"))
    charset = request.query.choice("charset", CHARSETS, "auto")
    found = await one_message(request.session, request.path["id"])
    schemas = await named_by(request.session, [found])
    schema = next(iter(schemas.items), None)
    view, tree, form_found = await asyncio.to_thread(with_body, found, form, charset, schema)
    became, records = await asyncio.gather(
        _or_failure(_tracks(request.session, found), "the message's groups"),
        _or_failure(_trace(request.session, found), "the message's trace"),
    )
    values = {
        "one": view, "tree": tree, "format": form_found,
        "form": form.value, "charset": charset, "forms": FORMS_OF_BODIES, "charsets": CHARSETS,
        "tracks": became.items, "charts": charts(records.items), "shown_bytes": SHOWN_BYTES,
    }  # fmt: skip
    failures = (became.failures, records.failures, schemas.failures)
    return PageContent(values, *(Result[Any](failures=one) for one in failures))


@shows("messages/{topic}/{id}/unfolded", "unfolded.html")
async def unfolded(request: DashboardRequest) -> PageContent:
    """The part of a list that the script of the page requests when a body is unfolded."""
    found = await one_message(request.session, request.path["id"])
    schemas = await named_by(request.session, [found])
    view, tree, form = await asyncio.to_thread(
        with_body, found, BodyForm.AUTO, ANY_CHARSET, next(iter(schemas.items), None)
    )
    return PageContent({"one": view, "tree": tree, "format": form})


async def _or_failure(request: Any, what: str) -> Result[Any]:
    """The result; on failure, the message is shown without it."""
    try:
        found: Result[Any] = await request
    except OrbitMQError as error:
        return Result(failures=[failure_of(what, error)])
    return found


async def _tracks(session: Session, found: MessageExt) -> Result[Track]:
    return Result() if is_system_topic(found.topic) else await tracks(session, found)


async def _trace(session: Session, found: MessageExt) -> Result[Traced]:
    traced = await trace(session, unique_id(found) or found.offset_msg_id, made_ms=found.born_timestamp)
    return Result(traced.records, failures=traced.failures)


@shows("messages/{topic}/{id}/body", "message.html")
async def body(request: DashboardRequest) -> Download:
    """The body as its producer sent it; as stored if it cannot be decompressed."""
    found = await one_message(request.session, request.path["id"])
    try:
        data = await asyncio.to_thread(decompress, found.body, found.sys_flag)
    except UnitError:
        data = found.body
    return Download(f"{found.offset_msg_id}.bin", "application/octet-stream", data)


# -------------------------------------------------------------------------------------------------------- redelivery


@shows("messages/{topic}/{id}/again", "again.html", Role.OPERATOR)
async def choose_again(request: DashboardRequest) -> PageContent:
    found = await one_message(request.session, request.path["id"])
    group = request.query.text("group", at_most=255)
    became = await _or_failure(_tracks(request.session, found), "the message's groups")
    members = Result[Any]()
    if group:
        online = await membership(request.session, group)
        members = Result(list(online.members), failures=online.failures)
    groups = sorted({group, *(one.group for one in became.items)} - {""})
    values = {"one": shown(found, None), "group": group, "groups": groups, "members": members.items}
    return PageContent(values, became, members)


@plans("messages/{topic}/{id}/again", Role.OPERATOR, back="messages/{topic}/{id}")
async def again(request: DashboardRequest) -> Plan:
    how = request.form.choice("how", HOW)
    found = await one_message(request.session, request.path["id"])
    name, clock = found.offset_msg_id, SystemClock()
    if how == "copy":
        return await plan_resend(request.session, [name], clock, to=request.form.needed("to", at_most=255))
    group = request.form.needed("group", at_most=255)
    if how == "retry":
        return await plan_resend(request.session, [name], clock, group=group)
    client = request.form.needed("client", at_most=1024)
    if "\0" in client:
        raise BadField("client contains a character that is not allowed in a client id")
    return await plan_resend(request.session, [name], clock, group=group, client=client)
