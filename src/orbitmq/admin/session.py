"""One administrator's session with one cluster: its name servers, its brokers, and the limit of concurrent requests.

Knows addresses and failures; the requests are in the modules of each noun.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar, cast

from orbitmq.admin.envelope import rfc3339
from orbitmq.admin.memory import Memory, Remembered
from orbitmq.admin.results import Failure, Gathered, failure_of
from orbitmq.errors import BrokerAway, NoNameServer, NotFound, OrbitMQError, RemotingError
from orbitmq.message.model import MASTER_ID
from orbitmq.net.remoting import Remoting
from orbitmq.operations.routes import cluster_info, route, topics
from orbitmq.wire.bodies import ClusterInfo, TopicRouteData

P = ParamSpec("P")
T = TypeVar("T")
K = TypeVar("K")

TIMEOUT_MS = 5000.0
"""Timeout of a request. The stock tool waits 20 s, longer than anyone watches a terminal."""
IN_FLIGHT_MAX = 16
"""Limit of requests in flight: administration must not slow brokers down."""
_holds_slot: ContextVar[bool] = ContextVar("holds_slot", default=False)
"""Whether the task has one of the places."""


@dataclass(frozen=True, slots=True, order=True)
class Node:
    """One broker: master when `id` is 0, else a slave of that name."""

    cluster: str
    name: str
    id: int
    address: str
    seen_at_ms: int | None = field(default=None, compare=False)
    """When it was registered last, of one that no name server knows any more; None of one that is registered."""
    stands_in: bool = field(default=False, compare=False)
    """A slave that stands in for its missing master: it may lack the newest data."""

    def __str__(self) -> str:
        return f"{self.name} ({self.address})" if self.is_master else f"{self.name}:{self.id} ({self.address})"

    @property
    def is_master(self) -> bool:
        return self.id == MASTER_ID

    @property
    def is_away(self) -> bool:
        """Whether no name server knows it any more."""
        return self.seen_at_ms is not None


class Session:
    """Responses of name servers are requested once and kept: a session is one query, not a watch.

    `cluster` restricts it to one of the known clusters. `timeout_ms` holds for each request. With a `memory`, brokers
    that it knows and that are no longer registered appear in every result as failures, so that a broker that dies makes
    no sum smaller.
    """

    def __init__(
        self,
        remoting: Remoting,
        name_servers: Sequence[str],
        *,
        cluster: str | None = None,
        timeout_ms: float = TIMEOUT_MS,
        memory: Memory | None = None,
    ) -> None:
        self.remoting = remoting
        self.name_servers = tuple(name_servers)
        self.cluster = cluster
        self.timeout_ms = timeout_ms
        self.memory = memory
        self._info: ClusterInfo | None = None
        self._away: list[Node] = []
        self._slots = asyncio.Semaphore(IN_FLIGHT_MAX)

    async def request(
        self,
        operation: Callable[Concatenate[Remoting, str, P], Awaitable[T]],
        node: Node | str,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Await `operation` for a broker, or for an address, within the time limit of the session."""
        address = node.address if isinstance(node, Node) else node
        limited = cast("Callable[..., Awaitable[T]]", operation)  # each of them has a keyword `timeout_ms`
        return await limited(self.remoting, address, *args, **{"timeout_ms": self.timeout_ms, **kwargs})

    async def any_name_server(self, operation: Callable[[str], Awaitable[T]]) -> T:
        """The first response, in the order given. NoNameServer if none can be reached."""
        tried: list[str] = []
        for address in self.name_servers:
            try:
                return await operation(address)
            except RemotingError as error:
                tried.append(str(error) if address in str(error) else f"{address}: {error}")
        raise NoNameServer(f"no name server responds ({'; '.join(tried)})")

    async def every_name_server(self, operation: Callable[[str], Awaitable[T]]) -> Gathered[str, T]:
        """Name servers do not know each other: what is changed is changed at each of them."""
        return await self.each({address: address for address in self.name_servers}, operation)

    async def info(self) -> ClusterInfo:
        """Every broker that is registered, kept from the first time."""
        if self._info is None:
            found = await self.any_name_server(partial(self.request, cluster_info))
            if self.memory is not None:
                here = [Remembered(one.cluster, one.name, one.id, one.address) for one in _registered(found)]
                away = await self.memory.look(here)
                self._away = [Node(one.cluster, one.name, one.id, one.address, one.seen_at_ms) for one in away]
            self._info = found
        return self._info

    def forget(self) -> None:
        """Query the name servers again next time."""
        self._info = None

    async def registered(self) -> list[Node]:
        """The brokers that name servers know, in the order of their names. NotFound for an unknown cluster."""
        return [node for node in await self.nodes() if not node.is_away]

    async def nodes(self) -> list[Node]:
        """These and the missed ones, so that results say what is lacking."""
        info = await self.info()
        found = [*_registered(info), *self._away]
        clusters = {*info.clusters, *(node.cluster for node in self._away)}
        if self.cluster is not None and self.cluster not in clusters:
            raise NotFound(f"there is no cluster {self.cluster}", nearest(self.cluster, clusters))
        return sorted(node for node in found if self.cluster in (None, node.cluster))

    async def masters(self) -> list[Node]:
        """The brokers that take changes. `headless` has the broker names without a master."""
        return [node for node in await self.registered() if node.is_master]

    async def readable(self) -> list[Node]:
        """One node of each broker name for queries about its data: the master, or a slave that stands in for it."""
        return _chosen(await self.nodes())

    async def headless(self) -> list[str]:
        """Broker names without a master."""
        return [node.name for node in await self.readable() if node.is_away or not node.is_master]

    async def absent(self, topic: str | None = None) -> list[Failure]:
        """What the name servers' responses lack: missed brokers; for a topic, those that may have queues of it."""
        nodes = await self.readable() if topic is None else await self.homes(topic)
        return [failure_of(str(node), away(node)) for node in nodes if node.is_away]

    async def node(self, name_or_address: str) -> Node:
        """The broker of this name (its master, else a slave), `name:id` or address. NotFound suggests the nearest name,
        BrokerAway is raised for one that is missed.

        An unregistered address is used as it is: you can query a broker that no name server knows.
        """
        known = await self.nodes()
        for node in (*(one for one in known if not one.is_away), *(one for one in known if one.is_away)):
            if name_or_address in (node.name, f"{node.name}:{node.id}"):
                if node.is_away:
                    raise away(node, f"{node}: ")
                return node
            if name_or_address == node.address and not node.is_away:
                return node
        if _is_address(name_or_address):
            return Node(self.cluster or "", name_or_address, MASTER_ID, name_or_address)
        names = {node.name for node in known}
        raise NotFound(f"there is no broker {name_or_address}", nearest(name_or_address, names))

    async def route(self, topic: str) -> TopicRouteData:
        """The topic's nodes in the cluster. NotFound if no name server has it, BrokerAway if a missed broker may."""
        found = await self._route(topic)
        if found is None:
            if missed := await self._missed():
                text = f"there is no topic {topic} on brokers that are registered, and {missed[0]} may have it: "
                raise away(missed[0], text)
            raise await self.unknown_topic(topic)
        return found

    async def homes(self, topic: str) -> list[Node]:
        """One readable node for each broker name that the topic has queues on, and the missed brokers of its clusters,
        which may have some, too. NotFound if the topic is unknown and no broker is missed.
        """
        found = await self._route(topic)
        missed = await self._missed()
        if found is None:
            if not missed:
                raise await self.unknown_topic(topic)
            return _chosen(missed)
        names = {queues.broker_name for queues in found.queue_datas}
        homes = [
            Node(broker.cluster, broker.broker_name, number, address)
            for broker in found.broker_datas
            for number, address in broker.addresses.items()
            if broker.broker_name in names and self.cluster in (None, broker.cluster)
        ]
        clusters = {node.cluster for node in homes}
        return _chosen(sorted([*homes, *(node for node in missed if node.cluster in clusters)]))

    async def unknown_topic(self, topic: str) -> NotFound:
        """The error for a topic that no name server has, with the names most like it. Takes one request."""
        names = await self.any_name_server(partial(self.request, topics))
        return NotFound(f"there is no topic {topic}", nearest(topic, names) or "`orbitmq topic list` shows the topics")

    async def _route(self, topic: str) -> TopicRouteData | None:
        return await self.any_name_server(lambda address: self.request(route, address, topic))

    async def _missed(self) -> list[Node]:
        """Brokers that are away, and no other one of their name is there. Takes no request if nothing is remembered."""
        if self.memory is None:
            return []
        return [node for node in await self.readable() if node.is_away]

    async def each(self, targets: Mapping[K, object], operation: Callable[[K], Awaitable[T]]) -> Gathered[K, T]:
        """Send a request for each key of `targets`; its value names it in failures, which hide no response."""

        # An operation that sends further requests keeps its slot: those use other slots, else all would wait forever.
        places = asyncio.Semaphore(IN_FLIGHT_MAX) if _holds_slot.get() else self._slots

        async def one(key: K) -> T:
            async with places:
                _holds_slot.set(True)  # in this task, and in those it begins
                return await operation(key)

        came = await asyncio.gather(*map(one, targets), return_exceptions=True)
        gathered: Gathered[K, T] = Gathered()
        for (key, name), result in zip(targets.items(), came, strict=True):
            if isinstance(result, OrbitMQError):
                gathered.failures.append(failure_of(str(name), result))
            elif isinstance(result, BaseException):
                raise result
            else:
                gathered.responses[key] = result
        return gathered

    async def each_node(
        self, nodes: Sequence[Node], operation: Callable[[Node], Awaitable[T]], *, slaves_suffice: bool = False
    ) -> Gathered[Node, T]:
        """Send a request to each node. A broker that is away is a failure. The response of a slave that stands in for
        its master counts as partial, unless a slave knows as much of the subject.
        """
        gathered = await self.each({node: node for node in nodes}, lambda node: operation(present(node)))
        if not slaves_suffice:
            gathered.failures += [slave_only(node) for node in gathered.responses if node.stands_in]
        return gathered


