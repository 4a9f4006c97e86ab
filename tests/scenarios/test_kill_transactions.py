"""kill -9 of a live broker under transactions: what was to be committed is delivered, what was to be rolled back never.

Producers decide some transactions at once and some only when they are asked; the kill hits them between any two steps.
One store goes through all rounds, so that later ones meet what earlier ones left pending.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from orbitmq.errors import OrbitMQError
from orbitmq.message.model import MessageQueue
from orbitmq.message.unit import decode_units
from orbitmq.operations.offsets import max_offset
from orbitmq.operations.pulls import pull
from orbitmq.operations.transactions import pending_transactions
from tests.support.live import pull_header
from tests.support.orbit_process import OrbitUp
from tests.support.transactions import COMMIT, ROLLBACK, RawProducer, raw_producer

ROUNDS = 8
PRODUCERS = 8
TOPIC = "KilledTransactions"
GROUP = "killers"
SEED = 20_261_121  # of kill times and body sizes; printed with the counts
PATIENCE_SECONDS = 60.0


def is_asked(number: int) -> bool:
    """Whether the producer waits until it is asked."""
    return number % 4 > 1


def decision(number: int) -> int:
    return COMMIT if number % 2 else ROLLBACK


@dataclass
class Ledger:
    """What producers know: numbers of transactions whose half message, and whose decision, was acknowledged."""

    prepared: set[int] = field(default_factory=set)
    decided: set[int] = field(default_factory=set)
    begun: int = 0
    target: int = 0
    asked: int = 0
    reached: asyncio.Event = field(default_factory=asyncio.Event)

    def expect(self, more: int) -> None:
        self.target, self.reached = len(self.decided) + more, asyncio.Event()

    def decide(self, number: int) -> None:
        self.decided.add(number)
        if len(self.decided) >= self.target:
            self.reached.set()


async def produce(address: str, ledger: Ledger, dice: random.Random) -> None:
    """One producer: ends when the broker is gone."""
    producer = RawProducer(address, GROUP)
    answering = None
    try:
        await producer.register()
        answering = asyncio.create_task(answer(producer, ledger))
        while True:
            ledger.begun += 1
            number = ledger.begun
            body = b"%d:" % number + dice.randbytes(dice.randrange(1, 3000))
            now_ms = time.time_ns() // 1_000_000
            prepared = await producer.prepare(TOPIC, body, str(number), {"WAIT": "true"}, born_ms=now_ms)
            ledger.prepared.add(number)
            if not is_asked(number):
                await producer.end(prepared, decision(number))
                ledger.decide(number)
    except OrbitMQError:
        return  # the kill; what this producer did not hear about may or may not have happened
    finally:
        if answering is not None:
            answering.cancel()
        await producer.remoting.close()


async def answer(producer: RawProducer, ledger: Ledger) -> None:
    """Say what was decided to whoever asks."""
    with contextlib.suppress(OrbitMQError):
        while True:
            question = await producer.asked.get()
            ledger.asked += 1
            number = int(question.prepared.unique_id)
            await producer.end(question.prepared, decision(number))
            ledger.decide(number)


async def load_and_kill(broker: OrbitUp, ledger: Ledger, dice: random.Random, *, after: int) -> None:
    """Transactions from many sides; the kill comes once so many more are decided."""
    ledger.expect(after)
    producers = [asyncio.create_task(produce(broker.address, ledger, dice)) for _ in range(PRODUCERS)]
    await ledger.reached.wait()
    broker.kill()
    await asyncio.gather(*producers)


async def finish(broker: OrbitUp, ledger: Ledger) -> Counter[int]:
    """Answer until nothing is pending; the numbers of the messages that were delivered."""
    async with raw_producer(broker.address, GROUP) as producer, asyncio.timeout(PATIENCE_SECONDS):
        answering = asyncio.create_task(answer(producer, ledger))
        while (await pending_transactions(producer.remoting, broker.address)).transactions:
            await asyncio.wait([answering], timeout=0.1)
        answering.cancel()
        return await read_back(producer)


async def read_back(producer: RawProducer) -> Counter[int]:
    found: Counter[int] = Counter()
    offset, end = 0, await max_offset(producer.remoting, producer.address, MessageQueue(TOPIC, "", 0))
    while offset < end:
        units = decode_units((await pull(producer.remoting, producer.address, pull_header(TOPIC, 0, offset))).body)
        assert units, f"nothing at {offset} of {end}"
        found.update(int(unit.body.partition(b":")[0]) for unit in units)
        offset += len(units)
    return found


def test_transactions_survive_kill_nine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dice = random.Random(SEED)
    ledger = Ledger()
    quick = {"transactionTimeOut": 100, "transactionCheckInterval": 300, "transactionCheckMax": 1_000_000}
    small = {"mappedFileSizeCommitLog": 4 << 20, "mappedFileSizeConsumeQueue": 20 * 300, "flushIntervalCommitLog": 50}
    with OrbitUp(home=tmp_path, **quick, **small) as broker:
        for _ in range(ROUNDS):
            asyncio.run(load_and_kill(broker, ledger, dice, after=dice.randrange(1, 500)))
            assert (broker.store_dir / "abort").exists(), "the broker was killed, not stopped"
            broker.start()
        delivered = asyncio.run(finish(broker, ledger))
    lost = {number for number in ledger.prepared if decision(number) == COMMIT} - delivered.keys()
    wrong = {number for number in delivered if decision(number) == ROLLBACK}
    twice = {number: count for number, count in delivered.items() if count > 1}
    with capsys.disabled():
        print(
            f"\nseed {SEED}: {ROUNDS} kills, {ledger.begun} begun, {len(ledger.prepared)} prepared, "
            f"{len(ledger.decided)} decisions acknowledged, {ledger.asked} questions, {len(delivered)} delivered, "
            f"{len(lost)} lost, {len(wrong)} delivered though rolled back, {len(twice)} delivered twice"
        )
    assert not lost, "acknowledged, to be committed, and never delivered"
    assert not wrong, "rolled back, and delivered"
    assert not twice
    assert sum(map(is_asked, delivered)) > 0, "questions decided some"
