"""Waiting until something is so: a topic is there, a group has caught up, a broker is back. Must not know who waits."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from glob import escape

from msgspec import Struct

from orbitmq.admin import cluster, groups, messages
from orbitmq.admin.clients import membership, unknown_group
from orbitmq.admin.results import Result, failure_of
from orbitmq.admin.session import Session
from orbitmq.errors import AdminError, ConfigurationError, OrbitMQError
from orbitmq.operations.routes import route

EVERY_SECONDS = 0.5
"""Between two looks: soon enough for a script."""
FIRST_LOOK_SECONDS_MIN = 60.0
"""What the first look is given at least: without an answer from it there is no reason to report. The requests of a look
have limits of their own; a cluster with hundreds of groups takes some seconds for all of them."""
LOOK_SECONDS_MIN = 5.0
"""What the last look is given at least."""
Look = Callable[[Session, str, int | None], Awaitable[bool]]


class Waited(Struct, frozen=True, rename="camel"):
    """How a wait has ended."""

    thing: str
    """`group Billing`"""
    condition: str
    holds: bool
    waited_ms: int
    last: str | None
    """Why the condition was false at the last check that ended in time."""


async def _healthy(session: Session, _name: str, _number: int | None) -> bool:
    found = await cluster.health(session)
    if found.check_failed:
        raise AdminError(found.items[0].message)  # the worst
    return not found.partial


async def _up(session: Session, name: str, _number: int | None) -> bool:
    node = await session.node(name)
    found = await cluster.listed(session)
    return any(row.address == node.address and row.answers for row in found.items)


async def _known(session: Session, topic: str) -> list[bool]:
    """Of each name server, whether it has a route to the topic in the session's cluster."""
    found = await session.every_name_server(lambda server: session.request(route, server, topic))
    if found.failures:
        raise AdminError("not every name server responds")
    return [
        one is not None and any(session.cluster in (None, broker.cluster) for broker in one.broker_datas)
        for one in found.responses.values()
    ]


async def _topic_exists(session: Session, name: str, _number: int | None) -> bool:
    """So that every client finds it."""
    return all(await _known(session, name))


async def _topic_missing(session: Session, name: str, _number: int | None) -> bool:
    return not any(await _known(session, name))


async def _members(session: Session, name: str) -> int:
    """Members online at all brokers. AdminError while a broker does not respond: a partial count proves nothing."""
    who = await membership(session, name)
    if who.failures:
        raise AdminError(f"{who.failures[0].target} does not respond")
    return len(who.members)


async def _online(session: Session, name: str, _number: int | None) -> bool:
    return await _members(session, name) > 0


async def _offline(session: Session, name: str, _number: int | None) -> bool:
    return await _members(session, name) == 0


async def _lag(session: Session, name: str, number: int | None) -> bool:
    found = await groups.groups(session, pattern=escape(name), lag=True)
    if found.partial:
        raise AdminError(f"{found.failures[0].target} does not respond")
    if not found.items:
        raise await unknown_group(session, name)
    group = found.items[0]
    waiting = None if group.lag_messages is None else group.lag_messages + (group.retry_lag_messages or 0)
    if waiting is None:
        raise AdminError(f"how far {name} is behind is not known")
    if waiting > (number or 0):
        raise AdminError(f"{name} is {waiting} messages behind")
    return True


async def _stored(session: Session, name: str, _number: int | None) -> bool:
    """By offset id, or by unique id or key in any topic that is named before a slash: `Orders/order-17`."""
    topic, slash, key = name.rpartition("/")
    found = await (messages.search(session, [topic], key) if slash else messages.by_offset_id(session, name))
    return bool(found.items)


CONDITIONS: dict[tuple[str, str], tuple[Look, str]] = {
    ("cluster", "healthy"): (_healthy, "every registered broker responds and there is no critical finding"),
    ("broker", "up"): (_up, "it is registered and responds"),
    ("topic", "exists"): (_topic_exists, "every name server has a route to it"),
    ("topic", "gone"): (_topic_missing, "no name server has a route to it"),
    ("group", "online"): (_online, "at least one member is connected"),
    ("group", "offline"): (_offline, "no member is connected"),
    ("group", "lag"): (_lag, "it has N messages to do at most, `lag=N`, retries included"),
    ("message", "stored"): (_stored, "it is found by its offset id, or as TOPIC/KEY"),
}
"""What is waited for: the thing and the word -> the look, and what it means."""


def condition_of(thing: str, text: str) -> tuple[Look, int | None]:
    """The query for `thing` and the text of --for. ConfigurationError lists the possible ones."""
    word, equals, number = text.partition("=")
    known = CONDITIONS.get((thing, word))
    if known is None or bool(equals) != (word == "lag") or (equals and not re.fullmatch(r"\d{1,18}", number)):
        words = ", ".join(f"{a} {b}{'=N' if b == 'lag' else ''}" for a, b in CONDITIONS)
        raise ConfigurationError(f"{thing} --for {text}: there are {words}")
    return known[0], int(number) if equals else None


async def wait(session: Session, thing: str, name: str, text: str, within_s: float) -> Result[Waited]:
    """Repeat the query, also of unreachable nodes, until the condition holds; fails after `within_s`."""
    look, number = condition_of(thing, text)
    time = asyncio.get_running_loop().time
    began = time()
    last: str | None = None
    while True:
        session.forget()
        try:
            least = FIRST_LOOK_SECONDS_MIN if last is None else LOOK_SECONDS_MIN
            async with asyncio.timeout(max(least, within_s - (time() - began))):
                holds, last = await look(session, name, number), None
        except TimeoutError as error:
            holds, last = False, str(error) or last or "a query did not end in time"
        except OrbitMQError as error:
            failure = failure_of(name, error)
            holds, last = False, "; ".join(filter(None, (failure.message, failure.hint)))
        waited = time() - began
        if holds or waited >= within_s:
            waited_result = Waited(f"{thing} {name}".strip(), text, holds, int(waited * 1000), last)
            return Result([waited_result], check_failed=not holds)
        await asyncio.sleep(min(EVERY_SECONDS, max(0.0, within_s - waited)))
