"""Who consumes which queue: the strategies every member of a group computes for itself, with the same result.

All members must see the same sorted queues and client ids; nothing here may depend on locale, hash seeds or order of
arrival. Pure; it must not know how members and queues were found out.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from orbitmq.message.model import MessageQueue

Allocate: TypeAlias = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]
"""(own client id, sorted queues, sorted client ids) -> own queues. The own id is one of the client ids."""

VIRTUAL_NODES = 10  # points of one client on the ring of the consistent hash, as in Java


def allocate(
    strategy: Allocate, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """The queues of `client_id`; none when it is not among `client_ids`."""
    members = sorted(client_ids, key=_utf16)
    return strategy(client_id, sorted(queues), members) if client_id in members else []


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")  # Java compares texts by UTF-16 unit


def averagely(client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
    """Neighbouring queues in equal parts; the first clients take one more when it does not come out even."""
    own = client_ids.index(client_id)
    share, left_over = divmod(len(queues), len(client_ids))
    start = own * share + min(own, left_over)
    return list(queues[start : start + share + (own < left_over)])


def by_circle(client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
    """Queues dealt out like cards."""
    return list(queues[client_ids.index(client_id) :: len(client_ids)])


def by_consistent_hash(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str], virtual_nodes: int = VIRTUAL_NODES
) -> list[MessageQueue]:
    """Each queue belongs to the next client on a ring of hashes: few queues move when a member joins or leaves."""
    ring = {_ring_hash(f"{member}-{node}"): member for member in client_ids for node in range(virtual_nodes)}
    points = sorted(ring)
    if not points:
        return []

    def owner(queue: MessageQueue) -> str:
        text = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
        return ring[points[bisect_left(points, _ring_hash(text)) % len(points)]]

    return [queue for queue in queues if owner(queue) == client_id]


def _ring_hash(text: str) -> int:
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


STRATEGIES: Mapping[str, Allocate] = {
    "AVG": averagely,
    "AVG_BY_CIRCLE": by_circle,
    "CONSISTENT_HASH": by_consistent_hash,
}
"""The strategies a name is enough for, under the names Java members report."""
