"""Two name servers and two broker pairs, each node a process that can be killed, frozen, restarted, cut off, and whose
disk can be filled. Knows nothing of what is sent.

Everybody but the proxy itself reaches a broker through the proxy of `links`: what it registers is its address there.
RocketMQ's own brokers take every address of the machine, so only what their slave copies goes through the proxy.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Self, TypeAlias

import msgspec

from bench.soak import plan
from bench.soak.checker import Pair
from bench.soak.history import Probe, Promoted, now
from bench.soak.links import OUTSIDE, Links
from bench.soak.probing import probe
from orbitmq.errors import OrbitMQError
from orbitmq.net.remoting import Remoting
from orbitmq.operations.statistics import runtime_info
from tests.support.java_rocketmq import JavaBroker
from tests.support.mounts import Ballast, CannotMount, mounted
from tests.support.orbit_process import ORBITMQ, OrbitBroker, OrbitNameServer
from tests.support.process import ChildProcess, Daemon, ProcessFailed, accepts, free_port, wait_until
from tests.support.registration import is_registered

SYNC = Pair("sync", "sync-1", "sync-2", is_sync=True)
ASYNC = Pair("async", "async-1", "async-2", is_sync=False)
PAIRS = (SYNC, ASYNC)
JAVA_NODES = (SYNC.slave, ASYNC.master)  # of the variant with RocketMQ: a slave of ours, and a master of one of ours
NAME_SERVERS = ("namesrv-a", "namesrv-b")
BROKERS = tuple(node for pair in PAIRS for node in (pair.master, pair.slave))
LOG_FILE_SIZE = 4 << 20
DISK_SIZE = 256 << 20  # several times what fifteen minutes leave
QUIET_MS = 1000  # replication: a sign of life; five times that without one ends a connection
PATIENCE_S = 60
CUT_OFF_S = 0.5  # replication, before a master is frozen: it has some messages that its slave has not
PROBED_S, PROBE_S = 2.0, 0.1
DOUBTS_S = 8  # an operator waits so long for name servers to come back, and then gives --force: he has seen the corpse
JVM = ("-Xmx384m", "-XX:MaxDirectMemorySize=256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")

_COMMON = {
    "autoCreateTopicEnable": "true",
    "slaveReadEnable": "true",
    "registerNameServerPeriod": 10_000,
    "mappedFileSizeCommitLog": LOG_FILE_SIZE,
    "mappedFileSizeConsumeQueue": 20 * 5000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 50_000,
    "haSendHeartbeatInterval": QUIET_MS,
    "haHousekeepingInterval": 5 * QUIET_MS,
}
_OURS = {
    "brokerIP1": OUTSIDE,
    "bindAddress": "127.0.0.1",
    # A disk that is filled refuses messages; it must not make a broker throw old ones away.
    "cleanFileForciblyEnable": "false",
    "rocketmq.broker.diskSpaceWarningLevelRatio": 1.0,
    "rocketmq.broker.diskSpaceCleanForciblyRatio": 1.0,
}
_FLUSH: dict[str, dict[str, object]] = {SYNC.name: {"flushDiskType": "SYNC_FLUSH"}, ASYNC.name: {}}
_MASTER: dict[str, dict[str, object]] = {
    SYNC.name: {"brokerRole": "SYNC_MASTER", "brokerId": 0},
    ASYNC.name: {"brokerRole": "ASYNC_MASTER", "brokerId": 0},
}
_SLAVE: dict[str, object] = {"brokerRole": "SLAVE", "brokerId": 1}


class Node(OrbitBroker):
    """Serves as soon as it takes connections: the name servers may be dead themselves."""

    def _is_ready(self, process: ChildProcess) -> bool:  # noqa: ARG002
        return accepts(self.port)

    def has_role(self, role: Mapping[str, object]) -> None:
        """From its next start on."""
        self._config = {**self._config, **role}

    def promote(self, *more: str) -> tuple[int, str]:
        """What the operator types; exit code and output."""
        command = [str(ORBITMQ), "broker", "promote", "-c", str(self.home / "broker.conf"), *more]
        with ChildProcess(command, output=self.home / "promote.out", cwd=self.home) as process:
            return process.wait(PATIENCE_S), process.output()


class JavaNode(JavaBroker):
    """One of RocketMQ's."""

    def _is_ready(self, process: ChildProcess) -> bool:  # noqa: ARG002
        return accepts(self.port)


