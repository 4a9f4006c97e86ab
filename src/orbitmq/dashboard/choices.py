"""The brokers that a request names: only registered ones are contacted, even if the request has another address.

Must not know the requests that are sent to them.
"""

from __future__ import annotations

from collections.abc import Iterable

from orbitmq.admin.session import Node, Session, nearest, present
from orbitmq.errors import BadField, NotFound


async def registered(session: Session, text: str) -> Node:
    """The broker of this name (its master, else a slave), `name:id` or address. NotFound for an unregistered one,
    because a link must not make the page connect elsewhere. BrokerAway for one that is missing."""
    nodes = await session.nodes()
    for node in sorted(nodes, key=lambda one: one.is_away):
        if text in (node.name, f"{node.name}:{node.id}", node.address):
            return present(node)
    raise NotFound(f"there is no broker {text}", nearest(text, {node.name for node in nodes}))


async def registered_names(session: Session, texts: Iterable[str]) -> list[str]:
    """These broker names. BadField for one that is not registered."""
    known = {node.name for node in await session.nodes()}
    names = list(texts)
    for name in names:
        if name not in known:
            raise BadField(f"broker is {name!r}; use one of {', '.join(sorted(known))}")
    return names
