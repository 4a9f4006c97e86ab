"""kill -9 of a live broker under clients that speak gRPC: normal, delayed and half messages, receives, acknowledgements
and changes of the invisible time. What was sent with success is delivered until it is acknowledged, or is pending.

A redelivered message may come in a second copy, when the kill came between copying it and taking note of that; those
are counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest

from orbitmq.message.model import MessageQueue
from orbitmq.net.remoting import Remoting
from orbitmq.operations.offsets import update_consumer_offset
from orbitmq.operations.transactions import pending_transactions
from orbitmq.proxy.handles import parse_handle
from orbitmq.wire.v2 import messages as v2
from orbitmq.wire.v2.enums import Code, MessageType, TransactionResolution
from tests.support.five import Five, channel, message
from tests.support.fronts import create_topic
from tests.support.orbit_process import OrbitBroker, OrbitNameServer
from tests.support.process import accepts, free_port, wait_until

ROUNDS = 5
PRODUCERS, MEMBERS = 4, 4
QUEUES = 2
MOST = 16  # messages of a receive, which are copied in one go
TOPIC, GROUP = "KilledFive", "killed-five"
INVISIBLE_S, CHANGED_S = 10.0, (0.2, 1.5)  # the first is the least that a front takes
LEFT_SHARE, CHANGED_SHARE = 0.03, 0.2
DELAY_MS = (300, 2000)
SEED = 20_261_129  # of kill times, body sizes and decisions; printed with the counts
CALL_S = 10.0
PATIENCE_S = 60
QUICK = {"transactionTimeOut": 100, "transactionCheckInterval": 300, "transactionCheckMax": 1_000_000}
MIXED = {"enableMixedMessageType": "true"}
KILLED = (grpc.aio.AioRpcError, AssertionError)
NORMAL, DELAYED, COMMIT, ROLLBACK, ASKED, PENDING = "normal", "delayed", "commit", "rollback", "asked", "pending"
KINDS = (*(NORMAL,) * 6, *(DELAYED,) * 3, COMMIT, ROLLBACK, ASKED)


class Place(NamedTuple):
    """Where a delivery lay, and how often it had been redelivered."""

    copy: tuple[str, int, int]
    times: int


@dataclass
class Ledger:
    """Bodies, which are unique. The first part of a body is its kind."""

    sent: set[bytes] = field(default_factory=set)
    """Those with a receipt."""
    due_ms: dict[bytes, int] = field(default_factory=dict)
    ids: dict[bytes, str] = field(default_factory=dict)
    """Of half messages."""
    seen: Counter[bytes] = field(default_factory=Counter)
    tried: set[bytes] = field(default_factory=set)
    acknowledged: dict[bytes, Place] = field(default_factory=dict)
    again: list[tuple[bytes, Place]] = field(default_factory=list)
    second: list[tuple[bytes, Place]] = field(default_factory=list)
    early: list[bytes] = field(default_factory=list)
    begun: int = 0
    asked: int = 0
    target: int = 0
    reached: asyncio.Event = field(default_factory=asyncio.Event)

    def expect(self, more: int) -> None:
        self.target, self.reached = len(self.acknowledged) + more, asyncio.Event()

    def arrived(self, body: bytes, place: Place) -> None:
        self.seen[body] += 1
        if now_ms() < self.due_ms.get(body, 0):
            self.early.append(body)
        if (former := self.acknowledged.get(body)) is not None:
            may_be = former.times > 0 and former.copy != place.copy
            (self.second if may_be else self.again).append((body, place))

    @property
    def undecided(self) -> set[str]:
        """Ids of half messages about which nobody says anything; some have no receipt."""
        return {half for body, half in self.ids.items() if kind_of(body) == PENDING}

    def of(self, *kinds: str) -> set[bytes]:
        return {body for body in self.sent if kind_of(body) in kinds}


def kind_of(body: bytes) -> str:
    return body.partition(b":")[0].decode()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


# ---------------------------------------------------------------------------------------------------------- the clients


async def produce(port: int, ledger: Ledger, dice: random.Random) -> None:
    """One producer, which is asked about transactions, too; ends with the broker."""
    async with channel(port) as opened:
        client = Five(opened)
        with contextlib.suppress(*KILLED):
            await client.produce(TOPIC)
            answering = asyncio.create_task(answer(client, ledger))
            try:
                while True:
                    await send(client, ledger, dice)
            finally:
                answering.cancel()
                await asyncio.gather(answering, return_exceptions=True)


async def send(client: Five, ledger: Ledger, dice: random.Random) -> None:
    ledger.begun += 1
    kind = PENDING if ledger.begun % 200 == 0 else dice.choice(KINDS)
    body = f"{kind}:{ledger.begun}:".encode() + dice.randbytes(dice.randrange(500))
    system: dict[str, Any] = {}
    if kind == DELAYED:
        system = {"delivery_ms": now_ms() + dice.randrange(*DELAY_MS), "message_type": MessageType.DELAY}
        ledger.due_ms[body] = system["delivery_ms"]
    elif kind != NORMAL:
        system = {"message_type": MessageType.TRANSACTION}
    made = message(TOPIC, body, **system)
    if kind not in (NORMAL, DELAYED):
        ledger.ids[body] = made.system_properties.message_id
    response = await client.call("SendMessage", v2.SendMessageRequest(messages=[made]), timeout=CALL_S)
    assert response.status.code == Code.OK, response.status
    ledger.sent.add(body)
    if kind in (COMMIT, ROLLBACK):
        await end(client, ledger.ids[body], kind)


async def end(client: Five, transaction_id: str, kind: str) -> None:
    resolution = TransactionResolution.ROLLBACK if kind == ROLLBACK else TransactionResolution.COMMIT
    request = v2.EndTransactionRequest(message_id=transaction_id, transaction_id=transaction_id, resolution=resolution)
    request.topic.name = TOPIC
    await client.call("EndTransaction", request, timeout=CALL_S)


async def answer(client: Five, ledger: Ledger) -> None:
    """Decide what the broker asks about, all but what is to stay pending."""
    while (command := await client.stream.read()) is not grpc.aio.EOF:
        question = command.recover_orphaned_transaction_command
        kind = kind_of(question.message.body)
        if question.transaction_id and kind != PENDING:
            ledger.asked += 1
            await end(client, question.transaction_id, kind)


async def consume(port: int, ledger: Ledger, dice: random.Random, *, keeps: bool = True) -> None:
    """One member: it acknowledges most messages, hides some for less or leaves them; ends with the broker."""
    async with channel(port) as opened:
        client = Five(opened)
        with contextlib.suppress(*KILLED):
            await client.consume(GROUP, TOPIC)
            while True:
                most = dice.randrange(1, MOST + 1)
                found = await client.receive(GROUP, TOPIC, most, invisible_s=INVISIBLE_S, poll_s=5, timeout=CALL_S)
                await asyncio.gather(*(decide(client, one, ledger, dice, keeps=keeps) for one in found))


async def decide(client: Five, one: Any, ledger: Ledger, dice: random.Random, *, keeps: bool) -> None:
    system, body = one.system_properties, bytes(one.body)
    receipt = parse_handle(system.receipt_handle).receipt
    place = Place((receipt.kind, receipt.queue_id, receipt.offset), system.delivery_attempt - 1)
    ledger.arrived(body, place)
    draw = dice.random() if keeps else 1.0
    if draw < LEFT_SHARE:
        return
    if draw < LEFT_SHARE + CHANGED_SHARE:
        response = await client.change(GROUP, TOPIC, system.receipt_handle, dice.uniform(*CHANGED_S))
        assert response.status.code == Code.OK, response.status
        return
    ledger.tried.add(body)
    response = await client.ack(GROUP, TOPIC, one)
    assert response.status.code == Code.OK, response.status
    if now_ms() < receipt.pop_ms + receipt.invisible_ms:  # else it may have been redelivered before
        ledger.acknowledged.setdefault(body, place)
        if len(ledger.acknowledged) >= ledger.target:
            ledger.reached.set()


@contextlib.asynccontextmanager
async def working(port: int, ledger: Ledger, dice: random.Random, *, last: bool = False) -> Any:
    """All clients; at last they send nothing more, and acknowledge everything."""
    tasks = [asyncio.create_task(consume(port, ledger, dice, keeps=not last)) for _ in range(MEMBERS)]
    if last:
        tasks.append(asyncio.create_task(only_answer(port, ledger)))
    else:
        tasks += [asyncio.create_task(produce(port, ledger, dice)) for _ in range(PRODUCERS)]
    try:
        yield
    finally:
        for task in tasks if last else ():
            task.cancel()
        for task in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(task, Exception):
                raise task


async def only_answer(port: int, ledger: Ledger) -> None:
    async with channel(port) as opened:
        client = Five(opened)
        await client.produce(TOPIC)
        await answer(client, ledger)


# ------------------------------------------------------------------------------------------------------------ the test


async def begin(address: str) -> None:
    """The group reads from the beginning: over gRPC a new one begins at the end."""
    remoting = Remoting()
    for queue in range(QUEUES):
        await update_consumer_offset(remoting, address, GROUP, MessageQueue(TOPIC, "", queue), 0)
    await remoting.close()


async def pending_ids(address: str) -> set[str]:
    remoting, offset = Remoting(), 0
    found: set[str] = set()
    while offset >= 0:
        page = await pending_transactions(remoting, address, offset=offset)
        found |= {one.unique_id for one in page.transactions}
        offset = page.next_offset
    await remoting.close()
    return found


async def load_and_kill(broker: OrbitBroker, port: int, ledger: Ledger, dice: random.Random) -> None:
    ledger.expect(dice.randrange(100, 500))
    async with working(port, ledger, dice):
        await asyncio.wait_for(ledger.reached.wait(), PATIENCE_S)
        await asyncio.to_thread(broker.kill)


async def drained(broker: OrbitBroker, port: int, ledger: Ledger, dice: random.Random) -> None:
    """Until all is acknowledged and decided, and what was in flight at the last kill would have come again."""
    begun = time.monotonic()
    async with working(port, ledger, dice, last=True):
        while time.monotonic() < begun + PATIENCE_S:
            is_over = not missing(ledger) and time.monotonic() > begun + INVISIBLE_S + 1
            if is_over and await pending_ids(broker.address) <= ledger.undecided:
                return
            await asyncio.sleep(0.1)


def missing(ledger: Ledger) -> set[bytes]:
    return ledger.of(NORMAL, DELAYED, COMMIT, ASKED) - ledger.tried


def counts(ledger: Ledger, seconds: float) -> Iterator[str]:
    yield f"gRPC and kill -9: seed {SEED}, kills {ROUNDS} in {seconds:.0f} s, sends begun {ledger.begun}, sent"
    yield ", ".join(f"{kind} {len(ledger.of(kind))}" for kind in (*dict.fromkeys(KINDS), PENDING)) + ","
    yield f"questions {ledger.asked}, delivered {ledger.seen.total()}, of them again"
    yield f"{ledger.seen.total() - len(ledger.seen)}, acknowledged {len(ledger.acknowledged)}, after that"
    yield f"{len(ledger.again)}, second copies {len(ledger.second)}, early {len(ledger.early)},"
    yield f"not delivered {len(missing(ledger) - ledger.seen.keys())}"


@pytest.mark.timeout(180)
async def test_no_kill_takes_what_clients_of_five_sent_or_acknowledged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dice, ledger, port = random.Random(SEED), Ledger(), free_port()
    with (
        OrbitNameServer() as names,
        OrbitBroker(names.address, home=tmp_path, grpcServerPort=port, **QUICK, **MIXED) as broker,
    ):
        await asyncio.to_thread(create_topic, broker, TOPIC, "MIXED", read=QUEUES, write=QUEUES)
        await begin(broker.address)
        begun = time.monotonic()
        for _ in range(ROUNDS):
            await load_and_kill(broker, port, ledger, dice)
            assert (broker.store_dir / "abort").exists(), "the broker was killed, not stopped"
            await asyncio.to_thread(broker.start)
            await asyncio.to_thread(wait_until, lambda: accepts(port), PATIENCE_S, "gRPC")
        seconds = time.monotonic() - begun
        try:
            await drained(broker, port, ledger, dice)
        finally:
            with capsys.disabled():
                print("\n" + " ".join(counts(ledger, seconds)))
        pending = await pending_ids(broker.address)
    assert not missing(ledger), "not acknowledged, and not redelivered"
    assert not ledger.again, "acknowledged, and redelivered"
    assert len({body for body, _ in ledger.second}) <= ROUNDS * MOST, "a kill comes between one copying and its note"
    assert not ledger.early, "before its time"
    assert not [body for body in ledger.seen if kind_of(body) in (ROLLBACK, PENDING)], "nobody has committed it"
    assert {ledger.ids[body] for body in ledger.of(PENDING)} <= pending, "nobody has decided on it"
    assert pending <= ledger.undecided, "its producer has decided, and was asked"
    assert ledger.asked > 0, "questions decided some"
