"""No lock outlives the interest in its queue, whatever happens to the request for it."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from orbitmq.client.instance import Instance
from orbitmq.client.queue_locks import OwnedQueues
from orbitmq.client.settings import ProducerSettings, complete
from orbitmq.message.model import MessageQueue
from orbitmq.net.connection import Connection
from orbitmq.runtime.clock import ManualClock
from orbitmq.wire.bodies import LockedQueues, QueueLockRequest
from orbitmq.wire.command import Command
from orbitmq.wire.objects import decode, encode_standard
from orbitmq.wire.requests import RequestCode
from tests.support.fake_system import BROKER, FakeSystem, fake_system
from tests.support.loops import run, settle, until

Q = [MessageQueue("T", BROKER, n) for n in range(2)]


@asynccontextmanager
async def locking() -> AsyncIterator[tuple[FakeSystem, OwnedQueues]]:
    async with fake_system() as system:
        system.topics["T"] = 2
        instance = Instance(
            (system.address,), complete(ProducerSettings, {}), clock=ManualClock(), chance=random.Random(1)
        )
        await instance.routes.refresh("T")
        yield system, OwnedQueues(instance, "g")
        await instance.close()


def slow_answers(system: FakeSystem) -> asyncio.Event:
    """The broker gives locks at once, and says so when the event is set."""
    say = asyncio.Event()

    async def lock(_: Connection, command: Command) -> Command:
        asked = decode(QueueLockRequest, command.body)
        system.locks.update({(asked.consumer_group, queue): asked.client_id for queue in asked.mq_set})
        await say.wait()
        return command.response(0, body=encode_standard(LockedQueues(locked=list(asked.mq_set))))

    system.answers[RequestCode.LOCK_BATCH_MQ] = lock
    return say


def test_a_lock_nobody_waits_for_any_more_is_given_back() -> None:
    async def scenario() -> None:
        async with locking() as (system, owned):
            slow_answers(system)
            asking = asyncio.ensure_future(owned.lock(Q))
            await until(lambda: system.locks)
            asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asking
            assert not owned.owns(Q[0])
            await owned.unlock_all(but=Q[1:])
            assert [queue for _, queue in system.locks] == Q[1:]
            await owned.unlock_all(but=())
            assert not system.locks

    run(scenario())


def test_a_renewal_does_not_take_back_what_is_given_back_meanwhile() -> None:
    async def scenario() -> None:
        async with locking() as (system, owned):
            assert await owned.lock(Q) == set()
            assert owned.owns(Q[0])
            say = slow_answers(system)
            renewing = asyncio.ensure_future(owned.lock(Q))
            await until(lambda: system.count(RequestCode.LOCK_BATCH_MQ) == 2)
            giving = asyncio.ensure_future(owned.unlock(Q[:1]))
            again = asyncio.ensure_future(owned.lock(Q[1:]))
            await settle()
            assert system.count(RequestCode.UNLOCK_BATCH_MQ) == 0, "it would arrive before the renewal"
            say.set()
            await asyncio.gather(renewing, giving, again)
            assert [queue for _, queue in system.locks] == Q[1:]
            assert not owned.owns(Q[0])
            assert owned.owns(Q[1])

    run(scenario())


def test_what_is_given_back_before_it_was_asked_for_is_not_asked_for() -> None:
    async def scenario() -> None:
        async with locking() as (system, owned):
            say = slow_answers(system)
            first = asyncio.ensure_future(owned.lock(Q[:1]))
            await until(lambda: system.locks)
            second = asyncio.ensure_future(owned.lock(Q[1:]))
            await settle()
            await asyncio.wait([asyncio.ensure_future(owned.unlock(Q[1:]))], timeout=0)
            say.set()
            await asyncio.gather(first, second)
            await settle()
            assert [queue for _, queue in system.locks] == Q[:1]

    run(scenario())
