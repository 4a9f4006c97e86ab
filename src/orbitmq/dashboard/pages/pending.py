"""Pending messages: delayed messages, and half messages without a decision."""

from __future__ import annotations

from orbitmq.admin import message_pages
from orbitmq.admin.delays import delayed, plan_recall, timers
from orbitmq.admin.half_messages import pending, plan_resume
from orbitmq.admin.message_pages import Paged
from orbitmq.admin.plans import Plan
from orbitmq.admin.results import Result, failure_of
from orbitmq.dashboard.message_query import ID_CHARS_MAX, rows
from orbitmq.dashboard.roles import Role
from orbitmq.dashboard.routes import DashboardRequest, PageContent, plans, shows
from orbitmq.errors import BrokerAway, NotFound
from orbitmq.message.topics import HALF_TOPIC, SCHEDULE_TOPIC, TRANSACTION_CHECK_MAX_TOPIC

ROWS = 200  # half messages on the page; if there are more, look at their producer first
GIVEN_UP_ROWS = 50
TIMER_ROWS = 100
HANDLE_CHARS_MAX = 1024  # of base64: topic, broker name and unique id are shorter together


@shows("delayed", "delayed.html")
async def delays(request: DashboardRequest) -> PageContent:
    found = await delayed(request.session, request.now_ms)
    if not any(one.level is None for one in found.items):
        return PageContent({"levels": found.items, "timers": [], "topic": SCHEDULE_TOPIC}, found)
    waiting = await timers(request.session, TIMER_ROWS)
    values = {"levels": found.items, "timers": waiting.items, "rows_max": TIMER_ROWS, "topic": SCHEDULE_TOPIC}
    return PageContent(values, found, waiting)


@plans("delayed/{handle}/recall", Role.OPERATOR, back="delayed")
async def recall(request: DashboardRequest) -> Plan:
    """Have a message not be delivered that waits for its time."""
    if len(request.path["handle"]) > HANDLE_CHARS_MAX:
        raise NotFound("this is not a recall handle")
    return await plan_recall(request.session, request.path["handle"], request.now_ms)


@shows("half", "half.html")
async def half_messages(request: DashboardRequest) -> PageContent:
    topic, group = request.query.text("topic", at_most=255), request.query.text("group", at_most=255)
    found = await pending(request.session, topic or None, group or None)
    given_up = await _given_up(request)
    values = {
        "topic": topic,
        "group": group,
        "half_messages": found.items[:ROWS],
        "in_all": len(found.items),
        "given_up": await rows(given_up.found.items),
        "more_given_up": given_up.left,
        "half_topic": HALF_TOPIC,
        "given_up_topic": TRANSACTION_CHECK_MAX_TOPIC,
    }
    return PageContent(values, found, given_up.found)


async def _given_up(request: DashboardRequest) -> Paged:
    """Half messages that were given up, after the maximum number of checks."""
    try:
        query = message_pages.PageRequest(TRANSACTION_CHECK_MAX_TOPIC)
        return await message_pages.page(request.session, query, limit=GIVEN_UP_ROWS, now_ms=request.now_ms)
    except NotFound:  # none was given up yet
        return Paged(Result())
    except BrokerAway as error:  # this node may have some; those of the others are shown anyway
        return Paged(Result(failures=[failure_of(TRANSACTION_CHECK_MAX_TOPIC, error)]))


@plans("half/{id}/check", Role.OPERATOR, back="half")
async def check(request: DashboardRequest) -> Plan:
    """Have a half message checked again."""
    if len(request.path["id"]) > ID_CHARS_MAX:
        raise NotFound("this is not an offset id")
    return await plan_resume(request.session, request.path["id"])
