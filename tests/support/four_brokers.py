"""One cluster of two Java brokers and two of orbitmq, registered at a name server of either kind.

Brokers can be frozen, thawed, killed and started again. Knows nothing of what is sent.
"""

from __future__ import annotations

import asyncio
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Self

from orbitmq.client.sync import Producer
from orbitmq.operations.routes import route
from tests.support.java_rocketmq import JavaBroker, JavaNameServer
from tests.support.orbit_process import OrbitBroker, OrbitNameServer
from tests.support.peers import remoting
from tests.support.process import wait_until
from tests.support.registration import is_registered

JAVAS, OURS = ("java-a", "java-b"), ("orbitmq-a", "orbitmq-b")
NAMES = (*JAVAS, *OURS)
QUEUES = 4
_PATIENCE_S = 60


class FourBrokers:
    """The running cluster. `name_servers` has the address of each kind's name server, Java's first."""

    def __init__(self) -> None:
        self._servers = (JavaNameServer(), OrbitNameServer())
        self.name_servers = tuple(server.address for server in self._servers)
        both = ";".join(self.name_servers)
        self.brokers: dict[str, JavaBroker | OrbitBroker] = {
            **{name: JavaBroker(both, name=name) for name in JAVAS},
            **{name: OrbitBroker(both, name=name) for name in OURS},
        }
        self._stack = ExitStack()

    def freeze(self, name: str) -> None:
        """It stops working and keeps its connections, as a machine does that hangs."""
        self._signal(name, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self._signal(name, signal.SIGCONT)

    def _signal(self, name: str, number: signal.Signals) -> None:
        process = self.brokers[name].process
        assert process is not None, f"{name} runs"
        process.signal(number)

    def kill(self, name: str) -> None:
        self.brokers[name].kill()

    def start(self, name: str) -> None:
        """Return when both name servers know it."""
        self.brokers[name].start()
        self._wait_for(name)

    def create(self, topic: str) -> None:
        """A topic on all four of them; return when both name servers have the whole route."""
        with Producer("creators", self.name_servers[0]) as producer:
            producer.create_topic(topic, queues=QUEUES, template="TBW102")
        for address in self.name_servers:
            wait_until(
                lambda address=address: len(asyncio.run(_brokers_of(address, topic))) == len(NAMES),
                _PATIENCE_S,
                f"every broker in the route of {topic}",
            )

    def _wait_for(self, name: str) -> None:
        for address in self.name_servers:
            wait_until(lambda address=address: is_registered(address, name), _PATIENCE_S, f"{name} at {address}")

    def __enter__(self) -> Self:
        with ThreadPoolExecutor() as beside:
            for group in (self._servers, tuple(self.brokers.values())):
                for server in group:
                    self._stack.push(server)
                list(beside.map(lambda server: server.start(), group))
        for name in NAMES:
            self._wait_for(name)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()


async def _brokers_of(name_server: str, topic: str) -> list[str]:
    async with remoting() as asking:
        found = await route(asking, name_server, topic)
    return [queues.broker_name for queues in found.queue_datas] if found else []
