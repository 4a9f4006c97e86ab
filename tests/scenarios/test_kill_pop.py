"""kill -9 of a live broker under POP consumption: what was sent is delivered until it is acknowledged, then not."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from dataclasses import dataclass, field

import pytest

from orbitmq.errors import OrbitMQError
from orbitmq.message.model import MessageExt
from orbitmq.message.pop import POP_CK, RETRY, Receipt, pop_retry_topic
from orbitmq.net.remoting import Remoting
from orbitmq.operations import pops
from orbitmq.operations.sends import send
from orbitmq.wire.headers import SendMessageV2Header
from orbitmq.wire.headers_pop import AckMessageHeader, ChangeInvisibleTimeHeader, PopMessageHeader
from tests.support.live import Client
from tests.support.orbit_process import OrbitUp

ROUNDS = 6
MEMBERS, SENDERS = 6, 4
QUEUES = 2
MESSAGES_MAX = 16
TOPIC, GROUP, BROKER = "KilledPop", "killed-pop", "broker-a"
INVISIBLE_MS = (200, 1500)
SEED = 20_260_002  # of kill times, body sizes and decisions; printed with the counts
PATIENCE_S = 30


@dataclass
class Ledger:
    """Bodies, which are unique: `sent` and `acknowledged` were confirmed by the broker, `tried` were not.

    A kill between the copy that a broker puts to the retry topic and its record has the copy put once more, which at
    least once allows: `second` are such messages, as the retry topic shows in the end.
    """

    sent: set[bytes] = field(default_factory=set)
    acknowledged: set[bytes] = field(default_factory=set)
    second: set[bytes] = field(default_factory=set)
    tried: set[bytes] = field(default_factory=set)
    seen: Counter[bytes] = field(default_factory=Counter)
    again: Counter[bytes] = field(default_factory=Counter)
    """Delivered after the acknowledgement was confirmed."""
    number: int = 0
    target: int = 0
    reached: asyncio.Event = field(default_factory=asyncio.Event)

    def saw(self, message: MessageExt) -> None:
        self.seen[message.body] += 1
        if message.body in self.acknowledged:
            self.again[message.body] += 1


async def send_until_killed(address: str, ledger: Ledger, dice: random.Random) -> None:
    remoting = Remoting()
    try:
        while True:
            ledger.number += 1
            body = b"%d:" % ledger.number + dice.randbytes(dice.randrange(1, 500))
            header = SendMessageV2Header(
                "killers", TOPIC, "TBW102", QUEUES, dice.randrange(QUEUES), 0, time.time_ns() // 1_000_000, 0, ""
            )
            await send(remoting, address, header, body, timeout_ms=10_000)
            ledger.sent.add(body)
    except OrbitMQError:
        return  # the kill; what this client did not hear about may or may not be there
    finally:
        await remoting.close()


async def pop_once(remoting: Remoting, address: str, dice: random.Random) -> list[MessageExt]:
    header = PopMessageHeader(
        GROUP, TOPIC, -1, dice.randint(1, MESSAGES_MAX), dice.choice(INVISIBLE_MS), 200, time.time_ns() // 1_000_000, 0
    )
    return await pops.pop(remoting, address, header, BROKER, timeout_ms=10_000)


async def work_until_killed(address: str, ledger: Ledger, dice: random.Random, *, keeps: float) -> None:
    """One member: it acknowledges most messages, hides some for longer, and forgets some."""
    remoting = Remoting()
    try:
        while True:
            for message in await pop_once(remoting, address, dice):
                ledger.saw(message)
                await decide(remoting, address, ledger, dice, message, keeps=keeps)
    except OrbitMQError:
        return
    finally:
        await remoting.close()


async def decide(
    remoting: Remoting, address: str, ledger: Ledger, dice: random.Random, message: MessageExt, *, keeps: float
) -> None:
    receipt = Receipt.decode(message.properties[POP_CK])
    topic = pop_retry_topic(TOPIC, GROUP) if receipt.kind == RETRY else TOPIC
    place = (GROUP, topic, receipt.queue_id, receipt.encode(), receipt.offset)
    kind = dice.random()
    if kind < keeps / 2:
        return  # it is forgotten
    if kind < keeps:
        header = ChangeInvisibleTimeHeader(*place, dice.choice(INVISIBLE_MS))
        await pops.change_invisible_time(remoting, address, header, timeout_ms=10_000)
        return
    is_in_time = time.time_ns() // 1_000_000 < receipt.pop_ms + receipt.invisible_ms - 50
    ledger.tried.add(message.body)
    await pops.acknowledge(remoting, address, AckMessageHeader(*place), timeout_ms=10_000)
    if is_in_time and time.time_ns() // 1_000_000 < receipt.pop_ms + receipt.invisible_ms:
        ledger.acknowledged.add(message.body)  # else it may have been put to the retry topic before
        if len(ledger.acknowledged) >= ledger.target:
            ledger.reached.set()


@pytest.mark.timeout(120)
async def test_no_kill_takes_a_message_or_an_acknowledgement(capsys: pytest.CaptureFixture[str]) -> None:
    dice, ledger = random.Random(SEED), Ledger()
    with OrbitUp() as broker:
        for _ in range(ROUNDS):
            ledger.target, ledger.reached = len(ledger.acknowledged) + dice.randrange(100, 400), asyncio.Event()
            clients = [asyncio.create_task(send_until_killed(broker.address, ledger, dice)) for _ in range(SENDERS)]
            clients += [
                asyncio.create_task(work_until_killed(broker.address, ledger, dice, keeps=0.3)) for _ in range(MEMBERS)
            ]
            await asyncio.wait_for(ledger.reached.wait(), PATIENCE_S)
            await asyncio.to_thread(broker.kill)
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*clients)
            await asyncio.to_thread(broker.start)
        await drained(broker.address, ledger, dice)
        ledger.second = await copied_twice(broker)
    with capsys.disabled():
        print(
            f"\nPOP and kill -9: seed {SEED}, kills {ROUNDS}, sent {len(ledger.sent)}, delivered"
            f" {ledger.seen.total()}, acknowledged {len(ledger.acknowledged)}, again {ledger.again.total()},"
            f" second {len(ledger.second)}"
        )
    assert not ledger.sent - ledger.seen.keys(), "never delivered"
    assert not ledger.sent - ledger.tried, "not acknowledged, and not redelivered"
    assert ledger.again.keys() <= ledger.second, "acknowledged, and redelivered"
    assert len(ledger.second) <= ROUNDS * MESSAGES_MAX, "one checkpoint is at work at a time"


async def copied_twice(broker: OrbitUp) -> set[bytes]:
    """The bodies that the retry topic has twice from one and the same delivery."""
    client, topic, offset = Client(broker), pop_retry_topic(TOPIC, GROUP), 0
    copies: Counter[tuple[bytes, int]] = Counter()
    try:
        while messages := await client.read(topic, 0, offset, suspend_timeout_millis=0):
            copies.update((message.body, message.reconsume_times) for message in messages)
            offset = messages[-1].queue_offset + 1
    finally:
        await client.remoting.close()
    return {body for (body, _), count in copies.items() if count > 1}


async def drained(address: str, ledger: Ledger, dice: random.Random) -> None:
    """Everything that is left is delivered and acknowledged."""
    remoting = Remoting()
    try:
        async with asyncio.timeout(PATIENCE_S):
            quiet_since = time.monotonic()
            while time.monotonic() - quiet_since < 2 * max(INVISIBLE_MS) / 1000:
                for message in await pop_once(remoting, address, dice):
                    quiet_since = time.monotonic()
                    ledger.saw(message)
                    await decide(remoting, address, ledger, dice, message, keeps=0)
    finally:
        await remoting.close()