def present(node: Node) -> Node:
    """The node. BrokerAway if it is missed."""
    if node.is_away:
        raise away(node)
    return node


def away(node: Node, before: str = "") -> BrokerAway:
    """The failure of a missed broker, after the text `before`."""
    name = node.name if node.is_master else f"{node.name}:{node.id}"
    return BrokerAway(
        f"{before}no name server knows it any more; it was registered at {rfc3339(node.seen_at_ms or 0)}",
        f"start it again; if it was removed for good: orbitmq cluster forget {name}",
    )


def slave_only(node: Node) -> Failure:
    hint = "start its master, or promote a slave: orbitmq cluster list"
    text = f"its master is away; this is what {node} has, which may lack the newest"
    return Failure(node.name, None, "UNREACHABLE", text, hint, retryable=True)


def _registered(info: ClusterInfo) -> list[Node]:
    return [
        Node(broker.cluster, name, number, address)
        for name, broker in info.brokers.items()
        for number, address in broker.addresses.items()
    ]


def _chosen(nodes: Iterable[Node]) -> list[Node]:
    """Of each broker name the one to be read: those that are there first, and of these the master."""
    found: dict[str, Node] = {}
    for node in sorted(nodes, key=lambda one: (one.is_away, one)):
        found.setdefault(node.name, node)
    return sorted(node if node.is_away or node.is_master else replace(node, stands_in=True) for node in found.values())


def nearest(name: str, known: Iterable[str]) -> str | None:
    """A hint with the names most like `name`, whatever their case; None when none is."""
    lower = {one.lower(): one for one in known}
    close = [lower[one] for one in get_close_matches(name.lower(), list(lower), n=3, cutoff=0.6)]
    return f"did you mean {', '.join(close)}?" if close else None


def _is_address(text: str) -> bool:
    host, colon, port = text.rpartition(":")
    return bool(colon and host and port.isdigit())
