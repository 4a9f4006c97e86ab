"""Brokers that take changes, and those that have lost their master: what is asked of all masters misses their part.

Must not know what is asked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from orbitmq.admin.results import Failure, Gathered
from orbitmq.admin.session import Node, Session
from orbitmq.errors import Conflict

T = TypeVar("T")


def lost(name: str) -> Failure:
    """The master of this broker name is away. Its slave is not asked instead: it may lack the newest changes."""
    hint = "start its master, or promote a slave: orbitmq cluster list"
    return Failure(name, None, "UNREACHABLE", "it has no master now", hint, retryable=True)


async def each_master(session: Session, question: Callable[[Node], Awaitable[T]]) -> Gathered[Node, T]:
    """What every master answers; a broker name without one is a failure, as a master is that does not answer."""
    gathered = await session.each_node(await session.masters(), question)
    gathered.failures += [lost(name) for name in await session.headless()]
    return gathered


async def untouched(session: Session, brokers: Collection[str] = ()) -> list[str]:
    """Warnings of a change at all masters, `brokers` not being named: a master that returns brings back what it had."""
    names = [] if brokers else await session.headless()
    return [f"{name} has no master now: nothing is changed there" for name in names]


def only_masters(nodes: Collection[Node], what: str) -> None:
    """Conflict for a slave: it takes `what` from its master, and loses what it is told by others."""
    if slaves := [str(node) for node in nodes if not node.is_master]:
        raise Conflict(f"{slaves[0]} is a slave: it takes its {what} from its master")
