"""Three brokers that elect their master, with three members of etcd, while everything fails (`make bench-failover`).

Each broker has a network namespace that it shares with a member of etcd, a disk of its own (a small file system in
memory) and, if there is libfaketime, a clock of its own. Clients of orbitmq, RocketMQ 4.9.7 and RocketMQ 5.3.3 send to
them without a pause, a group of consumers listens; one fault follows the other, and after each all must become well
again. Checked at the end, and printed: every message with a receipt is in the log, at its queue and offset, and was
delivered; the messages of one sender in a queue are in order; and how long sends waited. Needs root, nft and ip; takes
about eight seconds a fault. Everything it makes is gone when it ends.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

sys.path.insert(0, str(Path(__file__).parents[1]))

from orbitmq.agreement.etcd import Etcd
from orbitmq.client import (
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
)
from orbitmq.errors import OrbitMQError
from orbitmq.failover.agreed import Agreed
from orbitmq.net.remoting import Remoting
from orbitmq.operations.routes import cluster_info
from tests.support import steady
from tests.support.elected import until
from tests.support.live import Client
from tests.support.orbit_process import ORBITMQ, OrbitNameServer
from tests.support.process import ChildProcess, free_port, write_properties
from tests.support.steady import Kind, SteadySender

TOPIC, NAME, CLUSTER, QUEUES = "Orders", "elected", "ElectedCluster", 4
BRIDGE, NETWORK, HOST = "orbfo", "10.97.61", 254
DISK_BYTES = 192 << 20
LIBRARY = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
FROZEN_S = 5.0  # longer than a lease
CUT_S = 6.0
CLOCK_S = 1.0  # how often libfaketime reads the file
SLOW_BYTES = "40 kbytes"
WELL_S = 90.0
PRODUCER_PAUSE_S = 0.005
RUNS = {"java": steady.JAVAS, "java5": steady.JAVAS_5}
"""How the keys of a sender's messages begin -> the client that it uses."""
CLIENT_PORT, PEER_PORT, BROKER_PORT = 2379, 2380, 10911


def sh(*words: object, check: bool = True) -> None:
    ended = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if check and ended.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))}: {ended.stderr.strip()}")


