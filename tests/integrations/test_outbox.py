"""The transactional outbox at a live broker, with PostgreSQL and SQLite: what is sent, in which order, and by whom."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, select
from sqlalchemy.dialects import mysql
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.schema import CreateTable

from orbitmq.client import ConfigurationError, InvalidStateError, Message, MessageIllegal, Producer, SendContext
from orbitmq.client.idempotent import TOKEN_PROPERTY
from orbitmq.client.outbox import Outbox
from orbitmq.integrations.outbox import Backlog, OutboxRelay, OutboxTable, relay, run_relay
from orbitmq.message.properties import EXPIRES_AT_MS, TIMER_DELIVER_MS
from orbitmq.runtime.clock import ManualClock
from orbitmq.testing import Cluster
from orbitmq.wire.codes import ResponseCode
from tests.integrations.outbox_support import arrived, made_async_engine, made_engine, sqlite_url
from tests.support.loops import until
from tests.support.postgres import postgres

Relays = Callable[..., AbstractAsyncContextManager[OutboxRelay]]
SENDS_MS = 30_000  # a first send waits until its topic is saved


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres() as address:
        yield f"postgresql+psycopg://{address}"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    found: str = sqlite_url(tmp_path) if request.param == "sqlite" else request.getfixturevalue("server")
    return found


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def outbox(clock: ManualClock) -> OutboxTable:
    return OutboxTable(clock=clock)


@pytest.fixture
def engine(url: str, outbox: OutboxTable) -> Iterator[Engine]:
    made = made_engine(url)
    outbox.table.metadata.drop_all(made)
    outbox.create(made)
    yield made
    made.dispose()


@pytest.fixture
def relays(cluster: Cluster, engine: Engine, outbox: OutboxTable, clock: ManualClock) -> Relays:
    @asynccontextmanager
    async def make(**options: Any) -> AsyncIterator[OutboxRelay]:
        sends_ms = options.pop("send_timeout_ms", SENDS_MS)
        async with Producer("relay", cluster.namesrv_address, send_timeout_ms=sends_ms) as producer:
            yield OutboxRelay(options.pop("engine", engine), producer, outbox, **{"clock": clock, **options})

    return make


def put(engine: Engine, outbox: OutboxTable, topic: str, *bodies: str, key: str | None = "K") -> None:
    """In a transaction each."""
    for body in bodies:
        with engine.begin() as connection:
            connection.execute(outbox.insert(Message(topic, body.encode()), sharding_key=key))


def waiting(engine: Engine, outbox: OutboxTable) -> list[tuple[str, int]]:
    """Body and attempts of each row."""
    with engine.connect() as connection:
        rows = connection.execute(select(outbox.table).order_by(outbox.table.c.id)).all()
    return [(bytes(row.body).decode(), row.attempts) for row in rows]


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The events that the relay has logged."""
    ours = (record for record in caplog.records if record.name.startswith("orbitmq.integrations"))
    return [record.getMessage().split()[0] for record in ours]


async def bodies(cluster: Cluster, topic: str) -> list[str]:
    return [message.body.decode() for message in await arrived(cluster.namesrv_address, topic)]


# ---------------------------------------------------------------------------------------------------- transactions


async def test_what_is_committed_is_sent_and_what_is_rolled_back_is_not(
    cluster: Cluster, engine: Engine, outbox: OutboxTable, relays: Relays
) -> None:
    put(engine, outbox, "Committed", "1")
    with suppress(RuntimeError), engine.begin() as connection:
        connection.execute(outbox.insert(Message("Committed", b"never")))
        raise RuntimeError("a bug")
    put(engine, outbox, "Committed", "2", key=None)
    async with relays() as one:
        assert await one.relay_once() == 2
        assert await one.relay_once() == 0
    assert sorted(await bodies(cluster, "Committed")) == ["1", "2"]
    assert waiting(engine, outbox) == []


async def test_an_asynchronous_engine_and_session_do_the_same(
    cluster: Cluster, url: str, engine: Engine, outbox: OutboxTable, relays: Relays
) -> None:
    asynchronous: AsyncEngine = made_async_engine(url)
    async with AsyncSession(asynchronous) as session:
        async with session.begin():
            await session.execute(outbox.insert(Message("Asynchronous", b"1")))
        await session.execute(outbox.insert(Message("Asynchronous", b"never")))
        await session.rollback()
    async with asynchronous.begin() as connection:
        await connection.run_sync(outbox.create)  # they exist: nothing happens
    async with relays(engine=asynchronous) as one:
        assert await one.relay_once() == 1
    await asynchronous.dispose()
    assert await bodies(cluster, "Asynchronous") == ["1"]


