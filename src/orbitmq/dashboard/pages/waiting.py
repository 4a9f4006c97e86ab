"""Messages that wait: for their delay, and half messages for the decision of their producers."""

from __future__ import annotations

from orbitmq.admin import paging
from orbitmq.admin.answers import Found, failure_of
from orbitmq.admin.delays import delayed
from orbitmq.admin.halves import pending, plan_resume
from orbitmq.admin.paging import Paged
from orbitmq.admin.plans import Plan
from orbitmq.dashboard.asking import Asked, Shown, plans, shows
from orbitmq.dashboard.looking import ID_CHARS_MAX, rows
from orbitmq.dashboard.roles import Role
from orbitmq.errors import BrokerAway, NotFound
from orbitmq.message.topics import HALF_TOPIC, SCHEDULE_TOPIC, TRANSACTION_CHECK_MAX_TOPIC

ROWS = 200  # half messages on the page; more are worth a look at their producer, not at each of them
GIVEN_UP_ROWS = 50


@shows("delayed", "delayed.html")
async def delays(asked: Asked) -> Shown:
    found = await delayed(asked.session, asked.now_ms)
    return Shown({"levels": found.items, "topic": SCHEDULE_TOPIC}, found)


@shows("half", "half.html")
async def halves(asked: Asked) -> Shown:
    topic, group = asked.query.text("topic", at_most=255), asked.query.text("group", at_most=255)
    found = await pending(asked.session, topic or None, group or None)
    given_up = await _given_up(asked)
    values = {
        "topic": topic,
        "group": group,
        "halves": found.items[:ROWS],
        "in_all": len(found.items),
        "given_up": await rows(given_up.found.items),
        "more_given_up": given_up.left,
        "half_topic": HALF_TOPIC,
        "given_up_topic": TRANSACTION_CHECK_MAX_TOPIC,
    }
    return Shown(values, found, given_up.found)


async def _given_up(asked: Asked) -> Paged:
    """Whose producers never decided, as often as they were asked."""
    try:
        look = paging.PageRequest(TRANSACTION_CHECK_MAX_TOPIC)
        return await paging.page(asked.session, look, limit=GIVEN_UP_ROWS, now_ms=asked.now_ms)
    except NotFound:  # none was given up yet
        return Paged(Found())
    except BrokerAway as error:  # whether it has any is not known; what the others have is shown all the same
        return Paged(Found(failures=[failure_of(TRANSACTION_CHECK_MAX_TOPIC, error)]))


@plans("half/{id}/check", Role.OPERATOR, back="half")
async def check(asked: Asked) -> Plan:
    """Have its producer asked again."""
    if len(asked.path["id"]) > ID_CHARS_MAX:
        raise NotFound("this is not an offset id")
    return await plan_resume(asked.session, asked.path["id"])