@dataclass
class Node:
    """A machine: a namespace with a member of etcd and a broker."""

    number: int
    home: Path
    namesrv: str
    broker: ChildProcess | None = None
    etcd: ChildProcess | None = None

    @property
    def host(self) -> str:
        return f"{NETWORK}.{self.number}"

    @property
    def address(self) -> str:
        return f"{self.host}:{BROKER_PORT}"

    @property
    def space(self) -> str:
        return f"{BRIDGE}{self.number}"

    def inside(self, *words: object) -> list[str]:
        return ["ip", "netns", "exec", self.space, *map(str, words)]

    def make(self) -> None:
        sh("ip", "netns", "add", self.space)
        sh("ip", "link", "add", f"{self.space}v", "type", "veth", "peer", "name", "eth0", "netns", self.space)
        sh("ip", "link", "set", f"{self.space}v", "master", BRIDGE, "up")
        sh(*self.inside("ip", "addr", "add", f"{self.host}/24", "dev", "eth0"))
        sh(*self.inside("ip", "link", "set", "eth0", "up"))
        sh(*self.inside("ip", "link", "set", "lo", "up"))
        sh(*self.inside("nft", "add", "table", "ip", "f"))
        for chain in ("input", "output"):
            rule = f"{{ type filter hook {chain} priority 0; }}"
            sh(*self.inside("nft", "add", "chain", "ip", "f", chain, rule))
        self.disk.mkdir(parents=True)
        sh("mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", self.disk)
        self.jump(0)

    def unmake(self) -> None:
        for process in (self.broker, self.etcd):
            if process is not None and process.exit_code is None:
                process.signal(signal.SIGCONT)
                process.kill()
        sh("umount", "-l", self.disk, check=False)
        sh("ip", "link", "del", f"{self.space}v", check=False)  # with its other end, sooner than the namespace
        sh("ip", "netns", "del", self.space, check=False)

    @property
    def disk(self) -> Path:
        return self.home / f"disk-{self.number}"

    # ------------------------------------------------------------------------------------------------------ processes

    def start_etcd(self) -> None:
        cluster = ",".join(f"m{one}=http://{NETWORK}.{one}:{PEER_PORT}" for one in (1, 2, 3))
        options = {
            "name": f"m{self.number}",
            "data-dir": self.home / f"etcd-{self.number}",
            "listen-client-urls": f"http://{self.host}:{CLIENT_PORT}",
            "advertise-client-urls": f"http://{self.host}:{CLIENT_PORT}",
            "listen-peer-urls": f"http://{self.host}:{PEER_PORT}",
            "initial-advertise-peer-urls": f"http://{self.host}:{PEER_PORT}",
            "initial-cluster": cluster,
            "log-level": "error",
            "pre-vote": "true",  # as etcd 3.5 has it: one that was cut off does not disturb the others
        }
        words = [f"--{name}={value}" for name, value in options.items()]
        self.etcd = ChildProcess(self.inside("etcd", *words), output=self.home / f"etcd-{self.number}.out")

    def start_broker(self) -> None:
        others = [one for one in (1, 2, 3) if one != self.number]
        endpoints = ",".join(f"{NETWORK}.{one}:{CLIENT_PORT}" for one in (self.number, *others))
        path = write_properties(
            self.home / f"broker-{self.number}.conf",
            {
                "brokerName": NAME, "brokerClusterName": CLUSTER, "brokerId": self.number, "brokerIP1": self.host,
                "listenPort": BROKER_PORT, "namesrvAddr": self.namesrv, "storePathRootDir": self.disk / "store",
                "agreement": f"etcd://{endpoints}", "brokerRole": "SLAVE" if self.number > 1 else "ASYNC_MASTER",
                "mappedFileSizeCommitLog": 4 << 20, "mappedFileSizeConsumeQueue": 60_000, "maxIndexNum": 20_000,
                "maxHashSlotNum": 5000, "rocketmq.broker.diskSpaceWarningLevelRatio": 1.0,
                "rocketmq.broker.diskSpaceCleanForciblyRatio": 1.0, "diskMaxUsedSpaceRatio": 95,
                "waitTimeMillsInSendQueue": 30_000, "defaultTopicQueueNums": QUEUES,
            },
        )  # fmt: skip
        faked = {
            "LD_PRELOAD": str(LIBRARY), "FAKETIME_TIMESTAMP_FILE": str(self._clock), "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }  # fmt: skip
        output = self.home / f"broker-{self.number}-{time.monotonic_ns()}.out"
        self.broker = ChildProcess(
            self.inside(ORBITMQ, "broker", "-c", path), output=output, cwd=self.home,
            environment=faked if LIBRARY.exists() else {},
        )  # fmt: skip

    # --------------------------------------------------------------------------------------------------------- faults

    def drop(self, chain: str, other: int, *, limit: str = "") -> None:
        """Lose what goes to another node, or what comes from it; with a limit, what is above that rate."""
        side = "daddr" if chain == "output" else "saddr"
        over = f"limit rate over {limit}/second" if limit else ""
        sh(
            *self.inside(
                "nft", "add", "rule", "ip", "f", chain, "ip", side, f"{NETWORK}.{other}", *over.split(), "drop"
            )
        )

    def heal(self) -> None:
        for chain in ("input", "output"):
            sh(*self.inside("nft", "flush", "chain", "ip", "f", chain))

    @property
    def _clock(self) -> Path:
        return self.home / f"clock-{self.number}"

    def jump(self, seconds: int) -> None:
        self._clock.write_text(f"{seconds:+d}\n")

    def fill(self) -> None:
        """Use up what is left of its disk."""
        free = shutil.disk_usage(self.disk).free
        with contextlib.suppress(OSError), (self.disk / "ballast").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, free - (64 << 10))

    def empty(self) -> None:
        (self.disk / "ballast").unlink(missing_ok=True)