AnyNode: TypeAlias = Node | JavaNode


class Cluster:
    """The running cluster below `home`. `pairs` are the roles by broker name, as they are now; `note` says which kinds
    of faults cannot be done here. `topic` is what is asked for where nothing may be served. `with_java`: half of the
    brokers are RocketMQ's.
    """

    def __init__(self, home: Path, topic: str, *, with_java: bool = False) -> None:
        self._home = home
        self._stack = ExitStack()
        self._links = Links()
        self._ballasts: dict[str, Ballast] = {}
        self.fronts: dict[str, int] = {}
        """Where orbitmq's brokers take gRPC."""
        self._java = JAVA_NODES if with_java else ()
        self._promoted: dict[str, Promoted] = {}  # by pair, until the former master is back
        self.name_servers = {name: OrbitNameServer(home=self._folder(name)) for name in NAME_SERVERS}
        self.namesrv_address = ";".join(server.address for server in self.name_servers.values())
        self.brokers: dict[str, AnyNode] = {}
        self.pairs = {pair.name: pair for pair in PAIRS}
        self.promotions: list[Promoted] = []
        self.probes: list[Probe] = []
        self._probed_topic = topic
        self.note = ""

    def store(self, node: str) -> Path:
        return self.brokers[node].store_dir

    def port(self, node: str) -> int:
        """Where it takes requests; slaves of a master come one port above."""
        return self.brokers[node].port

    def _outer_ports(self, node: str) -> tuple[int, ...]:
        """Of its links with clients."""
        return (self.port(node), *((self.fronts[node],) if node in self.fronts else ()))

    @property
    def _nodes(self) -> dict[str, Daemon]:
        return {**self.name_servers, **self.brokers}

    # ------------------------------------------------------------------------------------------------------- faults

    def targets(self) -> dict[str, tuple[str, ...]]:
        """What each kind of fault may hit here. A full disk kills RocketMQ's brokers, and it has no promotion."""
        ours = tuple(node for node in BROKERS if node not in self._java)
        return {
            **dict.fromkeys((plan.KILL, plan.FREEZE, plan.RESTART, *plan.REPLICATION_LINKS), BROKERS),
            **dict.fromkeys(plan.CLIENT_LINKS, ours),
            plan.FILL: tuple(self._ballasts),
            **dict.fromkeys((plan.PROMOTE, plan.THAW), () if self._java else tuple(self.pairs)),
        }

    def nodes_of(self, step: plan.Step) -> tuple[str, ...]:
        """Whom it is done to."""
        if step.kind in (plan.PROMOTE, plan.THAW):
            pair = self.pairs[step.target]
            return tuple(sorted((pair.master, pair.slave)))
        return (step.target,)

    def begin(self, step: plan.Step) -> None:
        """Do what the step says; `end` undoes it."""
        match step.kind:
            case plan.KILL:
                self._nodes[step.target].kill()
            case plan.FREEZE:
                self._signal(step.target, signal.SIGSTOP)
            case plan.RESTART:
                self._nodes[step.target].stop()
            case plan.FILL:
                self._ballasts[step.target].fill()
            case plan.PROMOTE:
                self._kill_and_promote(self.pairs[step.target])
            case plan.THAW:
                self._freeze_and_promote(self.pairs[step.target])
            case plan.CUT | plan.CUT_COPY:
                for port in self._links_of(step):
                    self._links.cut(port)
            case plan.SILENCE | plan.SILENCE_COPY:
                for port in self._links_of(step):
                    self._links.silence(port)
            case plan.SLOW | plan.SLOW_COPY:
                for port in self._links_of(step):
                    self._links.slow(port, step.hold / 10)

    def end(self, step: plan.Step) -> Promoted | None:
        """Return when the node serves again, with the promotion if there was one."""
        match step.kind:
            case plan.KILL | plan.RESTART:
                self._nodes[step.target].start()
            case plan.FREEZE:
                self._signal(step.target, signal.SIGCONT)
            case plan.FILL:
                self._ballasts[step.target].drop()
            case plan.PROMOTE:
                return self._rejoin(step.target)
            case plan.THAW:
                return self._thaw_and_rejoin(step.target)
            case _:
                for port in self._links_of(step):
                    self._links.heal(port)
        return None

    def _links_of(self, step: plan.Step) -> tuple[int, ...]:
        """The ports of the links it is about; for replication that of the pair's master, which is none of the others
        while a node of the pair is held.
        """
        if step.kind in plan.REPLICATION_LINKS:
            pair = next(pair for pair in self.pairs.values() if step.target in (pair.master, pair.slave))
            return (self.port(pair.master) + 1,)
        return self._outer_ports(step.target)

    def _signal(self, node: str, number: signal.Signals) -> None:
        process = self._nodes[node].process
        assert process is not None, f"{node} runs"
        process.signal(number)

    # --------------------------------------------------------------------------------------------------- promotions

    def _kill_and_promote(self, pair: Pair) -> None:
        """The master is killed and its slave takes its place."""
        self.brokers[pair.master].kill()
        for port in self._outer_ports(pair.master):
            self._links.close(port)
        self._promote(pair, now(), time.monotonic() + DOUBTS_S)

    def _freeze_and_promote(self, pair: Pair) -> None:
        """The master is frozen, with messages that its slave has not, and the slave takes its place by force."""
        copying = self.port(pair.master) + 1
        self._links.cut(copying)
        time.sleep(CUT_OFF_S)
        process = self._nodes[pair.master].process
        assert process is not None, f"{pair.master} runs"
        process.freeze()
        frozen = now()
        self._links.heal(copying)
        self._promote(pair, frozen, time.monotonic())
        self._promoted[pair.name] = msgspec.structs.replace(self._promoted[pair.name], thawed=True)

    def _promote(self, pair: Pair, killed: int, forced_from: float) -> None:
        slave = self.brokers[pair.slave]
        assert isinstance(slave, Node)
        patience = time.monotonic() + DOUBTS_S + PATIENCE_S
        code, output, forced = 1, "", False
        while code and time.monotonic() < patience:
            forced = time.monotonic() >= forced_from
            code, output = slave.promote(*(("--force",) if forced else ()))
        if code:
            raise ProcessFailed(f"{pair.slave} is not promoted: {output}")
        end, role = re.search(r"its log ends at +(\d+)", output), re.search(r"its role as the master +(\w+)", output)
        assert end is not None, output
        assert role is not None, output
        self._promoted[pair.name] = Promoted(
            pair.name, pair.slave, pair.master, killed, int(end[1]), 0, forced, emptied=False, role=role[1]
        )
        slave.has_role(_MASTER[pair.name])
        self.pairs[pair.name] = pair.swapped

    def _thaw_and_rejoin(self, name: str) -> Promoted | None:
        """The former master goes on, and clients ask it as if nothing had happened; then it comes back as a slave."""
        if (promoted := self._promoted.get(name)) is None:
            return None
        self._signal(promoted.former, signal.SIGCONT)
        self._probe(promoted.former, "former master that has thawed")
        self.brokers[promoted.former].stop()
        for port in self._outer_ports(promoted.former):
            self._links.close(port)
        return self._rejoin(name)

    def _probe(self, node: str, why: str) -> None:
        """Ask a node for what it must not do, for a while."""
        ends = time.monotonic() + PROBED_S
        while time.monotonic() < ends:
            for request, is_served in asyncio.run(probe(self.brokers[node].address, self._probed_topic)).items():
                self.probes.append(Probe(node, why, request, is_served, now()))
            time.sleep(PROBE_S)

    def _rejoin(self, name: str) -> Promoted | None:
        """The former master comes back as a slave, without its log where that has more than the new one's."""
        if (promoted := self._promoted.pop(name, None)) is None:
            return None  # it has failed, and says so itself
        node = self.brokers[promoted.former]
        assert isinstance(node, Node)
        (node.store_dir / "config/promoted.json").unlink(missing_ok=True)
        node.has_role(_SLAVE)
        for port in self._outer_ports(promoted.former):
            self._links.open(port)
        emptied = self._is_refused(node.start())
        if emptied:
            self._probe(promoted.former, "slave whose log differs")
            node.stop()
            shutil.rmtree(node.store_dir)
            assert not self._is_refused(node.start()), "an empty store is the beginning of any"
            self._wait_until_copied(promoted.node, node)
        done = msgspec.structs.replace(promoted, ended=now(), emptied=emptied)
        self.promotions.append(done)
        return done

    def _wait_until_copied(self, master: str, slave: Node) -> None:
        """Wait until an emptied slave has the log and tables of its master: no operator would promote it before."""
        end = int(wait_until(lambda: _figures(self.brokers[master].address), PATIENCE_S, master)["commitLogMaxOffset"])

        def has_copied() -> bool:
            runtime = _figures(slave.address)
            has_tables = runtime.get("replicationTablesCopied") == "true"
            return has_tables and int(runtime["commitLogMaxOffset"]) >= end

        wait_until(has_copied, PATIENCE_S, f"{slave.home.name} to copy the log")

    def _is_refused(self, node: AnyNode) -> bool:
        """Whether the slave's log is not the beginning of its master's; it copies otherwise."""
        figures: dict[str, str] = {}

        def is_decided() -> bool:
            figures.update(_figures(node.address))
            return figures.get("replicationConnected") == "true" or bool(figures.get("replicationRefusal"))

        wait_until(is_decided, PATIENCE_S, f"{node.home.name} to follow its master")
        return figures["replicationConnected"] != "true"

    # --------------------------------------------------------------------------------------------- beginning and end

    def stop(self) -> None:
        """A clean stop of all brokers, so that what they leave can be looked at."""
        with ThreadPoolExecutor() as beside:
            list(beside.map(Daemon.stop, self.brokers.values()))

    def wait_until_known(self) -> None:
        """Until both name servers know both brokers."""
        for server in self.name_servers.values():
            for pair in PAIRS:
                wait_until(lambda s=server, p=pair: is_registered(s.address, p.name), PATIENCE_S, pair.name)  # type: ignore[misc]

    def __enter__(self) -> Self:
        try:
            self._stack.enter_context(self._links)
            self._make_brokers()
            with ThreadPoolExecutor() as beside:
                for group in (self.name_servers.values(), self.brokers.values()):
                    for node in group:
                        self._stack.push(node)
                    list(beside.map(Daemon.start, group))
            self.wait_until_known()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _make_brokers(self) -> None:
        for pair in PAIRS:
            for name, role in ((pair.master, _MASTER[pair.name]), (pair.slave, _SLAVE)):
                config = {**_COMMON, **_FLUSH[pair.name], **role}
                if name in self._java:
                    self.brokers[name] = self._java_node(name, pair, config)
                else:
                    self.brokers[name] = self._node(name, pair, config)

    def _node(self, name: str, pair: Pair, config: dict[str, object]) -> Node:
        home = self._folder(name)
        store = self._disk(name, home) / "store"
        if pair.master in self._java:  # whose name servers' address is not the proxy's
            config["haMasterAddress"] = f"{OUTSIDE}:{self._outside + 1}"
        self.fronts[name] = config["grpcServerPort"] = free_port()
        node = Node(self.namesrv_address, name=pair.name, home=home, store_dir=store, **{**_OURS, **config})  # type: ignore[arg-type]
        self._links.open(self.fronts[name])
        self._links.open(node.port)
        self._links.open(node.port + 1)
        return node

    def _java_node(self, name: str, pair: Pair, config: dict[str, object]) -> JavaNode:
        home = self._folder(name)
        node = JavaNode(
            self.namesrv_address, name=pair.name, home=home, store_dir=home / "store", jvm=JVM, **config,  # type: ignore[arg-type]
        )  # fmt: skip
        if name == pair.master:
            self._outside = free_port(1)
            for distance in range(2):
                self._links.open(node.port + distance, self._outside + distance)
        return node

    def _disk(self, name: str, home: Path) -> Path:
        """A file system of its own where that can be had."""
        if self.note:
            return home
        try:
            disk = self._stack.enter_context(mounted("tmpfs", home / "disk", DISK_SIZE))
        except CannotMount as error:
            self.note = f"no disk is filled: {error}"
            return home
        self._ballasts[name] = Ballast(disk)
        return disk

    def _folder(self, name: str) -> Path:
        folder = self._home / name
        folder.mkdir()
        return folder


def _figures(address: str) -> dict[str, str]:
    """What a broker tells of itself; nothing while it does not answer."""

    async def ask() -> dict[str, str]:
        remoting = Remoting()
        try:
            return await runtime_info(remoting, address, timeout_ms=1000)
        except OrbitMQError:
            return {}
        finally:
            await remoting.close()

    return asyncio.run(ask())
