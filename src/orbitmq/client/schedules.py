"""Sends a message again and again, at fixed intervals or by a cron expression, on top of timer messages.

    async with Producer("shop") as producer, Schedule(producer, "report", Message("Jobs", b"report"), cron="0 6 * * *"):
        ...

Nothing is stored: firing times follow from the schedule alone, so every process that runs it, before and after a
restart, computes the same ones and names them in the same way. That is simple and cannot break, unlike a chain in which
each message sends the next one; its price is that each process sends its own copy.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from copy import copy
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Self, TypeAlias
from zoneinfo import ZoneInfo

from orbitmq.client.core.arguments import checks_arguments
from orbitmq.client.producer import Producer
from orbitmq.errors import ConfigurationError, InvalidStateError, MessageIllegal, OrbitMQError
from orbitmq.message.model import Message
from orbitmq.message.properties import DELAY, IDEMPOTENCY_TOKEN, KEYS, TIMER_DELIVER_MS, TIMES, UNIQ_KEY
from orbitmq.runtime.clock import Clock, SystemClock

_log = logging.getLogger(__name__)

AHEAD = timedelta(minutes=1)
AGAIN_S = 5.0  # after a send that failed

MessageFactory: TypeAlias = Callable[[datetime], Message]
"""Makes the message of a firing, by its time. It runs on the event loop and must not block."""


class Schedule:
    """Sends `message`, or what it returns for each firing time, to be delivered at that time.

    `every` (a timedelta or seconds, at least 1 s) counts from the epoch: `every=3600` is each full hour in UTC. `cron`
    has five fields (six with seconds), in `time_zone`, a name such as `Europe/Berlin` (default UTC); it needs
    `orbitmq[schedules]`. With daylight saving time it behaves like Debian's cron: a job at a fixed hour that the clock
    skips fires right after the gap, one whose hour comes twice fires once, one that fires every hour or more often
    follows the real time.

    Firings are sent up to `ahead` (default a minute, at most what the broker allows) before their time. They come from
    the broker then, even if no process runs any more. Each arrives at least once if some process runs the schedule
    within the `ahead` before it and reaches the broker. Firings that were due while none ran are not made up for; one
    that runs and cannot send tries again until `ahead` after the time.

    Each process that runs the schedule sends a copy of each firing, and after a restart those of the next `ahead` once
    more. All copies of a firing carry one key, `name@2027-01-01T06:00:00Z`, which is also their IDEMPOTENCY_TOKEN:
    `orbitmq.client.idempotent` does the work once. Copies with the same name go to the same queue of the topic.

    Use it in the event loop of its producer. ConfigurationError for a schedule that is none, MessageIllegal for a
    message with a time to deliver of its own.
    """

    @checks_arguments
    def __init__(
        self,
        producer: Producer,
        name: str,
        message: Message | MessageFactory,
        *,
        every: timedelta | float | None = None,
        cron: str | None = None,
        time_zone: str = "UTC",
        ahead: timedelta | float = AHEAD,
        clock: Clock | None = None,
    ) -> None:
        if not name or not name.isprintable() or any(map(str.isspace, name)):
            raise ConfigurationError(f"schedule name {name!r} is not allowed; use letters, without spaces")
        if (every is None) == (cron is None):
            raise ConfigurationError(f"schedule {name}: set one of every and cron")
        self.name = name
        """Part of the key of each message; two schedules of a topic need two names."""
        self._producer = producer
        self._make: MessageFactory = message if callable(message) else lambda _: message
        if not callable(message):
            _check(message)
        self._firings = _at_intervals(_span(name, "every", every)) if cron is None else _by_cron(name, cron, time_zone)
        self._ahead = _span(name, "ahead", ahead)
        self._clock = clock or SystemClock()
        self._sent_until = self._now()
        self._task: asyncio.Task[None] | None = None

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)

    @checks_arguments
    def firings(self, after: datetime) -> Iterator[datetime]:
        """The firing times after `after`, which has a time zone, in UTC. It hardly ever ends."""
        return (at.astimezone(UTC) for at in self._firings(after))

    async def send_next(self) -> int:
        """Send the firings of the next `ahead` that this object has not sent yet, and return how many. `start` calls it
        regularly; call it yourself to run the schedule by other means, such as a job that cron starts. BrokerError,
        ClientError, RemotingError: the next call continues with the firing that failed.
        """
        now, sent = self._now(), 0
        if self._sent_until < now - self._ahead:
            _log.warning("event=firings_missed schedule=%s from=%s", self.name, self._sent_until.isoformat())
            self._sent_until = now - self._ahead
        for at in self.firings(self._sent_until):
            if at > now + self._ahead:
                break
            await self._send(at)
            self._sent_until, sent = at, sent + 1
        return sent

    async def _send(self, at: datetime) -> None:
        try:
            await self._producer.send(self._message(at), sharding_key=self.name)
        except OrbitMQError as error:
            if not isinstance(error, MessageIllegal):
                raise
            _log.error("event=firing_skipped schedule=%s time=%s error=%s", self.name, at.isoformat(), error)
        except Exception:  # the application's factory: the next firing may be better
            _log.exception("event=firing_skipped schedule=%s time=%s", self.name, at.isoformat())

    def _message(self, at: datetime) -> Message:
        message = copy(_check(self._make(at)))
        key = f"{self.name}@{at.isoformat().replace('+00:00', 'Z')}"
        due = {KEYS: f"{message.keys} {key}".strip(), IDEMPOTENCY_TOKEN: key, TIMER_DELIVER_MS: _ms(at)}
        message.properties = message.properties | due
        message.properties.pop(UNIQ_KEY, None)
        return message

    async def start(self) -> None:
        """Send firings from now on, until `shutdown`. InvalidStateError if it runs."""
        if self._task is not None:
            raise InvalidStateError(f"schedule {self.name} has been started")
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            pause_s = self._ahead.total_seconds() / 2
            try:
                await self.send_next()
            except OrbitMQError as error:
                pause_s = min(pause_s, AGAIN_S)
                _log.warning("event=firings_not_sent schedule=%s error=%s", self.name, error)
            await asyncio.sleep(pause_s)

    async def shutdown(self) -> None:
        """Send no more. What was sent is delivered at its time. Raises nothing."""
        if (task := self._task) is not None:
            self._task = None
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()


def _check(message: object) -> Message:
    if not isinstance(message, Message):
        raise MessageIllegal(f"the message of a schedule must be a Message, not {type(message).__name__}")
    if not {DELAY, *TIMES}.isdisjoint(message.properties):
        raise MessageIllegal("the message of a schedule has a time to deliver already")
    return message


def _ms(at: datetime) -> str:
    return str(round(at.timestamp() * 1000))


def _span(name: str, argument: str, given: timedelta | float | None) -> timedelta:
    span = given if isinstance(given, timedelta) else timedelta(seconds=given or 0)
    if span < timedelta(seconds=1):
        raise ConfigurationError(f"schedule {name}: {argument} is {span}; use a second or more")
    return span


def _at_intervals(every: timedelta) -> Callable[[datetime], Iterator[datetime]]:
    epoch = datetime.fromtimestamp(0, UTC)

    def firings(after: datetime) -> Iterator[datetime]:
        number = (after - epoch) // every
        while True:
            number += 1
            yield epoch + number * every

    return firings


def _by_cron(name: str, cron: str, time_zone: str) -> Callable[[datetime], Iterator[datetime]]:
    try:
        from cronsim import CronSim, CronSimError
    except ImportError as error:
        raise ImportError("schedules by cron need cronsim: pip install 'orbitmq[schedules]'") from error
    try:
        zone = ZoneInfo(time_zone)
        CronSim(cron, datetime.fromtimestamp(0, zone))
    except (CronSimError, OSError, ValueError, LookupError) as error:
        raise ConfigurationError(f"schedule {name}: cron {cron!r} in time zone {time_zone!r}: {error}") from error
    return lambda after: CronSim(cron, after.astimezone(zone))
