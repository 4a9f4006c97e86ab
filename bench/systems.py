"""The two systems, side by side on loopback: started with the same keys, put under load, killed and started again."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from bench import lag
from bench.log_end import log_end
from bench.works import Setting
from tests.support.java_rocketmq import Driver, JavaBroker, JavaNameServer, run_driver
from tests.support.orbit_process import OrbitBroker, OrbitNameServer
from tests.support.process import wait_until

Broker: TypeAlias = JavaBroker | OrbitBroker
Measurement: TypeAlias = dict[str, Any]

RIVAL, OURS = "RocketMQ 4.9.7", "orbitmq"
SYSTEMS = (RIVAL, OURS)
QUEUES = 8
READS = "reads"  # the topic that holds a backlog
MIB = 1 << 20
FIRST_REMOVAL_S = 120  # both brokers first look for old files a minute after their start
_BROKER_JVM = ("-server", "-Xms2g", "-Xmx4g", "-XX:+UseG1GC", "-XX:G1ReservePercent=25", "-XX:MaxDirectMemorySize=2g")
LOAD_JVM = ("-server", "-Xms512m", "-Xmx1g", "-XX:+UseParallelGC")
# What the launchers relax for tests goes back to the defaults, which are the same.
_DEFAULTS: dict[str, Any] = {
    "waitTimeMillsInSendQueue": 200,
    "osPageCacheBusyTimeOutMills": 1000,
    "diskMaxUsedSpaceRatio": 75,
}


@dataclass(frozen=True)
class Side:
    """One system, ready for load."""

    broker: Broker
    start_seconds: float
    slave: Broker | None = None

    def load(self, *arguments: object, topic: str) -> Measurement:
        """Let the load generator work; what it measured."""
        assert self.broker.process is not None
        target = ("--namesrv", self.broker.namesrv_address, "--topic", topic, "--broker-pid", self.broker.process.pid)
        slave = self.slave.address if self.slave is not None else None
        watch = lag.watched(self.broker.address, slave) if slave is not None else contextlib.nullcontext(lag.Lag())
        with watch as seen, Driver(*arguments, *target, main="orbitmq.load.Load", jvm=LOAD_JVM) as driver:
            return {**driver.finish(timeout_s=600)[-1], **(seen.figures() if slave is not None else {})}

    def create(self, topic: str) -> None:
        arguments = ("--namesrv", self.broker.namesrv_address, "--topic", topic, "--broker", self.broker.address)
        run_driver("admin", "--do", "create", *arguments, "--queues", QUEUES)

    def recover(self) -> Measurement:
        """Kill it and start it again without its checkpoint, so that it has to look at its whole log."""
        self.broker.kill()
        walked_mib = log_end(self.broker.store_dir / "consumequeue") / MIB
        (self.broker.store_dir / "checkpoint").unlink()
        begin = time.monotonic()
        self.broker.start()
        seconds = time.monotonic() - begin
        assert self.broker.process is not None
        cpu_micros = self.broker.process.cpu_seconds() * 1e6 / walked_mib
        return {"rate": walked_mib / seconds, "cpuMicros": cpu_micros, "seconds": seconds, "errors": 0}

    def await_removal(self) -> None:
        """Return when the first file of the log is gone."""
        first = self.broker.store_dir / "commitlog" / f"{0:020}"
        wait_until(lambda: not first.exists(), FIRST_REMOVAL_S, f"{first} to be removed")

    def memory(self) -> dict[str, int]:
        """MiB of the process."""
        assert self.broker.process is not None
        return memory_of(self.broker.process.pid)


def memory_of(pid: int) -> dict[str, int]:
    """MiB of a process: its own (anonymous) and all resident, which counts the mapped log files."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    kib = {line.split(":")[0]: int(line.split()[1]) for line in status if line.startswith(("RssAnon", "VmRSS"))}
    return {"own": kib["RssAnon"] // 1024, "resident": kib["VmRSS"] // 1024}


@contextlib.contextmanager
def both(
    setting: Setting, directory: Path | None, prepare: Callable[[Path], None] = lambda _: None
) -> Iterator[dict[str, Side]]:
    """Both systems, started one after the other, each with a name server of its own; their stores go with them. What
    `prepare` puts into a store is there when its broker starts.
    """
    with contextlib.ExitStack() as stack:
        store = Path(tempfile.mkdtemp(prefix="bench-", dir=directory))
        stack.callback(shutil.rmtree, store)
        rival_names, our_names = stack.enter_context(JavaNameServer()), stack.enter_context(OrbitNameServer())
        config = dict(setting.config)

        def rival(home: str, **more: Any) -> Broker:
            made = _made(store / home, prepare)
            return JavaBroker(rival_names.address, home=made, jvm=_BROKER_JVM, **{**_DEFAULTS, **config, **more})

        def ours(home: str, **more: Any) -> Broker:
            made = _made(store / home, prepare)
            return OrbitBroker(our_names.address, home=made, **{**_DEFAULTS, **config, **more})

        yield {
            system: stack.enter_context(_started(made, system.split()[0], replicates=setting.replicates))
            for system, made in ((RIVAL, rival), (OURS, ours))
        }


def _made(directory: Path, prepare: Callable[[Path], None]) -> Path:
    directory.mkdir(parents=True)
    prepare(directory / "store")
    return directory


@contextlib.contextmanager
def _started(made: Callable[..., Broker], home: str, *, replicates: bool) -> Iterator[Side]:
    begin = time.monotonic()
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(made(home))
        seconds, slave = time.monotonic() - begin, None
        if replicates:
            slave = stack.enter_context(made(f"{home}-slave", brokerRole="SLAVE", brokerId=1))
        yield Side(broker, seconds, slave)
        for one in filter(None, (broker, slave)):
            one.kill()  # the store is thrown away
