"""Three brokers that elect their master, as processes, with a live agreement store: what is acknowledged stays."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from orbitmq.client import Message, Producer
from orbitmq.errors import OrbitMQError
from orbitmq.message.model import MessageExt
from orbitmq.wire.codes import ResponseCode
from tests.support import steady
from tests.support.elected import NAME, ElectedBrokers, until
from tests.support.live import Client
from tests.support.orbit_process import ORBITMQ
from tests.support.steady import Kind, SteadySender

TOPIC = "Orders"
QUEUES = 4
FROZEN_S = 5.0  # longer than a lease
PATIENT_MS = 30_000
GO_ROUTES_S = 30.0


@dataclass
class Load:
    """A producer that sends one message after the other, and its receipts."""

    producer: Producer
    receipts: dict[bytes, tuple[int, int]] = field(default_factory=dict)  # body -> queue id and offset
    sent: int = 0
    failed: int = 0
    gap_s: float = 0.0
    task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        last = time.monotonic()
        while True:
            body = b"%d" % self.sent
            self.sent += 1
            try:
                found = await self.producer.send(Message(TOPIC, body))
            except OrbitMQError:
                self.failed += 1
                await asyncio.sleep(0.05)
                continue
            self.receipts[body] = (found.queue.queue_id, found.queue_offset)
            now = time.monotonic()
            self.gap_s, last = max(self.gap_s, now - last), now

    async def goes_on(self) -> None:
        """Return when ten more are acknowledged."""
        count = len(self.receipts) + 10

        async def look() -> bool | None:
            return len(self.receipts) >= count or None

        await until(look, "acknowledged messages")


@asynccontextmanager
async def load(brokers: ElectedBrokers, send_timeout_ms: int = 1000) -> AsyncIterator[Load]:
    producer = Producer("load", brokers.namesrv.address, send_timeout_ms=send_timeout_ms)
    await producer.start()
    made = Load(producer)
    made.task = asyncio.create_task(made.run())
    try:
        await made.goes_on()
        made.gap_s = 0.0
        yield made
        await made.goes_on()
    finally:
        made.task.cancel()
        await asyncio.gather(made.task, return_exceptions=True)
        await producer.shutdown()


async def stored(brokers: ElectedBrokers, number: int) -> dict[tuple[int, int], bytes]:
    """Queue id and offset -> body, of all that one broker lets be read."""
    client = Client(brokers.brokers[number])
    found: dict[tuple[int, int], bytes] = {}
    try:
        for queue_id in range(QUEUES):
            offset = 0
            while messages := await _read(client, queue_id, offset):
                found |= {(queue_id, one.queue_offset): one.body for one in messages}
                offset = messages[-1].queue_offset + 1
    finally:
        await client.remoting.close()
    return found


async def _read(client: Client, queue_id: int, offset: int) -> list[MessageExt]:
    return await client.read(TOPIC, queue_id, offset, suspend_timeout_millis=0, max_msg_nums=1000)


async def all_is_kept(brokers: ElectedBrokers, load: Load, replicas: int = 3) -> None:
    """Every receipt leads to its message, at the master and at each replica in sync."""
    agreed = await brokers.until_in_sync(replicas)
    receipts = dict(load.receipts)
    master = await brokers.master()
    assert (await brokers.runtime(master))["electionMember"] == agreed.master

    async def at(number: int) -> bool | None:
        found = await stored(brokers, number)
        missing = {body: place for body, place in receipts.items() if found.get(place) != body}
        if not missing:
            return True
        if number == master:
            raise AssertionError(f"{len(missing)} of {len(receipts)} acknowledged are missing: {missing}")
        return None  # it has not heard of the last confirmation

    for number in range(len(brokers.brokers)):
        await until(lambda number=number: at(number), f"messages at replica {number}", 20)


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="elected-") as made:
        yield Path(made)


async def test_what_is_acknowledged_stays_whatever_becomes_of_masters(home: Path) -> None:
    """One cluster, since its start takes longer than most of its faults."""
    async with ElectedBrokers(home) as brokers, load(brokers) as running:
        await _killed(brokers, running)
        await _frozen(brokers, running)
        await _stopped(brokers, running)
        await _switched(brokers, running)
        await _in_maintenance(brokers, running)
        await _with_a_tail_of_its_own(brokers, running)
        await _without_agreement(brokers, running)


@pytest.mark.long
@pytest.mark.skipif(shutil.which("go") is None, reason="needs Go 1.22, which builds the client")
async def test_a_go_client_loses_nothing_and_moves_with_its_next_routes(home: Path) -> None:
    """Those of RocketMQ 4 in Go ask for routes every 30 s, which cannot be set."""
    async with ElectedBrokers(home) as brokers:
        where = Kind(steady.GOS, fault=False), brokers.namesrv.address, TOPIC, "go"
        async with load(brokers):  # creates the topic
            pass
        with SteadySender(*where, senders=1) as sender:

            async def sends() -> bool | None:
                return any(one.broker for one in sender.sent()) or None

            await until(sends, "message from Go")
            master = await brokers.master()
            killed_ms = 1000 * time.time()
            brokers.brokers[master].kill()

            async def sends_again() -> bool | None:
                return any(one.broker and one.begin > killed_ms for one in sender.sent()) or None

            await until(sends_again, "message from Go after the kill", patience_s=2 * GO_ROUTES_S)
            brokers.brokers[master].start()
            acknowledged = {f"go-{one.index}" for one in sender.end() if one.broker}
        await brokers.until_in_sync(3)
        found = set()
        client = Client(brokers.brokers[await brokers.master()])
        for queue_id in range(QUEUES):
            offset = 0
            while messages := await _read(client, queue_id, offset):
                found |= {one.keys for one in messages}
                offset = messages[-1].queue_offset + 1
        await client.remoting.close()
    assert acknowledged <= found
    print(f"{len(acknowledged)} messages of Go acknowledged, 0 lost")


async def _killed(brokers: ElectedBrokers, running: Load) -> None:
    master = await brokers.master()
    before = await brokers.agreed()
    async with load(brokers, PATIENT_MS) as patient:
        brokers.brokers[master].kill()
        await brokers.master(without=master)
        await running.goes_on()
    assert patient.failed == 0, "sends with the time for it wait for the next master"
    after = await brokers.agreed()
    assert after.epoch == before.epoch + 1
    assert before.master not in after.in_sync
    brokers.brokers[master].start()
    agreed = await brokers.until_in_sync(3)
    assert before.master in agreed.in_sync, "the same store is the same member"
    await all_is_kept(brokers, running)


async def _frozen(brokers: ElectedBrokers, running: Load) -> None:
    """It wakes up as if no time had passed: what was sent to it meanwhile is refused, and it follows."""
    master = await brokers.master()
    process = brokers.brokers[master].process
    assert process is not None
    process.freeze()
    client = Client(brokers.brokers[master])
    late = asyncio.create_task(client.send(TOPIC, b"late"))
    await brokers.master(without=master)
    await running.goes_on()
    process.signal(signal.SIGCONT)
    with contextlib.suppress(OrbitMQError):  # it may have closed the connection
        assert (await late).code == ResponseCode.SERVICE_NOT_AVAILABLE
    await client.remoting.close()
    await all_is_kept(brokers, running)


async def _stopped(brokers: ElectedBrokers, running: Load) -> None:
    """One that is stopped gives its lease up, so that the others need not wait for its end."""
    master = await brokers.master()
    running.gap_s = 0.0
    brokers.brokers[master].stop()
    await brokers.master(without=master)
    await running.goes_on()
    brokers.brokers[master].start()
    await all_is_kept(brokers, running)


async def _switched(brokers: ElectedBrokers, running: Load) -> None:
    """By an operator: sends wait for a moment at most."""
    master = await brokers.master()
    listed = {row["brokerId"]: row for row in await orbitmq(brokers, "cluster", "replicas")}
    assert {row["inSync"] for row in listed.values()} == {True}
    assert [number for number, row in listed.items() if row["role"] == "master"] == [0]
    assert listed[0]["leaseLeftMs"] > 0
    chosen = next(number for number in range(3) if number != master)
    running.gap_s = 0.0
    async with load(brokers, PATIENT_MS) as patient:
        (step,) = await orbitmq(brokers, "broker", "switch", NAME, "--to", brokers.brokers[chosen].address, "--yes")
        assert (step["outcome"], step["after"]) == ("confirmed", brokers.brokers[chosen].address)
        await running.goes_on()
    assert patient.failed == 0
    assert await brokers.master() == chosen
    await all_is_kept(brokers, running)
    print(f"switched: sends waited for {running.gap_s:.2f} s")


async def _in_maintenance(brokers: ElectedBrokers, running: Load) -> None:
    """A master that comes back is elected again, and no other one is before maintenance ends."""
    master = await brokers.master()
    before = await brokers.agreed()
    (step,) = await orbitmq(brokers, "broker", "maintenance", NAME, "--yes")
    assert (step["outcome"], step["after"]) == ("confirmed", "on")
    brokers.brokers[master].kill()
    await brokers.until_vacant()
    brokers.brokers[master].start()  # which takes longer than an election of another one
    await running.goes_on()
    after = await brokers.agreed()
    assert (after.master, after.epoch, after.maintenance) == (before.master, before.epoch + 1, True)
    await all_is_kept(brokers, running)
    brokers.brokers[master].kill()
    await brokers.until_vacant()
    (step,) = await orbitmq(brokers, "broker", "maintenance", NAME, "--end", "--yes")
    assert (step["outcome"], step["after"]) == ("confirmed", "off")
    await brokers.master(without=master)
    await running.goes_on()
    assert not (await brokers.agreed()).maintenance
    brokers.brokers[master].start()
    await all_is_kept(brokers, running)


async def orbitmq(brokers: ElectedBrokers, *words: str) -> list[dict[str, Any]]:
    """The items that a command prints."""
    command = [ORBITMQ, *words, "-o", "json", "-n", brokers.namesrv.address]
    ran = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    printed, errors = await ran.communicate()
    assert ran.returncode == 0, (errors.decode(), printed.decode())
    found: list[dict[str, Any]] = json.loads(printed)["items"]
    return found


async def _with_a_tail_of_its_own(brokers: ElectedBrokers, running: Load) -> None:
    """A master has messages that no slave has, and that were not acknowledged. It keeps them aside."""
    master = await brokers.master()
    slaves = [broker for number, broker in enumerate(brokers.brokers) if number != master]
    for slave in slaves:
        assert slave.process is not None
        slave.process.freeze()
    client = Client(brokers.brokers[master])
    waiting = [asyncio.create_task(client.send(TOPIC, b"tail %d" % number)) for number in range(5)]
    runtime = await brokers.runtime(master)
    confirmed = int(runtime["electionConfirmedOffset"])

    async def has_more() -> bool | None:
        return int((await brokers.runtime(master))["commitLogMaxOffset"]) > confirmed + 5 * 100 or None

    await until(has_more, "messages that are not confirmed")
    assert not any(body.startswith(b"tail") for body in (await stored(brokers, master)).values())
    brokers.brokers[master].kill()
    for slave in slaves:  # what has come to their sockets is gone as well
        slave.kill()
        slave.start()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert not any(getattr(one, "code", None) == ResponseCode.SUCCESS for one in results)
    await client.remoting.close()
    await brokers.master(without=master)
    await running.goes_on()
    brokers.brokers[master].start()
    await all_is_kept(brokers, running)
    bodies = {
        body for kept in (brokers.brokers[master].store_dir / "parted").glob("epoch-*/*") for body in dumped(kept)
    }
    assert {b"tail %d" % number for number in range(5)} <= bodies


def dumped(kept: Path) -> list[bytes]:
    printed = subprocess.run([ORBITMQ, "store", "dump", kept, "--body"], capture_output=True, text=True, check=True)
    return [base64.b64decode(json.loads(line)["body"]) for line in printed.stdout.splitlines()]


async def _without_agreement(brokers: ElectedBrokers, running: Load) -> None:
    """A master whose lease cannot be renewed accepts nothing, and can be read from."""
    master = await brokers.master()
    etcd = brokers.etcds.processes[0]
    assert etcd is not None
    etcd.freeze()
    client = Client(brokers.brokers[master])

    async def is_refused() -> bool | None:
        return (await client.send(TOPIC, b"unheard")).code == ResponseCode.SERVICE_NOT_AVAILABLE or None

    await until(is_refused, "refusal")
    before = len(running.receipts)
    assert len(await stored(brokers, master)) >= before
    etcd.signal(signal.SIGCONT)
    await client.remoting.close()
    await running.goes_on()
    await all_is_kept(brokers, running)
