"""Transactions of several threads, some rolled back, while relays are killed at random and a broker refuses: each
committed message arrives, none of a rolled-back transaction, and repetitions left out each key in its order.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from sqlalchemy import BigInteger, Column, Engine, MetaData, String, Table, func, insert, select, update

from orbitmq.client import Message
from orbitmq.client.idempotent import TOKEN_PROPERTY
from orbitmq.integrations.outbox import OutboxTable
from orbitmq.testing import Cluster
from orbitmq.wire.codes import ResponseCode
from tests.integrations.outbox_support import arrived, made_engine, sqlite_url
from tests.support.postgres import postgres
from tests.support.process import ChildProcess, free_port

TOPIC = "Killed"
KEYS = [f"K{number}" for number in range(8)]
WRITERS = 4
TRANSACTIONS = 25  # of each writer between two kills: more than a relay sends meanwhile
ROLLED_BACK = 0.25
REFUSED = 3  # sends after each kill: what comes after them must wait
BETWEEN = 60  # messages that arrive between two kills, so that each relay has worked
SEND_S = 0.02  # so that a relay is busy when it is killed
PATIENCE_S = 60

metadata = MetaData()
counters = Table("counters", metadata, Column("key", String(10), primary_key=True), Column("last", BigInteger))
outbox = OutboxTable(metadata)


class RolledBack(Exception):
    """The application changed its mind."""


class Writer:
    """A thread of the application. A key's messages are numbered under the lock of its row, as its changes would be."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self._engine = engine
        self._name = f"writer-{seed}"
        self._choice = random.Random(seed)
        self.committed: list[tuple[str, int, str]] = []
        self.rolled_back: set[str] = set()

    def run(self, transactions: int) -> None:
        for number in range(transactions):
            self._transact(f"{self._name}-{number}")

    def _transact(self, name: str) -> None:
        written: list[tuple[str, int, str]] = []
        try:
            with self._engine.begin() as connection:
                key = self._choice.choice(KEYS)
                for part in range(self._choice.randint(1, 3)):
                    mine = counters.c.key == key
                    connection.execute(update(counters).where(mine).values(last=counters.c.last + 1))
                    last = connection.execute(select(counters.c.last).where(mine)).scalar_one()
                    body = f"{key}:{last}:{name}:{part}"
                    connection.execute(outbox.insert(Message(TOPIC, body.encode()), sharding_key=key))
                    written.append((key, last, body))
                if self._choice.random() < ROLLED_BACK:
                    raise RolledBack
        except RolledBack:
            self.rolled_back |= {body for *_, body in written}
        else:
            self.committed += written


@contextmanager
def database(kind: str, folder: Path) -> Iterator[str]:
    with postgres() if kind == "postgresql" else nullcontext() as address:
        yield sqlite_url(folder) if address is None else f"postgresql+psycopg://{address}"


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_every_committed_message_arrives_though_relays_are_killed(
    kind: str, kills: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    choice = random.Random(kills)
    with database(kind, tmp_path) as url, Cluster() as cluster, ThreadPoolExecutor(WRITERS) as threads:
        cluster.create_topic(TOPIC)
        slow = cluster.delay("send", SEND_S, times=None, topic=TOPIC)
        engine, port = made_engine(url), free_port()
        metadata.create_all(engine)
        with engine.begin() as connection:
            connection.execute(insert(counters), [{"key": key, "last": 0} for key in KEYS])
        writers = [Writer(engine, seed) for seed in range(WRITERS)]
        writing = [threads.submit(writer.run, TRANSACTIONS * (kills + 1)) for writer in writers]

        def relay(number: int) -> ChildProcess:
            arguments = [url, ("threads", "asyncio")[number % 2], cluster.namesrv_address, str(port)]
            program = [sys.executable, "-m", "tests.integrations.relay_program", *arguments]
            return ChildProcess(program, output=tmp_path / f"relay-{number}.out")

        running = relay(0)
        for number in range(1, kills + 1):
            goal = cluster.message_count(TOPIC) + BETWEEN + choice.randrange(20)
            running.wait_for(lambda: cluster.message_count(TOPIC) >= goal, PATIENCE_S, "messages")  # noqa: B023
            running.kill()
            with engine.begin() as connection:  # as if the time of its lease were over
                connection.execute(update(outbox.lease).values(until_ms=0))
            running = relay(number)
            slow.end()
            cluster.refuse("send", ResponseCode.SYSTEM_BUSY, times=REFUSED, topic=TOPIC)
            slow = cluster.delay("send", SEND_S, times=None, topic=TOPIC)
        for one in writing:
            one.result()

        def is_empty() -> bool:
            with engine.connect() as connection:
                return connection.execute(select(func.count()).select_from(outbox.table)).scalar_one() == 0

        running.wait_for(is_empty, PATIENCE_S, "an empty outbox")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz") as response:
            assert response.read().startswith(b"ok: ")
        running.signal(signal.SIGTERM)
        assert running.wait(PATIENCE_S) == 0, running.errors()
        engine.dispose()
        found = asyncio.run(arrived(cluster.namesrv_address, TOPIC))

    by_key: dict[str, list[str]] = defaultdict(list)
    for message in found:
        body = message.body.decode()
        by_key[body.partition(":")[0]].append(body)
    committed = sorted(one for writer in writers for one in writer.committed)
    assert {body for bodies in by_key.values() for body in bodies} == {body for *_, body in committed}
    assert not any(message.body.decode() in writer.rolled_back for message in found for writer in writers)
    for key in KEYS:
        assert list(dict.fromkeys(by_key[key])) == [body for of, _, body in committed if of == key]
    assert len({message.properties[TOKEN_PROPERTY] for message in found}) == len(committed)
    with capsys.disabled():
        print(
            f"\n{kind}: {len(committed)} messages of committed transactions, each arrived, in the order of its key; "
            f"{sum(len(writer.rolled_back) for writer in writers)} of others, none arrived; {kills} relays killed, "
            f"{len(found) - len(committed)} messages repeated"
        )
