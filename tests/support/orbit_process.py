"""orbitmq started from its command line, with the same face as the Java daemons of `java_rocketmq`.

Tests that hold for both systems take either. Knows the command line and nothing of orbitmq's modules.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.process import ChildProcess, Daemon, accepts, free_port, write_properties
from tests.support.registration import is_registered

ORBITMQ = Path(sys.executable).with_name("orbitmq")


def form_started() -> str:
    """The form of the brokers that are started here, for reports. They run in directories of their own, where a
    relative PYTHONPATH leads nowhere.
    """
    printed = subprocess.run([ORBITMQ, "--version"], capture_output=True, text=True, check=True, cwd="/").stdout
    return "compiled, as it is installed" if "(compiled)" in printed else "interpreted"


def _broker_properties(broker: OrbitBroker | OrbitUp, config: dict[str, object]) -> dict[str, object]:
    return {
        "brokerClusterName": broker.cluster,
        "brokerName": broker.name,
        "brokerId": 0,
        "brokerIP1": "127.0.0.1",
        "listenPort": broker.port,
        "waitTimeMillsInSendQueue": 30_000,  # a busy test machine must not make it refuse what waited a little
        "waitTimeMillsInPullQueue": 30_000,
        "waitTimeMillsInTransactionQueue": 30_000,
        "osPageCacheBusyTimeOutMills": 30_000,  # nor its disk
        "storePathRootDir": broker.store_dir,
        "storePathCommitLog": broker.store_dir / "commitlog",
        "autoCreateTopicEnable": "true",
        **config,
    }


def _launch(daemon: Daemon, *arguments: object, program: Sequence[object] = (ORBITMQ,)) -> ChildProcess:
    output = daemon.home / f"{type(daemon).__name__}.out"
    return ChildProcess([*map(str, program), *map(str, arguments)], output=output, cwd=daemon.home)


class OrbitNameServer(Daemon):
    """`orbitmq namesrv`."""

    def __init__(self, *, port: int | None = None, home: Path | None = None, **config: object) -> None:
        super().__init__(port or free_port(), home)
        self._config = config

    def _launch(self) -> ChildProcess:
        properties = {"kvConfigPath": self.home / "kvConfig.json", **self._config}  # by default all would share one
        path = write_properties(self.home / "namesrv.conf", properties)
        return _launch(self, "namesrv", "-c", path, "--port", self.port)

    def _is_ready(self, process: ChildProcess) -> bool:
        return accepts(self.port)


class OrbitBroker(Daemon):
    """`orbitmq broker` registered at `namesrv`, several separated by `;`; keyword arguments are keys of its properties
    file.
    """

    def __init__(
        self,
        namesrv: str,
        *,
        name: str = "broker-a",
        cluster: str = "DefaultCluster",
        store_dir: Path | None = None,
        home: Path | None = None,
        **config: object,
    ) -> None:
        super().__init__(free_port(-2, 1), home, throw_away=store_dir is None)
        self.namesrv_address = namesrv
        self.name = name
        self.cluster = cluster
        self.store_dir = store_dir or self.home / "store"
        self._config = config

    def _launch(self) -> ChildProcess:
        path = write_properties(self.home / "broker.conf", _broker_properties(self, self._config))
        return _launch(self, "broker", "-c", path, "-n", self.namesrv_address)

    def _is_ready(self, process: ChildProcess) -> bool:
        addresses = self.namesrv_address.split(";")
        return accepts(self.port) and all(is_registered(address, self.name) for address in addresses)


class OrbitUp(Daemon):
    """`orbitmq up`: name server and broker in one process; keyword arguments as for OrbitBroker.

    `program` is what stands for `orbitmq` in the command line, `more_arguments` are further words of it.
    """

    program: Sequence[object] = (ORBITMQ,)
    more_arguments: Sequence[object] = ()

    def __init__(
        self,
        *,
        name: str = "broker-a",
        cluster: str = "DefaultCluster",
        store_dir: Path | None = None,
        home: Path | None = None,
        **config: object,
    ) -> None:
        super().__init__(free_port(-2, 1), home, throw_away=store_dir is None)
        self.name = name
        self.cluster = cluster
        self.store_dir = store_dir or self.home / "store"
        self._namesrv_port = free_port()
        self.namesrv_address = f"127.0.0.1:{self._namesrv_port}"
        self._config = config

    def _launch(self) -> ChildProcess:
        path = write_properties(self.home / "broker.conf", _broker_properties(self, self._config))
        ports = ("--namesrv-port", self._namesrv_port, "--broker-port", self.port)
        words = ("up", "--data-dir", self.home, *ports, "-c", path, *self.more_arguments)
        return _launch(self, *words, program=self.program)

    def _is_ready(self, process: ChildProcess) -> bool:
        return accepts(self.port) and is_registered(self.namesrv_address, self.name)


class OrbitProxy(Daemon):
    """`orbitmq proxy` in front of the cluster of `namesrv`; keyword arguments as for OrbitBroker."""

    def __init__(self, namesrv: str, **config: object) -> None:
        super().__init__(free_port(), None)
        self.namesrv_address = namesrv
        self._config = config

    def _launch(self) -> ChildProcess:
        path = write_properties(self.home / "proxy.conf", self._config)
        return _launch(self, "proxy", "-c", path, "-n", self.namesrv_address, "--port", self.port)

    def _is_ready(self, process: ChildProcess) -> bool:
        return accepts(self.port)
