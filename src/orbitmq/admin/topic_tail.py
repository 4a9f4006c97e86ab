"""A topic read like a file that grows: from a place on, until a place or for ever, written in a format of one's own.

Where it begins and ends, and the format, are decided without I/O.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial

from orbitmq.admin.bodies import StoredMessage
from orbitmq.admin.results import Failure
from orbitmq.admin.scan import (
    BUDGET,
    MessageFilter,
    QueueScan,
    Sieve,
    Stretch,
    follow,
    lacking,
    limits,
    readable_queues,
    stretch,
)
from orbitmq.admin.session import Node, Session
from orbitmq.admin.time_texts import moment_ms
from orbitmq.errors import ConfigurationError
from orbitmq.message.model import MessageExt, MessageQueue
from orbitmq.runtime.clock import SystemClock

LAST_MAX = 10_000
"""Of `-N`: they are held until the oldest of them is known."""
_EVERY = MessageFilter()
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
class TailStart:
    """Where reading begins: one of them is set, none of them means at the first message."""

    last: int | None = None
    offset: int | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TailEnd:
    """Where it ends: at the end there is now, with messages stored until `at_ms`, or never."""

    at_end: bool = False
    at_ms: int | None = None


def place_of(text: str, now_ms: int) -> TailStart:
    """`-10`, `begin`, `end`, `offset:N`, or a point in time. AdminError or ConfigurationError for anything else."""
    if text == "begin":
        return TailStart()
    if text == "end":
        return TailStart(last=0)
    if re.fullmatch(r"-\d+", text):
        if int(text[1:]) > LAST_MAX:
            raise ConfigurationError(f"{text}: at most the last {LAST_MAX}; use a time or an offset")
        return TailStart(last=int(text[1:]))
    if re.fullmatch(r"offset:\d+", text):
        return TailStart(offset=int(text.removeprefix("offset:")))
    return TailStart(at_ms=moment_ms(text, now_ms))


def stop_of(text: str | None, now_ms: int) -> TailEnd:
    """`end`, a point in time, or None for never. A time that is over is the end for what was stored until then."""
    if text is None:
        return TailEnd()
    if text == "end":
        return TailEnd(at_end=True)
    at_ms = moment_ms(text, now_ms)
    return TailEnd(at_ms <= now_ms, at_ms)


def writer(pattern: str) -> Callable[[StoredMessage], str]:
    r"""Render a message by a format such as `%k %v\n`. ConfigurationError for an unknown field."""
    for mark in _MARK.finditer(pattern):
        if mark[1] is not None and mark[1] not in _FIELDS:
            known = ", ".join(f"%{name}" for name in _FIELDS)
            raise ConfigurationError(f"%{mark[1]} is not a field of a format; use {known}")

    def write(message: StoredMessage) -> str:
        def value_of(mark: re.Match[str]) -> str:
            if mark[1] is not None:
                return str(_FIELDS[mark[1]](message))
            return _ESCAPES.get(mark[2], mark[0])

        return _MARK.sub(value_of, pattern)

    return write


async def tail(
    session: Session,
    topic: str,
    place: TailStart,
    stop: TailEnd,
    wanted: MessageFilter = _EVERY,
    *,
    number: int | None = None,
    broker: str | None = None,
    queue_id: int | None = None,
    on_failure: Callable[[Failure], None] = lambda _failure: None,
    on_warning: Callable[[str], None] = lambda _warning: None,
) -> AsyncIterator[MessageExt]:
    """Matching messages from `place` on, up to `number`: existing ones in the order of store times, then new ones. A
    broker that does not respond is reported through `on_failure`, retried while the topic is followed, and read from
    where reading had stopped. `on_warning` gets what was not read."""
    left = number
    wanted = replace(wanted, begin_ms=place.at_ms, end_ms=stop.at_ms)
    queues = await readable_queues(session, topic, broker=broker, queue_id=queue_id)
    for failure in [] if broker else await lacking(session, topic):
        on_failure(failure)
    run = _Tail(session, place, stop, wanted, Sieve(wanted, on_warning), on_failure, on_warning)
    async with aclosing(run.messages(queues)) as messages:  # a caller that has enough also cancels the requests
        async for message in messages:
            yield message
            if left is not None:
                left -= 1
                if left <= 0:
                    return


@dataclass(frozen=True, slots=True)
class _Tail:
    """One reading of a topic."""

    session: Session
    place: TailStart
    stop: TailEnd
    wanted: MessageFilter
    sieve: Sieve
    on_failure: Callable[[Failure], None]
    on_warning: Callable[[str], None]

    async def messages(self, queues: Mapping[MessageQueue, Node]) -> AsyncGenerator[MessageExt, None]:
        begun_ms = SystemClock().now_ms()
        parts = await limits(self.session, queues, begin_ms=self.place.at_ms)
        self._report(parts.failures)
        look = _look(self.session, self.place, parts.items, self.wanted)
        if look is not None:
            async for message in self._present(look):
                yield message
        if self.stop.at_end:
            return
        starts, known = parts.items, {one.queue for one in parts.items}
        if look is not None and self.place.last is None:
            unread = look.unread()
            starts = [replace(one, end=unread.get(one.queue, one.end)) for one in starts]
        late = {queue: node for queue, node in queues.items() if queue not in known}
        coming = follow(
            self.session, starts, late=late, begin_of=partial(self._late_begin, begun_ms), tag=self.wanted.tag,
            on_failure=self.on_failure,
        )  # fmt: skip
        try:
            while (following := await _next(coming, self.stop)) is not None:
                if self.sieve.takes(following):
                    yield following
        finally:
            await coming.aclose()

    async def _present(self, look: QueueScan) -> AsyncIterator[MessageExt]:
        """What is there already; of the last ones the oldest first, too."""
        found: list[MessageExt] = []
        async for message in look:
            if not self.sieve.takes(message):
                continue
            if self.place.last is None:
                yield message
                continue
            found.append(message)
            if len(found) >= self.place.last:
                break
        self._report(look.failures)
        if look.is_cut:
            text = f"of the newest {look.looked_at} messages {len(found)} match; older ones were not read"
            self.on_warning(f"{text}: --from with a time or an offset has no such limit")
        for message in reversed(found):
            yield message

    async def _late_begin(self, begun_ms: int, node: Node, queue: MessageQueue) -> int:
        """Where to begin in a queue whose limits were known late: at the place, or with the messages since we began."""
        place = self.place
        at_ms = begun_ms if place.last is not None else place.at_ms
        part = await stretch(self.session, node, queue, at_ms)
        return part.begin if place.offset is None else min(max(part.begin, place.offset), part.end)

    def _report(self, failures: Iterable[Failure]) -> None:
        for failure in failures:
            self.on_failure(failure)


def _look(session: Session, place: TailStart, parts: list[Stretch], wanted: MessageFilter) -> QueueScan | None:
    """How what is there already is read; None when it is not."""
    if place.last is not None:
        return QueueScan(session, parts, newest_first=True, budget=BUDGET, tag=wanted.tag) if place.last else None
    if place.offset is not None:
        parts = [replace(one, begin=min(max(one.begin, place.offset), one.end)) for one in parts]
    return QueueScan(session, parts, budget=None, tag=wanted.tag)


async def _next(coming: AsyncIterator[MessageExt], stop: TailEnd) -> MessageExt | None:
    """The next message, None when the time to stop has come."""
    if stop.at_ms is None:
        return await anext(coming, None)
    try:
        async with asyncio.timeout(max(0, stop.at_ms - SystemClock().now_ms()) / 1000):
            return await anext(coming, None)
    except TimeoutError:
        return None
