"""Reads queues from one position, or all queues of a topic in the order of time. Commits nothing.

The cost is limited by a budget of messages; a result says when it was used up.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from msgspec import Struct

from orbitmq.admin.results import Failure, Result, failure_of
from orbitmq.admin.session import Node, Session, slave_only
from orbitmq.errors import NotFound, OrbitMQError, UnitError
from orbitmq.message.compression import decompress
from orbitmq.message.flags import PULL_SUBSCRIPTION, PULL_SUSPEND
from orbitmq.message.model import MessageExt, MessageQueue
from orbitmq.message.topics import TOOLS_CONSUMER_GROUP
from orbitmq.message.unit import decode_units, message_of
from orbitmq.operations import offsets, pulls
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers import PullMessageHeader

PULL_COUNT = 32
"""Messages per request: RocketMQ returns no more."""
FIRST_COUNT = 4
"""Messages per request when reading backwards, doubled with each response: most callers need the last ones only, and
eight queues of the largest messages are 128 MiB.
"""
PULLED_BYTES = 1 << 20
"""Larger responses are not doubled, but halved."""
BUDGET = 10_000
"""Default budget of messages: some seconds, and hardly any load for a broker."""
HOLD_MS = 15_000
"""How long a broker holds a pull at the end of a queue."""
PAUSE_S = 1.0
"""Pause after a broker did not respond, while a topic is followed."""
LOG_SHIFT_MS = 1000
"""How far the index of time may be off: a search begins so much earlier, and the times of messages decide."""

BeginOf = Callable[[Node, MessageQueue], Awaitable[int]]
"""The offset from which a queue is read."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Part of a queue: from offset `begin` to `end`, which is not in it."""

    node: Node
    queue: MessageQueue
    begin: int
    end: int

    def __str__(self) -> str:
        return f"{self.queue.topic}/{self.queue.broker_name}/{self.queue.queue_id}"


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Which messages are shown. Times are store times, both included; an empty condition holds for every message."""

    begin_ms: int | None = None
    end_ms: int | None = None
    tag: str | None = None
    key: str | None = None
    property: tuple[str, str] | None = None
    text: str | None = None
    """In the body, unpacked, as UTF-8."""

    def takes(self, message: MessageExt) -> bool:
        """UnitError when a packed body cannot be unpacked."""
        at_ms = message.store_timestamp
        return (
            (self.begin_ms is None or at_ms >= self.begin_ms)
            and (self.end_ms is None or at_ms <= self.end_ms)
            and (self.tag is None or message.tags == self.tag)
            and (self.key is None or self.key in message.keys.split())
            and (self.property is None or message.properties.get(self.property[0]) == self.property[1])
            and (self.text is None or self.text.encode() in decompress(message.body, message.sys_flag))
        )


@dataclass(slots=True)
class Sieve:
    """Applies `Wanted`. A packed body that cannot be unpacked does not match; `warn` gets the first one."""

    wanted: MessageFilter
    warn: Callable[[str], None]
    has_warned: bool = False

    def takes(self, message: MessageExt) -> bool:
        try:
            return self.wanted.takes(message)
        except UnitError as error:
            if not self.has_warned:
                place = f"{message.topic}/{message.broker_name}/{message.queue_id}@{message.queue_offset}"
                self.warn(f"what cannot be unpacked is not searched, the first is {place}: {error}")
            self.has_warned = True
            return False


class TagCount(Struct, frozen=True, rename="camel"):
    """Share of the read messages that have a tag."""

    tag: str | None
    """None counts those without a tag."""
    messages: int
    body_bytes: int
    """As stored: of packed bodies what they are packed to."""


async def stretches(
    session: Session,
    topic: str,
    *,
    begin_ms: int | None = None,
    end_ms: int | None = None,
    broker: str | None = None,
    queue_id: int | None = None,
) -> Result[Stretch]:
    """What the readable queues of a topic hold, narrowed to those that may have messages of this time, one broker or
    one queue. NotFound when the topic, or that part of it, is not there.
    """
    queues = await readable_queues(session, topic, broker=broker, queue_id=queue_id)
    found = await limits(session, queues, begin_ms=begin_ms, end_ms=end_ms)
    found.failures += [] if broker else await lacking(session, topic)
    return found


async def lacking(session: Session, topic: str) -> list[Failure]:
    """Why the readable queues may not hold the whole topic, before they are read."""
    homes = await session.homes(topic)
    return [*await session.absent(topic), *(slave_only(node) for node in homes if node.stands_in)]


async def readable_queues(
    session: Session, topic: str, *, broker: str | None = None, queue_id: int | None = None
) -> dict[MessageQueue, Node]:
    """The readable queues of a topic, of one broker or with one id, with their brokers. NotFound without any."""
    route = await session.route(topic)
    homes = {node.name: node for node in await session.homes(topic) if not node.is_away}
    queues = {
        MessageQueue(topic, data.broker_name, number): homes[data.broker_name]
        for data in route.queue_datas
        for number in range(data.read_queues)
        if data.broker_name in homes and broker in (None, data.broker_name) and queue_id in (None, number)
    }
    if not queues:
        if broker is not None:
            await session.node(broker)  # the one that is meant may be away
        raise NotFound(f"topic {topic} has no such queue to read", f"orbitmq topic route {topic}")
    return queues


async def limits(
    session: Session, queues: Mapping[MessageQueue, Node], *, begin_ms: int | None = None, end_ms: int | None = None
) -> Result[Stretch]:
    """What these queues hold, narrowed to what may be of this time."""
    names = {queue: f"{node}: queue {queue.queue_id}" for queue, node in queues.items()}

    async def held(queue: MessageQueue) -> Stretch:
        return await stretch(session, queues[queue], queue, begin_ms, end_ms)

    return (await session.each(names, held)).result()


async def stretch(
    session: Session, node: Node, queue: MessageQueue, begin_ms: int | None = None, end_ms: int | None = None
) -> Stretch:
    """What one queue holds, narrowed to what may be of this time."""
    first, end = await _limits(session, node.address, queue, begin_ms, end_ms)
    return Stretch(node, queue, first, max(first, end))


async def _limits(
    session: Session, address: str, queue: MessageQueue, begin_ms: int | None, end_ms: int | None
) -> tuple[int, int]:
    remoting, timeout_ms = session.remoting, session.timeout_ms
    first = await offsets.min_offset(remoting, address, queue, timeout_ms=timeout_ms)
    end = await offsets.max_offset(remoting, address, queue, timeout_ms=timeout_ms)
    if begin_ms is not None:
        found = await offsets.search_offset(
            remoting, address, queue, max(begin_ms - LOG_SHIFT_MS, 0), timeout_ms=timeout_ms
        )
        first = min(max(first, found), end)
    if end_ms is not None:
        found = await offsets.search_offset(remoting, address, queue, end_ms + LOG_SHIFT_MS, timeout_ms=timeout_ms)
        end = min(end, found)
    return first, end


@dataclass(slots=True, eq=False)
class _Cursor:
    """A stretch that is being read, forwards or backwards."""

    stretch: Stretch
    newest_first: bool
    tag: str = "*"
    left: tuple[int, int] = field(init=False)
    """What is not read yet."""
    messages: deque[MessageExt] = field(default_factory=deque)
    failure: Failure | None = None
    count: int = FIRST_COUNT
    """Messages per request, backwards."""

    def __post_init__(self) -> None:
        self.left = (self.stretch.begin, self.stretch.end)

    @property
    def rest(self) -> tuple[int, int]:
        """The messages not yet yielded."""
        begin, end = self.left
        if not self.messages:
            return begin, end
        first = self.messages[0].queue_offset
        return (begin, first + 1) if self.newest_first else (first, end)

    async def fill(self, session: Session) -> None:
        """Read until there is a message, nothing is left, or the broker does not respond."""
        while not self.messages and self.left[0] < self.left[1] and self.failure is None:
            try:
                await self._pull(session)
            except OrbitMQError as error:
                self.failure = failure_of(f"{self.stretch.node}: {self.stretch}", error)

    async def _pull(self, session: Session) -> None:
        begin, end = self.left
        first = max(begin, end - self.count)
        at = first if self.newest_first else begin
        upto = end if self.newest_first else min(end, begin + PULL_COUNT)
        found: list[MessageExt] = []
        while at < upto:  # a broker may return fewer messages than requested
            batch, at = await _pulled(session, self.stretch.node, self.stretch.queue, at, upto - at, self.tag)
            found += batch
            if not self.newest_first:
                break
        if self.newest_first:
            self.left = (begin, first)
            self.messages.extend(one for one in reversed(found) if one.queue_offset < upto)
            is_large = sum(len(one.body) for one in found) > PULLED_BYTES
            self.count = max(1, self.count // 2) if is_large else min(PULL_COUNT, self.count * 2)
        else:
            self.left = (at, end)
            self.messages.extend(one for one in found if one.queue_offset < end)


async def _pulled(
    session: Session, node: Node, queue: MessageQueue, offset: int, count: int, tag: str
) -> tuple[list[MessageExt], int]:
    """Messages from `offset` on, and where to go on, which is further than `offset` always."""
    header = pull_header(queue, offset, min(count, PULL_COUNT), tag)
    reply = await session.request(pulls.pull, node, header)
    messages = [message_of(unit, node.name, decompress=False) for unit in decode_units(reply.body)]
    if reply.next_begin_offset > offset:
        return messages, reply.next_begin_offset
    return messages, offset + count  # nothing can be read there: the queue has lost its end, or its beginning


class QueueScan:
    """One scan of stretches, merged in the order of store times; `async for` yields the messages.

    `budget` limits the messages read, None for no limit. Afterwards `looked_at`, `failures` and `is_cut` hold the
    outcome. With `tag`, brokers leave out messages of other tags, which then cost nothing.
    """

    def __init__(
        self,
        session: Session,
        parts: Sequence[Stretch],
        *,
        newest_first: bool = False,
        budget: int | None = BUDGET,
        tag: str | None = None,
    ) -> None:
        self._session = session
        self._newest_first = newest_first
        self._budget = budget
        self._cursors = [_Cursor(part, newest_first, tag or "*") for part in parts]
        self._parts = tuple(self._cursors)
        self.looked_at = 0
        self.is_cut = False
        """The budget was used up before everything was read."""

    @property
    def failures(self) -> list[Failure]:
        return [cursor.failure for cursor in self._cursors if cursor.failure is not None]

    def rest(self) -> dict[MessageQueue, tuple[int, int]]:
        """What has not been yielded of each range: from an offset (included) to another (excluded)."""
        return {one.stretch.queue: one.rest for one in self._parts}

    def unread(self) -> dict[MessageQueue, int]:
        """The offset that reading, oldest first, has reached in each queue whose broker failed."""
        return {one.stretch.queue: one.left[0] for one in self._cursors if one.failure is not None}

    async def __aiter__(self) -> AsyncIterator[MessageExt]:
        sign = -1 if self._newest_first else 1

        def place(cursor: _Cursor) -> tuple[int, str, int]:
            first = cursor.messages[0]
            return sign * first.store_timestamp, first.broker_name, sign * first.commit_log_offset

        while True:
            if empty := {cursor: str(cursor.stretch) for cursor in self._cursors if not cursor.messages}:
                await self._session.each(empty, lambda cursor: cursor.fill(self._session))
            self._cursors = [one for one in self._cursors if one.messages or one.failure]
            ready = [cursor for cursor in self._cursors if cursor.messages]
            if not ready:
                return
            if self._budget is not None and self.looked_at >= self._budget:
                self.is_cut = True
                return
            self.looked_at += 1
            yield min(ready, key=place).messages.popleft()

    def warnings(self) -> list[str]:
        """The warning that the budget was used up."""
        if not self.is_cut:
            return []
        rest = "older" if self._newest_first else "later"
        return [f"read {self.looked_at} messages, as many as allowed; {rest} ones were not read: --budget"]


async def browse(
    session: Session,
    topic: str,
    wanted: MessageFilter = MessageFilter(),
    *,
    limit: int = 64,
    newest_first: bool = True,
    budget: int | None = BUDGET,
    broker: str | None = None,
    queue_id: int | None = None,
) -> Result[MessageExt]:
    """Up to `limit` messages of the topic that are wanted, in the order of their store times."""
    parts = await stretches(
        session, topic, begin_ms=wanted.begin_ms, end_ms=wanted.end_ms, broker=broker, queue_id=queue_id
    )
    look = QueueScan(session, parts.items, newest_first=newest_first, budget=budget, tag=wanted.tag)
    found = Result[MessageExt](warnings=parts.warnings)
    sieve = Sieve(wanted, found.warnings.append)
    async for message in look:
        if sieve.takes(message):
            found.items.append(message)
            if len(found.items) >= limit:
                break
    found.warnings += look.warnings()
    found.failures = [*parts.failures, *look.failures]
    return found


async def count_by_tag(
    session: Session,
    topic: str,
    wanted: MessageFilter = MessageFilter(),
    *,
    budget: int | None = BUDGET,
    broker: str | None = None,
    queue_id: int | None = None,
) -> Result[TagCount]:
    """How many messages of each tag there are, the most frequent first."""
    parts = await stretches(
        session, topic, begin_ms=wanted.begin_ms, end_ms=wanted.end_ms, broker=broker, queue_id=queue_id
    )
    look = QueueScan(session, parts.items, budget=budget, tag=wanted.tag)
    numbers: Counter[str | None] = Counter()
    sizes: Counter[str | None] = Counter()
    async for message in look:
        if wanted.takes(message):
            numbers[message.tags] += 1
            sizes[message.tags] += len(message.body)
    items = [TagCount(tag, number, sizes[tag]) for tag, number in numbers.most_common()]
    return Result(items, [*parts.warnings, *look.warnings()], [*parts.failures, *look.failures])


async def follow(
    session: Session,
    parts: Collection[Stretch],
    *,
    late: Mapping[MessageQueue, Node] = MappingProxyType({}),
    begin_of: BeginOf | None = None,
    tag: str | None = None,
    on_failure: Callable[[Failure], None] = lambda _failure: None,
) -> AsyncGenerator[MessageExt, None]:
    """Messages that arrive in these queues after the end of each range, until the caller stops. They are in order
    within a queue. A broker that does not respond is reported and retried. The limits of `late` queues are not known
    yet, which has been reported: they are read from `begin_of` on as soon as their broker responds."""
    arrived: asyncio.Queue[MessageExt] = asyncio.Queue(PULL_COUNT * max(len(parts) + len(late), 1))
    tasks = [asyncio.ensure_future(_follow(session, part, tag or "*", arrived, on_failure)) for part in parts]
    if begin_of is not None:
        tasks += [
            asyncio.ensure_future(_follow_late(session, node, queue, begin_of, tag or "*", arrived, on_failure))
            for queue, node in late.items()
        ]
    try:
        while tasks:
            yield await arrived.get()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _follow(
    session: Session,
    part: Stretch,
    tag: str,
    arrived: asyncio.Queue[MessageExt],
    on_failure: Callable[[Failure], None],
) -> None:
    offset, is_well = part.end, True
    while True:
        header = pull_header(part.queue, offset, PULL_COUNT, tag, flags=PULL_SUSPEND, suspend_ms=HOLD_MS)
        try:
            reply = await session.request(pulls.pull, part.node, header, timeout_ms=HOLD_MS + session.timeout_ms)
            messages = [message_of(one, part.node.name, decompress=False) for one in decode_units(reply.body)]
        except OrbitMQError as error:
            if is_well:  # once an outage
                on_failure(failure_of(f"{part.node}: {part}", error))
            is_well = False
            await asyncio.sleep(PAUSE_S)
            continue
        is_well = True
        for message in messages:
            await arrived.put(message)
        offset = reply.next_begin_offset


async def _follow_late(
    session: Session,
    node: Node,
    queue: MessageQueue,
    begin_of: BeginOf,
    tag: str,
    arrived: asyncio.Queue[MessageExt],
    on_failure: Callable[[Failure], None],
) -> None:
    while True:
        await asyncio.sleep(PAUSE_S)
        try:
            begin = await begin_of(node, queue)
        except OrbitMQError:
            continue
        return await _follow(session, Stretch(node, queue, begin, begin), tag, arrived, on_failure)


async def at_queue_offset(session: Session, queue: MessageQueue, offset: int) -> MessageExt:
    """The message at this offset of a queue. NotFound says whether it has expired or has not been written yet."""
    node = await session.node(queue.broker_name)
    header = pull_header(queue, offset, 1)
    reply = await session.request(pulls.pull, node, header)
    if reply.code == ResponseCode.SUCCESS:
        for unit in decode_units(reply.body):
            if unit.queue_offset == offset:
                return message_of(unit, node.name, decompress=False)
    first = await session.request(offsets.min_offset, node, queue)
    what = "has expired" if offset < first else "is not written yet"
    raise NotFound(
        f"offset {offset} of {queue.topic}/{queue.broker_name}/{queue.queue_id} {what}",
        f"the queue holds {first} to {reply.max_offset - 1}" if reply.max_offset > first else "the queue is empty",
    )


def pull_header(
    queue: MessageQueue, offset: int, count: int, tag: str = "*", *, flags: int = 0, suspend_ms: int = 0
) -> PullMessageHeader:
    """A pull of the tools' own group, which commits nothing."""
    return PullMessageHeader(
        consumer_group=TOOLS_CONSUMER_GROUP,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=count,
        sys_flag=PULL_SUBSCRIPTION | flags,
        commit_offset=0,
        suspend_timeout_millis=suspend_ms,
        sub_version=0,
        subscription=tag,
        expression_type="TAG",
    )
