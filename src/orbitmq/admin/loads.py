"""A measured load on a cluster: produce, consume, and both at the same time, message by message.

With a rate, each message has a due time, whether or not earlier ones have completed, and its latency counts from
that time. So all messages that were due while a broker stalled show the stall, not only the one in flight. Without a
rate the next message starts when an earlier one completes, and its latency counts from there. No terminal output here.
"""

from __future__ import annotations

import asyncio
import os
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from orbitmq.admin.in_flight import IN_FLIGHT_MAX, InFlight
from orbitmq.admin.latencies import Latencies, Latency
from orbitmq.admin.results import Result
from orbitmq.admin.session import Session
from orbitmq.admin.temporary import NAME, own_group, until
from orbitmq.admin.topics import status
from orbitmq.client.core.model import ConsumeConcurrentlyStatus, LocalTransactionState
from orbitmq.client.lite_pull import LitePullConsumer
from orbitmq.client.producer import Producer
from orbitmq.client.push import PushConsumer
from orbitmq.client.transactions import TransactionProducer
from orbitmq.errors import AdminError, ConfigurationError, NotFound, OrbitMQError
from orbitmq.message.model import Message, MessageExt
from orbitmq.wire.bodies import ConsumeFromWhere

WAY = struct.Struct(">8sdQ")
"""The first bytes of a timed body: the run, when the message was due by this process's clock, its number."""
TIMER_SECONDS = 0.002
"""A timer wakes a task late by up to that; a message that begins within it is in time."""
REST_SECONDS = 0.1
"""Pause after a failure, so that a broker that refuses is not sent requests in a busy loop."""
DRAIN_SECONDS = 5.0
"""How long to wait for requests in flight when the time is over."""
PROBLEMS_MAX = 5
FILL_BATCH, FILL_AT_ONCE = 64, 8
"""How a topic is filled that is then consumed."""
FILL_BYTES_MAX = 1 << 20
"""Size of such a request: a quarter of the default limit, as some brokers are configured with less."""
_UNIT_BYTES = 128
"""Upper estimate of the bytes of a message in a batch without its body."""
_FEW_AT_A_TIME = 4096


class Way(StrEnum):
    """How messages are sent or consumed."""

    SYNC = "sync"
    """One after the other in each of the tasks."""
    ASYNC = "async"
    """All started by one task; the client keeps up to this many in flight."""
    ONEWAY = "oneway"
    """Oneway: the latency is the time until the request is written."""
    BATCH = "batch"
    """Several in one request; a time is that of the request."""
    TRANSACTION = "transaction"
    """A half message and its commit."""
    PULL = "pull"
    PUSH = "push"


class Since(StrEnum):
    """From when a time counts."""

    DUE = "due"
    """From the time it was due."""
    BEGUN = "begun"
    """From the time it was sent: the duration of a request without queueing."""


class LoadReport(Struct, frozen=True, rename="camel", kw_only=True):
    """The measurements without the warm-up."""

    load: str
    """`send`, `consume` or `latency`."""
    way: Way
    topic: str
    seconds: float
    messages: int
    """Acknowledged, or received."""
    failed: int
    """Messages whose send failed."""
    missing: int | None = None
    """Of `latency`: messages that were acknowledged and did not come."""
    messages_per_s: float
    bytes_per_s: float
    """Of bodies."""
    size_bytes: int
    in_flight: int
    wanted_per_s: float | None
    """The requested rate."""
    since: Since | None
    """From when a time counts; None where none is taken."""
    latency: Latency | None
    problems: list[str]
    """Different reasons of failures, some of them."""


@dataclass(frozen=True, slots=True)
class Load:
    """The requested load."""

    way: Way = Way.SYNC
    seconds: float = 10.0
    warm_up_seconds: float = 2.0
    rate: float | None = None
    """Messages a second; None for as many as there can be."""
    in_flight: int = 16
    size_bytes: int = 128
    batch: int = 32
    messages: int | None = None
    """At most so many, the warm-up left out."""
    keys: bool = False
    tags: str | None = None
    delay_level: int = 0


