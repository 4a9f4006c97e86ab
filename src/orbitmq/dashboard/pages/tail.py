"""A topic while messages come: the last ones, and every few seconds those that came since, the newest on top."""

from __future__ import annotations

from dataclasses import replace

from orbitmq.admin import paging
from orbitmq.admin.answers import Failure, Found, failure_of
from orbitmq.dashboard.asking import Asked, Shown, shows
from orbitmq.dashboard.looking import FILTERS, Looked, looked
from orbitmq.dashboard.looking import rows as rows_of
from orbitmq.dashboard.pages.messages import TOPICS_SHOWN, topic_names
from orbitmq.errors import BadField, OrbitMQError

EVERY_SECONDS = 2
LAST = 20  # messages that are there when the page is opened
AT_ONCE = 50  # messages that one look shows; more are passed over, for nobody reads faster
KEPT = 200  # rows on the page: older ones go
BUDGET = 2000  # messages one look reads for its filter
LOOK_SECONDS = 3.0


@shows("tail", "tail.html")
async def tail(asked: Asked) -> Shown:
    look = _look(asked) if asked.query.text("topic") else None
    names = await topic_names(asked)
    offered = [one.topic for one in names.items][:TOPICS_SHOWN]
    common = {"topics": offered, "every": EVERY_SECONDS, "kept": KEPT, "filters": FILTERS, "look": look}
    if look is None:
        return Shown({**common, "fields": {}}, names)
    paged = await paging.page(
        asked.session, look.asked, limit=LAST, budget=BUDGET, seconds=LOOK_SECONDS, now_ms=asked.now_ms
    )
    found = paged.found
    values = {**common, "fields": look.fields, **_told(look, paged.newest, [], 0)}
    return Shown({**values, "rows": await rows_of(found.items)}, found)


@shows("tail/rows", "tail_rows.html")
async def rows(asked: Asked) -> Shown:
    """What has come since the mark, for the script of the page. A cluster that does not answer is told in its line."""
    look = _look(asked)
    if look.mark is None:
        raise BadField("mark is missing")
    try:
        paged = await paging.page(
            asked.session, look.asked, mark=_forwards(look), limit=AT_ONCE, budget=BUDGET,
            seconds=LOOK_SECONDS, watched=True, now_ms=asked.now_ms,
        )  # fmt: skip
    except OrbitMQError as error:
        again = asked.query.text("mark", at_most=paging.MARK_CHARS_MAX)
        told = _told(look, again, [failure_of(look.asked.topic, error)], 0)
        return Shown({**told, "rows": [], "every": EVERY_SECONDS})
    told = _told(look, paged.following, paged.found.failures, paged.passed_over)
    newest_first = await rows_of(paged.found.items[::-1])
    return Shown({**told, "rows": newest_first, "every": EVERY_SECONDS}, Found(warnings=paged.found.warnings))


def _look(asked: Asked) -> Looked:
    look = looked(asked)
    return replace(look, asked=replace(look.asked, wanted=replace(look.asked.wanted, begin_ms=None, end_ms=None)))


def _forwards(look: Looked) -> paging.PageCursor:
    """Whatever the mark says: what comes is read forwards."""
    assert look.mark is not None, "the caller has seen to it"
    return paging.PageCursor(newest_first=False, at_ms=look.mark.at_ms, places=look.mark.places)


def _told(look: Looked, mark: str | None, failures: list[Failure], passed_over: int) -> dict[str, object]:
    following = None if mark is None else look.link("tail/rows", FILTERS, mark=mark)
    return {"following": following, "lacking": failures, "passed_over": passed_over}
