"""kill -9 of a live broker under delayed messages, messages sent back and timer messages: each that was acknowledged
comes, none early.

A kill may make some come twice: progress is only written down for deliveries that are on disk. Timer messages come
once: a start finds in the log what was delivered.
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
from orbitmq.message.flags import pull_flag
from orbitmq.message.model import MessageQueue
from orbitmq.message.topics import retry_topic
from orbitmq.message.unit import Unit, decode_units
from orbitmq.net.remoting import Remoting
from orbitmq.operations.offsets import max_offset
from orbitmq.operations.pulls import pull
from orbitmq.operations.sends import send, send_back
from orbitmq.wire.headers import ConsumerSendMsgBackHeader, PullMessageHeader, SendMessageV2Header
from tests.support.orbit_process import OrbitUp

ROUNDS = 8
SENDERS = 12
QUEUES = 2
LEVELS_MS = (1000, 2000)
TIMES_MS = (300, 1700)
DELAYED, TIMED, SOURCE, GROUP = "KilledDelays", "KilledTimers", "KilledSource", "killed-group"
SEED = 20_260_001  # of kill times, levels and body sizes; printed with the counts
PATIENCE_S = 30  # beyond the longest level: a condition that is not met after so long never will be


@dataclass
class Ledger:
    """What the broker acknowledged: body -> delay level, of timer messages milliseconds. Bodies are unique."""

    delayed: dict[bytes, int] = field(default_factory=dict)
    timed: dict[bytes, int] = field(default_factory=dict)
    returned: dict[bytes, int] = field(default_factory=dict)
    sent: int = 0
    target: int = 0
    reached: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def size(self) -> int:
        return len(self.delayed) + len(self.returned) + len(self.timed)

    def acknowledge(self, into: dict[bytes, int], body: bytes, level: int) -> None:
        into[body] = level
        if self.size >= self.target:
            self.reached.set()


def send_header(topic: str, queue_id: int, properties: str) -> SendMessageV2Header:
    """The time of birth is that of the send, so that a delivery can be told early or not."""
    return SendMessageV2Header(
        producer_group="killers",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=QUEUES,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=time.time_ns() // 1_000_000,
        flag=0,
        properties=properties,
    )


async def send_until_killed(address: str, ledger: Ledger, dice: random.Random) -> None:
    """One client, which delays messages and sends others back; ends when the broker is gone."""
    remoting = Remoting()
    try:
        while True:
            ledger.sent += 1
            level = dice.randrange(len(LEVELS_MS)) + 1
            body = b"%d:" % ledger.sent + dice.randbytes(dice.randrange(1, 1000))
            queue_id = dice.randrange(QUEUES)
            kind = dice.random()
            if kind < 0.3:
                delay_ms = dice.choice(TIMES_MS)
                header = send_header(TIMED, queue_id, f"TIMER_DELAY_MS\x01{delay_ms}")
                await send(remoting, address, header, body, timeout_ms=10_000)
                ledger.acknowledge(ledger.timed, body, delay_ms)
            elif kind < 0.65:
                header = send_header(DELAYED, queue_id, f"DELAY\x01{level}")
                await send(remoting, address, header, body, timeout_ms=10_000)
                ledger.acknowledge(ledger.delayed, body, level)
            else:
                reply = await send(remoting, address, send_header(SOURCE, queue_id, ""), body, timeout_ms=10_000)
                place = int(reply.offset_msg_id[16:], 16)
                await send_back(remoting, address, ConsumerSendMsgBackHeader(place, GROUP, level), timeout_ms=10_000)
                ledger.acknowledge(ledger.returned, body, level)
    except OrbitMQError:
        return  # the kill; what this client did not hear about may or may not be there
    finally:
        await remoting.close()


async def load_and_kill(broker: OrbitUp, ledger: Ledger, dice: random.Random, *, after_acks: int) -> None:
    ledger.target, ledger.reached = ledger.size + after_acks, asyncio.Event()
    senders = [asyncio.create_task(send_until_killed(broker.address, ledger, dice)) for _ in range(SENDERS)]
    await ledger.reached.wait()
    broker.kill()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*senders)


async def read_all(remoting: Remoting, address: str, topic: str, queues: int) -> list[Unit]:
    found: list[Unit] = []
    for queue_id in range(queues):
        offset, end = 0, await max_offset(remoting, address, MessageQueue(topic, "", queue_id))
        while offset < end:
            header = PullMessageHeader(
                consumer_group="auditors",
                topic=topic,
                queue_id=queue_id,
                queue_offset=offset,
                max_msg_nums=32,
                sys_flag=pull_flag(commit_offset=False, suspend=False, subscription=True, class_filter=False),
                commit_offset=0,
                suspend_timeout_millis=0,
                sub_version=0,
                subscription="*",
            )
            units = decode_units((await pull(remoting, address, header)).body)
            assert units, f"queue {queue_id} of {topic}: nothing at {offset} of {end}"
            found += units
            offset += len(units)
    return found


async def delivered(address: str, ledger: Ledger) -> tuple[list[Unit], list[Unit], list[Unit]]:
    """Everything that came, once all that was acknowledged is among it or patience ends."""
    remoting = Remoting()
    deadline = time.monotonic() + PATIENCE_S + LEVELS_MS[-1] / 1000
    try:
        while True:
            delayed = await read_all(remoting, address, DELAYED, QUEUES)
            returned = await read_all(remoting, address, retry_topic(GROUP), 1)
            timed = await read_all(remoting, address, TIMED, QUEUES)
            pairs = ((ledger.delayed, delayed), (ledger.returned, returned), (ledger.timed, timed))
            complete = not any(_missing(acknowledged, found) for acknowledged, found in pairs)
            if complete or time.monotonic() > deadline:
                return delayed, returned, timed
            await asyncio.sleep(0.2)
    finally:
        await remoting.close()


def _missing(acknowledged: dict[bytes, int], found: list[Unit]) -> set[bytes]:
    return acknowledged.keys() - {unit.body for unit in found}


def _doubled(found: list[Unit]) -> int:
    return sum(count - 1 for count in Counter(unit.body for unit in found).values())


def test_delayed_and_returned_messages_survive_kill_nine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dice = random.Random(SEED)
    ledger = Ledger()
    with OrbitUp(
        home=tmp_path,
        mappedFileSizeCommitLog=4 << 20,
        mappedFileSizeConsumeQueue=20 * 300,
        flushIntervalCommitLog=50,
        flushDelayOffsetInterval=200,
        messageDelayLevel=" ".join(f"{delay // 1000}s" for delay in LEVELS_MS),
    ) as broker:
        for _ in range(ROUNDS):
            # The kills come while messages of this round are put aside and those of the last ones are delivered.
            asyncio.run(load_and_kill(broker, ledger, dice, after_acks=dice.randrange(50, 1500)))
            assert (broker.store_dir / "abort").exists(), "the broker was killed, not stopped"
            broker.start()
        delayed, returned, timed = asyncio.run(delivered(broker.address, ledger))
    for what, acknowledged, found in (
        ("delayed", ledger.delayed, delayed), ("returned", ledger.returned, returned), ("timed", ledger.timed, timed),
    ):  # fmt: skip
        missing = _missing(acknowledged, found)
        assert not missing, f"{len(missing)} of {len(acknowledged)} acknowledged {what} messages never came"
        early = [
            unit
            for unit in found
            if unit.body in acknowledged
            and unit.store_timestamp - unit.born_timestamp < _delay_ms(acknowledged[unit.body], what)
        ]
        assert not early, f"{len(early)} {what} messages came before their time"
    assert {unit.reconsume_times for unit in returned} == {1}
    assert _doubled(timed) == 0
    with capsys.disabled():
        print(
            f"\nseed {SEED}: {ROUNDS} kills, {ledger.sent} sent; "
            f"delayed {len(ledger.delayed)} acknowledged, {len(delayed)} delivered, {_doubled(delayed)} of them again; "
            f"sent back {len(ledger.returned)} acknowledged, {len(returned)} delivered, {_doubled(returned)} of them "
            f"again; timed {len(ledger.timed)} acknowledged, {len(timed)} delivered, 0 of them again; 0 lost, 0 early"
        )


def _delay_ms(level_or_ms: int, what: str) -> int:
    return level_or_ms if what == "timed" else LEVELS_MS[level_or_ms - 1]