@dataclass(slots=True)
class _Counts:
    """The results so far."""

    load: Load
    now: Callable[[], float] = time.perf_counter
    began: float = 0.0
    latencies: Latencies = field(default_factory=Latencies)
    messages: int = 0
    begun: int = 0
    """Sends that were begun after the warm-up."""
    failed: int = 0
    last: float = 0.0
    problems: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.began = self.last = self.now()

    @property
    def counts_from(self) -> float:
        return self.began + self.load.warm_up_seconds

    @property
    def ends(self) -> float:
        return self.counts_from + self.load.seconds

    @property
    def is_over(self) -> bool:
        wanted = self.load.messages
        return self.now() >= self.ends or (wanted is not None and self.messages + self.failed >= wanted)

    def took(self, since: float, messages: int = 1, *, at: float | None = None) -> None:
        """Messages that are done now, or were `at` a moment. Those of the warm-up do not count."""
        done = self.now() if at is None else at
        if since >= self.counts_from:
            self.last = max(self.last, done)
            self.latencies.add(done - since)
            self.messages += messages

    def fail(self, since: float, error: OrbitMQError, messages: int = 1) -> None:
        self.last = max(self.last, min(self.now(), self.ends))
        self.problems[str(error)] += 1
        if since >= self.counts_from or not self.messages:
            self.failed += messages

    def report(self, name: str, topic: str, *, since: Since | None, missing: int | None = None) -> LoadReport:
        # To the last that counts, also where it ended after the time: what was done then was not done before.
        seconds = max(self.last - self.counts_from, 0.0)
        load, rate = self.load, self.messages / seconds if seconds else 0.0
        return LoadReport(
            load=name, way=load.way, topic=topic, seconds=round(seconds, 3), messages=self.messages,
            failed=self.failed, missing=missing, messages_per_s=round(rate, 1),
            bytes_per_s=round(rate * load.size_bytes, 1), size_bytes=load.size_bytes, in_flight=load.in_flight,
            wanted_per_s=load.rate, since=since, latency=self.latencies.read() if since else None,
            problems=[text for text, _ in self.problems.most_common(PROBLEMS_MAX)],
        )  # fmt: skip


Clients = Mapping[str, Any]
"""Settings that every client of the run gets: account, encryption."""
One = Callable[[float], Awaitable[int]]
"""Performs the step that is due then; returns the number of its messages."""


# ------------------------------------------------------------------------------------------------------------ sending


async def sending(session: Session, topic: str, load: Load, clients: Clients) -> Result[LoadReport]:
    """Produce as `load` says. If it is interrupted, for example by Ctrl-C, the metrics so far are returned."""
    counts = _Counts(load)
    found = Result[LoadReport]()
    async with _producer(session, load, clients) as producer:
        one = _sender(producer, topic, load)
        counts.start()
        found.warnings += await _early(_paced(counts, one))
    found.items.append(counts.report("send", topic, since=Since.DUE if load.rate else Since.BEGUN))
    return _report(found, counts)


def _report(found: Result[LoadReport], counts: _Counts) -> Result[LoadReport]:
    """AdminError when nothing at all was done."""
    if counts.problems and not counts.messages:
        raise AdminError(f"nothing could be sent: {counts.problems.most_common(1)[0][0]}", "orbitmq doctor")
    if counts.failed:
        found.warnings.append(f"{counts.failed} messages failed, of {counts.messages + counts.failed}")
    return found


async def _early(work: Awaitable[None]) -> list[str]:
    """A word for work that is ended from outside; what was counted stays."""
    try:
        await work
    except asyncio.CancelledError:
        task = asyncio.current_task()
        assert task is not None, "it is awaited in one"
        task.uncancel()
        return ["it was interrupted: these are the metrics so far"]
    return []


@asynccontextmanager
async def _producer(session: Session, load: Load, clients: Clients) -> AsyncIterator[Producer]:
    settings: dict[str, Any] = {**clients, "async_in_flight_max": load.in_flight}
    if load.way is Way.TRANSACTION:
        made: Producer = TransactionProducer(NAME, session.name_servers, listener=_Commits(), **settings)
    else:
        made = Producer(NAME, session.name_servers, **settings)
    async with made:
        yield made


class _Commits:
    """Every transaction is committed."""

    async def execute(self, _message: Message, _argument: None, /) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE

    async def check(self, _message: MessageExt, /) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE


def _sender(producer: Producer, topic: str, load: Load) -> One:
    body, numbers = b"x" * load.size_bytes, count()

    def message() -> Message:
        key = f"{NAME}-{next(numbers)}" if load.keys else None
        return Message(topic, body, tags=load.tags, keys=key, delay_level=load.delay_level)

    async def alone(_due: float) -> int:
        await producer.send(message())
        return 1

    async def send_meanwhile(_due: float) -> int:
        await producer.send_async(message())
        return 1

    async def oneway(_due: float) -> int:
        await producer.send_oneway(message())
        return 1

    async def together(_due: float) -> int:
        await producer.send_batch([message() for _ in range(load.batch)])
        return load.batch

    async def in_transaction(_due: float) -> int:
        assert isinstance(producer, TransactionProducer)
        await producer.send_in_transaction(message(), None)
        return 1

    return {
        Way.SYNC: alone, Way.ASYNC: send_meanwhile, Way.ONEWAY: oneway, Way.BATCH: together,
        Way.TRANSACTION: in_transaction,
    }[load.way]  # fmt: skip


