"""Live tail of a topic: the last messages, and every few seconds the new ones, newest on top."""

from __future__ import annotations

from dataclasses import replace

from orbitmq.admin import message_pages
from orbitmq.admin.results import Failure, Result, failure_of
from orbitmq.dashboard.message_query import FILTERS, MessageQuery, message_query
from orbitmq.dashboard.message_query import rows as rows_of
from orbitmq.dashboard.pages.messages import TOPICS_SHOWN, topic_names
from orbitmq.dashboard.routes import DashboardRequest, PageContent, shows
from orbitmq.errors import BadField, OrbitMQError

EVERY_SECONDS = 2
LAST = 20  # messages that are shown first
AT_ONCE = 50  # messages that one query shows; more are skipped: no reader is faster
ROWS_MAX = 200  # rows on the page: older ones are removed
BUDGET = 2000  # messages that one query reads for its filter
LOOK_SECONDS = 3.0


@shows("tail", "tail.html")
async def tail(request: DashboardRequest) -> PageContent:
    query = _query(request) if request.query.text("topic") else None
    names = await topic_names(request)
    offered = [one.topic for one in names.items][:TOPICS_SHOWN]
    common = {"topics": offered, "every": EVERY_SECONDS, "rows_max": ROWS_MAX, "filters": FILTERS, "query": query}
    if query is None:
        return PageContent({**common, "fields": {}}, names)
    paged = await message_pages.page(
        request.session, query.request, limit=LAST, budget=BUDGET, seconds=LOOK_SECONDS, now_ms=request.now_ms
    )
    found = paged.found
    values = {**common, "fields": query.fields, **_poll_values(query, paged.newest, [], 0)}
    return PageContent({**values, "rows": await rows_of(found.items)}, found)


@shows("tail/rows", "tail_rows.html")
async def rows(request: DashboardRequest) -> PageContent:
    """The messages since the mark, for the script of the page. A cluster that does not respond is named in its line."""
    query = _query(request)
    if query.mark is None:
        raise BadField("mark is missing")
    try:
        paged = await message_pages.page(
            request.session, query.request, mark=_forwards(query), limit=AT_ONCE, budget=BUDGET,
            seconds=LOOK_SECONDS, watched=True, now_ms=request.now_ms,
        )  # fmt: skip
    except OrbitMQError as error:
        again = request.query.text("mark", at_most=message_pages.MARK_CHARS_MAX)
        values = _poll_values(query, again, [failure_of(query.request.topic, error)], 0)
        return PageContent({**values, "rows": [], "every": EVERY_SECONDS})
    values = _poll_values(query, paged.following, paged.found.failures, paged.passed_over)
    newest_first = await rows_of(paged.found.items[::-1])
    return PageContent({**values, "rows": newest_first, "every": EVERY_SECONDS}, Result(warnings=paged.found.warnings))


def _query(request: DashboardRequest) -> MessageQuery:
    query = message_query(request)
    wanted = replace(query.request.wanted, begin_ms=None, end_ms=None)
    return replace(query, request=replace(query.request, wanted=wanted))


def _forwards(query: MessageQuery) -> message_pages.PageCursor:
    """Always oldest first, even if the mark says otherwise."""
    assert query.mark is not None, "the caller has seen to it"
    return message_pages.PageCursor(newest_first=False, at_ms=query.mark.at_ms, places=query.mark.places)


def _poll_values(query: MessageQuery, mark: str | None, failures: list[Failure], passed_over: int) -> dict[str, object]:
    following = None if mark is None else query.link("tail/rows", FILTERS, mark=mark)
    return {"following": following, "lacking": failures, "passed_over": passed_over}
