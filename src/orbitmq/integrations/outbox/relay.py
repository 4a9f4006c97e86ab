"""Sends the messages of an outbox: which rows are due, in which order, and which relay works.

Two relays that take different rows, as by `FOR UPDATE SKIP LOCKED`, would send the second message of a key before the
first. So one relay works, and holds a lease instead of a transaction that stays open while it sends. The lease spares
repetitions only: two relays at a time would send each key in order as well, since each begins with its oldest row.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, Self, TypeVar, Unpack
from uuid import uuid4

import msgspec
from sqlalchemy import Connection, Engine, Row, Select, bindparam, delete, exists, func, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from orbitmq.client import Producer, SendStatus
from orbitmq.client.settings import ProducerSettings
from orbitmq.client.worker import UNHEALTHY_S, Ending, Health, Status, first
from orbitmq.client.worker_runner import SIGNALS, check_main_thread, check_range, handlers_kept
from orbitmq.errors import ConfigurationError
from orbitmq.integrations.outbox.table import ERROR_SIZE_MAX, OutboxTable
from orbitmq.message.model import Message
from orbitmq.runtime.clock import Clock, SystemClock

_log = logging.getLogger(__name__)

T = TypeVar("T")

BATCH_MAX: Final = 5000  # parameters of a statement: SQLite allows 32,766
BATCH_BYTES: Final = 16 << 20  # of bodies that are read at a time, unless one alone is larger
LEASE_MIN_S: Final = 10.0  # a third of it is longer than a send
PAUSE_S: Final = 1.0  # after a batch of which nothing was sent, and after an error of the database
RETRY_S: Final = (1, 2, 4, 8, 16, 30)  # after failed attempts; so long a message may wait when an outage is over

_Properties = msgspec.json.Decoder(dict[str, str])


class Backlog(NamedTuple):
    """What waits in an outbox."""

    messages: int
    """Messages that are not sent yet."""
    oldest_s: float
    """Seconds since the oldest of them was inserted; 0 without any."""


class _Failure(NamedTuple):
    row: Row[Any]
    text: str


class OutboxRelay:
    """Sends the messages of an outbox, and deletes those that a broker has stored.

        async with Producer("shop") as producer, OutboxRelay(engine, producer):
            ...

    `async with` relays in the background; leaving it finishes what is in flight. The producer must be running, without
    an outbox of its own. With an `Engine` statements run on threads, with an `AsyncEngine` on the event loop.

    Any number of relays may run. One works while it holds the lease of the table; another one takes over when `lease`
    seconds (10 and up) are over, or at once if it was stopped. If the clocks of their machines differ by more than a
    third of that, messages may be sent twice.

    Up to `batch` rows (1 to 5000) are read at a time, of at most 16 MiB together. Keys are sent concurrently, messages
    of a key one after another. A relay that has sent everything looks again after `poll` seconds. What cannot be sent
    is tried again after 1, 2, 4 and at last every 30 s, without end; later messages of its key wait, others do not.

    `sent` and `failed` count messages and failed attempts of this relay. ConfigurationError for values that are not
    allowed.
    """

    def __init__(
        self,
        engine: Engine | AsyncEngine,
        producer: Producer,
        outbox: OutboxTable | None = None,
        *,
        batch: int = 500,
        poll: float = 0.5,
        lease: float = 30.0,
        clock: Clock | None = None,
    ) -> None:
        check_range("batch", batch, 1, BATCH_MAX)
        check_range("poll", poll, 0.01, 3600)
        check_range("lease", lease, LEASE_MIN_S, 3600)
        self._engine = engine
        self._producer = producer
        self._outbox = outbox or OutboxTable()
        self._batch = batch
        self._poll_s = poll
        self._lease_s = lease
        self._clock = clock or SystemClock()
        self._name = uuid4().hex
        self._has_lease_row = False
        self._renew_ms = 0
        """When a third of the lease is over."""
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failing: dict[Literal["database", "brokers"], float] = {}
        """Since when (loop time) nothing succeeds there."""
        self._failed_s = 0.0
        """When brokers took nothing at last (loop time)."""
        self.sent = self.failed = 0

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None, "entered"
        self.stop()
        await self._task

    def stop(self) -> None:
        """Let `run` end when what is in flight is finished. Call it on the relay's event loop."""
        self._stopping.set()

    async def run(self) -> None:
        """Relay until `stop`. Errors of brokers and of the database are logged, and it goes on."""
        while not self._stopping.is_set():
            pause_s = await self._go_on()
            if pause_s:
                await first(asyncio.sleep(pause_s), self._stopping.wait())
        try:
            await self._transact(self._release)
        except Exception as error:
            _log.warning("event=outbox_lease_not_released error=%s; other relays wait until it is over", error)

    async def _go_on(self) -> float:
        """Send a batch, and return the seconds until the next one."""
        failed = self.failed
        try:
            sent = await self.relay_once()
        except Exception as error:  # the database's, which may be back soon
            if "database" not in self._failing:
                _log.warning("event=outbox_failed table=%s error=%s", self._outbox.table.name, error)
            self._failing.setdefault("database", _now())
            return PAUSE_S
        if sent:
            return 0.0
        return PAUSE_S if self.failed > failed else self._poll_s

    async def relay_once(self) -> int:
        """Send one batch if this relay has the lease or can have it, and return the number of messages sent: for tests,
        and for jobs that run now and then. Errors of the database are those of SQLAlchemy; those of brokers are logged.
        """
        if not self._has_lease_row:
            await self._make_lease_row()
        rows = await self._transact(self._take)
        ends = _now() + self._lease_s / 3
        outcomes = await asyncio.gather(*(self._send_in_order(group, ends) for group in _by_key(rows)))
        sent = [number for numbers, _ in outcomes for number in numbers]
        failures = [failure for _, failure in outcomes if failure is not None]
        if rows:
            await self._transact(partial(self._settle, sent, failures))
        self._note(len(sent), failures)
        return len(sent)

    def _note(self, sent: int, failures: Sequence[_Failure]) -> None:
        self._failing.pop("database", None)
        self.sent += sent
        self.failed += len(failures)
        if failures and "brokers" not in self._failing:
            text = "event=outbox_not_sent table=%s messages=%d row=%d error=%s; they are tried again"
            _log.warning(text, self._outbox.table.name, len(failures), failures[0].row.id, failures[0].text)
        if sent:
            self._failing.pop("brokers", None)
        elif failures:
            self._failed_s = _now()
            self._failing.setdefault("brokers", self._failed_s)
        elif _now() - self._failed_s > UNHEALTHY_S:  # the rows were deleted, or another relay has sent them
            self._failing.pop("brokers", None)

    async def backlog(self) -> Backlog:
        """What waits, whichever relay works. Errors of the database are those of SQLAlchemy."""
        table = self._outbox.table
        query = select(func.count(), func.min(table.c.created_ms)).select_from(table)
        messages, oldest_ms = await self._transact(lambda connection: connection.execute(query).one())
        return Backlog(messages, max(0, self._clock.now_ms() - oldest_ms) / 1000 if messages else 0.0)

    @property
    def status(self) -> Status:
        """What it does now. Its `failure` says why it is not healthy: it is stopping, or nothing could be sent, or read
        from the database, for a minute.
        """
        failure = None
        if self._stopping.is_set():
            failure = "ending"
        elif self._failing and _now() - min(self._failing.values()) > UNHEALTHY_S:
            failure = "no messages can be relayed; the log says why"
        return Status(failure, 0, self.sent, self.failed)

    # ------------------------------------------------------------------------------------------------------- sending

    async def _send_in_order(self, rows: Sequence[Row[Any]], ends: float) -> tuple[list[int], _Failure | None]:
        """The numbers of the rows that were sent, and the failure behind which none was."""
        sent: list[int] = []
        for row in rows:
            if sent and (self._stopping.is_set() or _now() >= ends):
                break  # neither the lease nor a stop waits for all messages of a key
            try:
                await self._send(row)
            except Exception as error:  # hooks of the application may raise any; what was sent must be settled
                return sent, _Failure(row, _storable(f"{type(error).__name__}: {error}"))
            sent.append(row.id)
        return sent, None

    async def _send(self, row: Row[Any]) -> None:
        message = Message(row.topic, bytes(row.body), flag=row.flag)
        message.properties = _Properties.decode(row.properties)
        result = await self._producer.send(message, sharding_key=row.sharding_key)
        if result.status is SendStatus.STORED_LOCALLY:
            raise ConfigurationError("the producer of a relay has an outbox of its own; give it one without")

    # -------------------------------------------------------------------------------------------------- transactions

    async def _transact(self, work: Callable[[Connection], T]) -> T:
        engine = self._engine
        if isinstance(engine, AsyncEngine):
            async with engine.begin() as connection:
                return await connection.run_sync(work)

        def run() -> T:
            with engine.begin() as connection:
                return work(connection)

        return await asyncio.to_thread(run)

    async def _make_lease_row(self) -> None:
        lease = self._outbox.lease

        def make(connection: Connection) -> None:
            if connection.execute(select(lease.c.id)).first() is None:
                connection.execute(insert(lease).values(id=1, holder="", until_ms=0))

        try:
            await self._transact(make)
        except IntegrityError:
            _log.debug("event=outbox_lease_exists; another relay was faster")
        self._has_lease_row = True

    def _take(self, connection: Connection) -> Sequence[Row[Any]]:
        """The rows to send now, in their order; none without the lease."""
        table, now_ms = self._outbox.table, self._clock.now_ms()
        if now_ms >= self._renew_ms and not self._renew(connection, now_ms):
            return ()
        ids, size = list[int](), 0
        for number, length in connection.execute(self._due(now_ms)).all():
            size += length
            if ids and size > BATCH_BYTES:
                break
            ids.append(number)
        return connection.execute(select(table).where(table.c.id.in_(ids)).order_by(table.c.id)).all() if ids else ()

    def _renew(self, connection: Connection, now_ms: int) -> bool:
        """Whether this relay has the lease now."""
        lease, length_ms = self._outbox.lease, round(self._lease_s * 1000)
        is_free = (lease.c.holder == self._name) | (lease.c.until_ms <= now_ms)
        taken = update(lease).where(is_free).values(holder=self._name, until_ms=now_ms + length_ms)
        if not connection.execute(taken).rowcount:
            self._has_lease_row = connection.execute(select(lease.c.id)).first() is not None  # or tables were emptied
            return False
        self._renew_ms = now_ms + length_ms // 3
        return True

    def _due(self, now_ms: int) -> Select[Any]:
        """Always from the oldest row on, in one statement: who remembers how far it has read loses what commits later
        than its number says, and who reads in parts may see the second message of a key and not the first.
        """
        table = self._outbox.table
        earlier = table.alias()
        is_behind = exists().where(
            earlier.c.topic == table.c.topic,
            earlier.c.sharding_key == table.c.sharding_key,
            earlier.c.id < table.c.id,
            earlier.c.next_ms > now_ms,
        )
        due = select(table.c.id, func.length(table.c.body)).where(table.c.next_ms <= now_ms, ~is_behind)
        return due.order_by(table.c.id).limit(self._batch)

    def _settle(self, sent: Sequence[int], failures: Sequence[_Failure], connection: Connection) -> None:
        table, now_ms = self._outbox.table, self._clock.now_ms()
        if sent:
            connection.execute(delete(table).where(table.c.id.in_(sent)))
        if failures:
            values: dict[str, Any] = {
                "attempts": bindparam("tried"),
                "next_ms": bindparam("due"),
                "error": bindparam("reason"),
            }
            later = update(table).where(table.c.id == bindparam("row")).values(values)
            connection.execute(
                later,
                [
                    {"row": row.id, "tried": row.attempts + 1, "due": now_ms + _pause_ms(row.attempts), "reason": text}
                    for row, text in failures
                ],
            )

    def _release(self, connection: Connection) -> None:
        lease = self._outbox.lease
        connection.execute(update(lease).where(lease.c.holder == self._name).values(until_ms=0))


