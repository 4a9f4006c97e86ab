"""Where is my message? Takes any id, key or trace id, and shows the history of each matching message."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from markupsafe import Markup

from orbitmq.admin.bodies import StoredMessage
from orbitmq.admin.message_history import MessageHistory, MessageState
from orbitmq.admin.results import Result
from orbitmq.admin.search import find
from orbitmq.dashboard.message_query import one_message, with_body
from orbitmq.dashboard.routes import DashboardRequest, PageContent, shows
from orbitmq.errors import OrbitMQError

NAME_CHARS_MAX = 1024


@shows("find", "find.html")
async def where(request: DashboardRequest) -> PageContent:
    name, topic = request.query.text("q", at_most=NAME_CHARS_MAX), request.query.text("topic", at_most=255)
    if not name:
        nothing = {"name": "", "topic": topic, "histories": [], "is_missing": False}
        return PageContent({**nothing, "message": None, "tree": None, "format": ""})
    found = await find(request.session, name, request.now_ms, topic=topic or None)
    is_missing = all(one.state is MessageState.NOT_FOUND for one in found.items)
    message, tree, form = await _whole(request, found)
    values = {
        "name": name,
        "topic": topic,
        "histories": found.items,
        "message": message,
        "tree": tree,
        "format": form,
        "is_missing": is_missing,
    }
    return PageContent(
        values, found, status=HTTPStatus.NOT_FOUND if is_missing and not found.partial else HTTPStatus.OK
    )


async def _whole(
    request: DashboardRequest, found: Result[MessageHistory]
) -> tuple[StoredMessage | None, Markup | None, str]:
    """The only match, with its body, that as a tree, and its format; the message may have expired in the meantime."""
    if len(found.items) != 1 or found.items[0].message is None:
        return None, None, ""
    try:
        one = await one_message(request.session, found.items[0].message.offset_msg_id)
    except OrbitMQError:
        return found.items[0].message, None, ""
    return await asyncio.to_thread(with_body, one)
