"""Brokers of one name that elect their master, with their agreement store and a name server, as processes.

async with ElectedBrokers() as brokers:
    master = await brokers.master()      # the one that serves
    brokers.brokers[master].kill()
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self, TypeVar

from orbitmq.agreement.etcd import Etcd
from orbitmq.errors import OrbitMQError
from orbitmq.failover.agreed import Agreed
from orbitmq.failover.replica import View
from orbitmq.net.remoting import Remoting
from orbitmq.operations.routes import cluster_info
from orbitmq.operations.statistics import runtime_info
from tests.support.etcd import Etcds
from tests.support.orbit_process import OrbitBroker, OrbitNameServer
from tests.support.process import ChildProcess, accepts

T = TypeVar("T")
NAME, CLUSTER = "elected", "ElectedCluster"
PATIENCE_S = 60.0
LOOK_S = 0.05


class ElectedBroker(OrbitBroker):
    """One of them. It is ready when it takes requests, elected or not."""

    def _is_ready(self, process: ChildProcess) -> bool:
        return accepts(self.port)


class ElectedBrokers:
    """`home` keeps their stores. Broker 0 may be the first master of all."""

    def __init__(self, home: Path, *, replicas: int = 3, members: int = 1, **config: object) -> None:
        self.home = home
        self.etcds = Etcds(members)
        self.namesrv = OrbitNameServer()
        self._replicas = replicas
        self._config = config
        self.brokers: list[ElectedBroker] = []
        self.remoting = Remoting()

    async def __aenter__(self) -> Self:
        self.etcds.__enter__()
        self.namesrv.start()
        endpoints = ",".join(url.removeprefix("http://") for url in self.etcds.urls)
        for number in range(self._replicas):
            broker = ElectedBroker(
                self.namesrv.address, name=NAME, cluster=CLUSTER, store_dir=self.home / f"store-{number}",
                home=self.home / f"home-{number}", agreement=f"etcd://{endpoints}", brokerId=number + 1,
                brokerRole="SLAVE" if number else "ASYNC_MASTER", mappedFileSizeCommitLog=16 << 20,
                mappedFileSizeConsumeQueue=60_000, **self._config,
            )  # fmt: skip
            broker.home.mkdir()
            self.brokers.append(broker.start())
        await self.until_in_sync(self._replicas)
        return self

    async def __aexit__(self, *error: object) -> None:
        for broker in self.brokers:
            broker.kill()
        self.namesrv.__exit__()
        self.etcds.__exit__()
        await self.remoting.close()

    async def _view(self) -> View:
        store = Etcd(self.etcds.urls, CLUSTER, NAME)
        try:
            return await store.read()
        finally:
            await store.stop()

    async def agreed(self) -> Agreed:
        found = (await self._view()).agreed
        assert found is not None, "they have a master by now"
        return found

    async def until_vacant(self) -> None:
        """No one has the lease."""

        async def look() -> bool | None:
            return (await self._view()).holder is None or None

        await until(look, "end of the lease")

    async def runtime(self, number: int) -> dict[str, str]:
        """The runtime table of one that runs, {} of one that does not."""
        with contextlib.suppress(OrbitMQError, OSError):
            return await runtime_info(self.remoting, self.brokers[number].address, timeout_ms=1000)
        return {}

    async def master(self, *, without: int = -1) -> int:
        """The number of the one that serves and is in the routes, which is another one than `without`."""

        async def find() -> int | None:
            found = (await cluster_info(self.remoting, self.namesrv.address)).brokers.get(NAME)
            address = found.addresses.get(0) if found is not None else None
            for number, broker in enumerate(self.brokers):
                if broker.address == address and number != without:
                    return number
            return None

        return await until(find, "a master in the routes")

    async def until_in_sync(self, count: int) -> Agreed:
        async def look() -> Agreed | None:
            with contextlib.suppress(AssertionError):
                found = await self.agreed()
                return found if len(found.in_sync) == count else None
            return None

        return await until(look, f"{count} replicas in sync")


async def until(look: Callable[[], Awaitable[T | None]], what: str, patience_s: float = PATIENCE_S) -> T:
    """What `look` finds; TimeoutError names what it has not found in time."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + patience_s
    while (found := await look()) is None:
        if loop.time() > ends:
            raise TimeoutError(f"no {what} within {patience_s:g} s")
        await asyncio.sleep(LOOK_S)
    return found
