"""Where is my message? Any id, key or trace id of the box on top: its story, or those of all that are called so."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from orbitmq.admin.answers import Found
from orbitmq.admin.bodies import StoredMessage, shown
from orbitmq.admin.finding import find
from orbitmq.admin.stories import MessageHistory, MessageState
from orbitmq.dashboard.asking import Asked, Shown, shows
from orbitmq.dashboard.looking import one_message
from orbitmq.errors import OrbitMQError

NAME_CHARS_MAX = 1024


@shows("find", "find.html")
async def where(asked: Asked) -> Shown:
    name, topic = asked.query.text("q", at_most=NAME_CHARS_MAX), asked.query.text("topic", at_most=255)
    if not name:
        return Shown({"name": "", "topic": topic, "stories": [], "message": None, "is_missing": False})
    found = await find(asked.session, name, asked.now_ms, topic=topic or None)
    is_missing = all(one.state is MessageState.NOT_FOUND for one in found.items)
    values = {
        "name": name,
        "topic": topic,
        "stories": found.items,
        "message": await _whole(asked, found),
        "is_missing": is_missing,
    }
    return Shown(values, found, status=HTTPStatus.NOT_FOUND if is_missing and not found.partial else HTTPStatus.OK)


async def _whole(asked: Asked, found: Found[MessageHistory]) -> StoredMessage | None:
    """The only one with its body; it may have gone meanwhile."""
    if len(found.items) != 1 or found.items[0].message is None:
        return None
    try:
        one = await one_message(asked.session, found.items[0].message.offset_msg_id)
    except OrbitMQError:
        return found.items[0].message
    return await asyncio.to_thread(shown, one)