async def test_a_message_arrives_as_it_was_made_and_with_a_token(
    cluster: Cluster, engine: Engine, outbox: OutboxTable, relays: Relays
) -> None:
    body = bytes(range(256)) * 300  # more than MySQL's usual column, and compressed on its way
    message = Message("Whole", body, tags="Paid", keys=["O-1", "Ö-2"], flag=7, properties={"name": "wert\n\"'\\"})
    given = Message("Whole", b"x", properties={TOKEN_PROPERTY: "mine"})
    with engine.begin() as connection:
        connection.execute(outbox.insert(message, sharding_key="O-1"))
        connection.execute(outbox.insert(given, sharding_key="O-1"))
    async with relays() as one:
        await one.relay_once()
    whole, other = await arrived(cluster.namesrv_address, "Whole")
    assert (whole.body, whole.tags, whole.keys, whole.flag) == (body, "Paid", "O-1 Ö-2", 7)
    assert whole.properties["name"] == "wert\n\"'\\"
    assert len(whole.properties[TOKEN_PROPERTY]) == 32
    assert other.properties[TOKEN_PROPERTY] == "mine"
    assert TOKEN_PROPERTY not in message.properties, "the application's object is as it was"


async def test_what_is_sent_again_has_the_same_token(
    cluster: Cluster, engine: Engine, outbox: OutboxTable, relays: Relays, clock: ManualClock
) -> None:
    cluster.create_topic("Repeated")
    put(engine, outbox, "Repeated", "1")
    cluster.lose_response("send", times=1, topic="Repeated")
    async with relays(send_timeout_ms=2000) as one:
        assert await one.relay_once() == 0
        clock.advance(1000)
        assert await one.relay_once() == 1
    found = await arrived(cluster.namesrv_address, "Repeated")
    assert len(found) == 2
    assert len({message.properties[TOKEN_PROPERTY] for message in found}) == 1


async def test_a_transaction_that_commits_after_later_ones_is_sent(
    cluster: Cluster, server: str, outbox: OutboxTable, clock: ManualClock
) -> None:
    engine = made_engine(server)  # SQLite has one transaction at a time
    outbox.table.metadata.drop_all(engine)
    outbox.create(engine)
    with engine.begin() as slow:
        slow.execute(outbox.insert(Message("Late", b"first number"), sharding_key="A"))
        put(engine, outbox, "Late", "second number", key="B")
        async with Producer("relay", cluster.namesrv_address, send_timeout_ms=SENDS_MS) as producer:
            one = OutboxRelay(engine, producer, outbox, clock=clock)
            assert await one.relay_once() == 1
    async with Producer("relay", cluster.namesrv_address, send_timeout_ms=SENDS_MS) as producer:
        again = OutboxRelay(engine, producer, outbox, clock=clock)
        clock.advance(30_000)
        assert await again.relay_once() == 1
    engine.dispose()
    assert sorted(await bodies(cluster, "Late")) == ["first number", "second number"]


@pytest.mark.parametrize(
    ("message", "key", "reason"),
    [
        (Message("Orders", b""), None, "the body is empty"),
        (Message("Orders", b"x" * ((4 << 20) + 1)), None, "at most 4194304"),
        (Message("a topic", b"x"), None, "topic"),
        (Message("Orders", b"x", properties={"p": "x" * 40_000}), None, "properties"),
        (Message("Orders", b"x"), "k" * 256, "at most 255"),
        (Message("Orders", b"x"), "a\0b", "databases"),
        (Message("Orders", b"x"), 7, "must be text"),
        ("no message", None, "must be a Message"),
    ],
)
def test_what_could_never_be_sent_is_refused_in_the_transaction(message: Any, key: Any, reason: str) -> None:
    with pytest.raises(MessageIllegal, match=reason):
        OutboxTable().insert(message, sharding_key=key)


def test_spans_count_from_the_transaction(outbox: OutboxTable, clock: ManualClock) -> None:
    row = outbox.row(Message("Orders", b"x", deliver_after=60, expires_after=10))
    at = clock.now_ms() + 60_000
    assert f'"{TIMER_DELIVER_MS}":"{at}"' in row["properties"]
    assert f'"{EXPIRES_AT_MS}":"{at + 10_000}"' in row["properties"]


