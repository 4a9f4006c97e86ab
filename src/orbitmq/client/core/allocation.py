"""Allocation of queues: strategies that every member of a group computes for itself, with the same result.

All members must see the same sorted queues and client ids; nothing here may depend on locale, hash seeds or order of
arrival. Pure; it does not know where members and queues come from.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from orbitmq.errors import ConfigurationError
from orbitmq.message.model import MessageQueue
from orbitmq.message.shares import average_share, circle_share
from orbitmq.message.topics import RETRY_PREFIX

T = TypeVar("T")

VIRTUAL_NODES = 10  # points of one client on the ring of the consistent hash, as in Java


class AllocateStrategy(Protocol):
    """Every member of a group must use the same strategy and parameters, or queues have two readers or none."""

    @property
    def name(self) -> str:
        """The name of the strategy, as in Java."""

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str], /
    ) -> list[MessageQueue]:
        """The queues of `client_id`, which is one of `client_ids`. Both sequences are sorted and not empty; the queues
        are those of one topic. What this raises is logged, and the member keeps its queues.
        """


def allocate(
    strategy: AllocateStrategy, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """The queues of `client_id`; none when it is not among `client_ids`."""
    members = sorted(client_ids, key=_utf16)
    return strategy.allocate(group, client_id, sorted(queues), members) if client_id in members else []


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")  # Java compares texts by UTF-16 unit


@dataclass(frozen=True, slots=True)
class AllocateAveragely:
    """Adjacent queues in equal parts; the first clients get one more when the number is not divisible."""

    name: str = field(default="AVG", init=False)
    """What Java calls it."""

    def allocate(
        self, _group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """As `AllocateStrategy.allocate`."""
        return average_share(queues, client_ids.index(client_id), len(client_ids))


@dataclass(frozen=True, slots=True)
class AllocateByCircle:
    """Queues in a round robin over the clients."""

    name: str = field(default="AVG_BY_CIRCLE", init=False)
    """What Java calls it."""

    def allocate(
        self, _group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """As `AllocateStrategy.allocate`."""
        return circle_share(queues, client_ids.index(client_id), len(client_ids))


@dataclass(frozen=True, slots=True)
class AllocateByConfig:
    """This member reads the configured queues, whatever other members there are.

    The retry topic of the group is shared averagely unless one of its queues is listed, so that failed messages are
    delivered again. (Java's members do not read it.)
    """

    queues: Collection[MessageQueue]
    name: str = field(default="CONFIG", init=False)
    """What Java calls it."""

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """As `AllocateStrategy.allocate`."""
        topic = queues[0].topic
        listed = sorted(queue for queue in set(self.queues) if queue.topic == topic)
        if not listed and topic.startswith(RETRY_PREFIX):
            return AllocateAveragely().allocate(group, client_id, queues, client_ids)
        return listed


@dataclass(frozen=True, slots=True)
class AllocateByMachineRoom:
    """Only queues of the `rooms`: those of brokers named `room@broker`. Adjacent queues in equal parts; the remainder,
    at the end, goes to the first clients.
    """

    rooms: Collection[str]
    name: str = field(default="MACHINE_ROOM", init=False)
    """What Java calls it."""

    def allocate(
        self, _group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """As `AllocateStrategy.allocate`."""
        near = [queue for queue in queues if self._has(queue)]
        own = client_ids.index(client_id)
        share, left_over = divmod(len(near), len(client_ids))
        dealt = [near[own + share * len(client_ids)]] if own < left_over else []
        return near[own * share : (own + 1) * share] + dealt

    def _has(self, queue: MessageQueue) -> bool:
        room, *rest = queue.broker_name.split("@")
        return len(rest) == 1 and room in self.rooms


@dataclass(frozen=True, slots=True)
class AllocateMachineRoomNearby:
    """Queues go to the clients of their room, by the `inner` strategy; queues of a room without clients go to all.

    `queue_room` and `client_room` return the room of a queue and of a client id; an empty one is a ConfigurationError,
    which is logged, and the member keeps its queues. A client whose room has no queues gets none, as in Java, unless
    `fallback_to_all`: then it takes part in every room.
    """

    inner: AllocateStrategy
    queue_room: Callable[[MessageQueue], str]
    client_room: Callable[[str], str]
    fallback_to_all: bool = False

    @property
    def name(self) -> str:
        """What Java calls it."""
        return f"MACHINE_ROOM_NEARBY-{self.inner.name}"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """As `AllocateStrategy.allocate`."""
        queues_of = _by_room(queues, self.queue_room)
        clients_of = _by_room(client_ids, self.client_room)
        guests = [one for room, ids in clients_of.items() if room not in queues_of for one in ids]
        own: list[MessageQueue] = []
        for room in self._own_room_first(client_id, queues_of):
            hosts = clients_of.get(room, [])
            taking = {*hosts, *(guests if self.fallback_to_all else ())} if hosts else set(client_ids)
            members = [one for one in client_ids if one in taking]
            if client_id in members:
                own += self.inner.allocate(group, client_id, queues_of[room], members)
        return own

    def _own_room_first(self, client_id: str, rooms: Iterable[str]) -> list[str]:
        mine = self.client_room(client_id)
        return sorted(rooms, key=lambda room: (room != mine, _utf16(room)))


def _by_room(things: Iterable[T], room_of: Callable[[T], str]) -> dict[str, list[T]]:
    rooms: defaultdict[str, list[T]] = defaultdict(list)
    for thing in things:
        room = room_of(thing)
        if not room:
            raise ConfigurationError(f"the machine room of {thing} is unknown")
        rooms[room].append(thing)
    return rooms


def ring_hash(text: str) -> int:
    """The first four bytes of the text's MD5, as in Java."""
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


@dataclass(frozen=True, slots=True)
class AllocateConsistentHash:
    """Each queue belongs to the next client on a hash ring: few queues move when a member joins or leaves.

    A client has `virtual_nodes` points on the ring; with 0 no client gets a queue. ConfigurationError for less.
    `hash_of` returns the position of a text on the ring.
    """

    virtual_nodes: int = VIRTUAL_NODES
    hash_of: Callable[[str], int] = ring_hash
    name: str = field(default="CONSISTENT_HASH", init=False)
    """What Java calls it."""

    def __post_init__(self) -> None:
        if self.virtual_nodes < 0:
            raise ConfigurationError(f"virtual_nodes {self.virtual_nodes} is not allowed; use 0 or more")

    def allocate(
        self, _group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """As `AllocateStrategy.allocate`."""
        nodes = range(self.virtual_nodes)
        ring = {self.hash_of(f"{member}-{node}"): member for member in client_ids for node in nodes}
        points = sorted(ring)
        if not points:
            return []

        def owner(queue: MessageQueue) -> str:
            text = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
            return ring[points[bisect_left(points, self.hash_of(text)) % len(points)]]

        return [queue for queue in queues if owner(queue) == client_id]