def _by_key(rows: Iterable[Row[Any]]) -> Iterable[Sequence[Row[Any]]]:
    """The rows that are sent one after another, in their order."""
    groups: dict[tuple[str, str] | int, list[Row[Any]]] = {}
    for row in rows:
        groups.setdefault(row.id if row.sharding_key is None else (row.topic, row.sharding_key), []).append(row)
    return groups.values()


def _storable(text: str) -> str:
    """The text as every database stores it: a failure that cannot be noted would have the whole batch sent again."""
    return text.encode("utf-8", "replace").decode().replace("\0", "?")[:ERROR_SIZE_MAX]


def _pause_ms(attempts: int) -> int:
    return 1000 * RETRY_S[min(attempts, len(RETRY_S) - 1)]


def _now() -> float:
    return asyncio.get_running_loop().time()


def run_relay(
    engine: Engine | AsyncEngine,
    group: str,
    namesrv_addr: str | Iterable[str] | None = None,
    *,
    outbox: OutboxTable | None = None,
    batch: int = 500,
    poll: float = 0.5,
    lease: float = 30.0,
    health_port: int | None = None,
    health_host: str = "127.0.0.1",
    **settings: Unpack[ProducerSettings],
) -> None:
    """Relay the messages of an outbox until SIGTERM or SIGINT, as the whole of a program; see `OutboxRelay`. Then what
    is in flight is finished, and the handlers that the program has for these signals are set again.

    `group` is that of the producer, and further keywords are its settings. With `health_port` `/healthz` responds 200,
    or 503 and the reason: ending, or a minute in which nothing could be relayed.

    ConfigurationError for values that are not allowed; InvalidStateError outside the main thread and in a running event
    loop; BrokerError, ClientError, RemotingError when the producer cannot start.
    """
    import uvloop  # Spark's executors have the client without it

    check_main_thread("run_relay")

    async def work() -> None:
        ending = Ending()
        ending.watch(*SIGNALS)
        async with Producer(group, namesrv_addr, **settings) as producer:
            relay = OutboxRelay(engine, producer, outbox, batch=batch, poll=poll, lease=lease)
            page = Health(lambda: [relay.status])
            if health_port is not None:
                await page.start(health_host, health_port)
            try:
                async with relay:
                    await ending.begun.wait()
            finally:
                await page.stop()

    with handlers_kept():
        uvloop.run(work())
