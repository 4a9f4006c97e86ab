"""Groups that have given messages up, and how many. `paging` reads dead letters, `sending` has them come again."""

from __future__ import annotations

from msgspec import Struct

from orbitmq.admin.answers import Found
from orbitmq.admin.session import Session
from orbitmq.admin.topics import status
from orbitmq.message.topics import DLQ_PREFIX
from orbitmq.operations.routes import topics

GROUPS_MAX = 500
"""Groups whose dead letters are counted: each costs a question to every broker of its topic."""


class DeadLetters(Struct, frozen=True, rename="camel", kw_only=True):
    """What one group has given up."""

    group: str
    topic: str
    messages: int | None
    """Kept now; None when not every broker has told."""
    last_at_ms: int | None
    """When the last one was given up."""


async def listed(session: Session, containing: str = "") -> Found[DeadLetters]:
    """Groups that have dead letters, the latest first."""
    names = await session.any_name_server(
        lambda server: topics(session.remoting, server, timeout_ms=session.timeout_ms)
    )
    chosen = sorted(one for one in names if one.startswith(DLQ_PREFIX) and containing.lower() in one.lower())
    found = Found[DeadLetters](failures=await session.absent())
    if len(chosen) > GROUPS_MAX:
        found.warnings.append(f"{len(chosen)} groups may have dead letters; the first {GROUPS_MAX} were looked at")
        chosen = chosen[:GROUPS_MAX]
    asked = await session.each({topic: topic for topic in chosen}, lambda topic: _one(session, topic, found))
    found.failures += [one for one in asked.failures if one not in found.failures]
    found.items = [one for one in asked.answers.values() if one.messages != 0]
    found.items.sort(key=lambda one: (-(one.last_at_ms or 0), one.group))
    return found


async def _one(session: Session, topic: str, found: Found[DeadLetters]) -> DeadLetters:
    held = await status(session, topic)
    found.failures += [one for one in held.failures if one not in found.failures]
    return DeadLetters(
        group=topic.removeprefix(DLQ_PREFIX),
        topic=topic,
        messages=None if held.failures else sum(one.messages for one in held.items),
        last_at_ms=max((one.updated_at_ms or 0 for one in held.items), default=0) or None,
    )
