"""The outbox itself: what it keeps, when it sends a message again, and how a message leaves it. See the package."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import TypeVar

from orbitmq.client.background import Background
from orbitmq.client.core.arguments import checks_arguments
from orbitmq.client.core.model import SendResult, SendStatus
from orbitmq.client.core.outgoing import Outgoing
from orbitmq.client.core.retry import BROKER_MISSING
from orbitmq.client.loops import check_loop
from orbitmq.client.outbox.backlog import Backlog, BacklogEntry
from orbitmq.client.outbox.file import OutboxFile
from orbitmq.client.outbox.losses import Losses, OnLoss
from orbitmq.client.outbox.record import (
    AttemptHistory,
    Loss,
    LossReason,
    OutboxRecord,
    decode_history,
    decode_kept,
    doubling_pause,
    encode_history,
    encode_kept,
    line_of,
    new_kept,
    worth_keeping,
)
from orbitmq.client.sender import SendTarget
from orbitmq.errors import ClientError, ConfigurationError, InvalidStateError, OrbitMQError, StoreError, UnitError
from orbitmq.message.model import MessageQueue
from orbitmq.runtime.clock import Clock, SystemClock

_log = logging.getLogger(__name__)

LINES_AT_ONCE = (
    16  # sends of the outbox in flight: enough to fill a connection, few compared with the application's own
)
FIRST_PAUSE_MS = 1000  # until the first new attempt: the broker may only have been restarting
CLOSE_SECONDS = 5.0  # for sends in flight, each of which has its own time limit

R = TypeVar("R")
StoreRule = Callable[[Outgoing, OrbitMQError], bool]
"""Returns whether a message whose send failed with this error is kept. If the rule raises, the message is kept."""
Resend = Callable[[Outgoing, SendTarget], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class OutboxEntry:
    """A message that waits in the outbox."""

    number: int
    """Increases with every message that the outbox keeps."""
    topic: str
    """The topic that it will be sent to."""
    msg_id: str
    """Its unique id, which its consumer will see."""
    size: int
    """Bytes on disk."""
    first_failed_ms: int
    """Milliseconds since the epoch."""
    attempts: int
    """Attempts to send it since it is in the outbox."""
    next_attempt_ms: int
    """Milliseconds since the epoch; in the past for a message that is due."""
    error: str
    """The error of the last attempt."""


RedeliveryRule = Callable[[OutboxEntry], float | None]
"""Returns the seconds until a message that failed again is retried; None gives it up (`LossReason.GAVE_UP`)."""


@dataclass(frozen=True, slots=True)
class OutboxLimits:
    """The limits of an outbox."""

    messages_max: int = 10_000
    """Messages that may wait."""
    bytes_max: int = 256 << 20
    """Bytes that they may take on disk."""
    message_bytes_max: int = (4 << 20) + (64 << 10)
    """Bytes of one message on disk: the largest possible body, and its properties."""
    age_max_s: float = 72 * 3600.0
    """Seconds after which a message is given up. The default is the default retention of brokers."""
    writes_max: int = 1_000
    """Messages in memory that are not written to disk yet."""
    writes_bytes_max: int = 16 << 20
    """Bytes of those messages."""

    def check(self) -> None:
        """Raise ConfigurationError for a limit that is not positive."""
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise ConfigurationError(
                    f"limit {name} of an outbox: {getattr(self, name)} is not allowed, use a positive value"
                )


class Outbox:
    """Keeps messages whose send failed. It belongs to one producer, which opens and closes it, and owns its directory.

    `should_store(message, error)` chooses what is kept; the default keeps messages that failed for lack of a broker,
    not those that were rejected for good. `next_pause(entry)` returns the seconds until the next attempt, or None to
    give the message up; the default is `doubling_pause`. `on_loss(loss)` may be a function, which runs on a thread of
    its own, or a coroutine function. With `drop_oldest` a full outbox drops its oldest messages for new ones; otherwise
    it rejects new ones. With `durable` a failed send waits until its message is on disk. With `raises` the send of a
    kept message still fails, and `stored_locally` of the error is true; otherwise it returns a result with status
    STORED_LOCALLY.

    The default of `limits` is `OutboxLimits()`; ConfigurationError for a limit that is not positive.
    """

    @checks_arguments
    def __init__(
        self,
        path: str | Path,
        *,
        limits: OutboxLimits | None = None,
        should_store: StoreRule = worth_keeping,
        next_pause: RedeliveryRule | None = None,
        on_loss: OnLoss | None = None,
        drop_oldest: bool = False,
        durable: bool = False,
        raises: bool = True,
        clock: Clock | None = None,
    ) -> None:
        self.path = Path(path)
        """The directory."""
        self.limits = limits or OutboxLimits()
        """The limits."""
        self.limits.check()
        self._should_store = should_store
        self._next_pause = next_pause or self._usual_pause
        self._drop_oldest = drop_oldest
        self._durable = durable
        self._raises = raises
        self._clock = clock or SystemClock()
        self._chance = Random()  # noqa: S311 - spreads load, keeps no secret
        self.stored = 0
        """Messages kept since the outbox was opened."""
        self.delivered = 0
        """Messages sent from the outbox since it was opened."""
        self._on_loss = on_loss
        self._file: OutboxFile | None = None
        self._closing = False
        self._resend: Resend | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._clear()

    def _clear(self) -> None:
        """Forget the last producer: the directory holds what waits, and its loop may have ended."""
        self._losses = Losses(self._on_loss)
        self._backlog = Backlog()
        self._unwritten: dict[int, OutboxRecord] = {}  # taken, not yet on disk
        self._evicted: deque[int] = deque()  # given up, not reported yet
        self._sending = 0
        self._background = Background(f"outbox {self.path}")
        self._news = asyncio.Event()
        self.stored = self.delivered = 0

    @property
    def lost(self) -> Counter[LossReason]:
        """Losses since the outbox was opened."""
        return self._losses.counts

    # ----------------------------------------------------------------------------------------------------- lifecycle

    async def open(self, resend: Resend) -> None:
        """Lock the directory, load the messages that wait there, start to send them. For the producer.

        InvalidStateError when it is open, StoreLocked when another outbox has the directory, StoreError when the
        directory cannot be used.
        """
        if self._file is not None:
            raise InvalidStateError(
                f"the outbox {self.path} has a producer already; create one outbox for each producer"
            )
        loop = asyncio.get_running_loop()
        deliver = loop.call_soon_threadsafe
        make = partial(OutboxFile, self.path, bytes_max=self.limits.bytes_max, deliver=deliver)
        making = loop.run_in_executor(None, make)
        try:
            file = await asyncio.shield(making)
        except asyncio.CancelledError:
            making.add_done_callback(_close_unused)  # the thread cannot be stopped
            raise
        self._clear()
        self._loop, self._file, self._resend, self._closing = loop, file, resend, False
        self._losses.open()
        try:
            await self._load(file)
        except BaseException:
            await self.close()
            raise
        self._background.spawn(self._send_what_is_due())

    async def _load(self, file: OutboxFile) -> None:
        for number, data, history in await asyncio.to_thread(lambda: list(file.read_all())):
            self._found(file, number, data, decode_history(history) if history else AttemptHistory())
        if (missing := file.accepted - file.settled) > 0:
            text = f"{missing} messages were accepted and not written before the process ended"
            self._losses.tell(Loss(LossReason.UNCLEAN_SHUTDOWN, text, count=missing))
            await asyncio.to_thread(file.settle)

    def _found(self, file: OutboxFile, number: int, data: bytes, history: AttemptHistory) -> None:
        try:
            kept = decode_kept(data)
        except UnitError as error:
            file.remove(number)
            self._losses.tell(Loss(LossReason.CORRUPT_RECORD, f"message {number} of the outbox: {error}"))
        else:
            self._enter(number, kept, len(data), history)

    def _enter(self, number: int, kept: OutboxRecord, size: int, history: AttemptHistory) -> BacklogEntry:
        waiting = BacklogEntry(
            number, kept.line, size, kept.first_failed_ms, kept.message.msg_id, history.error or kept.error,
            history.attempts, history.next_ms,
        )  # fmt: skip
        self._backlog.add(waiting)
        return waiting

    async def close(self) -> None:
        """Stop sending, write what is not on disk yet, unlock the directory. Messages that wait stay there. For the
        producer. Does not raise: what could not be written is reported as lost.
        """
        file = self._file
        if file is None or self._closing:
            return
        self._closing = True
        self._news.set()
        try:
            await self._background.finish(CLOSE_SECONDS)
        finally:
            await self._background.stop()  # if this is cancelled, sends may still be in progress
            # not before: messages sent meanwhile must be removed from the disk, or they are sent once more
            self._file = None
            left = await asyncio.to_thread(file.close)
        if left:
            self._losses.tell(
                Loss(LossReason.WRITE_ERROR, f"the disk did not finish {left} writes in time", count=left)
            )
        await self._losses.close()

    async def abandon(self) -> None:
        """Write what is not on disk yet and unlock the directory, in another loop than that of `open`, which no longer
        runs. For the producer.
        """
        file, self._file = self._file, None
        if file is not None:
            await asyncio.to_thread(file.close)

    # ------------------------------------------------------------------------------------------------------- keeping

    async def send(self, message: Outgoing, target: SendTarget, send: Callable[[], Awaitable[R]]) -> R | SendResult:
        """The result of `send`, unless it fails and the message is kept, or earlier messages wait that it must not
        overtake. For the producer. Raises what `send` raises.
        """
        line = line_of(message.topic, target.queue, target.key)
        error: OrbitMQError
        if not target.is_free and self._backlog.holds(line):
            text = f"earlier messages for {line} wait in the outbox {self.path}, so this one was queued after them"
            error = ClientError(BROKER_MISSING, text)
        else:
            try:
                result = await send()
            except OrbitMQError as failure:
                error = failure
            else:
                if self._backlog:
                    self._reached(message.topic)
                return result
        if not await self._keep(message, target, error):
            raise error
        if self._raises:
            error.stored_locally = True
            raise error
        queue = target.queue or MessageQueue(message.topic, "", -1)
        return SendResult(SendStatus.STORED_LOCALLY, message.msg_id, "", queue, -1)

    async def _keep(self, message: Outgoing, target: SendTarget, error: OrbitMQError) -> bool:
        kept = new_kept(message, self._clock.now_ms(), str(error), target.queue, target.key)
        data, file = encode_kept(kept), self._file
        if file is None or self._closing:
            self._losses.tell(kept.lost(LossReason.WRITE_ERROR, f"the outbox {self.path} is closed"))
            return False
        if (refusal := self._refusal(file, message, error, len(data))) is not None:
            self._losses.tell(kept.lost(*refusal))
            return False
        number = file.next_number()
        # A message that is queued after others is due when they are gone.
        next_ms = 0 if self._backlog.holds(kept.line) else kept.first_failed_ms + FIRST_PAUSE_MS
        waiting = self._enter(number, kept, len(data), AttemptHistory(next_ms=next_ms))
        self._unwritten[number] = kept
        self.stored += 1
        written: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        file.put(number, data, lambda failure: self._written(waiting, failure, written))
        self._news.set()
        return not self._durable or await written is None

    def _refusal(
        self, file: OutboxFile, message: Outgoing, error: OrbitMQError, size: int
    ) -> tuple[LossReason, str] | None:
        limits = self.limits
        if not self._wants(message, error):
            return LossReason.RULE_REJECTED, f"the store rule rejected the message after {error}"
        if size > min(limits.message_bytes_max, limits.bytes_max):
            return (
                LossReason.LIMIT_MESSAGE_SIZE,
                f"{size} bytes, at most {min(limits.message_bytes_max, limits.bytes_max)}",
            )
        if file.waiting >= limits.writes_max or file.waiting_bytes + size > limits.writes_bytes_max:
            return LossReason.ASYNC_QUEUE_FULL, f"{file.waiting} writes of {file.waiting_bytes} bytes wait for the disk"
        if self._drop_oldest:
            self._make_room(size)
        if len(self._backlog) >= limits.messages_max:
            return LossReason.LIMIT_COUNT, f"{len(self._backlog)} messages wait, at most {limits.messages_max}"
        if self._backlog.bytes + size > limits.bytes_max:
            return LossReason.LIMIT_BYTES, f"{self._backlog.bytes} bytes wait, at most {limits.bytes_max}"
        return None

    def _wants(self, message: Outgoing, error: OrbitMQError) -> bool:
        try:
            return self._should_store(message, error)
        except Exception:  # the application's code: better keep one message too many than lose one
            _log.exception("event=outbox_rule_failed path=%s", self.path)
            return True

    def _make_room(self, size: int) -> None:
        """Drop the oldest messages until one of `size` bytes fits. Those in flight stay."""
        limits = self.limits
        for oldest in list(self._backlog):
            if len(self._backlog) < limits.messages_max and self._backlog.bytes + size <= limits.bytes_max:
                return
            if not oldest.is_in_flight:
                self._backlog.remove(oldest.sequence)
                if not self._evicted:
                    self._background.spawn(self._report_evicted())
                self._evicted.append(oldest.sequence)

    def _written(
        self, waiting: BacklogEntry, failure: Exception | None, written: asyncio.Future[Exception | None]
    ) -> None:
        """A write has succeeded or failed. A message that is in flight just then may still be sent."""
        kept = self._unwritten.pop(waiting.sequence)
        _give(written, failure)
        if failure is not None and self._backlog.find(waiting.sequence) is waiting and not waiting.is_in_flight:
            self._backlog.remove(waiting.sequence)
            self._losses.tell(kept.lost(LossReason.WRITE_ERROR, str(failure)))

    # ------------------------------------------------------------------------------------------------- sending again

    async def _send_what_is_due(self) -> None:
        while not self._closing:
            self._news.clear()
            now_ms = self._clock.now_ms()
            while self._sending < LINES_AT_ONCE and (waiting := self._backlog.take(now_ms)) is not None:
                self._sending += 1
                self._background.spawn(self._attempt(waiting))
            due_ms = self._backlog.next_due_ms() if self._sending < LINES_AT_ONCE else None
            pause_s = None if due_ms is None else max(0.0, (due_ms - self._clock.now_ms()) / 1000)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._news.wait()

    async def _attempt(self, waiting: BacklogEntry) -> None:
        try:
            kept = await self._read(waiting.sequence)
            if kept is not None:
                await self._redeliver(waiting, kept)
        finally:
            if waiting.is_in_flight and self._backlog.find(waiting.sequence) is waiting:  # the task was cancelled
                self._backlog.failed(waiting.sequence, self._clock.now_ms() + FIRST_PAUSE_MS)
            self._sending -= 1
            self._news.set()

    async def _redeliver(self, waiting: BacklogEntry, kept: OutboxRecord) -> None:
        assert self._resend is not None, "an open outbox has a function that sends"
        number = waiting.sequence
        if self._clock.now_ms() - kept.first_failed_ms > self.limits.age_max_s * 1000:
            self._lose(number, kept, LossReason.EXPIRED, f"older than {self.limits.age_max_s:g} s")
            return
        try:
            await self._resend(kept.message, SendTarget(kept.queue, kept.key))
        except OrbitMQError as error:
            self._retry_failed(waiting, kept, error)
        else:
            self.delivered += 1
            self._backlog.remove(number)
            self._remove_from_disk(number)
            self._reached(kept.message.topic)

    def _retry_failed(self, waiting: BacklogEntry, kept: OutboxRecord, error: OrbitMQError) -> None:
        number = waiting.sequence
        if not worth_keeping(kept.message, error):
            self._lose(number, kept, LossReason.NON_RETRYABLE, str(error))
            return
        waiting.error = str(error)
        pause_s = self._pause(waiting)
        if pause_s is None:
            self._lose(number, kept, LossReason.GAVE_UP, f"after {waiting.attempts + 1} attempts: {error}")
            return
        next_ms = self._clock.now_ms() + int(pause_s * 1000)
        self._backlog.failed(number, next_ms)
        if self._file is not None:
            self._file.put_history(number, encode_history(AttemptHistory(waiting.attempts, next_ms, waiting.error)))

    def _pause(self, waiting: BacklogEntry) -> float | None:
        entry = replace(_entry(waiting), attempts=waiting.attempts + 1)
        try:
            return self._next_pause(entry)
        except Exception:  # the user's code
            _log.exception("event=outbox_rule_failed path=%s", self.path)
            return self._usual_pause(entry)

    def _usual_pause(self, entry: OutboxEntry) -> float:
        return doubling_pause(entry.attempts, self._chance.random())

    def _reached(self, topic: str) -> None:
        self._backlog.reached(topic, self._clock.now_ms())
        self._news.set()

    # --------------------------------------------------------------------------------------------- reading, removing

    async def _read(self, number: int) -> OutboxRecord | None:
        """The message with that number; None if it cannot be read, which is reported as a loss."""
        if (kept := self._unwritten.get(number)) is not None:
            return kept
        file = self._file
        if file is None:
            return None
        try:
            data = await asyncio.to_thread(file.read, number)
            return decode_kept(data or b"")
        except OrbitMQError as error:
            if self._backlog.find(number) is not None:
                self._backlog.remove(number)
            self._remove_from_disk(number)
            self._losses.tell(Loss(LossReason.CORRUPT_RECORD, f"message {number} of the outbox: {error}"))
            return None

    async def _report_evicted(self) -> None:
        """Report evicted messages one after another, to keep the order of losses."""
        while self._evicted:
            kept = await self._read(self._evicted[0])
            if kept is not None:
                self._remove_from_disk(self._evicted[0])
                self._losses.tell(kept.lost(LossReason.EVICTED, "a newer message took its place"))
            self._evicted.popleft()

    def _lose(self, number: int, kept: OutboxRecord, reason: LossReason, detail: str) -> None:
        self._backlog.remove(number)
        self._remove_from_disk(number)
        self._losses.tell(kept.lost(reason, detail))

    def _remove_from_disk(self, number: int) -> None:
        if self._file is not None:
            self._file.remove(number)

    # -------------------------------------------------------------------------------------------------- looking inside

    @property
    def size(self) -> int:
        """Bytes that the waiting messages take on disk."""
        return self._backlog.bytes

    def __len__(self) -> int:
        return len(self._backlog)

    @checks_arguments
    def entries(self, topic: str | None = None) -> list[OutboxEntry]:
        """The waiting messages, the oldest first."""
        return [_entry(waiting) for waiting in self._backlog if topic in (None, waiting.topic)]

    @checks_arguments
    async def purge(self, topic: str | None = None, *, before_ms: int | None = None) -> int:
        """Remove waiting messages, all or those of a topic or of sends that failed before a time, and return their
        number. They do not count as losses. Messages in flight stay.

        InvalidStateError unless the producer of the outbox is running, StoreError when the disk cannot be written.
        """
        file = self._file
        if file is None or self._closing:
            raise InvalidStateError(f"the outbox {self.path} is not open")
        check_loop(f"the outbox {self.path}", self._loop)
        unwanted = [
            waiting.sequence
            for waiting in self._backlog
            if topic in (None, waiting.topic)
            and (before_ms is None or waiting.first_failed_ms < before_ms)
            and not waiting.is_in_flight
        ]
        removed: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        for number in unwanted:
            self._backlog.remove(number)
            file.remove(number)
        file.barrier(lambda failure: _give(removed, failure))
        if (failure := await removed) is not None:
            raise StoreError(f"the outbox {self.path} cannot be written: {failure}")
        return len(unwanted)


def _give(outcome: asyncio.Future[Exception | None], failure: Exception | None) -> None:
    """The outcome of a write, unless the caller has cancelled."""
    if not outcome.done():
        outcome.set_result(failure)


def _close_unused(making: asyncio.Future[OutboxFile]) -> None:
    """A callback of the future of files that are not wanted any more."""
    if not making.cancelled() and making.exception() is None:
        making.result().close()


def _entry(waiting: BacklogEntry) -> OutboxEntry:
    return OutboxEntry(
        waiting.sequence, waiting.topic, waiting.msg_id, waiting.size, waiting.first_failed_ms, waiting.attempts,
        waiting.next_ms, waiting.error,
    )  # fmt: skip
