"""Transactions over kills and power cuts, in simulated time: what was on disk ends as its producer decides, and once.

A history is a row of random steps of producers, broker and disk, with a crash at the end of each life. Producers stand
by their decision; whether the broker hears of it, and when, is chance.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from inspect import isawaitable
from pathlib import Path
from random import Random
from typing import cast

import pytest

from orbitmq.broker.clients import ConnectedClient, Producers
from orbitmq.broker.message_writer import MessageWriter
from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.broker.options import BrokerOptions
from orbitmq.broker.statistics import Statistics
from orbitmq.broker.topics import Topics
from orbitmq.broker.transactions.transactions import Transactions
from orbitmq.errors import RequestRejected
from orbitmq.message.flags import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from orbitmq.message.hosts import encode_host
from orbitmq.message.properties import decode_properties, encode_properties
from orbitmq.net.connection import Connection
from orbitmq.replication.master import Replicas
from orbitmq.runtime.clock import ManualClock
from orbitmq.store.records import PutRecord, PutStatus
from orbitmq.wire.command import Command, request
from orbitmq.wire.headers_transaction import CheckTransactionStateHeader, EndTransactionHeader
from orbitmq.wire.requests import RequestCode
from tests.support.disk import FaultyDisk
from tests.support.stores import abandon, no_timers, open_store, units

HOST = encode_host("127.0.0.1", 10911)
MEMORY = Path("/dev/shm")  # real files, but nobody waits for a real disk
HISTORIES = 40
LIVES = 5
STEPS = 40
ROUNDS_MAX = 30  # at the end: far more than it takes to ask about everything


def decision(number: int) -> int:
    return TRANSACTION_COMMIT if number % 2 else TRANSACTION_ROLLBACK


class History:
    """A broker's transactions without network and timers, and what their producers know."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory = directory
        self.loop = asyncio.new_event_loop()
        self.dice = Random(seed)
        self.clock = ManualClock()
        self.saved: dict[str, dict[int, int]] = {}  # consumerOffset.json, as it was written last
        self.begun = 0
        self.open: list[EndTransactionHeader] = []  # decisions producers have not told yet
        self.questions: list[EndTransactionHeader] = []  # and their answers
        self.unflushed: list[int] = []
        self.promised: set[int] = set()  # transactions whose half message was on disk once
        self.start()

    # ----------------------------------------------------------------------------------------------- the broker

    def start(self) -> None:
        self.disk = FaultyDisk()
        self.store = open_store(self.directory, self.clock, self.disk, deliver=self.loop.call_soon_threadsafe)
        self.offsets = ConsumerOffsets(self.directory / "config")
        self.offsets.table = {key: dict(offsets) for key, offsets in self.saved.items()}
        options = BrokerOptions.parse({"brokerName": "b", "transactionCheckMax": "1000000"})
        producers = Producers()
        producers.register("g", ConnectedClient(cast("Connection", self), "c", "JAVA", 407, self.clock.now_ms()))
        topics = Topics(self.directory / "config", options, self.clock)
        topics.file.mark = lambda: None  # type: ignore[method-assign]  # what it would save is not of interest here
        replicas = Replicas(self.store, self.store.options, self.clock)
        writing = MessageWriter(
            self.store, 18, no_timers(self.store, self.clock), Statistics(self.store, "c", self.clock), replicas
        )
        self.transactions = Transactions(self.store, writing, topics, self.offsets, producers, options, self.clock)
        self.transactions.use_host(HOST)
        self.loop.run_until_complete(self.transactions.checking.restore())

    @property
    def takes_more(self) -> bool:
        """The producer's connection, as far as checks look at it."""
        return True

    def send(self, command: Command) -> None:
        asked = command.header(CheckTransactionStateHeader)
        number = int((asked.msg_id or "").removeprefix("u"))
        self.questions.append(
            EndTransactionHeader(
                "g", asked.tran_state_table_offset, asked.commit_log_offset, decision(number), True, asked.msg_id
            )
        )

    # ---------------------------------------------------------------------------------------------------- steps

    def prepare(self) -> None:
        self.begun += 1
        properties = {"UNIQ_KEY": f"u{self.begun}", "PGROUP": "g", "TRAN_MSG": "true"}
        record = PutRecord("Orders", 0, b"%d" % self.begun, b"", self.clock.now_ms(), HOST, HOST)
        result = self.transactions.prepare(record, encode_properties(properties))
        assert result.status is PutStatus.PUT_OK
        header = EndTransactionHeader(
            "g", result.queue_offset, result.physical_offset, decision(self.begun), False, f"u{self.begun}"
        )
        self.open.append(header)
        self.unflushed.append(self.begun)

    def decide(self) -> None:
        if self.open:
            self.end(self.open.pop(self.dice.randrange(len(self.open))))

    def answer(self) -> None:
        if self.questions:
            self.end(self.questions.pop(self.dice.randrange(len(self.questions))))

    def end(self, header: EndTransactionHeader) -> None:
        """Once or twice; a refusal is an answer, too."""
        for _ in range(self.dice.choice((1, 1, 2))):
            try:
                self.loop.run_until_complete(self._end(header))
            except RequestRejected:
                return

    async def _end(self, header: EndTransactionHeader) -> None:
        command = request(RequestCode.END_TRANSACTION, header)
        answer = self.transactions.deciding.end(cast("Connection", self), command)
        if isawaitable(answer):
            await answer

    def round(self) -> None:
        self.clock.advance(60_000)
        self.loop.run_until_complete(self.transactions.checking.round())

    def flush(self) -> None:
        self.store._log_flusher.flush()
        self.promised.update(self.unflushed)
        self.unflushed.clear()

    def keep_progress(self) -> None:
        self.loop.run_until_complete(self.transactions.checking._keep_progress())

    def save(self) -> None:
        self.saved = {key: dict(offsets) for key, offsets in self.offsets.table.items()}

    def live(self) -> None:
        steps = (self.prepare, self.decide, self.answer, self.round, self.flush, self.keep_progress, self.save)
        for step in self.dice.choices(steps, (12, 8, 4, 2, 3, 3, 2), k=STEPS):
            self.clock.advance(self.dice.randrange(3000))
            step()

    def crash(self) -> None:
        """Decisions that were not told are told later, of those that are still known where they were."""
        abandon(self.store)
        if self.dice.random() < 0.5:
            self.disk.kill()
            self.promised.update(self.unflushed)
        else:
            self.disk.lose_power(lambda: self.dice.random() < 0.5)
            self.open.clear()  # places in the log may belong to others now; producers are asked
            self.questions.clear()
        self.unflushed.clear()
        self.clock.advance(1000)
        self.start()

    def finish(self) -> Counter[int]:
        """Answer whatever is asked; the numbers of the messages that were delivered."""
        for _ in range(ROUNDS_MAX):
            self.questions.clear()
            self.round()
            if not self.questions:
                break
            for question in self.questions:
                self.end(question)
        assert not self.questions, "there is an end to questions"
        delivered = Counter(
            int(decode_properties(unit.properties)["UNIQ_KEY"].removeprefix("u"))
            for unit in units(self.store, "Orders")
        )
        self.store.close()
        self.loop.close()
        return delivered


@pytest.fixture
def directory() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="transactions-", dir=MEMORY if MEMORY.is_dir() else None))
    yield made
    shutil.rmtree(made)


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_transactions_end_as_decided_and_once(directory: Path, seed: int) -> None:
    history = History(directory, seed)
    for _ in range(LIVES):
        history.live()
        history.crash()
    delivered = history.finish()
    wanted = {number for number in history.promised if decision(number) == TRANSACTION_COMMIT}
    assert wanted - delivered.keys() == set(), "on disk, to be committed, and never delivered"
    assert {number for number in delivered if decision(number) == TRANSACTION_ROLLBACK} == set()
    assert {number: count for number, count in delivered.items() if count > 1} == {}
    assert len(wanted) > 10