def test_mysql_has_columns_that_hold_every_message(outbox: OutboxTable) -> None:
    statement = str(CreateTable(outbox.table).compile(dialect=mysql.dialect()))  # type: ignore[no-untyped-call]
    assert "body LONGBLOB" in statement
    assert "properties MEDIUMTEXT" in statement


# ----------------------------------------------------------------------------------------------------------- order


async def test_nothing_of_a_key_overtakes_what_failed_and_other_keys_go_on(
    cluster: Cluster, engine: Engine, outbox: OutboxTable, relays: Relays, clock: ManualClock
) -> None:
    cluster.create_topic("Refused")
    refusal = cluster.refuse("send", ResponseCode.NO_PERMISSION, times=None, topic="Refused")
    put(engine, outbox, "Refused", "1", "2")
    put(engine, outbox, "Taken", "a")
    async with relays() as one:
        assert await one.relay_once() == 1
        assert waiting(engine, outbox) == [("1", 1), ("2", 0)]
        put(engine, outbox, "Refused", "3")
        put(engine, outbox, "Refused", "other", key=None)
        assert await one.relay_once() == 0
        assert waiting(engine, outbox) == [("1", 1), ("2", 0), ("3", 0), ("other", 1)]
        clock.advance(1000)
        assert await one.relay_once() == 0
        refusal.end()
        assert await one.relay_once() == 0, "the first attempts are over, the next ones are not due"
        clock.advance(2000)
        assert await one.relay_once() == 4
    assert [body for body in await bodies(cluster, "Refused") if body != "other"] == ["1", "2", "3"]


async def test_attempts_become_rarer_and_their_error_is_in_the_table(
    cluster: Cluster, engine: Engine, outbox: OutboxTable, relays: Relays, clock: ManualClock
) -> None:
    cluster.create_topic("Never")
    refusal = cluster.refuse("send", ResponseCode.NO_PERMISSION, times=None, topic="Never")
    put(engine, outbox, "Never", "1")
    async with relays() as one:
        for seconds in (1, 2, 4, 8, 16, 30, 30):
            await one.relay_once()
            clock.advance(seconds * 1000 - 1)
            attempts = one.failed
            await one.relay_once()
            assert one.failed == attempts, "too early"
            clock.advance(1)
    refusal.end()
    with engine.connect() as connection:
        row = connection.execute(select(outbox.table)).one()
    assert row.attempts == 7
    assert "refused by the test" in row.error


async def test_large_messages_are_read_a_few_at_a_time_in_order(
    cluster: Cluster, engine: Engine, outbox: OutboxTable, relays: Relays, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "BATCH_BYTES", 10)
    put(engine, outbox, "Large", "x" * 100, "y" * 6, "z" * 4, "w")
    async with relays() as one:
        assert [await one.relay_once() for _ in range(4)] == [1, 2, 1, 0]
    assert await bodies(cluster, "Large") == ["x" * 100, "y" * 6, "z" * 4, "w"]


async def test_neither_a_stop_nor_the_lease_waits_for_all_messages_of_a_key(
    cluster: Cluster, engine: Engine, outbox: OutboxTable, relays: Relays
) -> None:
    cluster.create_topic("Long")
    cluster.delay("send", 0.02, times=None, topic="Long")
    put(engine, outbox, "Long", *map(str, range(60)))
    async with relays() as one:
        one._lease_s = 0.3  # a third of which is enough for some of them
        assert 1 <= await one.relay_once() < 60
        one._lease_s = 30.0
        async with one:
            await until(lambda: cluster.message_count("Long") > one.sent)
    left = len(waiting(engine, outbox))
    assert left > 0
    assert await bodies(cluster, "Long") == [str(number) for number in range(60 - left)]


def test_a_number_is_never_given_twice(engine: Engine, outbox: OutboxTable) -> None:
    """Else a relay that was late would delete another message."""
    numbers = []
    for body in ("1", "2"):
        put(engine, outbox, "Numbered", body)
        with engine.begin() as connection:
            numbers += connection.scalars(select(outbox.table.c.id)).all()
            connection.execute(outbox.table.delete())
    assert numbers[0] < numbers[1]


