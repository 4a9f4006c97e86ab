"""What senders experience when a master dies: brokers of RocketMQ 5.3.3 with its controller, and orbitmq's that elect
their master, one system after the other (`make bench-failover-controller`). Masters are killed and started again, or
frozen for a while; RocketMQ's clients of both versions send meanwhile. Printed for each system: how long a sender had
to wait for the worst of its sends around each fault, and how many messages with a receipt are not in the last
log. Half a minute a fault.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import signal
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.failover import QUEUES, RUNS, TOPIC, WELL_S, stored
from orbitmq.client import Message, Producer
from orbitmq.errors import OrbitMQError
from orbitmq.net.remoting import Remoting
from orbitmq.operations.routes import cluster_info
from orbitmq.wire.command import request
from tests.support.elected import NAME, ElectedBrokers, until
from tests.support.java_rocketmq import ROCKETMQ_5, JavaBroker, JavaController, JavaNameServer
from tests.support.process import ChildProcess, Daemon, accepts
from tests.support.steady import Kind, SteadySender

GET_SYNC_STATE = 1006  # CONTROLLER_GET_SYNC_STATE_DATA
AWAY_S = 5.0  # until a killed master is started again: longer than an election takes
FROZEN_S = 15.0  # longer than either system waits for a master that is silent
STEADY_S = 2.0  # between all is well and the next kill
SMALL = {"mappedFileSizeCommitLog": 16 << 20, "defaultTopicQueueNums": QUEUES}


class System(Protocol):
    """Replicas of the broker name NAME."""

    namesrv: str
    brokers: Sequence[Daemon]

    async def in_sync(self) -> int:
        """How many replicas are in sync."""


class ControlledBroker(JavaBroker):
    """One that a controller makes master or slave."""

    def _properties(self) -> Mapping[str, object]:
        return {**super()._properties(), "haListenPort": self.port + 1}

    def _is_ready(self, process: ChildProcess) -> bool:
        return "boot success" in process.output() and accepts(self.port)


@dataclass
class Controlled:
    namesrv: str
    brokers: Sequence[Daemon]
    controller: JavaController
    remoting: Remoting

    async def in_sync(self) -> int:
        asked = request(GET_SYNC_STATE, body=json.dumps([NAME]).encode())
        with suppress(OrbitMQError):
            found = await self.remoting.call(self.controller.address, asked, 1000)
            if found.body:
                return len(json.loads(bytes(found.body))["replicasInfoTable"][NAME]["inSyncReplicas"])
        return 0


@dataclass
class Elected:
    namesrv: str
    brokers: Sequence[Daemon]
    all: ElectedBrokers

    async def in_sync(self) -> int:
        return len((await self.all.agreed()).in_sync)


@asynccontextmanager
async def controlled(home: Path, replicas: int, *, all_ack: bool = True) -> AsyncIterator[System]:
    """`all_ack`: a message with a receipt is on every replica in sync, as with orbitmq. It is not the default."""
    with ExitStack() as stack:
        names, controller = stack.enter_context(JavaNameServer(ROCKETMQ_5)), stack.enter_context(JavaController())
        remoting = Remoting()
        config = {
            "brokerId": -1, "enableControllerMode": "true", "controllerAddr": controller.address,
            "allAckInSyncStateSet": str(all_ack).lower(), **SMALL,
        }  # fmt: skip
        brokers = [
            stack.enter_context(
                ControlledBroker(names.address, ROCKETMQ_5, name=NAME, store_dir=home / f"store-{number}", **config)
            )
            for number in range(replicas)
        ]
        try:
            yield Controlled(names.address, brokers, controller, remoting)
        finally:
            await remoting.close()


@asynccontextmanager
async def elected(home: Path, replicas: int) -> AsyncIterator[System]:
    async with ElectedBrokers(home, replicas=replicas, defaultTopicQueueNums=QUEUES) as brokers:
        yield Elected(brokers.namesrv.address, brokers.brokers, brokers)


SYSTEMS: dict[str, Callable[[Path, int], AbstractAsyncContextManager[System]]] = {
    "RocketMQ 5.3.3": partial(controlled, all_ack=False),
    "RocketMQ 5.3.3, allAckInSyncStateSet": controlled,
    "orbitmq": elected,
}


async def master(system: System, remoting: Remoting) -> Daemon:
    """The one in the routes, when all replicas are in sync."""

    async def look() -> Daemon | None:
        with suppress(OrbitMQError):
            if await system.in_sync() == len(system.brokers):
                found = (await cluster_info(remoting, system.namesrv)).brokers.get(NAME)
                address = None if found is None else found.addresses.get(0)
                return next((broker for broker in system.brokers if broker.address == address), None)
        return None

    return await until(look, "master with all replicas in sync", WELL_S)


async def run(name: str, faults: Sequence[Fault], replicas: int, home: Path) -> None:
    waits: dict[tuple[str, str], list[float]] = defaultdict(list)
    async with SYSTEMS[name](home, replicas) as system:
        remoting = Remoting()
        await master(system, remoting)
        async with Producer("first", system.namesrv) as producer:
            await producer.send(Message(TOPIC, b"makes the topic"))
        with ExitStack() as stack:
            senders = {
                key: stack.enter_context(
                    SteadySender(
                        Kind(client, fault=False), system.namesrv, TOPIC, key, poll_ms=1000, senders=1, pause_ms=20
                    )
                )
                for key, client in RUNS.items()
            }
            for sender in senders.values():
                sender.wait_until_started()
            for number, fault in enumerate(faults, 1):
                await asyncio.sleep(STEADY_S)
                for key, wait_s in (await longest_waits(system, remoting, senders, fault)).items():
                    waits[key, fault.__name__].append(wait_s)
                print(f"\r{name}: {number}/{len(faults)} faults", end="", file=sys.stderr, flush=True)
            rows = {key: sender.end() for key, sender in senders.items()}
        print(file=sys.stderr)
        last = await master(system, remoting)
        kept = {keys for _, keys in (await stored(last.address)).values()}
        await remoting.close()
    for key, sent in rows.items():
        receipts = [f"{key}-{row.index}" for row in sent if row.broker is not None]
        lost = sum(one not in kept for one in receipts)
        worst = (waits[key, fault.__name__] for fault in FAULTS)
        cells = (f"{statistics.median(some):.2f} | {max(some):.2f}" if some else "- | -" for some in worst)
        print(f"| {name} | {RUNS[key]} | {' | '.join(cells)} | {len(receipts)} | {lost} |", flush=True)


async def kill(master: Daemon) -> None:
    master.kill()
    await asyncio.sleep(AWAY_S)
    await asyncio.to_thread(master.start)


async def freeze(master: Daemon) -> None:
    assert master.process is not None, "it was started"
    master.process.freeze()
    await asyncio.sleep(FROZEN_S)
    master.process.signal(signal.SIGCONT)


Fault = Callable[[Daemon], Coroutine[None, None, None]]
FAULTS: tuple[Fault, ...] = (kill, freeze)


async def longest_waits(
    system: System, remoting: Remoting, senders: Mapping[str, SteadySender], fault: Fault
) -> dict[str, float]:
    """Seconds, of each sender around a fault of the master. All is well again afterwards, and every sender goes on."""
    stricken, began, waits = await master(system, remoting), time.time() * 1000, {}
    await fault(stricken)
    await master(system, remoting)
    for key, sender in senders.items():
        count = len(_receipts(sender))

        async def look(sender: SteadySender = sender, count: int = count) -> bool | None:
            return len(_receipts(sender)) > count + 5 or None

        await until(look, "further receipts", WELL_S)
        times = [began, *(end for end in _receipts(sender) if end >= began)]
        waits[key] = max(later - earlier for earlier, later in itertools.pairwise(times)) / 1000
    return waits


def _receipts(sender: SteadySender) -> list[float]:
    return sorted(row.end for row in sender.sent() if row.broker is not None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--freezes", type=int, default=5)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    arguments = parser.parse_args()
    faults = [*[kill] * arguments.kills, *[freeze] * arguments.freezes]
    print("| system | client | killed: wait, median s | most s | frozen: wait, median s | most s | receipts | lost |")
    print("|---|---|--:|--:|--:|--:|--:|--:|")
    for name in arguments.systems:
        with tempfile.TemporaryDirectory(prefix="failover-") as home:
            asyncio.run(run(name, faults, arguments.replicas, Path(home)))


if __name__ == "__main__":
    main()
