"""One administrator's look at one cluster: its name servers, its brokers, and how many are asked at the same time.

Knows addresses and failures; what is asked stands with the nouns beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TypeVar

from orbitmq.admin.answers import Gathered, failure_of
from orbitmq.errors import AdminError, NoNameServer, NotFound, OrbitMQError, RemotingError
from orbitmq.message.model import MASTER_ID
from orbitmq.net.remoting import Remoting
from orbitmq.operations.routes import cluster_info, route
from orbitmq.wire.bodies import ClusterInfo, TopicRouteData

T = TypeVar("T")
K = TypeVar("K")

TIMEOUT_MS = 5000.0
"""What a node is given for an answer; the stock tool waits 20 s, longer than anyone looks at a terminal."""
ASKED_AT_ONCE = 16
"""So many questions are under way at a time: an administrator's look must not be felt by the brokers."""
_asks: ContextVar[bool] = ContextVar("asks", default=False)
"""Whether the task has one of the places."""


@dataclass(frozen=True, slots=True, order=True)
class Node:
    """One broker: master when `id` is 0, else a slave of that name."""

    cluster: str
    name: str
    id: int
    address: str

    def __str__(self) -> str:
        return f"{self.name} ({self.address})" if self.is_master else f"{self.name}:{self.id} ({self.address})"

    @property
    def is_master(self) -> bool:
        return self.id == MASTER_ID


class Session:
    """What the name servers say is asked once and kept: a session is one look, not a watch.

    `cluster` narrows it to one of the clusters they know. `timeout_ms` holds for each request.
    """

    def __init__(
        self,
        remoting: Remoting,
        name_servers: Sequence[str],
        *,
        cluster: str | None = None,
        timeout_ms: float = TIMEOUT_MS,
    ) -> None:
        self.remoting = remoting
        self.name_servers = tuple(name_servers)
        self.cluster = cluster
        self.timeout_ms = timeout_ms
        self._info: ClusterInfo | None = None
        self._asking = asyncio.Semaphore(ASKED_AT_ONCE)

    async def any_name_server(self, question: Callable[[str], Awaitable[T]]) -> T:
        """The first answer, asked in the order given. NoNameServer when none can be reached."""
        tried: list[str] = []
        for address in self.name_servers:
            try:
                return await question(address)
            except RemotingError as error:
                tried.append(f"{address}: {error}")
        raise NoNameServer(f"no name server answers ({'; '.join(tried)})")

    async def every_name_server(self, question: Callable[[str], Awaitable[T]]) -> Gathered[str, T]:
        """Name servers do not know each other: what is changed is changed at each of them."""
        return await self.each({address: address for address in self.name_servers}, question)

    async def info(self) -> ClusterInfo:
        """Every broker that is registered, kept from the first time."""
        if self._info is None:
            self._info = await self.any_name_server(
                lambda address: cluster_info(self.remoting, address, timeout_ms=self.timeout_ms)
            )
        return self._info

    def forget(self) -> None:
        """Ask the name servers anew next time."""
        self._info = None

    async def nodes(self, *, masters: bool = False) -> list[Node]:
        """The registered brokers in the order of their names. NotFound for a cluster no name server knows."""
        info = await self.info()
        if self.cluster is not None and self.cluster not in info.clusters:
            raise NotFound(f"there is no cluster {self.cluster}", nearest(self.cluster, info.clusters))
        found = [
            Node(broker.cluster, name, number, address)
            for name, broker in info.brokers.items()
            for number, address in broker.addresses.items()
            if self.cluster is None or broker.cluster == self.cluster
        ]
        return sorted(node for node in found if node.is_master or not masters)

    async def masters(self) -> list[Node]:
        """Whoever takes changes. Broker names that have lost their master are not in it: `headless` tells them."""
        return await self.nodes(masters=True)

    async def readable(self) -> list[Node]:
        """One node of each broker name to be asked about its data: the master, or its first slave when it has none."""
        chosen: dict[str, Node] = {}
        for node in await self.nodes():
            chosen.setdefault(node.name, node)
        return list(chosen.values())

    async def headless(self) -> list[str]:
        """Broker names without a master."""
        return [node.name for node in await self.readable() if not node.is_master]

    async def node(self, name_or_address: str) -> Node:
        """The broker of this name (its master, else a slave), `name:id` or address. NotFound names the nearest.

        An address nobody has registered is taken as it is: brokers can be asked that no name server knows.
        """
        known = await self.nodes()
        for node in known:
            if name_or_address in (node.address, node.name, f"{node.name}:{node.id}"):
                return node
        if _is_address(name_or_address):
            return Node(self.cluster or "", name_or_address, MASTER_ID, name_or_address)
        names = {node.name for node in known}
        raise NotFound(f"there is no broker {name_or_address}", nearest(name_or_address, names))

    async def route(self, topic: str) -> TopicRouteData:
        """Where a topic lives, within the cluster. NotFound with the nearest names when no name server knows it."""
        found = await self.any_name_server(
            lambda address: route(self.remoting, address, topic, timeout_ms=self.timeout_ms)
        )
        if found is None:
            raise NotFound(f"there is no topic {topic}", f"orbitmq topic list; or orbitmq topic create {topic}")
        return found

    async def homes(self, topic: str) -> list[Node]:
        """One readable node for each broker name the topic has queues on."""
        found = await self.route(topic)
        names = {queues.broker_name for queues in found.queue_datas}
        homes = [
            Node(broker.cluster, broker.broker_name, *min(broker.addresses.items()))
            for broker in found.broker_datas
            if broker.broker_name in names and broker.addresses and self.cluster in (None, broker.cluster)
        ]
        return sorted(homes)

    async def each(self, targets: Mapping[K, object], question: Callable[[K], Awaitable[T]]) -> Gathered[K, T]:
        """Ask about each key of `targets`; its value is how a failure names it. No failure hides another's answer."""

        # A question that asks further ones holds its place meanwhile: theirs are others, or nobody would get on.
        places = asyncio.Semaphore(ASKED_AT_ONCE) if _asks.get() else self._asking

        async def one(key: K) -> T:
            async with places:
                _asks.set(True)  # in this task, and in those it begins
                return await question(key)

        came = await asyncio.gather(*map(one, targets), return_exceptions=True)
        gathered: Gathered[K, T] = Gathered()
        for (key, name), answer in zip(targets.items(), came, strict=True):
            if isinstance(answer, OrbitMQError):
                gathered.failures.append(failure_of(str(name), answer))
            elif isinstance(answer, BaseException):
                raise answer
            else:
                gathered.answers[key] = answer
        return gathered

    async def each_node(self, nodes: Sequence[Node], question: Callable[[Node], Awaitable[T]]) -> Gathered[Node, T]:
        return await self.each({node: node for node in nodes}, question)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """A hint with the names most like `name`, None when none is."""
    close = get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f"did you mean {', '.join(close)}?" if close else None


def _is_address(text: str) -> bool:
    host, colon, port = text.rpartition(":")
    return bool(colon and host and port.isdigit())


def needs_name_servers(addresses: Sequence[str]) -> None:
    """AdminError when there is none to ask."""
    if not addresses:
        raise AdminError("no name server is given", "-n 127.0.0.1:9876, NAMESRV_ADDR, or `orbitmq context add`")
