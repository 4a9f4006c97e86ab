"""Sends the dead letters of a group again, however many: planned by queue, sent at a rate, taken back where possible.

A dead letter stays where it is. What is sent is marked, so that the undo finds it among other messages.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from orbitmq.admin import offsets
from orbitmq.admin.message_send import Outlet, again
from orbitmq.admin.plans import Change, Plan, Step
from orbitmq.admin.results import Gathered
from orbitmq.admin.retry_places import RetryPlaces, retry_places
from orbitmq.admin.scan import (
    MessageFilter,
    QueueScan,
    Stretch,
    at_queue_offset,
    limits,
    readable_queues,
    stretches,
)
from orbitmq.admin.session import Session, nearest
from orbitmq.admin.targets import parsed_queues
from orbitmq.errors import AdminError, BadArgument, NotFound, OrbitMQError
from orbitmq.message.model import MessageExt, MessageQueue
from orbitmq.message.topics import DLQ_PREFIX, dlq_topic, retry_topic
from orbitmq.operations.offsets import query_consumer_offset
from orbitmq.operations.routes import topics
from orbitmq.runtime.clock import Clock

UNDO = "msg undo"
"""The command that takes the undo files of resends."""
STEP = 1000
"""Dead letters of one step: as many as a report of a thousand steps can show of a million."""
IN_FLIGHT = 16
"""Sends at a time, as for other requests of an administrator."""
REPORT_SECONDS = 0.25
"""Between two reports of progress: a person sees it move, whatever the rate."""
MARK = "RESEND_ID"
"""The property that says which command sent a message."""


@dataclass(frozen=True, slots=True)
class ResendWish:
    """Which dead letters are sent again, where and how fast. Times are store times, both included."""

    group: str
    since_ms: int | None = None
    until_ms: int | None = None
    to: str | None = None
    """A topic that gets copies; None delivers them to the group, as retries."""
    rate: float | None = None
    """Messages a second; None sends as fast as brokers take them."""
    limit: int | None = None
    """The oldest ones, of each queue."""
    queues: Sequence[str] = ()
    """`broker/id` each; empty for all."""


@dataclass(slots=True)
class _Resend:
    """One command: its outlet, its pace, and what it has sent."""

    session: Session
    wish: ResendWish
    plan: Plan
    outlet: Outlet
    retries: RetryPlaces | None
    """None sends copies to a topic."""
    clock: Clock
    mark: str
    total: int = 0
    sent: int = 0
    due_at: float = field(default=0.0)
    report_at: float = field(default=0.0)
    """When the next report is due, by the loop's clock."""
    unsent: list[tuple[int, OrbitMQError]] = field(default_factory=list)
    """Store time and error of those of a part that could not be sent."""
    reached: dict[MessageQueue, int] = field(default_factory=dict)
    """Store time of the last one read of each queue."""

    async def part(self, part: Stretch) -> None:
        """Send one part of a queue. AdminError says how much of it was sent, and how to go on."""
        wanted = MessageFilter(self.wish.since_ms, self.wish.until_ms)
        scan, sending = QueueScan(self.session, [part], budget=None), set[asyncio.Task[None]]()
        self.unsent = []
        try:
            async for message in scan:
                if wanted.takes(message):
                    self.reached[part.queue] = message.store_timestamp
                    await self._turn()
                    if len(sending) >= IN_FLIGHT:
                        done, sending = await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
                        _raise_first(done)
                    if self.unsent:
                        break
                    sending.add(asyncio.create_task(self._send(message)))
            _raise_first(await _all(sending))
        except BaseException:
            await _all(sending)  # what is on its way counts
            raise
        if self.unsent:
            store_timestamp, error = min(self.unsent, key=lambda one: one[0])
            raise self._stopped(part.queue, store_timestamp, str(error)) from error
        if scan.failures:
            failure = scan.failures[0]
            since_ms = self.reached.get(part.queue, self.wish.since_ms)
            raise self._stopped(part.queue, since_ms, f"{failure.target}: {failure.message}")

    def _stopped(self, queue: MessageQueue, since_ms: int | None, reason: str) -> AdminError:
        """Other queues go on: a time to go on from is one of the queue."""
        since = "" if since_ms is None else f" --since {since_ms}"
        return AdminError(
            f"{self.sent} of {self.total} were sent, then: {reason}",
            f"go on with --queue {queue.broker_name}/{queue.queue_id}{since}",
        )

    async def _send(self, message: MessageExt) -> None:
        message.properties[MARK] = self.mark
        destination = self.retries.place(message, self.clock.now_ms()) if self.retries else str(self.wish.to)
        packed = again(message, destination, as_retry=self.retries is not None)
        try:
            home = message.broker_name if self.retries and self.retries.is_popped else None
            await self.outlet.send_packed(packed if self.retries else self.outlet.renamed(packed), message, home=home)
        except OrbitMQError as error:
            self.unsent.append((message.store_timestamp, error))
            return
        self.sent += 1
        self.plan.done = self.sent
        now = asyncio.get_running_loop().time()
        if now >= self.report_at or self.sent == self.total:
            self.report_at = now + REPORT_SECONDS
            self.plan.report(f"{self.sent:,} of {self.total:,} sent again")

    async def _turn(self) -> None:
        """Wait until the next one is due."""
        if self.wish.rate is None:
            return
        now = asyncio.get_running_loop().time()
        self.due_at = max(self.due_at, now) + 1 / self.wish.rate
        await asyncio.sleep(self.due_at - 1 / self.wish.rate - now)