async def _paced(counts: _Counts, one: One) -> None:
    """Repeat the step in up to `in_flight` tasks, at the rate or as fast as possible."""
    load = counts.load
    each = load.batch if load.way is Way.BATCH else 1
    step = None if load.rate is None else each / load.rate
    turns = count()

    async def work() -> None:
        while not counts.is_over:
            since = counts.now()
            if since >= counts.counts_from:
                if load.messages is not None and counts.begun >= load.messages:
                    return
                counts.begun += each
            if step is not None:
                due = counts.began + next(turns) * step
                if due >= counts.ends:
                    return
                if due > since:
                    await asyncio.sleep(due - since)
                since = _began(due, counts.now())
            try:
                counts.took(since, await one(since))
            except OrbitMQError as error:
                counts.fail(since, error, each)
                await asyncio.sleep(REST_SECONDS)
            if load.way is Way.ONEWAY:
                await asyncio.sleep(0)  # a write that does not wait never yields to other tasks

    async with asyncio.TaskGroup() as tasks:
        for _ in range(load.in_flight):
            tasks.create_task(work())


def _began(due: float, now: float) -> float:
    """From when a message counts that was due then and begins now: a timer's own lateness is not the broker's."""
    return now if now - due <= TIMER_SECONDS else due


# ---------------------------------------------------------------------------------------------------------- consuming


async def fill(session: Session, topic: str, load: Load, clients: Clients) -> None:
    """Put `load.messages` into the topic, fast."""
    wanted = load.messages or 0
    rest = Load(Way.BATCH, seconds=3600, warm_up_seconds=0, in_flight=FILL_AT_ONCE, size_bytes=load.size_bytes)
    each, body = _fits(load.size_bytes), b"x" * load.size_bytes
    sizes = [min(each, wanted - begin) for begin in range(0, wanted, each)]
    async with _producer(session, rest, clients) as producer:

        async def put(messages: int) -> None:
            if messages > 1:
                await producer.send_batch([Message(topic, body) for _ in range(messages)])
            else:  # the largest message there may be is too large for a batch
                await producer.send(Message(topic, body))

        for begin in range(0, len(sizes), FILL_AT_ONCE):
            await asyncio.gather(*map(put, sizes[begin : begin + FILL_AT_ONCE]))
    await until(lambda: _holds(session, topic, wanted), f"the queues of {topic}")