async def test_two_relays_at_a_time_repeat_messages_and_keep_their_order(
    cluster: Cluster, engine: Engine, outbox: OutboxTable, relays: Relays, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OutboxRelay, "_renew", lambda *_: True)  # as if each had the lease
    cluster.create_topic("Both")
    put(engine, outbox, "Both", *map(str, range(60)), key="A")
    slow = cluster.delay("send", 0.005, times=None, topic="Both")
    async with relays(batch=7) as one, relays(batch=11) as other:
        while waiting(engine, outbox):
            await asyncio.gather(one.relay_once(), other.relay_once())
    slow.end()
    found = await bodies(cluster, "Both")
    assert len(found) > 60, "each sent what the other did"
    assert list(dict.fromkeys(found)) == [str(number) for number in range(60)]


# ---------------------------------------------------------------------------------------------------------- relays


async def test_a_lease_is_written_when_a_third_of_it_is_over(
    engine: Engine, outbox: OutboxTable, relays: Relays, clock: ManualClock
) -> None:
    def until_ms() -> int:
        with engine.connect() as connection:
            return connection.execute(select(outbox.lease.c.until_ms)).scalar_one()

    begun = clock.now_ms()
    async with relays() as one:
        await one.relay_once()
        clock.advance(9_999)
        await one.relay_once()
        assert until_ms() == begun + 30_000
        clock.advance(1)
        await one.relay_once()
        assert until_ms() == begun + 40_000


async def test_one_relay_works_and_another_takes_over(
    cluster: Cluster, engine: Engine, outbox: OutboxTable, relays: Relays, clock: ManualClock
) -> None:
    async with relays() as one, relays() as other:
        put(engine, outbox, "Lease", "1")
        assert await one.relay_once() == 1
        put(engine, outbox, "Lease", "2")
        assert await other.relay_once() == 0
        clock.advance(20_000)
        assert await one.relay_once() == 1, "it has the lease, and renews it"
        put(engine, outbox, "Lease", "3")
        clock.advance(29_999)
        assert await other.relay_once() == 0
        clock.advance(1)
        assert await other.relay_once() == 1, "the first one is silent: its lease is over"
        put(engine, outbox, "Lease", "4")
        assert await one.relay_once() == 0
        async with other:
            await until(lambda: not waiting(engine, outbox))
        put(engine, outbox, "Lease", "5")
        assert await one.relay_once() == 1, "one that is stopped leaves the lease at once"
    assert sorted(await bodies(cluster, "Lease")) == ["1", "2", "3", "4", "5"]


async def test_a_relay_in_the_background_sends_what_comes_and_says_how_it_is(
    cluster: Cluster, engine: Engine, outbox: OutboxTable, relays: Relays, clock: ManualClock
) -> None:
    async with relays(poll=0.01) as made:
        async with made as one:
            assert await one.backlog() == Backlog(0, 0.0)
            put(engine, outbox, "Background", *map(str, range(20)), key=None)
            await until(lambda: one.sent == 20)
            assert str(one.status) == "ok: 0 in progress, 20 done, 0 failed"
        assert one.status.failure == "ending"
    put(engine, outbox, "Background", "later")
    clock.advance(5000)
    async with relays() as other:
        assert await other.backlog() == Backlog(1, 5.0)


