"""Idempotent consumption: every message takes effect once, however often it is delivered.

    once = Idempotent(create_engine("postgresql+psycopg://..."), "orders")
    once.create_table()

    @consumer.on_message
    @once
    def book(message: MessageExt, connection: Connection) -> None:
        connection.execute(insert(bookings).values(order=message.keys))

The same listener works with `on_message_orderly`: it returns the status that its consumer expects.

RocketMQ delivers at least once: a producer may send twice, an acknowledgement may be lost, a rebalance may deliver
messages that another member is processing. So each message has a token, and your database decides: the token is
inserted under a unique key, and the work is done in the same transaction. A second delivery finds the token, waits for
the first one if that is still running, and does nothing. A cache in front answers most duplicates without the database;
it is written after the commit, so it never contains a token that was rolled back.

Needs SQLAlchemy 2 and PostgreSQL, MySQL or SQLite. Use an `Engine` with functions, which run on the consumer's threads,
and an `AsyncEngine` with coroutine functions. SQLite's driver begins transactions late: see `serialised_sqlite`.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias, cast, overload

from orbitmq.client.core.model import (
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyStatus,
    OrderlyContext,
)
from orbitmq.errors import ConfigurationError
from orbitmq.message.model import MessageExt
from orbitmq.message.properties import IDEMPOTENCY_TOKEN, KEYS, UNIQ_KEY
from orbitmq.runtime.clock import Clock, SystemClock

try:
    import sqlalchemy
    from sqlalchemy import BigInteger, Column, Connection, Engine, MetaData, String, Table, event
    from sqlalchemy.exc import IntegrityError
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
except ImportError as error:
    raise ImportError("idempotent consumption needs SQLAlchemy: pip install 'orbitmq[idempotent]'") from error

if TYPE_CHECKING:
    from orbitmq.client.workers import Context, Status

__all__ = [
    "TOKEN_PROPERTY",
    "AsyncOnceListener",
    "AsyncWork",
    "Cache",
    "Idempotent",
    "LocalCache",
    "OnceListener",
    "RedisCache",
    "RedisClient",
    "Token",
    "Work",
    "serialised_sqlite",
    "usual_token",
]

_log = logging.getLogger(__name__)

TOKEN_PROPERTY = IDEMPOTENCY_TOKEN
"""The message property in which a producer may set the token."""
TABLE = "orbitmq_consumed"
TOKEN_SHOWN_MAX = 255  # of a token, for people who read the table; the hash decides
GROUP_SIZE_MAX, TOPIC_SIZE_MAX = 255, 127  # as RocketMQ's names
REMOVED_AT_ONCE = (
    1000  # rows that one transaction of `forget_before` removes, so that it never blocks a listener for long
)

Work: TypeAlias = Callable[[MessageExt, Connection], object]
"""The work for one message, with the connection whose transaction it belongs to. It must not commit."""
AsyncWork: TypeAlias = Callable[[MessageExt, AsyncConnection], Awaitable[object]]
"""The same as a coroutine function."""
Token: TypeAlias = Callable[[MessageExt], str]
"""Returns the token of a message: equal for messages that mean the same thing, and never empty."""
DONE, LATER = ConsumeConcurrentlyStatus.CONSUME_SUCCESS, ConsumeConcurrentlyStatus.RECONSUME_LATER
DONE_IN_ORDER, LATER_IN_ORDER = ConsumeOrderlyStatus.SUCCESS, ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT


class OnceListener(Protocol):
    """A listener for `on_message` and for `on_message_orderly`; the context tells which of them it is."""

    @overload
    def __call__(self, messages: Sequence[MessageExt], context: ConcurrentContext, /) -> ConsumeConcurrentlyStatus: ...

    @overload
    def __call__(self, messages: Sequence[MessageExt], context: OrderlyContext, /) -> ConsumeOrderlyStatus: ...


class AsyncOnceListener(Protocol):
    """The same as a coroutine function."""

    @overload
    async def __call__(
        self, messages: Sequence[MessageExt], context: ConcurrentContext, /
    ) -> ConsumeConcurrentlyStatus: ...

    @overload
    async def __call__(self, messages: Sequence[MessageExt], context: OrderlyContext, /) -> ConsumeOrderlyStatus: ...


def usual_token(message: MessageExt) -> str:
    """The property IDEMPOTENCY_TOKEN, else the message's keys, else its unique id.

    If your application sends the same thing twice, the two messages have different unique ids: set keys or a token.
    """
    properties = message.properties
    return properties.get(TOKEN_PROPERTY) or properties.get(KEYS) or properties.get(UNIQ_KEY) or message.msg_id


class Cache(Protocol):
    """Remembers the keys of consumed messages. It may forget keys but must not invent any. Errors are logged and count
    as a miss.
    """

    def has(self, key: str) -> bool:
        """Whether the key was added, unless it was forgotten."""

    def add(self, key: str) -> None:
        """Remember a key."""


class LocalCache:
    """The last `size_max` keys of this process, each for `ttl_s` seconds. Thread-safe. ConfigurationError unless both
    are positive.
    """

    def __init__(
        self, size_max: int = 100_000, ttl_s: float = 3600.0, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        if size_max < 1 or ttl_s <= 0:
            raise ConfigurationError(f"a cache of {size_max} keys for {ttl_s} s is useless; use positive values")
        self._size_max = size_max
        self._ttl_s = ttl_s
        self._now = now
        self._until: OrderedDict[str, float] = OrderedDict()
        self._guard = threading.Lock()

    def has(self, key: str) -> bool:
        """Whether the key was added and not forgotten."""
        with self._guard:
            until = self._until.get(key)
            if until is None:
                return False
            if until <= self._now():
                del self._until[key]
                return False
            self._until.move_to_end(key)
            return True

    def add(self, key: str) -> None:
        """Remember a key; the least recently used one is dropped."""
        with self._guard:
            self._until[key] = self._now() + self._ttl_s
            self._until.move_to_end(key)
            if len(self._until) > self._size_max:
                self._until.popitem(last=False)


class RedisClient(Protocol):
    """The methods of a client of the package redis that `RedisCache` uses."""

    def exists(self, name: str, /) -> int:
        """The number of these names that exist: 0 or 1."""

    def set(self, name: str, value: str, /, *, ex: int) -> object:
        """Store a value for `ex` seconds."""


class RedisCache:
    """Keys in a Redis that all consumers share, each for `ttl_s` seconds. Every call waits for the network."""

    def __init__(self, client: RedisClient, ttl_s: int = 3600, *, prefix: str = "orbitmq:consumed:") -> None:
        self._client = client
        self._ttl_s = ttl_s
        self._prefix = prefix

    def has(self, key: str) -> bool:
        """Whether Redis knows the key."""
        return bool(self._client.exists(self._prefix + key))

    def add(self, key: str) -> None:
        """Store the key in Redis."""
        self._client.set(self._prefix + key, "1", ex=self._ttl_s)


class Idempotent:
    """Turns a function for one message into a listener; see the module.

    Work that returns is committed, whatever it returns. Work that raises is rolled back, and its message and those
    after it in the same batch are delivered again. The queue of an orderly listener pauses then, and the whole batch is
    delivered again; messages that were committed have no second effect. `group` separates the tokens of consumer
    groups.

    `token` returns what identifies a message, `cache` reduces the load of the database (a `LocalCache` unless given),
    `table` is the name of the table of tokens. `counts` holds the number of messages that were "done", found in the
    "cache", found in the "database", or "failed".

    ConfigurationError for a group of more than 255 characters, for functions with an AsyncEngine, and for coroutine
    functions with an Engine. Errors of the database are those of SQLAlchemy; raised in a listener, they cause
    redelivery.
    """

    NAMES: ClassVar[tuple[str, ...]] = ("done", "cache", "database", "failed")

    def __init__(
        self,
        engine: Engine | AsyncEngine,
        group: str,
        *,
        token: Token = usual_token,
        cache: Cache | None = None,
        table: str = TABLE,
        clock: Clock | None = None,
    ) -> None:
        if len(group) > GROUP_SIZE_MAX:
            raise ConfigurationError(f"the group has {len(group)} characters, at most {GROUP_SIZE_MAX} are allowed")
        self._engine = engine
        self._group = group
        self._token = token
        self._cache = cache if cache is not None else LocalCache()
        self._cache_waits = not isinstance(self._cache, LocalCache)
        self._clock = clock or SystemClock()
        self._table = Table(
            table,
            MetaData(),
            Column("consumer_group", String(GROUP_SIZE_MAX), primary_key=True),
            Column("topic", String(TOPIC_SIZE_MAX), primary_key=True),
            Column("token_hash", String(64), primary_key=True),
            Column("token", String(TOKEN_SHOWN_MAX), nullable=False),
            Column("msg_id", String(TOKEN_SHOWN_MAX), nullable=False),
            Column("consumed_at_ms", BigInteger, nullable=False, index=True),
        )
        self.counts: Counter[str] = Counter(dict.fromkeys(self.NAMES, 0))
        """Messages since the object was made, by outcome."""
        self._guard = threading.Lock()  # counts are written by many threads

    # --------------------------------------------------------------------------------------------------------- table

    def create_table(self) -> None:
        """Create the table of tokens unless it exists. With an AsyncEngine `await create_table_async()`."""
        self._table.metadata.create_all(self._plain_engine())

    async def create_table_async(self) -> None:
        """`create_table` with an AsyncEngine. ConfigurationError with another; errors of the database are those of
        SQLAlchemy.
        """
        async with self._async_engine().begin() as connection:
            await connection.run_sync(self._table.metadata.create_all)

    def forget_before(self, time_ms: int) -> int:
        """Remove tokens older than `time_ms` (milliseconds since the epoch) and return their number. A message that is
        delivered again afterwards takes effect again: keep tokens for longer than brokers keep messages. It works in
        small transactions; run it in a job of its own.
        """
        total = 0
        while True:
            with self._plain_engine().begin() as connection:
                removed = self._remove_some(connection, time_ms)
            total += removed
            if removed < REMOVED_AT_ONCE:
                return total

    def _remove_some(self, connection: Connection, time_ms: int) -> int:
        table = self._table
        key = (table.c.consumer_group, table.c.topic, table.c.token_hash)
        old = sqlalchemy.select(*key).where(table.c.consumed_at_ms < time_ms).limit(REMOVED_AT_ONCE)
        rows = [tuple(row) for row in connection.execute(old)]
        if rows:
            connection.execute(sqlalchemy.delete(table).where(sqlalchemy.tuple_(*key).in_(rows)))
        return len(rows)

    def _plain_engine(self) -> Engine:
        if not isinstance(self._engine, Engine):
            raise ConfigurationError("functions need an Engine; with an AsyncEngine use coroutine functions")
        return self._engine

    def _async_engine(self) -> AsyncEngine:
        if not isinstance(self._engine, AsyncEngine):
            raise ConfigurationError("coroutine functions need an AsyncEngine; with an Engine use functions")
        return self._engine

    # ------------------------------------------------------------------------------------------------------ listeners

    @overload
    def __call__(self, work: AsyncWork) -> AsyncOnceListener: ...

    @overload
    def __call__(self, work: Work) -> OnceListener: ...

    def __call__(self, work: Work | AsyncWork) -> OnceListener | AsyncOnceListener:
        """The listener, concurrent or orderly, that calls `work` for every message that was not committed before."""
        if inspect.iscoroutinefunction(work):
            return self._coroutine_listener(self._async_engine(), cast("AsyncWork", work))
        return self._function_listener(self._plain_engine(), cast("Work", work))

    def _function_listener(self, engine: Engine, work: Work) -> OnceListener:
        def listen(messages: Sequence[MessageExt], context: Context) -> Status:
            for index, message in enumerate(messages):
                try:
                    self._consume(engine, work, message)
                except Exception:
                    return self._failed(message, index, context)
            return _done(context)

        return cast("OnceListener", listen)

    def _coroutine_listener(self, engine: AsyncEngine, work: AsyncWork) -> AsyncOnceListener:
        async def listen(messages: Sequence[MessageExt], context: Context) -> Status:
            for index, message in enumerate(messages):
                try:
                    await self._consume_async(engine, work, message)
                except Exception:
                    return self._failed(message, index, context)
            return _done(context)

        return cast("AsyncOnceListener", listen)

    def _failed(self, message: MessageExt, index: int, context: Context) -> Status:
        """Messages before `index` are committed, the others are delivered again; for an orderly listener, all of
        them.
        """
        self._count("failed")
        _log.warning("event=work_failed topic=%s msg_id=%s", message.topic, message.msg_id, exc_info=True)
        if isinstance(context, OrderlyContext):
            return LATER_IN_ORDER
        context.ack_index = index - 1
        return DONE if index else LATER

    def _consume(self, engine: Engine, work: Work, message: MessageExt) -> None:
        token, key = self._key(message)
        if self._is_cached(key):
            return
        with engine.begin() as connection:
            is_new = self._insert(connection, message, token)
            if is_new:
                work(message, connection)
        self._settle(key, is_new=is_new)

    async def _consume_async(self, engine: AsyncEngine, work: AsyncWork, message: MessageExt) -> None:
        token, key = self._key(message)
        if await asyncio.to_thread(self._is_cached, key) if self._cache_waits else self._is_cached(key):
            return
        async with engine.begin() as connection:
            is_new = await connection.run_sync(self._insert, message, token)
            if is_new:
                await work(message, connection)
        if self._cache_waits:
            await asyncio.to_thread(self._settle, key, is_new=is_new)
        else:
            self._settle(key, is_new=is_new)

    def _key(self, message: MessageExt) -> tuple[str, str]:
        token = self._token(message)
        if not token:
            raise ConfigurationError(
                f"the token of message {message.msg_id} is empty; return a token for every message"
            )
        return token, _digest(f"{self._group}\0{message.topic}\0{token}")

    def _insert(self, connection: Connection, message: MessageExt, token: str) -> bool:
        """Insert the token; False when it exists. Waits while another transaction is inserting it."""
        row = {
            "consumer_group": self._group,
            "topic": message.topic,
            "token_hash": _digest(token),
            "token": token[:TOKEN_SHOWN_MAX],
            "msg_id": message.msg_id[:TOKEN_SHOWN_MAX],
            "consumed_at_ms": self._clock.now_ms(),
        }
        try:
            with (
                connection.begin_nested()
            ):  # after an error PostgreSQL aborts the transaction, unless there is a savepoint
                connection.execute(sqlalchemy.insert(self._table).values(row))
        except IntegrityError:
            return False
        return True

    def _is_cached(self, key: str) -> bool:
        try:
            found = self._cache.has(key)
        except Exception:  # the database decides anyway
            _log.warning("event=token_cache_failed", exc_info=True)
            return False
        if found:
            self._count("cache")
        return found

    def _settle(self, key: str, *, is_new: bool) -> None:
        """The transaction is committed."""
        self._count("done" if is_new else "database")
        try:
            self._cache.add(key)
        except Exception:
            _log.warning("event=token_cache_failed", exc_info=True)

    def _count(self, name: str) -> None:
        with self._guard:
            self.counts[name] += 1


def _done(context: Context) -> Status:
    return DONE_IN_ORDER if isinstance(context, OrderlyContext) else DONE


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def serialised_sqlite(engine: Engine) -> Engine:
    """Make the transactions of a SQLite engine begin immediately and run one after another.

    Python's driver begins them only at the first change, and without savepoints; with many consumer threads that fails
    with "database is locked". Set a timeout in the URL as well: `sqlite:///orders.db?timeout=30`.
    """

    @event.listens_for(engine, "connect")
    def leave_transactions_to_us(connection: object, _record: object) -> None:
        connection.isolation_level = None  # type: ignore[attr-defined]

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine
