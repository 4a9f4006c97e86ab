"""Where is my message? Takes any id, key or trace id, and shows the history of each matching message."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from orbitmq.admin.bodies import StoredMessage, shown
from orbitmq.admin.message_history import MessageHistory, MessageState
from orbitmq.admin.results import Result
from orbitmq.admin.search import find
from orbitmq.dashboard.message_query import one_message
from orbitmq.dashboard.routes import DashboardRequest, PageContent, shows
from orbitmq.errors import OrbitMQError

NAME_CHARS_MAX = 1024


@shows("find", "find.html")
async def where(request: DashboardRequest) -> PageContent:
    name, topic = request.query.text("q", at_most=NAME_CHARS_MAX), request.query.text("topic", at_most=255)
    if not name:
        return PageContent({"name": "", "topic": topic, "histories": [], "message": None, "is_missing": False})
    found = await find(request.session, name, request.now_ms, topic=topic or None)
    is_missing = all(one.state is MessageState.NOT_FOUND for one in found.items)
    values = {
        "name": name,
        "topic": topic,
        "histories": found.items,
        "message": await _whole(request, found),
        "is_missing": is_missing,
    }
    return PageContent(
        values, found, status=HTTPStatus.NOT_FOUND if is_missing and not found.partial else HTTPStatus.OK
    )


async def _whole(request: DashboardRequest, found: Result[MessageHistory]) -> StoredMessage | None:
    """The only match, with its body; the message may have expired in the meantime."""
    if len(found.items) != 1 or found.items[0].message is None:
        return None
    try:
        one = await one_message(request.session, found.items[0].message.offset_msg_id)
    except OrbitMQError:
        return found.items[0].message
    return await asyncio.to_thread(shown, one)