async def _all(tasks: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
    return (await asyncio.wait(tasks))[0] if tasks else set()


def _raise_first(done: set[asyncio.Task[None]]) -> None:
    for task in done:
        task.result()


async def plan_resend_all(session: Session, wish: ResendWish, clock: Clock) -> Plan:
    """Send the dead letters of a group again. NotFound if it has none, BadArgument for a rate that is not above 0."""
    if wish.rate is not None and wish.rate <= 0:
        raise BadArgument("a rate is a number of messages a second above 0")
    topic = dlq_topic(wish.group)
    found = await _stretches(session, wish, topic)
    retries = None if wish.to else await retry_places(session, wish.group)
    is_popped = retries is not None and retries.is_popped
    if not is_popped:
        await session.route(wish.to or retry_topic(wish.group))
    parts = [part for one in found.responses.values() for part in _cut(one, wish.limit)]
    mark = f"{clock.now_ms()}-{os.getpid()}"
    plan = Plan("", failures=found.failures)
    resend = _Resend(session, wish, plan, Outlet(session, clock), retries, clock, mark)
    resend.total = plan.total = sum(part.end - part.begin for part in parts)
    plan.title = f"send {resend.total:,} dead letters of {wish.group} to {wish.to or 'it'} again"
    plan.changes = [_change(resend, part, topic) for part in parts]
    plan.warnings.append("dead letters stay where they are: if you repeat this, give --since")
    if is_popped:
        plan.warnings.append(f"the members of {wish.group} pop: what is sent to them cannot be taken back")
    elif retries is not None:
        queues = (await limits(session, await readable_queues(session, retry_topic(wish.group)))).items
        ends = [[one.queue.broker_name, one.queue.queue_id, one.end] for one in queues]
        plan.undo = {"command": UNDO, "group": wish.group, "mark": mark, "ends": ends}
    return plan


async def _stretches(session: Session, wish: ResendWish, topic: str) -> Gathered[MessageQueue, Stretch]:
    try:
        found = await stretches(session, topic, begin_ms=wish.since_ms, end_ms=wish.until_ms)
    except NotFound as error:
        names = await session.any_name_server(lambda server: session.request(topics, server))
        groups = [name.removeprefix(DLQ_PREFIX) for name in names if name.startswith(DLQ_PREFIX)]
        hint = nearest(wish.group, groups) or (
            f"groups with dead letters: {', '.join(groups[:10])}" if groups else None
        )
        raise NotFound(f"the group {wish.group} has no dead letters", hint) from error
    wanted = parsed_queues(wish.queues)
    missing = wanted - {(one.queue.broker_name, one.queue.queue_id) for one in found.items}
    if missing and not found.failures:
        name, number = min(missing)
        raise NotFound(f"topic {topic} has no queue {name}/{number} to read", f"orbitmq topic route {topic}")
    chosen = [one for one in found.items if not wanted or (one.queue.broker_name, one.queue.queue_id) in wanted]
    exact = await session.each({one: str(one) for one in chosen}, lambda one: _exact(session, one, wish))
    held = {one.queue: one for one in exact.responses.values() if one.end > one.begin}
    return Gathered(held, [*found.failures, *exact.failures])


async def _exact(session: Session, one: Stretch, wish: ResendWish) -> Stretch:
    """The part of the queue whose store times are wanted: brokers find it to the second."""

    async def first(stored_ms: int) -> int:
        low, high = one.begin, one.end
        while low < high:
            middle = (low + high) // 2
            if await stored_before(middle, stored_ms):
                low = middle + 1
            else:
                high = middle
        return low

    async def stored_before(offset: int, stored_ms: int) -> bool:
        try:
            return (await at_queue_offset(session, one.queue, offset)).store_timestamp < stored_ms
        except NotFound:  # it has expired
            return True

    begin = one.begin if wish.since_ms is None else await first(wish.since_ms)
    end = one.end if wish.until_ms is None else await first(wish.until_ms + 1)
    return replace(one, begin=begin, end=max(begin, end))


def _cut(one: Stretch, limit: int | None) -> list[Stretch]:
    end = one.end if limit is None else min(one.end, one.begin + limit)
    return [Stretch(one.node, one.queue, at, min(at + STEP, end)) for at in range(one.begin, end, STEP)]


def _change(resend: _Resend, part: Stretch, topic: str) -> Change:
    how = "deliver as retries" if resend.wish.to is None else "send copies"
    subject = f"{part.end - part.begin:,} of queue {part.queue.queue_id} from offset {part.begin}"
    step = Step(str(part.node), how, subject, topic, str(resend.retries or resend.wish.to))
    return Change(step, lambda: resend.part(part), chain=str(part.queue))  # a time to go on from is one of a queue


# ------------------------------------------------------------------------------------------------------------ undoing


async def plan_undo(session: Session, undo: Mapping[str, Any]) -> Plan:
    """Take back what the group has not consumed yet: its offsets skip the resent messages that come next. Those behind
    other messages stay. AdminError for a file of another form.
    """
    try:
        group, mark = msgspec.convert(undo["group"], str), msgspec.convert(undo["mark"], str)
        ends = msgspec.convert(undo["ends"], list[tuple[str, int, int]])
    except (KeyError, msgspec.ValidationError) as error:
        raise BadArgument(f"this is no undo file of a resend: {error!r}") from error
    topic = retry_topic(group)
    begins = {MessageQueue(topic, broker, number): end for broker, number, end in ends}
    queues = await readable_queues(session, topic)
    held = await limits(session, {queue: node for queue, node in queues.items() if queue in begins})
    rows, skipped, left = [], 0, 0
    for one in held.items:
        at = await session.request(query_consumer_offset, one.node, group, one.queue)
        first = max(one.begin, at if at is not None and at >= 0 else one.begin)
        until, behind = await _marked(session, one, first, begins[one.queue], mark)
        skipped, left = skipped + until - first, left + behind
        if until > first:
            queue = one.queue
            rows.append({"topic": topic, "brokerName": queue.broker_name, "queueId": queue.queue_id, "offset": until})
    plan = await offsets.plan_undo(session, {"group": group, "rules": {}, "offsets": rows})
    plan.title = f"skip {skipped:,} messages that were sent to {group} again"
    plan.failures += [failure for failure in held.failures if failure not in plan.failures]
    if left:
        plan.warnings.append(f"{left:,} more wait behind other messages of {topic} and will be delivered")
    plan.warnings.append("what the group has consumed already is not taken back")
    return plan


async def _marked(session: Session, one: Stretch, first: int, begin: int, mark: str) -> tuple[int, int]:
    """The offset after the marked messages that come next, and how many marked ones follow later."""
    until, behind = first, 0
    async for message in QueueScan(session, [Stretch(one.node, one.queue, max(first, begin), one.end)], budget=None):
        if message.properties.get(MARK) != mark:
            continue
        if message.queue_offset == until:
            until += 1
        else:
            behind += 1
    return until, behind