def _fits(size_bytes: int) -> int:
    """How many messages of that size go into one request."""
    return max(1, min(FILL_BATCH, FILL_BYTES_MAX // (size_bytes + _UNIT_BYTES)))


async def _holds(session: Session, topic: str, messages: int) -> bool:
    """RocketMQ enters messages into their queues a moment after it has stored them."""
    return sum(row.messages for row in (await status(session, topic)).items) >= messages


async def consuming(session: Session, topic: str, load: Load, clients: Clients) -> Result[LoadReport]:
    """Consume the topic from its first message on with a temporary group. It ends when all messages that existed at the
    start have been consumed, or when the time is over. The time counts from the first message."""
    held = await status(session, topic)
    expected = sum(row.messages for row in held.items)
    if not expected and not held.failures:
        raise NotFound(f"topic {topic} holds no message", "send some: orbitmq bench send --topic ...")
    wanted = min(expected, load.messages) if load.messages is not None else expected
    counts = _Counts(Load(load.way, load.seconds, 0.0, None, load.in_flight, load.size_bytes, messages=wanted))
    sizes = Counter[str]()

    def take(messages: Sequence[MessageExt]) -> None:
        if not counts.messages:
            counts.start()
        counts.last = counts.now()
        counts.messages += len(messages)
        sizes["bytes"] += sum(len(one.body) for one in messages)

    found = Result[LoadReport](failures=held.failures)
    async with own_group(session, found.warnings) as group:
        consume = _pulled if load.way is Way.PULL else _pushed
        found.warnings += await _early(consume(session, topic, group, counts, take, clients))
    if counts.messages < wanted and counts.now() >= counts.ends:
        found.warnings.append(f"the time was over: {wanted - counts.messages} messages were left")
    report = counts.report("consume", topic, since=None)
    mean = sizes["bytes"] // counts.messages if counts.messages else 0
    rate = round(sizes["bytes"] / report.seconds, 1) if report.seconds else 0.0
    found.items.append(replace(report, size_bytes=mean, bytes_per_s=rate))
    return found


Take = Callable[[Sequence[MessageExt]], None]


async def _pulled(session: Session, topic: str, group: str, counts: _Counts, take: Take, clients: Clients) -> None:
    consumer = LitePullConsumer(
        group, session.name_servers, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, auto_commit=False,
        **clients,
    )  # fmt: skip
    consumer.subscribe(topic)
    async with consumer:
        while not counts.is_over:
            if messages := await consumer.poll(0.5, max_messages=_FEW_AT_A_TIME):
                take(messages)


async def _pushed(session: Session, topic: str, group: str, counts: _Counts, take: Take, clients: Clients) -> None:
    done = asyncio.Event()

    async def listen(messages: Sequence[MessageExt], _context: object) -> ConsumeConcurrentlyStatus:
        take(messages)
        if counts.is_over:
            done.set()
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    async with _listening(session, topic, group, listen, counts.load, clients):
        try:
            await asyncio.wait_for(done.wait(), counts.load.seconds + DRAIN_SECONDS)
        except TimeoutError:
            return


@asynccontextmanager
async def _listening(
    session: Session, topic: str, group: str, listen: Callable[..., Any], load: Load, clients: Clients
) -> AsyncIterator[PushConsumer]:
    consumer = PushConsumer(
        group, session.name_servers, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        consume_threads=load.in_flight, consume_batch_max_size=32, pull_batch_size=32, **clients,
    )  # fmt: skip
    consumer.subscribe(topic)
    consumer.set_listener(listen)
    async with consumer:
        yield consumer


# -------------------------------------------------------------------------------------------------------- end to end


async def end_to_end(session: Session, topic: str, load: Load, clients: Clients) -> Result[LoadReport]:
    """Send at a rate and listen at the same time: how long a message takes from when it was due until a listener has
    it. Sender and listener are one process, so there is one clock.
    """
    if load.rate is None:
        raise ConfigurationError("the way of a message is timed at a rate: --rate")
    if load.size_bytes < WAY.size:
        raise ConfigurationError(f"the body holds when it was due: at least {WAY.size} bytes")
    counts, sent, way, run = _Counts(load), _Counts(load), InFlight(), os.urandom(8)
    fill_up = b"x" * (load.size_bytes - WAY.size)

    async def listen(messages: Sequence[MessageExt], _context: object) -> ConsumeConcurrentlyStatus:
        for message in messages:
            if len(message.body) >= WAY.size:
                of, _, number = WAY.unpack_from(message.body)
                due = way.arrived(number, counts.now()) if of == run else None
                if due is not None:
                    counts.took(due)
        arrived.set()
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    async def one(due: float) -> int:
        if way.is_full:
            raise AdminError(f"{IN_FLIGHT_MAX} messages were stored and not delivered: no more are sent")
        number = way.begin()
        try:
            await producer.send(Message(topic, WAY.pack(run, due, number) + fill_up, tags=load.tags))
        except BaseException:
            way.failed(number)
            raise
        at = way.stored(number, due)
        if at is not None:
            counts.took(due, at=at)
        return 1

    found, arrived = Result[LoadReport](), asyncio.Event()
    async with AsyncExitStack() as stack:
        group = await stack.enter_async_context(own_group(session, found.warnings))
        consumer = await stack.enter_async_context(_listening(session, topic, group, listen, load, clients))
        await until(lambda: _has_queues(consumer), "a queue for the listener")
        producer = await stack.enter_async_context(_producer(session, load, clients))
        sent.start()
        counts.began = sent.began
        found.warnings += await _early(_paced(sent, one))
        found.warnings += await _early(_arrived(way, arrived))
    missing = way.missing(sent.counts_from)
    counts.failed, counts.problems = sent.failed, sent.problems
    found.items.append(counts.report("latency", topic, since=Since.DUE, missing=missing))
    if missing:
        found.warnings.append(f"{missing} messages were stored and not delivered {DRAIN_SECONDS:.0f} s after the last")
        found.check_failed = True
    return _report(found, counts)


async def _has_queues(consumer: PushConsumer) -> bool:
    return bool(consumer.assignment())


async def _arrived(way: InFlight, arrived: asyncio.Event) -> None:
    """Wait for requests in flight, for a limited time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            while not way.is_empty:
                arrived.clear()
                await arrived.wait()
