"""Two name servers and two broker pairs, each node a process that can be killed, frozen, restarted, cut off, and whose
disk can be filled. Knows nothing of what is sent.

Everybody but the proxy itself reaches a broker through the proxy of `links`: what it registers is its address there.
"""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from bench.soak import plan
from bench.soak.checker import Pair
from bench.soak.links import OUTSIDE, Links
from tests.support.mounts import Ballast, CannotMount, mounted
from tests.support.orbit_process import OrbitBroker, OrbitNameServer
from tests.support.process import ChildProcess, Daemon, accepts, wait_until
from tests.support.registration import is_registered

SYNC = Pair("sync", "sync-master", "sync-slave", is_sync=True)
ASYNC = Pair("async", "async-master", "async-slave", is_sync=False)
PAIRS = (SYNC, ASYNC)
NAME_SERVERS = ("namesrv-a", "namesrv-b")
SLAVES = tuple(pair.slave for pair in PAIRS)
BROKERS = tuple(node for pair in PAIRS for node in (pair.master, pair.slave))
LOG_FILE_SIZE = 4 << 20
DISK_SIZE = 256 << 20  # several times what fifteen minutes leave
QUIET_MS = 1000  # replication: a sign of life; five times that without one ends a connection
PATIENCE_S = 60

_COMMON = {
    "brokerIP1": OUTSIDE,
    "bindAddress": "127.0.0.1",
    "autoCreateTopicEnable": "true",
    "slaveReadEnable": "true",
    "registerNameServerPeriod": 10_000,
    "mappedFileSizeCommitLog": LOG_FILE_SIZE,
    "mappedFileSizeConsumeQueue": 20 * 5000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 50_000,
    "haSendHeartbeatInterval": QUIET_MS,
    "haHousekeepingInterval": 5 * QUIET_MS,
    # A disk that is filled refuses messages; it must not make a broker throw old ones away.
    "cleanFileForciblyEnable": "false",
    "rocketmq.broker.diskSpaceWarningLevelRatio": 1.0,
    "rocketmq.broker.diskSpaceCleanForciblyRatio": 1.0,
}
_ROLES: dict[str, dict[str, object]] = {
    SYNC.master: {"brokerRole": "SYNC_MASTER", "flushDiskType": "SYNC_FLUSH"},
    SYNC.slave: {"brokerRole": "SLAVE", "brokerId": 1, "flushDiskType": "SYNC_FLUSH"},
    ASYNC.master: {"brokerRole": "ASYNC_MASTER"},
    ASYNC.slave: {"brokerRole": "SLAVE", "brokerId": 1},
}


class Node(OrbitBroker):
    """Serves as soon as it takes connections: the name servers may be dead themselves."""

    def _is_ready(self, process: ChildProcess) -> bool:  # noqa: ARG002
        return accepts(self.port)


class Cluster:
    """The running cluster below `home`. `without` are kinds of faults that cannot be done here; `note` says why."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._stack = ExitStack()
        self._links = Links()
        self._ballasts: dict[str, Ballast] = {}
        self.name_servers = {name: OrbitNameServer(home=self._folder(name)) for name in NAME_SERVERS}
        self.namesrv_address = ";".join(server.address for server in self.name_servers.values())
        self.brokers: dict[str, Node] = {}
        self.without: tuple[str, ...] = ()
        self.note = ""

    def store(self, node: str) -> Path:
        return self.brokers[node].store_dir

    def port(self, node: str) -> int:
        """Where it takes requests; slaves of a master come one port above."""
        return self.brokers[node].port

    @property
    def _nodes(self) -> dict[str, Daemon]:
        return {**self.name_servers, **self.brokers}

    # ------------------------------------------------------------------------------------------------------- faults

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
            case plan.CUT | plan.CUT_COPY:
                self._links.cut(self._link(step))
            case plan.SILENCE | plan.SILENCE_COPY:
                self._links.silence(self._link(step))
            case plan.SLOW | plan.SLOW_COPY:
                self._links.slow(self._link(step), step.hold / 10)

    def end(self, step: plan.Step) -> None:
        """Return when the node serves again."""
        match step.kind:
            case plan.KILL | plan.RESTART:
                self._nodes[step.target].start()
            case plan.FREEZE:
                self._signal(step.target, signal.SIGCONT)
            case plan.FILL:
                self._ballasts[step.target].drop()
            case _:
                self._links.heal(self._link(step))

    def _link(self, step: plan.Step) -> int:
        """The port of the link it is about; replication's is that of the slave's master."""
        if step.kind in plan.REPLICATION_LINKS:
            return self.port(next(pair.master for pair in PAIRS if pair.slave == step.target)) + 1
        return self.port(step.target)

    def _signal(self, node: str, number: signal.Signals) -> None:
        process = self._nodes[node].process
        assert process is not None, f"{node} runs"
        process.signal(number)

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
            for name in (pair.master, pair.slave):
                config = {**_COMMON, **_ROLES[name]}
                home = self._folder(name)
                store = self._disk(name, home) / "store"
                node = Node(self.namesrv_address, name=pair.name, home=home, store_dir=store, **config)  # type: ignore[arg-type]
                self.brokers[name] = node
                self._links.open(node.port)
            self._links.open(self.port(pair.master) + 1)

    def _disk(self, name: str, home: Path) -> Path:
        """A file system of its own where that can be had."""
        if self.note:
            return home
        try:
            disk = self._stack.enter_context(mounted("tmpfs", home / "disk", DISK_SIZE))
        except CannotMount as error:
            self.without, self.note = (plan.FILL,), f"no disk is filled: {error}"
            return home
        self._ballasts[name] = Ballast(disk)
        return disk

    def _folder(self, name: str) -> Path:
        folder = self._home / name
        folder.mkdir()
        return folder