@dataclass
class Receipt:
    queue_id: int
    offset: int
    begun: float
    number: int


@dataclass
class Gap:
    fault: str
    seconds: float


@dataclass
class Campaign:
    """The nodes, the receipts of the clients, and the faults."""

    home: Path
    seed: int
    receipts: dict[bytes, Receipt] = field(default_factory=dict)
    delivered: Counter[bytes] = field(default_factory=Counter)
    gaps: list[Gap] = field(default_factory=list)
    acknowledged_at: list[float] = field(default_factory=list)
    tried: int = 0
    switches: Counter[str] = field(default_factory=Counter)
    """Those that did not do what they should, by what they did."""

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.remoting = Remoting()
        self.namesrv = OrbitNameServer(port=free_port(), bindAddress="0.0.0.0")
        self.namesrv_address = f"{NETWORK}.{HOST}:{self.namesrv.port}"
        self.nodes = [Node(number, self.home, self.namesrv_address) for number in (1, 2, 3)]
        self.store = Etcd([f"http://{node.host}:{CLIENT_PORT}" for node in self.nodes], CLUSTER, NAME)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        try:
            await self._begin()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def _begin(self) -> None:
        sh("ip", "link", "add", "name", BRIDGE, "type", "bridge")
        sh("ip", "addr", "add", f"{NETWORK}.{HOST}/24", "dev", BRIDGE)
        sh("ip", "link", "set", BRIDGE, "up")
        for node in self.nodes:
            node.make()
            node.start_etcd()
        self.namesrv.start()
        await until(self._etcd_is_up, "members of etcd")
        for node in self.nodes:
            node.start_broker()
        await self.until_well()

    async def __aexit__(self, *error: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.remoting.close()
        await self.store.stop()
        for node in self.nodes:
            node.unmake()
        self.namesrv.__exit__()
        sh("ip", "link", "del", BRIDGE, check=False)

    # ------------------------------------------------------------------------------------------------------- looking

    async def agreed(self) -> Agreed | None:
        with contextlib.suppress(OrbitMQError):
            return (await self.store.read()).agreed
        return None

    async def _etcd_is_up(self) -> bool | None:
        with contextlib.suppress(OrbitMQError):
            await self.store.read()
            return True
        return None

    async def until_well(self) -> Agreed:
        async def look() -> Agreed | None:
            found = await self.agreed()
            return found if found is not None and len(found.in_sync) == len(self.nodes) else None

        agreed = await until(look, "three replicas in sync", WELL_S)
        await until(self.master, "master in the routes", WELL_S)
        return agreed

    async def master(self) -> Node | None:
        with contextlib.suppress(OrbitMQError):
            found = (await cluster_info(self.remoting, self.namesrv_address)).brokers.get(NAME)
            address = None if found is None else found.addresses.get(0)
            return next((node for node in self.nodes if node.address == address), None)
        return None

    # ------------------------------------------------------------------------------------------------------- clients

    async def send(self, producer: Producer) -> None:
        while True:
            number = self.tried
            self.tried += 1
            body, begun = b"o-%d" % number, time.monotonic()
            with contextlib.suppress(OrbitMQError):
                found = await producer.send(Message(TOPIC, body, keys=body.decode()))
                if found.status.name == "SEND_OK":
                    self.receipts[body] = Receipt(found.queue.queue_id, found.queue_offset, begun, number)
                    self.acknowledged_at.append(time.monotonic())
            await asyncio.sleep(PRODUCER_PAUSE_S)

    async def listen(self, messages: list[MessageExt], _context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        self.delivered.update(message.body for message in messages)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    def begin(self, producer: Producer) -> None:
        self._tasks.append(asyncio.create_task(self.send(producer)))

    # -------------------------------------------------------------------------------------------------------- faults

    async def fault(self, name: str) -> None:
        """One, and all is well again; how long sends waited in the meantime is kept."""
        began = time.monotonic()
        await getattr(self, f"_{name}")(await until(self.master, "master"))
        await self.until_well()
        await self.goes_on()
        await self.until_well()  # a replica that was cut off for less than its time may leave after that
        times = [began, *(one for one in self.acknowledged_at if one >= began), time.monotonic()]
        self.gaps.append(Gap(name, max(later - earlier for earlier, later in itertools.pairwise(times))))

    async def goes_on(self) -> None:
        count = len(self.receipts)

        async def look() -> bool | None:
            return len(self.receipts) > count + 5 or None

        await until(look, "further receipts", WELL_S)

    def _slave(self, master: Node) -> Node:
        return self.random.choice([node for node in self.nodes if node is not master])

    async def _kill_master(self, master: Node) -> None:
        _of(master.broker).kill()
        await asyncio.sleep(self.random.uniform(0, 6))
        master.start_broker()

    async def _kill_slave(self, master: Node) -> None:
        slave = self._slave(master)
        _of(slave.broker).kill()
        await asyncio.sleep(self.random.uniform(0, 3))
        slave.start_broker()

    async def _kill_two(self, master: Node) -> None:
        slave = self._slave(master)
        for node in (master, slave):
            _of(node.broker).kill()
        await asyncio.sleep(self.random.uniform(0, 4))
        for node in self.random.sample((master, slave), 2):
            node.start_broker()

    async def _kill_all(self, _master: Node) -> None:
        for node in self.nodes:
            _of(node.broker).kill()
        for node in self.random.sample(self.nodes, 3):
            node.start_broker()

    async def _stop_master(self, master: Node) -> None:
        await asyncio.to_thread(_of(master.broker).stop)
        master.start_broker()

    async def _freeze_master(self, master: Node) -> None:
        await self._frozen(_of(master.broker))

    async def _freeze_slave(self, master: Node) -> None:
        await self._frozen(_of(self._slave(master).broker))

    async def _freeze_machine(self, master: Node) -> None:
        await self._frozen(_of(master.broker), _of(master.etcd))

    async def _frozen(self, *processes: ChildProcess) -> None:
        for process in processes:
            process.freeze()
        await asyncio.sleep(self.random.uniform(0.5, FROZEN_S + 1))
        for process in processes:
            process.signal(signal.SIGCONT)

    async def _cut_off_master(self, master: Node) -> None:
        """From the other nodes, not from clients."""
        await self._without(master, (node.number for node in self.nodes if node is not master))

    async def _isolate_master(self, master: Node) -> None:
        await self._without(master, (*(node.number for node in self.nodes if node is not master), HOST))

    async def _cut_off_slave(self, master: Node) -> None:
        slave = self._slave(master)
        await self._without(slave, (node.number for node in self.nodes if node is not slave))

    async def _without(self, node: Node, others: Iterable[int]) -> None:
        for other in others:
            for chain in ("input", "output"):
                node.drop(chain, other)
        await self._then_heal(node)

    async def _cut_one_way(self, master: Node) -> None:
        """What the master sends to a slave, or what that sends to it, is lost."""
        master.drop(self.random.choice(("input", "output")), self._slave(master).number)
        await self._then_heal(master)

    async def _cut_one_way_to_all(self, master: Node) -> None:
        chain = self.random.choice(("input", "output"))
        for node in self.nodes:
            if node is not master:
                master.drop(chain, node.number)
        await self._then_heal(master)

    async def _slow_link(self, master: Node) -> None:
        master.drop("output", self._slave(master).number, limit=SLOW_BYTES)
        await self._then_heal(master)

    async def _then_heal(self, node: Node) -> None:
        await asyncio.sleep(self.random.uniform(0.5, CUT_S))
        node.heal()

    async def _full_disk_of_master(self, master: Node) -> None:
        await self._filled(master)

    async def _full_disk_of_slave(self, master: Node) -> None:
        await self._filled(self._slave(master))

    async def _filled(self, node: Node) -> None:
        node.fill()
        await asyncio.sleep(self.random.uniform(1, 4))
        node.empty()

    async def _clock_jump(self, _master: Node) -> None:
        node = self.random.choice(self.nodes)
        node.jump(self.random.choice((-86_400, -600, -5, 5, 600, 86_400)))
        await asyncio.sleep(CLOCK_S)
        node.jump(0)

    async def _switch_master(self, master: Node) -> None:
        """By an operator. A replica that has just been cut off may not have everything in time, so that the master
        stays; a successor that takes longer than a second to stand leaves it to another one.
        """
        words = ["broker", "switch", NAME, "--yes", "-n", self.namesrv_address]
        ran = await asyncio.create_subprocess_exec(ORBITMQ, *words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        printed, _ = await ran.communicate()
        if ran.returncode:
            stays = await until(self.master, "master") is master
            self.switches["refused" if stays else "to another replica than the chosen one"] += 1
            print(f"\nswitch: {printed.decode()}", file=sys.stderr)

    async def _etcd_member_killed(self, _master: Node) -> None:
        node = self.random.choice(self.nodes)
        _of(node.etcd).kill()
        await asyncio.sleep(self.random.uniform(0, 4))
        node.start_etcd()

    async def _etcd_quorum_frozen(self, _master: Node) -> None:
        await self._frozen(*(_of(node.etcd) for node in self.random.sample(self.nodes, 2)))

    async def _etcd_quorum_killed(self, _master: Node) -> None:
        nodes = self.random.sample(self.nodes, 2)
        for node in nodes:
            _of(node.etcd).kill()
        await asyncio.sleep(self.random.uniform(0, 5))
        for node in nodes:
            node.start_etcd()


FAULTS = (
    "kill_master", "kill_slave", "kill_two", "kill_all", "stop_master", "switch_master", "freeze_master",
    "freeze_slave", "freeze_machine", "cut_off_master", "isolate_master", "cut_off_slave", "cut_one_way",
    "cut_one_way_to_all", "slow_link", "full_disk_of_master", "full_disk_of_slave", "clock_jump",
    "etcd_member_killed", "etcd_quorum_frozen", "etcd_quorum_killed",
)  # fmt: skip


def _of(process: ChildProcess | None) -> ChildProcess:
    assert process is not None, "it was started"
    return process


async def stored(address: str) -> dict[tuple[int, int], tuple[bytes, str]]:
    """Queue id and offset -> body and keys, of all that the master lets be read."""

    @dataclass
    class At:
        address: str

    client = Client(At(address))
    found: dict[tuple[int, int], tuple[bytes, str]] = {}
    try:
        for queue_id in range(QUEUES):
            offset = 0
            while messages := await client.read(TOPIC, queue_id, offset, suspend_timeout_millis=0, max_msg_nums=1000):
                for one in messages:
                    found[queue_id, one.queue_offset] = one.body, one.properties.get("KEYS", "")
                offset = messages[-1].queue_offset + 1
    finally:
        await client.remoting.close()
    return found


async def run(count: int, seed: int, kinds: tuple[str, ...], home: Path) -> int:
    campaign = Campaign(home, seed)
    async with campaign:
        producer = Producer("senders", campaign.namesrv_address, send_timeout_ms=2000)
        consumer = PushConsumer(
            "readers", campaign.namesrv_address, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        )
        consumer.subscribe(TOPIC)
        consumer.set_listener(campaign.listen)
        await producer.start()
        campaign.begin(producer)
        await campaign.goes_on()
        await consumer.start()
        javas = {
            run: SteadySender(
                Kind(client, fault=False), campaign.namesrv_address, TOPIC, run, poll_ms=1000, senders=1, pause_ms=20
            )
            for run, client in RUNS.items()
        }
        with ExitStack() as stack:
            for java in javas.values():
                stack.enter_context(java).wait_until_started()
            order = [kinds[at % len(kinds)] for at in range(count)]
            campaign.random.shuffle(order)
            began = time.monotonic()
            for number, name in enumerate(order, 1):
                try:
                    await campaign.fault(name)
                except (TimeoutError, AssertionError) as error:
                    print(f"fault {number}, {name}: {error}", flush=True)
                    raise
                took = time.monotonic() - began
                print(
                    f"\r{number}/{count} faults, {took / 60:.1f} min, {len(campaign.receipts)} receipts, "
                    f"last {name}, longest wait {campaign.gaps[-1].seconds:.1f} s   ",
                    end="", file=sys.stderr, flush=True,
                )  # fmt: skip
            rows = {run: java.end() for run, java in javas.items()}
        print(file=sys.stderr)
        return await judge(campaign, rows, consumer, producer)


async def judge(
    campaign: Campaign, rows: dict[str, list[steady.Sent]], consumer: PushConsumer, producer: Producer
) -> int:
    agreed = await campaign.until_well()
    receipts = dict(campaign.receipts)
    await producer.shutdown()
    master = await until(campaign.master, "master")
    found = await stored(master.address)
    lost = [body for body, one in receipts.items() if found.get((one.queue_id, one.offset), (b"",))[0] != body]
    keys = Counter(keys for _, keys in found.values())
    acknowledged = {run: [f"{run}-{row.index}" for row in sent if row.broker is not None] for run, sent in rows.items()}
    lost_of_javas = [key for sent in acknowledged.values() for key in sent if not keys[key]]

    async def all_delivered() -> bool | None:
        return all(campaign.delivered[body] for body in receipts) or None

    with contextlib.suppress(TimeoutError):
        await until(all_delivered, "deliveries", 30)
    undelivered = [body for body in receipts if not campaign.delivered[body]]
    await consumer.shutdown()
    disorder = _disorder(receipts)
    again = sum(count - 1 for key, count in keys.items() if key.startswith("o-") and count > 1)
    by_fault = defaultdict(list)
    for gap in campaign.gaps:
        by_fault[gap.fault].append(gap.seconds)
    print(f"{len(campaign.gaps)} faults, epoch {agreed.epoch}, seed {campaign.seed}\n")
    print("| fault | times | longest wait, median s | most s |\n|---|--:|--:|--:|")
    for name, seconds in sorted(by_fault.items()):
        print(f"| {name.replace('_', ' ')} | {len(seconds)} | {statistics.median(seconds):.2f} | {max(seconds):.2f} |")
    kept = sum(1 for node in campaign.nodes for _ in (node.disk / "store" / "parted").glob("epoch-*/*"))
    of_javas = ", ".join(f"{len(acknowledged[run])} of {client}" for run, client in RUNS.items())
    print(f"\n{len(receipts)} receipts of orbitmq's client, {of_javas}, {len(found)} messages")
    print(f"lost {len(lost)} and {len(lost_of_javas)}, not delivered {len(undelivered)}, out of order {disorder}")
    print(f"stored again by a repeated attempt {again}, tails kept aside {kept}, switches {dict(campaign.switches)}")
    for what, some in (("lost", lost), ("not delivered", undelivered), ("lost of RocketMQ's clients", lost_of_javas)):
        if some:
            print(f"{what}: {some[:10]}")
    return int(bool(lost or lost_of_javas or undelivered or disorder))


def _disorder(receipts: dict[bytes, Receipt]) -> int:
    """Of one sender and one queue, later sends with receipts stand behind earlier ones."""
    last: dict[int, Receipt] = {}
    found = 0
    for one in sorted(receipts.values(), key=lambda receipt: receipt.number):
        before = last.get(one.queue_id)
        found += before is not None and before.offset >= one.offset
        last[one.queue_id] = one
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=FAULTS, default=list(FAULTS))
    parser.add_argument("--keep", action="store_true", help="keep logs")
    arguments = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="failover-"))
    try:
        return asyncio.run(run(arguments.faults, arguments.seed, tuple(arguments.only), home))
    finally:
        if arguments.keep:
            print(f"logs are in {home}")
        else:
            shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
