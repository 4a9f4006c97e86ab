"""However often a message comes, its effect is in the database once; on a real SQLite and a real PostgreSQL."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import Column, Connection, Engine, MetaData, String, Table, create_engine, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from orbitmq.client import (
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyStatus,
    MessageExt,
    MessageQueue,
    OrderlyContext,
    PushConsumer,
)
from orbitmq.client.idempotent import TOKEN_PROPERTY, Idempotent, LocalCache, RedisCache, serialised_sqlite, usual_token
from orbitmq.errors import ConfigurationError
from orbitmq.message.properties import KEYS, UNIQ_KEY
from orbitmq.runtime.clock import ManualClock
from tests.support.postgres import postgres
from tests.support.received import received

DONE, LATER = ConsumeConcurrentlyStatus.CONSUME_SUCCESS, ConsumeConcurrentlyStatus.RECONSUME_LATER
IN_ORDER, REST = ConsumeOrderlyStatus.SUCCESS, ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
BOOKINGS = Table("bookings", MetaData(), Column("order", String(50)))  # no unique key of its own: it would hide a fault
PATIENCE_SECONDS = 20


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres() as address:
        yield address


@pytest.fixture(params=["sqlite", "postgresql"])
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """Of the plain and of the asynchronous driver."""
    if request.param == "sqlite":
        path = f"/{tmp_path}/orders.db?timeout={PATIENCE_SECONDS}"
        return f"sqlite://{path}", f"sqlite+aiosqlite://{path}"
    url = "postgresql+psycopg://" + request.getfixturevalue("server")
    return url, url


@pytest.fixture
def engine(urls: tuple[str, str]) -> Iterator[Engine]:
    made = create_engine(urls[0])
    if made.dialect.name == "sqlite":
        serialised_sqlite(made)
    BOOKINGS.metadata.drop_all(made)
    BOOKINGS.metadata.create_all(made)
    with made.begin() as connection:
        connection.execute(sqlalchemy.text("DROP TABLE IF EXISTS orbitmq_consumed"))
    yield made
    made.dispose()


def once_of(engine: Any, group: str = "g", **options: Any) -> Idempotent:
    once = Idempotent(engine, group, **options)
    if isinstance(engine, Engine):
        once.create_table()
    return once


def message(keys: str = "order-1", topic: str = "T", **properties: str) -> MessageExt:
    return received(topic, b"x", {KEYS: keys, **properties})


def context() -> ConcurrentContext:
    return ConcurrentContext(MessageQueue("T", "b", 0))


def in_order() -> OrderlyContext:
    return OrderlyContext(MessageQueue("T", "b", 0))


def book(message: MessageExt, connection: Connection) -> None:
    connection.execute(insert(BOOKINGS).values(order=message.properties[KEYS]))


def bookings(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return sorted(connection.scalars(select(BOOKINGS.c.order)))


def test_a_message_that_comes_again_has_no_second_effect(engine: Engine) -> None:
    once = once_of(engine)
    listen = once(book)
    assert listen([message(), message(), message("order-2")], context()) is DONE
    assert listen([message()], context()) is DONE
    assert bookings(engine) == ["order-1", "order-2"]
    assert dict(once.counts) == {"done": 2, "cache": 2, "database": 0, "failed": 0}


def test_the_database_decides_where_no_cache_knows(engine: Engine) -> None:
    assert once_of(engine)(book)([message()], context()) is DONE
    other_process = once_of(engine)
    assert other_process(book)([message()], context()) is DONE
    assert other_process.counts["database"] == 1
    assert other_process(book)([message()], context()) is DONE
    assert other_process.counts["cache"] == 1, "what the database said is remembered"
    assert bookings(engine) == ["order-1"]


def test_groups_and_topics_have_tokens_of_their_own(engine: Engine) -> None:
    for group in ("g", "h"):
        assert once_of(engine, group)(book)([message(), message(topic="U")], context()) is DONE
    assert bookings(engine) == ["order-1"] * 4


def test_work_that_fails_leaves_no_token_and_comes_again(engine: Engine) -> None:
    attempts: list[str] = []

    def fails_once(message: MessageExt, connection: Connection) -> None:
        book(message, connection)
        attempts.append(message.properties[KEYS])
        if len(attempts) == 2:
            raise RuntimeError("a bug, or a service that is away")

    once = once_of(engine)
    listen, told = once(fails_once), context()
    three = [message("1"), message("2"), message("3")]
    assert listen(three, told) is DONE
    assert told.ack_index == 0, "the first is done, the others come again"
    assert bookings(engine) == ["1"]
    assert listen(three[1:], context()) is DONE
    assert bookings(engine) == ["1", "2", "3"]
    assert attempts == ["1", "2", "2", "3"]
    assert once.counts["failed"] == 1
    attempts[:] = ["x"]
    assert listen([message("4"), message("5")], context()) is LATER, "nothing of the portion is done"


def test_the_application_s_own_conflicts_are_failures_and_no_duplicates(engine: Engine) -> None:
    def conflicts(message: MessageExt, connection: Connection) -> None:
        raise sqlalchemy.exc.IntegrityError("insert", {}, Exception("their unique key"))

    once = once_of(engine)
    assert once(conflicts)([message()], context()) is LATER
    assert once(book)([message()], context()) is DONE
    assert bookings(engine) == ["order-1"]


def test_two_at_work_on_one_message_make_one_effect(engine: Engine) -> None:
    """A rebalance gave the message to the second while the first was at work; it waits until the first is sure."""
    at_work, may_end = threading.Event(), threading.Event()
    calls: list[int] = []

    def slow(message: MessageExt, connection: Connection) -> None:
        calls.append(1)
        at_work.set()
        may_end.wait(PATIENCE_SECONDS)
        book(message, connection)

    first, second = once_of(engine), once_of(engine)
    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(first(slow), [message()], context())
        assert at_work.wait(PATIENCE_SECONDS)
        other = threads.submit(second(slow), [message()], context())
        may_end.set()
        assert one.result(PATIENCE_SECONDS) is other.result(PATIENCE_SECONDS) is DONE
    assert len(calls) == 1
    assert bookings(engine) == ["order-1"]
    assert second.counts["database"] == 1


def test_the_second_takes_over_when_the_first_fails(engine: Engine) -> None:
    at_work, may_end = threading.Event(), threading.Event()

    def dies(message: MessageExt, connection: Connection) -> None:
        book(message, connection)
        at_work.set()
        may_end.wait(PATIENCE_SECONDS)
        raise RuntimeError("the first one's database connection breaks")

    first, second = once_of(engine)(dies), once_of(engine)(book)
    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(first, [message()], context())
        assert at_work.wait(PATIENCE_SECONDS)
        other = threads.submit(second, [message()], context())
        may_end.set()
        assert one.result(PATIENCE_SECONDS) is LATER
        assert other.result(PATIENCE_SECONDS) is DONE
    assert bookings(engine) == ["order-1"]


def test_many_threads_and_many_duplicates(engine: Engine) -> None:
    once = once_of(engine, cache=LocalCache(1))
    listen = once(book)
    work = [[message(str(number % 20))] for number in range(200)]
    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(lambda call: listen(call, context()), work)) == {DONE}
    assert bookings(engine) == sorted(str(number) for number in range(20))
    assert once.counts["done"] == 20
    assert once.counts["cache"] + once.counts["database"] == 180


def test_coroutines_work_alike(engine: Engine, urls: tuple[str, str]) -> None:
    async def book_async(message: MessageExt, connection: AsyncConnection) -> None:
        await connection.execute(insert(BOOKINGS).values(order=message.properties[KEYS]))
        if message.properties[KEYS] == "bad":
            raise RuntimeError("a bug")

    async def scenario() -> None:
        asynchronous = create_async_engine(urls[1])
        if asynchronous.dialect.name == "sqlite":
            serialised_sqlite(asynchronous.sync_engine)
        once = Idempotent(asynchronous, "g", cache=_slow_cache())
        await once.create_table_async()
        listen, told = once(book_async), context()
        assert await listen([message(), message(), message("bad")], told) is DONE
        assert told.ack_index == 1
        again = Idempotent(asynchronous, "g")
        outcomes = await asyncio.gather(*(again(book_async)([message("9")], context()) for _ in range(5)))
        assert set(outcomes) == {DONE}
        assert again.counts["done"] == 1
        await asynchronous.dispose()

    asyncio.run(scenario())
    assert bookings(engine) == ["9", "order-1"]


def _slow_cache() -> RedisCache:
    return RedisCache(FakeRedis())


class FakeRedis:
    """The two commands of Redis the cache uses."""

    def __init__(self) -> None:
        self.keys: dict[str, int] = {}

    def exists(self, name: str, /) -> int:
        return int(name in self.keys)

    def set(self, name: str, value: str, /, *, ex: int) -> object:
        self.keys[name] = ex
        return True


def test_a_cache_that_fails_costs_only_time(engine: Engine) -> None:
    class Broken(LocalCache):
        def has(self, key: str) -> bool:
            raise ConnectionError("no Redis")

        def add(self, key: str) -> None:
            raise ConnectionError("no Redis")

    listen = once_of(engine, cache=Broken())(book)
    assert listen([message(), message()], context()) is DONE
    assert bookings(engine) == ["order-1"]


def test_a_shared_cache_spares_the_database(engine: Engine) -> None:
    redis = FakeRedis()
    assert once_of(engine, cache=RedisCache(redis, 60))(book)([message()], context()) is DONE
    assert set(redis.keys.values()) == {60}
    second = once_of(engine, cache=RedisCache(redis, 60))
    assert second(book)([message()], context()) is DONE
    assert second.counts["cache"] == 1


def test_an_orderly_listener_has_its_own_words_for_it(engine: Engine) -> None:
    attempts: list[str] = []

    def fails_once(message: MessageExt, connection: Connection) -> None:
        book(message, connection)
        attempts.append(message.properties[KEYS])
        if len(attempts) == 2:
            raise RuntimeError("a bug, or a service that is away")

    once = once_of(engine)
    listen = once(fails_once)
    three = [message("1"), message("2"), message("3")]
    assert listen(three, in_order()) is REST
    assert bookings(engine) == ["1"], "what failed is rolled back, and what is behind it waits"
    assert listen(three, in_order()) is IN_ORDER, "the queue gives the whole portion again"
    assert attempts == ["1", "2", "2", "3"], "what was done is not done again"
    assert bookings(engine) == ["1", "2", "3"]
    assert dict(once.counts) == {"done": 3, "cache": 1, "database": 0, "failed": 1}
    assert listen([message("1")], in_order()) is IN_ORDER, "a portion of duplicates alone lets the queue go on"
    assert once_of(engine)(book)([message("1")], in_order()) is IN_ORDER, "and so when the database alone knows it"
    assert bookings(engine) == ["1", "2", "3"]


def test_coroutines_serve_orderly_listeners_as_well(engine: Engine, urls: tuple[str, str]) -> None:
    async def work(message: MessageExt, connection: AsyncConnection) -> None:
        if message.keys == "bad":
            raise RuntimeError("no")
        await connection.execute(insert(BOOKINGS).values(order=message.keys))

    async def scenario() -> None:
        asynchronous = create_async_engine(urls[1])
        if asynchronous.dialect.name == "sqlite":
            serialised_sqlite(asynchronous.sync_engine)
        once = Idempotent(asynchronous, "g")
        await once.create_table_async()
        listen = once(work)
        assert await listen([message(), message("bad")], in_order()) is REST
        assert await listen([message(), message("2")], in_order()) is IN_ORDER
        await asynchronous.dispose()

    asyncio.run(scenario())
    assert bookings(engine) == ["2", "order-1"]


def test_both_kinds_of_decorators_take_it(tmp_path: Path) -> None:
    once = Idempotent(create_engine(f"sqlite:////{tmp_path}/orders.db"), "g")
    concurrent, orderly = PushConsumer("g"), PushConsumer("h")
    listen = once(book)
    assert concurrent.on_message(listen) is listen
    assert orderly.on_message_orderly(listen) is listen


def test_a_database_that_is_away_delays_and_loses_nothing(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:////{tmp_path}/missing/orders.db")
    assert Idempotent(engine, "g")(book)([message()], context()) is LATER
    assert Idempotent(engine, "g")(book)([message()], in_order()) is REST


def test_old_tokens_can_be_forgotten(engine: Engine) -> None:
    clock = ManualClock()
    once = once_of(engine, clock=clock, cache=LocalCache(1))
    listen = once(book)
    listen([message(str(number)) for number in range(3)], context())
    clock.advance(1000)
    listen([message("new")], context())
    assert once.forget_before(clock.now_ms()) == 3
    with engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(once._table)) == 1
    assert once_of(engine)(book)([message("1")], context()) is DONE
    assert bookings(engine).count("1") == 2, "a forgotten token is new again"


# ------------------------------------------------------------------------------------------------------------- tokens


def test_the_token_is_what_the_producer_named() -> None:
    own = {TOKEN_PROPERTY: "mine", KEYS: "k", UNIQ_KEY: "u"}
    assert usual_token(received("T", b"x", own)) == "mine"
    assert usual_token(received("T", b"x", {KEYS: "k", UNIQ_KEY: "u"})) == "k"
    assert usual_token(received("T", b"x", {UNIQ_KEY: "u"})) == "u"


def test_a_token_of_any_length_counts_whole(engine: Engine) -> None:
    long = "x" * 5000
    texts = [message("k", **{TOKEN_PROPERTY: long + end}) for end in "aba"]
    assert once_of(engine)(book)(texts, context()) is DONE
    assert bookings(engine) == ["k", "k"]


def test_a_message_without_token_fails_loudly(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    once = once_of(engine, token=lambda _: "")
    assert once(book)([message()], context()) is LATER
    assert "the token of message" in caplog.text


def test_functions_and_engines_must_match(tmp_path: Path) -> None:
    async def work(message: MessageExt, connection: AsyncConnection) -> None: ...

    with pytest.raises(ConfigurationError, match="coroutine functions need an AsyncEngine"):
        Idempotent(create_engine("sqlite://"), "g")(work)
    with pytest.raises(ConfigurationError, match="functions need an Engine"):
        Idempotent(create_async_engine("sqlite+aiosqlite://"), "g")(book)
    with pytest.raises(ConfigurationError, match="256 characters, at most 255"):
        Idempotent(create_engine("sqlite://"), "g" * 256)


# -------------------------------------------------------------------------------------------------------------- cache


def test_the_local_cache_forgets_by_age_and_by_number() -> None:
    now = [0.0]
    cache = LocalCache(2, 10, now=lambda: now[0])
    cache.add("a")
    cache.add("b")
    assert cache.has("a")
    cache.add("c")
    assert [cache.has(key) for key in "abc"] == [True, False, True]
    now[0] = 10
    assert [cache.has(key) for key in "abc"] == [False, False, False]
    with pytest.raises(ConfigurationError, match="is useless"):
        LocalCache(0)
