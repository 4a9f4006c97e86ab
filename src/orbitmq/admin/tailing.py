"""A topic read like a file that grows: from a place on, until a place or for ever, written in a format of one's own.

Where it begins and ends, and the format, are decided without I/O.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace

from orbitmq.admin.answers import Failure
from orbitmq.admin.bodies import StoredMessage
from orbitmq.admin.browsing import BUDGET, Look, Stretch, Wanted, follow, stretches
from orbitmq.admin.moments import moment_ms
from orbitmq.admin.session import Session
from orbitmq.errors import ConfigurationError
from orbitmq.message.model import MessageExt
from orbitmq.runtime.clock import SystemClock

LAST_MAX = 10_000
"""Of `-N`: they are held until the oldest of them is known."""
_EVERY = Wanted()
_FIELDS: dict[str, Callable[[StoredMessage], object]] = {
    "T": lambda one: one.topic,
    "k": lambda one: " ".join(one.keys),
    "t": lambda one: one.tags or "",
    "v": lambda one: one.body.content if one.body else "",
    "i": lambda one: one.msg_id,
    "b": lambda one: one.broker_name,
    "p": lambda one: one.queue_id,
    "o": lambda one: one.queue_offset,
    "s": lambda one: one.stored_at_ms,
    "S": lambda one: one.body.size_bytes if one.body else 0,
    "%": lambda _one: "%",
}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
_MARK = re.compile(r"%(.?)|\\(.?)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Place:
    """Where reading begins: one of them is set, none of them means at the first message."""

    last: int | None = None
    offset: int | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """Where it ends: at the end there is now, with messages stored until `at_ms`, or never."""

    at_end: bool = False
    at_ms: int | None = None


def place_of(text: str, now_ms: int) -> Place:
    """`-10`, `begin`, `end`, `offset:N`, or a point in time. AdminError or ConfigurationError for anything else."""
    if text == "begin":
        return Place()
    if text == "end":
        return Place(last=0)
    if re.fullmatch(r"-\d+", text):
        if int(text[1:]) > LAST_MAX:
            raise ConfigurationError(f"{text}: at most the last {LAST_MAX}; give a time or an offset")
        return Place(last=int(text[1:]))
    if re.fullmatch(r"offset:\d+", text):
        return Place(offset=int(text.removeprefix("offset:")))
    return Place(at_ms=moment_ms(text, now_ms))


def stop_of(text: str | None, now_ms: int) -> Stop:
    """`end`, a point in time, or None for never. A time that is over is the end for what was stored until then."""
    if text is None:
        return Stop()
    if text == "end":
        return Stop(at_end=True)
    at_ms = moment_ms(text, now_ms)
    return Stop(at_ms <= now_ms, at_ms)


def writer(pattern: str) -> Callable[[StoredMessage], str]:
    """What a message is in a format as `%k %v\\n`. ConfigurationError for a field that is none."""
    for mark in _MARK.finditer(pattern):
        if mark[1] is not None and mark[1] not in _FIELDS:
            known = ", ".join(f"%{name}" for name in _FIELDS)
            raise ConfigurationError(f"%{mark[1]} is no field of a format; give {known}")

    def write(message: StoredMessage) -> str:
        def told(mark: re.Match[str]) -> str:
            if mark[1] is not None:
                return str(_FIELDS[mark[1]](message))
            return _ESCAPES.get(mark[2], mark[0])

        return _MARK.sub(told, pattern)

    return write


async def tail(
    session: Session,
    topic: str,
    place: Place,
    stop: Stop,
    wanted: Wanted = _EVERY,
    *,
    number: int | None = None,
    broker: str | None = None,
    queue_id: int | None = None,
    on_failure: Callable[[Failure], None] = lambda _failure: None,
) -> AsyncIterator[MessageExt]:
    """Messages that are wanted from `place` on, `number` of them at most: what is there in the order of store times,
    then what comes. A broker that does not answer is told through `on_failure`.
    """
    left = number
    async for message in _all(session, topic, place, stop, wanted, broker, queue_id, on_failure):
        yield message
        if left is not None:
            left -= 1
            if left <= 0:
                return


async def _all(
    session: Session,
    topic: str,
    place: Place,
    stop: Stop,
    wanted: Wanted,
    broker: str | None,
    queue_id: int | None,
    on_failure: Callable[[Failure], None],
) -> AsyncIterator[MessageExt]:
    parts = await stretches(session, topic, begin_ms=place.at_ms, broker=broker, queue_id=queue_id)
    for failure in parts.failures:
        on_failure(failure)
    wanted = replace(wanted, begin_ms=place.at_ms, end_ms=stop.at_ms)
    look, found = _look(session, place, parts.items, wanted), []
    if look is not None:
        async for message in look:
            if not wanted.takes(message):
                continue
            if place.last is None:
                yield message
                continue
            found.append(message)
            if len(found) >= place.last:
                break
        for failure in look.failures:
            on_failure(failure)
    for message in reversed(found):
        yield message
    if stop.at_end:
        return
    coming = follow(session, parts.items, tag=wanted.tag, on_failure=on_failure)
    try:
        while True:
            following = await _next(coming, stop)
            if following is None:
                return
            if wanted.takes(following):
                yield following
    finally:
        await coming.aclose()


def _look(session: Session, place: Place, parts: list[Stretch], wanted: Wanted) -> Look | None:
    """How what is there already is read; None when it is not."""
    if place.last is not None:
        return Look(session, parts, newest_first=True, budget=BUDGET, tag=wanted.tag) if place.last else None
    if place.offset is not None:
        parts = [replace(one, begin=min(max(one.begin, place.offset), one.end)) for one in parts]
    return Look(session, parts, budget=None, tag=wanted.tag)


async def _next(coming: AsyncIterator[MessageExt], stop: Stop) -> MessageExt | None:
    """The next message, None when the time to stop has come."""
    if stop.at_ms is None:
        return await anext(coming, None)
    try:
        async with asyncio.timeout(max(0, stop.at_ms - SystemClock().now_ms()) / 1000):
            return await anext(coming, None)
    except TimeoutError:
        return None
