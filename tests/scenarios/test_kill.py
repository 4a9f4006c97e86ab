"""kill -9 of a live broker under a send load: what it acknowledged is there afterwards, each once, in its place.

The load is pipelined over several connections, so that the kill hits requests in every state. One store goes through
all rounds: later recoveries meet what earlier ones left. Files are small, so that rounds cross file ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from orbitmq.errors import OrbitMQError
from orbitmq.message.flags import pull_flag
from orbitmq.message.model import MessageQueue
from orbitmq.message.unit import decode_units
from orbitmq.net.remoting import Remoting
from orbitmq.operations.offsets import max_offset
from orbitmq.operations.pulls import pull
from orbitmq.operations.sends import send
from orbitmq.wire.headers import PullMessageHeader, SendMessageV2Header
from tests.support.orbit_process import OrbitUp

ROUNDS = 20
SENDERS = 16
QUEUES = 4
TOPIC = "KilledTopic"
SEED = 20_260_000  # of kill times and body sizes; printed with the counts

Place = tuple[int, int]  # queue id, queue offset


@dataclass
class Ledger:
    """What the broker acknowledged: body -> its place. Bodies are unique."""

    acknowledged: dict[bytes, Place] = field(default_factory=dict)
    sent: int = 0
    target: int = 0
    reached: asyncio.Event = field(default_factory=asyncio.Event)

    def acknowledge(self, body: bytes, place: Place) -> None:
        self.acknowledged[body] = place
        if len(self.acknowledged) >= self.target:
            self.reached.set()


def send_header(queue_id: int) -> SendMessageV2Header:
    return SendMessageV2Header(
        producer_group="killers",
        topic=TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=QUEUES,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=1_700_000_000_000,
        flag=0,
        properties="KEYS\x01k\x02TAGS\x01t",
    )


def pull_header(queue_id: int, offset: int) -> PullMessageHeader:
    return PullMessageHeader(
        consumer_group="auditors",
        topic=TOPIC,
        queue_id=queue_id,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=pull_flag(commit_offset=False, suspend=False, subscription=True, class_filter=False),
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        subscription="*",
    )


async def send_until_killed(address: str, ledger: Ledger, dice: random.Random) -> None:
    """One sender: ends when the broker is gone."""
    remoting = Remoting()
    try:
        while True:
            ledger.sent += 1
            body = b"%d:" % ledger.sent + dice.randbytes(dice.randrange(1, 3000))
            reply = await send(remoting, address, send_header(dice.randrange(QUEUES)), body, timeout_ms=10_000)
            ledger.acknowledge(body, (reply.queue_id, reply.queue_offset))
    except OrbitMQError:
        return  # the kill; what this sender did not hear about may or may not be there
    finally:
        await remoting.close()


async def load_and_kill(broker: OrbitUp, ledger: Ledger, dice: random.Random, *, after_acks: int) -> None:
    """Send from many sides and kill the process once so many more messages are acknowledged."""
    ledger.target, ledger.reached = len(ledger.acknowledged) + after_acks, asyncio.Event()
    senders = [asyncio.create_task(send_until_killed(broker.address, ledger, dice)) for _ in range(SENDERS)]
    await ledger.reached.wait()
    broker.kill()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*senders)


async def read_back(
    address: str, found: dict[bytes, list[Place]], begin: dict[int, int] | None = None
) -> dict[int, int]:
    """Add the messages of the topic to `found`, body -> the places it stands at; where each queue ends now."""
    remoting = Remoting()
    ends: dict[int, int] = {}
    for queue_id in range(QUEUES):
        offset, end = (
            (begin or {}).get(queue_id, 0),
            await max_offset(remoting, address, MessageQueue(TOPIC, "", queue_id)),
        )
        while offset < end:
            reply = await pull(remoting, address, pull_header(queue_id, offset))
            units = decode_units(reply.body)
            assert units, f"queue {queue_id}: nothing at {offset} of {end}, answer {reply.code}"
            for unit in units:
                assert unit.queue_offset == offset, "queue offsets have no gap"
                found.setdefault(unit.body, []).append((queue_id, offset))
                offset += 1
        ends[queue_id] = end
    await remoting.close()
    return ends


def test_acknowledged_messages_survive_kill_nine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Twenty kills at random points; every acknowledged message is there exactly once, where the answer said."""
    dice = random.Random(SEED)
    ledger = Ledger()
    found: dict[bytes, list[Place]] = {}
    ends: dict[int, int] = {}
    with OrbitUp(
        home=tmp_path, mappedFileSizeCommitLog=4 << 20, mappedFileSizeConsumeQueue=20 * 300, flushIntervalCommitLog=50
    ) as broker:
        for _ in range(ROUNDS):
            asyncio.run(load_and_kill(broker, ledger, dice, after_acks=dice.randrange(1, 1000)))
            assert (broker.store_dir / "abort").exists(), "the broker was killed, not stopped"
            broker.start()
            ends = asyncio.run(read_back(broker.address, found, ends))
            assert_all_there(ledger, found)
        found = {}  # and once more from the beginning: later recoveries took nothing of what earlier ones had found
        asyncio.run(read_back(broker.address, found))
        assert_all_there(ledger, found)
    with capsys.disabled():
        print(
            f"\nseed {SEED}: {ROUNDS} kills, {ledger.sent} sent, {len(ledger.acknowledged)} acknowledged, "
            f"{len(found)} found, 0 lost, 0 doubled"
        )


def assert_all_there(ledger: Ledger, found: dict[bytes, list[Place]]) -> None:
    wrong = {
        body[:20]: (place, found.get(body)) for body, place in ledger.acknowledged.items() if found.get(body) != [place]
    }
    assert not wrong, f"{len(wrong)} acknowledged messages are lost, doubled or displaced: {wrong}"
    assert all(len(places) == 1 for places in found.values()), "an unacknowledged message stands twice"