async def test_an_error_of_the_database_is_logged_once_and_the_relay_goes_on(
    cluster: Cluster, engine: Engine, outbox: OutboxTable, relays: Relays, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr(relay, "PAUSE_S", 0.01)
    outbox.table.metadata.drop_all(engine)
    attempts: list[OutboxRelay] = []
    relay_once = OutboxRelay.relay_once

    def counted(self: OutboxRelay) -> Coroutine[object, object, int]:
        attempts.append(self)
        return relay_once(self)

    monkeypatch.setattr(OutboxRelay, "relay_once", counted)
    with caplog.at_level(logging.WARNING, "orbitmq.integrations"):
        async with relays(poll=0.01) as made, made as one:
            await until(lambda: len(attempts) > 3)
            monkeypatch.setattr(relay, "UNHEALTHY_S", -1.0)
            assert one.status.failure == "no messages can be relayed; the log says why"
            outbox.create(engine)
            put(engine, outbox, "Returned", "1")
            await until(lambda: one.sent == 1)
            assert one.status.failure is None
    assert logged(caplog) == ["event=outbox_failed"]


async def test_brokers_that_take_nothing_are_logged_once_and_unhealthy_after_a_minute(
    cluster: Cluster, engine: Engine, outbox: OutboxTable, relays: Relays, clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    cluster.create_topic("Away")
    refusal = cluster.refuse("send", ResponseCode.NO_PERMISSION, times=None, topic="Away")
    put(engine, outbox, "Away", "1")
    async with relays() as one:
        with caplog.at_level(logging.WARNING, "orbitmq.integrations"):
            for _ in range(5):
                await one.relay_once()
                clock.advance(30_000)
        assert one.status.failure is None
        monkeypatch.setattr(relay, "UNHEALTHY_S", -1.0)
        assert one.status.failure is not None
        refusal.end()
        assert await one.relay_once() == 1
        assert one.status.failure is None
    assert logged(caplog) == ["event=outbox_not_sent"]


async def test_a_relay_is_healthy_again_when_what_it_could_not_send_is_deleted(
    cluster: Cluster, engine: Engine, outbox: OutboxTable, relays: Relays, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create_topic("Forbidden")
    cluster.refuse("send", ResponseCode.NO_PERMISSION, times=None, topic="Forbidden")
    put(engine, outbox, "Forbidden", "1")
    async with relays() as one:
        await one.relay_once()
        await one.relay_once()  # before the next attempt
        assert "brokers" in one._failing
        with engine.begin() as connection:
            connection.execute(outbox.table.delete())
        monkeypatch.setattr(relay, "UNHEALTHY_S", -1.0)
        assert one.status.failure is not None
        await one.relay_once()
        assert one.status.failure is None


async def test_a_row_that_is_no_message_stops_no_other(
    cluster: Cluster, engine: Engine, outbox: OutboxTable, relays: Relays
) -> None:
    row = outbox.row(Message("Damaged", b"x"))
    with engine.begin() as connection:
        connection.execute(outbox.table.insert().values(**{**row, "properties": "[1]"}))
        connection.execute(outbox.table.insert().values(**row))
    async with relays() as one:
        assert await one.relay_once() == 1
    assert waiting(engine, outbox) == [("x", 1)]


async def test_a_hook_that_fails_has_nothing_sent_twice(
    cluster: Cluster, engine: Engine, outbox: OutboxTable, clock: ManualClock
) -> None:
    put(engine, outbox, "Hooked", "sent", key=None)
    put(engine, outbox, "Hooked", "forbidden", key=None)

    def forbid(context: SendContext) -> None:
        if context.message.body == b"forbidden":
            raise ValueError("no database stores \0 and \ud800")

    async with Producer("relay", cluster.namesrv_address, send_timeout_ms=SENDS_MS) as producer:
        producer.add_forbidden_hook(forbid)
        one = OutboxRelay(engine, producer, outbox, clock=clock)
        assert [await one.relay_once(), await one.relay_once()] == [1, 0]
    assert waiting(engine, outbox) == [("forbidden", 1)]
    with engine.connect() as connection:
        error = connection.execute(select(outbox.table.c.error)).scalar_one()
    assert error == "ValueError: no database stores ? and ?"


async def test_tables_that_are_emptied_stop_no_relay(
    cluster: Cluster, engine: Engine, outbox: OutboxTable, relays: Relays, clock: ManualClock
) -> None:
    async with relays() as one:
        assert await one.relay_once() == 0
        with engine.begin() as connection:
            connection.execute(outbox.lease.delete())
        put(engine, outbox, "Emptied", "1")
        clock.advance(10_000)
        assert [await one.relay_once(), await one.relay_once()] == [0, 1]


async def test_a_producer_with_an_outbox_of_its_own_is_refused(
    engine: Engine, outbox: OutboxTable, tmp_path: Path, clock: ManualClock
) -> None:
    put(engine, outbox, "Local", "1")
    local = Outbox(tmp_path / "local", raises=False)
    async with Producer("relay", "127.0.0.1:1", outbox=local, send_timeout_ms=300) as producer:
        assert await OutboxRelay(engine, producer, outbox, clock=clock).relay_once() == 0
    with engine.connect() as connection:
        assert "an outbox of its own" in connection.execute(select(outbox.table.c.error)).scalar_one()


@pytest.mark.parametrize("option", [{"batch": 0}, {"batch": 5001}, {"poll": 0}, {"lease": 9}])
async def test_values_that_are_not_allowed_are_named(option: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(option))):
        OutboxRelay(made_engine(sqlite_url(tmp_path)), Producer("relay", "127.0.0.1:1"), **option)


async def test_a_program_handles_signals_and_so_needs_the_main_thread(tmp_path: Path) -> None:
    with pytest.raises(InvalidStateError, match="run_relay handles signals"):
        run_relay(made_engine(sqlite_url(tmp_path)), "relay", "127.0.0.1:1")
