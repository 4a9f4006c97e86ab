"""Groups that have dead letters, how many, and why. `message_pages` reads them, `message_send` sends them again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec import Struct

from orbitmq.admin.bodies import unique_id
from orbitmq.admin.messages import search
from orbitmq.admin.results import Result
from orbitmq.admin.session import Session
from orbitmq.admin.topics import status
from orbitmq.admin.traces import ENDINGS, Traced, in_order, read
from orbitmq.errors import NotFound
from orbitmq.message.model import MessageExt
from orbitmq.message.properties import DEAD_LETTER_REASON
from orbitmq.message.topics import DLQ_PREFIX, TRACE_TOPIC
from orbitmq.operations.routes import topics

GROUPS_MAX = 500
"""Groups whose dead letters are counted: each costs a question to every broker of its topic."""


class DeadLetters(Struct, frozen=True, rename="camel", kw_only=True):
    """The dead letters of one group."""

    group: str
    topic: str
    messages: int | None
    """Messages stored now; None if a broker did not respond."""
    last_at_ms: int | None
    """The time of the last one."""


class Reason(Struct, frozen=True, rename="camel"):
    """Why one dead letter is one."""

    offset_msg_id: str
    text: str
    """As its consumer gave it, else how its listener ended the last time: `raised an error`."""


async def listed(session: Session, containing: str = "") -> Result[DeadLetters]:
    """Groups that have dead letters, the latest first."""
    names = await session.any_name_server(partial(session.request, topics))
    chosen = sorted(one for one in names if one.startswith(DLQ_PREFIX) and containing.lower() in one.lower())
    found = Result[DeadLetters](failures=await session.absent())
    if len(chosen) > GROUPS_MAX:
        found.warnings.append(f"{len(chosen)} groups may have dead letters; the first {GROUPS_MAX} were read")
        chosen = chosen[:GROUPS_MAX]
    gathered = await session.each({topic: topic for topic in chosen}, lambda topic: _one(session, topic, found))
    found.failures += [one for one in gathered.failures if one not in found.failures]
    found.items = [one for one in gathered.responses.values() if one.messages != 0]
    found.items.sort(key=lambda one: (-(one.last_at_ms or 0), one.group))
    return found


async def reasons(session: Session, group: str, letters: Sequence[MessageExt]) -> Result[Reason]:
    """The reasons that consumers gave; for other dead letters the result of the last attempt, if it was traced."""
    given = {one.offset_msg_id: one.properties.get(DEAD_LETTER_REASON) for one in letters}
    known = [Reason(letter, text) for letter, text in given.items() if text]
    names = {one.offset_msg_id: unique_id(one) or one.offset_msg_id for one in letters if not given[one.offset_msg_id]}
    try:
        if not names:
            return Result(items=known)
        await session.homes(TRACE_TOPIC)
    except NotFound:
        return Result(items=known)
    gathered = await session.each(
        {letter: f"trace of {name}" for letter, name in names.items()},
        lambda letter: search(session, [TRACE_TOPIC], names[letter]),
    )
    found = Result[Reason](items=known, failures=gathered.failures)
    for letter, batch in gathered.responses.items():
        found.failures += [one for one in batch.failures if one not in found.failures]
        records = in_order(record for message in batch.items for record in read(message, names[letter]))
        if (text := _ending(records, group)) is not None:
            found.items.append(Reason(letter, text))
    return found


def _ending(records: Sequence[Traced], group: str) -> str | None:
    """Of the last attempt of the group that has an end."""
    own = {one.request_id for one in records if one.kind == "SubBefore" and one.group == group}
    ends = [one.outcome for one in records if one.kind == "SubAfter" and (one.group == group or one.request_id in own)]
    return ENDINGS.get(ends[-1]) if ends and ends[-1] is not None else None


async def _one(session: Session, topic: str, found: Result[DeadLetters]) -> DeadLetters:
    held = await status(session, topic)
    found.failures += [one for one in held.failures if one not in found.failures]
    return DeadLetters(
        group=topic.removeprefix(DLQ_PREFIX),
        topic=topic,
        messages=None if held.failures else sum(one.messages for one in held.items),
        last_at_ms=max((one.updated_at_ms or 0 for one in held.items), default=0) or None,
    )
