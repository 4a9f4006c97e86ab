"""Topics and groups that exist for one run and are removed after it, whatever its outcome.

What could not be removed is reported next to the outcome and never hides it. Independent of their use.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from orbitmq.admin import groups, topic_changes
from orbitmq.admin.clients import membership
from orbitmq.admin.plans import Plan, Step, StepOutcome
from orbitmq.admin.results import Result
from orbitmq.admin.session import Session
from orbitmq.errors import AdminError, NotFound, OrbitMQError

T = TypeVar("T")

NAME = "orbitmq-bench"
"""Topics and groups that are made for a run begin with it."""
WAIT_SECONDS = 10.0
"""For what a cluster makes known by itself: a route, queues, that a member has left."""
QUEUES = 8


async def with_own_topic(session: Session, queues: int, work: Callable[[str], Awaitable[Result[T]]]) -> Result[T]:
    """Run `work` with a temporary topic. What is left of it is a warning, or added to the error that ended `work`."""
    left: list[str] = []
    try:
        async with own_topic(session, left, queues) as topic:
            found = await work(topic)
    except OrbitMQError as error:
        if not left:
            raise
        raise AdminError(f"{error}; {'; '.join(left)}", "orbitmq topic list") from error
    found.warnings += left
    return found


@asynccontextmanager
async def own_topic(session: Session, left: list[str], queues: int = QUEUES) -> AsyncIterator[str]:
    """A topic for one run, at every master. Afterwards it is deleted with all its messages, or `left` says why not.
    AdminError when a master refuses it; then it is deleted at the masters that accepted it."""
    name = _name()
    try:
        plan = await topic_changes.plan_create(session, name, topic_changes.TopicChanges(queues, queues))
        done = await plan.make()
        if any(step.outcome is StepOutcome.DONE for step in done.items):
            # Also after a partial success: a name server cannot delete a topic that it does not know yet.
            await until(lambda: _is_routed(session, name), f"the route of {name}")
        _refuse_failures(done)
        yield name
    finally:
        await _removed(lambda: topic_changes.plan_delete(session, name), f"topic {name}", left)


@asynccontextmanager
async def own_group(session: Session, left: list[str]) -> AsyncIterator[str]:
    """The name of a group for one run. Afterwards it is deleted at the brokers, or `left` says why not."""
    name = _name()
    try:
        yield name
    finally:
        with suppress(OrbitMQError):  # a member that has just left is still known for a moment
            await until(lambda: _is_left(session, name), f"the end of {name}")
        delete = lambda: groups.plan_delete(session, name, offsets=True, topics=True, force=True)  # noqa: E731
        await _removed(delete, f"group {name}", left)


def _name() -> str:
    return f"{NAME}-{os.getpid()}-{os.urandom(3).hex()}"


async def _removed(plan: Callable[[], Awaitable[Plan]], what: str, left: list[str]) -> None:
    try:
        _refuse_failures(await (await plan()).make())
    except NotFound:  # it was never made
        return
    except OrbitMQError as error:
        left.append(f"{what} could not be removed and is left: {error}")


def _refuse_failures(done: Result[Step]) -> None:
    if done.failures:
        first = done.failures[0]
        raise AdminError(f"{first.target}: {first.message}", first.hint)


async def _is_left(session: Session, group: str) -> bool:
    return not (await membership(session, group)).online


async def _is_routed(session: Session, topic: str) -> bool:
    try:
        return bool((await session.route(topic)).queue_datas)
    except OrbitMQError:
        return False


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait for it. AdminError when it has not come in `WAIT_SECONDS`."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not await condition():
        if time.monotonic() > deadline:
            raise AdminError(f"{what} did not arrive within {WAIT_SECONDS:.0f} s")
        await asyncio.sleep(0.05)
