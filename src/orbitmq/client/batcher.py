"""Puts messages that are sent within a short time (`linger_ms`) into one request for each queue.

Messages for which the application chooses no queue go to one queue together, the next in turn; several such requests
may be in flight. Messages for a chosen queue, or a key, keep their order: of each queue one request is in flight, and
what comes meanwhile is in the next one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import islice

from orbitmq.client.core.model import SendResult
from orbitmq.client.core.outgoing import Outgoing
from orbitmq.client.core.outgoing_message import joined, joins
from orbitmq.client.core.retry import RetryRules
from orbitmq.client.sender import ANYWHERE, MessageSender, SendTarget
from orbitmq.errors import BrokerError, OrbitMQError
from orbitmq.message.model import MessageQueue
from orbitmq.wire.codes import ResponseCode


@dataclass(slots=True, eq=False)
class _Waiting:
    """A message and the future of its result. `started` is the loop time from which its rules count."""

    message: Outgoing
    rules: RetryRules
    target: SendTarget
    result: asyncio.Future[SendResult]
    started: float
    held: int
    """Bytes that it counts against the in-flight limit; -1 if the caller releases them."""


@dataclass(slots=True, eq=False)
class _Gathered:
    """Messages of a topic until the linger is over, in the order in which they came."""

    timer: asyncio.TimerHandle
    messages: list[_Waiting] = field(default_factory=list)
    size: int = 0


class Batched:
    """A message that is checked and packed; called with rules it is sent, as a `Delivery`."""

    __slots__ = ("_batcher", "_message", "_target")

    def __init__(self, batcher: Batcher, message: Outgoing, target: SendTarget) -> None:
        self._batcher = batcher
        self._message = message
        self._target = target

    async def __call__(self, rules: RetryRules) -> SendResult:
        return await self._batcher.send(self._message, rules, self._target)

    def begin(self, rules: RetryRules, held: int) -> asyncio.Future[SendResult]:
        """The same at once; `held` bytes in flight are given back in the end."""
        return self._batcher.send(self._message, rules, self._target, held)


class Batcher:
    """For the event loop of `sender`. A request has at most `bytes_max` bytes of bodies and properties, or one message.
    `leave` gives back bytes in flight.
    """

    def __init__(self, sender: MessageSender, linger_ms: int, bytes_max: int, leave: Callable[[int], None]) -> None:
        self._sender = sender
        self._linger_s = linger_ms / 1000
        self._bytes_max = bytes_max
        self._leave = leave
        self._loop = asyncio.get_running_loop()
        self._gathered: dict[str, _Gathered] = {}
        self._in_order: dict[str, asyncio.Lock] = {}  # of a topic whose route is awaited: later messages wait as well
        self._lanes: dict[MessageQueue, deque[_Waiting]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.begun = 0
        """Messages with `held` bytes that have no result yet."""

    def send(
        self, message: Outgoing, rules: RetryRules, target: SendTarget = ANYWHERE, held: int = -1
    ) -> asyncio.Future[SendResult]:
        """The future result of the message, or its error: those of `MessageSender.send`. A message whose future is
        cancelled before its request is made is not sent.
        """
        result: asyncio.Future[SendResult] = self._loop.create_future()
        topic, size = message.topic, _size(message)
        gathered = self._gathered.get(topic)
        if gathered is not None and gathered.size + size > self._bytes_max:
            gathered.timer.cancel()
            self._flush(topic)
            gathered = None
        if gathered is None:
            timer = self._loop.call_later(self._linger_s, self._flush, topic)
            gathered = self._gathered[topic] = _Gathered(timer)
        gathered.messages.append(_Waiting(message, rules, target, result, self._loop.time(), held))
        gathered.size += size
        if held >= 0:
            self.begun += 1
        return result

    def hurry(self) -> None:
        """Let nothing linger any more."""
        self._linger_s = 0.0
        for topic in list(self._gathered):
            self._gathered[topic].timer.cancel()
            self._flush(topic)

    async def finish(self, seconds: float) -> None:
        """Wait for all results, at most so long; then cancel what is left."""
        self.hurry()
        ends = self._loop.time() + seconds
        while self._tasks and (left := ends - self._loop.time()) > 0:
            await asyncio.wait(set(self._tasks), timeout=left)
        for task in self._tasks:
            task.cancel()

    # ---------------------------------------------------------------------------------------------------------------

    def _flush(self, topic: str) -> None:
        messages = self._gathered.pop(topic).messages
        for run in self._runs([one for one in messages if one.target.is_free]):
            self._begin(self._send_run(run, ANYWHERE))
        if chosen := [one for one in messages if not one.target.is_free]:
            self._begin(self._distribute(topic, chosen))

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _runs(self, messages: Sequence[_Waiting]) -> Iterator[list[_Waiting]]:
        """Cut into what one request can hold, in order."""
        rest = deque(messages)
        while rest:
            run = self._first_run(rest)
            for _ in run:
                rest.popleft()
            yield run

    def _first_run(self, messages: deque[_Waiting]) -> list[_Waiting]:
        """The first of them that one request can hold."""
        first, run, size = messages[0], [messages[0]], _size(messages[0].message)
        for one in islice(messages, 1, None):
            size += _size(one.message)
            if size > self._bytes_max or one.rules is not first.rules or not joins(first.message, one.message):
                break
            run.append(one)
        return run

    async def _distribute(self, topic: str, messages: Sequence[_Waiting]) -> None:
        """Into the lanes of their queues. Only the first messages of a topic have to wait for its route."""
        lock = self._in_order.setdefault(topic, asyncio.Lock())
        waiting = deque(messages)
        try:
            async with lock:
                while waiting:
                    one = waiting[0]
                    try:
                        queue = await self._sender.choose(topic, one.target)
                    except Exception as error:  # of the route, or of the application's selector
                        self._fail(waiting.popleft(), error)
                        continue
                    lane = self._lanes.get(queue)
                    if lane is None:
                        lane = self._lanes[queue] = deque()
                        self._begin(self._drive(queue, lane))
                    lane.append(waiting.popleft())
        finally:
            self._cancel(waiting)

    async def _drive(self, queue: MessageQueue, lane: deque[_Waiting]) -> None:
        """Send what is in the lane, and what comes meanwhile, one request after the other."""
        target = SendTarget(queue)
        try:
            while lane:
                run = self._first_run(lane)
                for _ in run:
                    lane.popleft()
                await self._send_run(run, target)
        finally:
            del self._lanes[queue]
            self._cancel(lane)

    async def _send_run(self, run: Sequence[_Waiting], target: SendTarget) -> None:
        """Give each message its own result or error."""
        try:
            wanted = [one for one in run if not one.result.done()]  # others were cancelled while they waited
            if len(wanted) > 1:
                await self._send_together(wanted, target)
            elif wanted:
                await self._send_alone(wanted[0], target)
        finally:
            self._cancel(run)

    async def _send_together(self, run: Sequence[_Waiting], target: SendTarget) -> None:
        try:
            batch = joined([one.message for one in run])
            result = await self._sender.send(batch, self._rules(run[0]), target)
        except BrokerError as error:
            if error.code == ResponseCode.MESSAGE_ILLEGAL:  # which one of them, the response does not say
                for one in run:
                    await self._send_alone(one, target)
                return
            self._fail_all(run, error)
        except Exception as error:
            self._fail_all(run, error)
        else:
            self._give(run, result)

    async def _send_alone(self, one: _Waiting, target: SendTarget) -> None:
        try:
            result = await self._sender.send(one.message, self._rules(one), target)
        except Exception as error:
            self._fail(one, error)
        else:
            if not one.result.done():
                one.result.set_result(result)

    def _rules(self, one: _Waiting) -> RetryRules:
        """Its rules for the time that is left: a message may have waited in its lane."""
        waited_ms = int((self._loop.time() - one.started) * 1000)
        return one.rules.with_timeout(max(1, one.rules.timeout_ms - waited_ms))

    def _give(self, run: Sequence[_Waiting], batch: SendResult) -> None:
        status, queue, offset = batch.status, batch.queue, batch.queue_offset
        region, trace_on = batch.region_id, batch.trace_on
        ids = batch.offset_msg_id.split(",")
        if len(ids) != len(run):
            ids = [batch.offset_msg_id] * len(run)
        for one, offset_msg_id in zip(run, ids, strict=True):
            if not one.result.done():
                msg_id = one.message.msg_id
                one.result.set_result(SendResult(status, msg_id, offset_msg_id, queue, offset, region, trace_on))
            offset += 1

    def _fail_all(self, run: Sequence[_Waiting], error: Exception) -> None:
        for one in run:
            self._fail(one, copy(error) if isinstance(error, OrbitMQError) else error)

    def _fail(self, one: _Waiting, error: Exception) -> None:
        if not one.result.done():
            one.result.set_exception(error)
        self._end(one)

    def _cancel(self, messages: Iterable[_Waiting]) -> None:
        """End what has no result yet."""
        for one in messages:
            if not one.result.done():
                one.result.cancel()
            self._end(one)

    def _end(self, one: _Waiting) -> None:
        if one.held >= 0:
            held, one.held = one.held, -1
            self.begun -= 1
            self._leave(held)


def _size(message: Outgoing) -> int:
    return len(message.body) + len(message.properties)
