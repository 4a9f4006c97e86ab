"""Masters, which accept changes, and broker names without a master, which results from all masters do not cover.

Independent of the kind of request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from orbitmq.admin.results import Failure, Gathered
from orbitmq.admin.session import Node, Session
from orbitmq.errors import Conflict

T = TypeVar("T")


def lost(name: str) -> Failure:
    """The master of this broker name does not respond. Its slave is no substitute: it may lack the newest changes."""
    hint = "start its master, or promote a slave: orbitmq cluster list"
    return Failure(name, None, "UNREACHABLE", "it has no master now", hint, retryable=True)


async def each_master(session: Session, request: Callable[[Node], Awaitable[T]]) -> Gathered[Node, T]:
    """The response of each master. A broker name without a master is a failure, like a master that does not respond."""
    gathered = await session.each_node(await session.masters(), request)
    gathered.failures += [lost(name) for name in await session.headless()]
    return gathered


async def untouched(session: Session, brokers: Collection[str] = ()) -> list[str]:
    """Warnings of a change at all masters if `brokers` are not named: a master that returns has its old state."""
    names = [] if brokers else await session.headless()
    return [f"{name} has no master now: nothing is changed there" for name in names]


def only_masters(nodes: Collection[Node], what: str) -> None:
    """Conflict for a slave: it takes `what` from its master, and would lose changes from others."""
    if slaves := [str(node) for node in nodes if not node.is_master]:
        raise Conflict(f"{slaves[0]} is a slave: it copies its {what} from its master")
