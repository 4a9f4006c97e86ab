"""Browse a topic in pages: each page holds the mark at which the next one begins, so no state is kept between them.

A page has two budgets, messages and time. It reports how many messages it read, and the next page continues there.
Independent of the web page.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec
from msgspec import Struct

from orbitmq.admin.results import Failure, Result
from orbitmq.admin.scan import BUDGET, MessageFilter, QueueScan, Sieve, Stretch, lacking, limits, readable_queues
from orbitmq.admin.session import Node, Session
from orbitmq.errors import BadArgument
from orbitmq.message.model import MessageExt, MessageQueue

LOOK_SECONDS = 5.0
"""Time budget of a page: matches of a rare tag may be millions of messages apart, and the next page continues."""
PAGE_BYTES_MAX = 32 << 20
"""Of bodies on one page, as they are stored: a page of the largest messages has eight of them, and not 800 MiB."""
MARK_BYTES_MAX = 256 << 10
"""Of a mark, unpacked: 20,000 queues. Longer ones are not ours."""
MARK_CHARS_MAX = 12_000
"""Of a mark in an address, which servers take 16 KiB of. It is enough for some thousand queues."""

_EVERY = MessageFilter()


class PageCursor(Struct, frozen=True, array_like=True):
    """Where a page begins."""

    newest_first: bool
    at_ms: int
    """The store time that reading has reached: for queues whose limits were not known."""
    places: dict[str, dict[int, int]]
    """Broker name -> queue -> offset: backwards the one that is not read any more, forwards the first that is."""

    def offset(self, queue: MessageQueue) -> int | None:
        return self.places.get(queue.broker_name, {}).get(queue.queue_id)


def written(mark: PageCursor) -> str | None:
    """For an address; None when it has more queues than fit into one."""
    packed = zlib.compress(msgspec.msgpack.encode(mark), 9)
    text = base64.urlsafe_b64encode(packed).rstrip(b"=").decode()
    return text if len(text) <= MARK_CHARS_MAX else None


def read(text: str) -> PageCursor:
    """AdminError for a text that `written` did not make."""
    try:
        packed = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), b"-_", validate=True)
        stream = zlib.decompressobj()
        plain = stream.decompress(packed, MARK_BYTES_MAX)
        if not stream.eof:
            raise ValueError("it does not end")
        return msgspec.msgpack.decode(plain, type=PageCursor)
    except (ValueError, binascii.Error, zlib.error, msgspec.MsgspecError) as error:
        raise BadArgument("this mark of a page cannot be read", "begin anew, without it") from error


@dataclass(frozen=True, slots=True)
class PageRequest:
    """What to read."""

    topic: str
    wanted: MessageFilter = _EVERY
    broker: str | None = None
    queue_id: int | None = None
    offset: int | None = None
    """The first that is read of each queue, in either direction."""


@dataclass(slots=True)
class Paged:
    """One page."""

    found: Result[MessageExt]
    scanned: int = 0
    """Places of queues that were passed: messages that were not wanted are among them."""
    left: int = 0
    """Places that no page has passed yet."""
    following: str | None = None
    """Where the next page begins; None when there is nothing more, or no mark of it."""
    newest: str | None = None
    """Where messages begin that come after this look; of the first page backwards only."""
    is_cut: bool = False
    """A budget was used up before the page was full."""
    passed_over: int = 0
    """When watching: messages that arrived and were skipped."""


async def page(
    session: Session,
    request: PageRequest,
    *,
    mark: PageCursor | None = None,
    newest_first: bool = True,
    limit: int = 50,
    budget: int = BUDGET,
    seconds: float = LOOK_SECONDS,
    now_ms: int = 0,
    watched: bool = False,
) -> Paged:
    """Up to `limit` matching messages after `mark` in the order of store times; the mark holds the direction. NotFound
    when the topic or queue does not exist.

    `watched` is for a page that follows new messages: what does not fit on the page is skipped and counted, and the
    next page begins at the current end.
    """
    newest_first = newest_first if mark is None else mark.newest_first
    parts = await _parts(session, request, mark, newest_first=newest_first)
    look = QueueScan(session, parts.items, newest_first=newest_first, budget=budget, tag=request.wanted.tag)
    made = Paged(Result(warnings=parts.warnings))
    await _fill(made, look, request.wanted, limit, seconds)
    made.found.failures = [*parts.failures, *look.failures]
    rest = look.rest()
    made.left = sum(end - begin for begin, end in rest.values())
    made.scanned = sum(one.end - one.begin for one in parts.items) - made.left
    if watched and made.left:
        silent = look.unread()
        made.passed_over = sum(end - begin for queue, (begin, end) in rest.items() if queue not in silent)
        rest |= {queue: (end, end) for queue, (_, end) in rest.items() if queue not in silent}
    at_ms = made.found.items[-1].store_timestamp if made.found.items else mark.at_ms if mark else now_ms
    if made.left or watched:
        places = {queue: end if newest_first else begin for queue, (begin, end) in rest.items()}
        made.following = _encoded(_marked(mark, newest_first, at_ms, places), made.found)
    if newest_first and mark is None:
        made.newest = _encoded(_marked(None, False, now_ms, {one.queue: one.end for one in parts.items}), made.found)
    return made


def _encoded(mark: PageCursor, found: Result[MessageExt]) -> str | None:
    text, warning = written(mark), "there are too many queues to go on from here: choose a broker or a queue"
    if text is None and warning not in found.warnings:
        found.warnings.append(warning)
    return text


async def _fill(made: Paged, look: QueueScan, wanted: MessageFilter, limit: int, seconds: float) -> None:
    sieve, size = Sieve(wanted, made.found.warnings.append), 0
    try:
        async with asyncio.timeout(seconds):
            async for message in look:
                if sieve.takes(message):
                    made.found.items.append(message)
                    size += len(message.body)
                    if len(made.found.items) >= limit:
                        return
                    if size >= PAGE_BYTES_MAX:
                        made.is_cut = True
                        return
    except TimeoutError:  # the result of a pull in flight is discarded: the next page pulls again
        made.is_cut = True
    made.is_cut = made.is_cut or look.is_cut


async def _parts(
    session: Session, request: PageRequest, mark: PageCursor | None, *, newest_first: bool
) -> Result[Stretch]:
    """The rest of each queue to be read."""
    queues = await readable_queues(session, request.topic, broker=request.broker, queue_id=request.queue_id)
    wanted = request.wanted
    known = {queue: node for queue, node in queues.items() if mark is None or mark.offset(queue) is not None}
    found = await limits(session, known, begin_ms=wanted.begin_ms, end_ms=wanted.end_ms)
    found.failures += [] if request.broker else await lacking(session, request.topic)
    if mark is not None and len(known) < len(queues):
        late = {queue: node for queue, node in queues.items() if queue not in known}
        _add(found, await _late(session, late, wanted, mark))
    start = None if request.offset is None else request.offset + newest_first
    found.items = [
        _narrowed(one, mark.offset(one.queue) if mark else start, newest_first=newest_first) for one in found.items
    ]
    return found


async def _late(
    session: Session, queues: Mapping[MessageQueue, Node], wanted: MessageFilter, mark: PageCursor
) -> Result[Stretch]:
    """New queues, or queues whose broker did not respond before: read from the time that the others have reached."""
    if mark.newest_first:
        return await limits(session, queues, begin_ms=wanted.begin_ms, end_ms=mark.at_ms)
    return await limits(session, queues, begin_ms=mark.at_ms, end_ms=wanted.end_ms)


def _add(found: Result[Stretch], more: Result[Stretch]) -> None:
    found.items += more.items
    known: set[Failure] = set(found.failures)
    found.failures += [one for one in more.failures if one not in known]


def _narrowed(part: Stretch, offset: int | None, *, newest_first: bool) -> Stretch:
    if offset is None:
        return part
    place = min(max(part.begin, offset), part.end)
    return replace(part, end=place) if newest_first else replace(part, begin=place)


def _marked(mark: PageCursor | None, newest_first: bool, at_ms: int, places: Mapping[MessageQueue, int]) -> PageCursor:
    """The cursor of the next page. Queues without a response keep their place."""
    places_by_broker: dict[str, dict[int, int]] = (
        {} if mark is None else {name: dict(one) for name, one in mark.places.items()}
    )
    for queue, offset in places.items():
        places_by_broker.setdefault(queue.broker_name, {})[queue.queue_id] = offset
    return PageCursor(newest_first, at_ms, places_by_broker)
