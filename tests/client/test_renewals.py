"""The time of messages that are held, without a broker: it is extended until they are settled, and not afterwards."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterator

import pytest

from orbitmq.client.renewals import RENEWALS, Renewals
from orbitmq.errors import RemotingError
from orbitmq.message.model import MessageExt
from tests.support.loops import JumpingLoop


class Broker:
    """Records when the time of a message was extended."""

    def __init__(self) -> None:
        self.extended: list[float] = []
        self.is_away = False
        self.responds = asyncio.Event()
        self.responds.set()

    async def extend(self, message: MessageExt, seconds: float) -> None:
        self.extended.append(asyncio.get_running_loop().time())
        await self.responds.wait()
        if self.is_away:
            raise RemotingError("away")


@pytest.fixture
def loop() -> Iterator[JumpingLoop]:
    loop = JumpingLoop()
    yield loop
    loop.close()


def test_a_message_is_renewed_until_it_is_settled(loop: JumpingLoop) -> None:
    async def run() -> None:
        broker, message = Broker(), MessageExt("T", b"")
        renewals = Renewals(broker.extend)
        keeping = asyncio.create_task(renewals.keep(renewals.hold([message, MessageExt("T", b"")], 30), 30))
        await asyncio.sleep(25)
        assert len(broker.extended) == 2 * 2
        async with renewals.settling(message):
            await asyncio.sleep(10)
        assert len(broker.extended) == 2 * 2 + 1, "the other one is still held"
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)

    loop.run_until_complete(run())


def test_settling_waits_for_the_renewal_that_changes_the_receipt(loop: JumpingLoop) -> None:
    async def run() -> None:
        broker, message = Broker(), MessageExt("T", b"")
        renewals = Renewals(broker.extend)
        broker.responds.clear()
        keeping = asyncio.create_task(renewals.keep(renewals.hold([message], 30), 30))
        await asyncio.sleep(11)
        assert len(broker.extended) == 1

        async def settle() -> None:
            async with renewals.settling(message):
                pass

        settling = asyncio.create_task(settle())
        await asyncio.sleep(1)
        assert not settling.done()
        broker.responds.set()
        await settling
        await keeping  # nothing is left to keep
        assert len(broker.extended) == 1

    loop.run_until_complete(run())


def test_a_message_whose_time_is_over_is_renewed_no_more(loop: JumpingLoop) -> None:
    async def run() -> None:
        broker, message = Broker(), MessageExt("T", b"")
        renewals = Renewals(broker.extend)
        keeping = asyncio.create_task(renewals.keep(renewals.hold([message], 30), 30))
        await asyncio.sleep(11)
        broker.is_away = True
        await keeping
        assert len(broker.extended) == 1 + RENEWALS

    loop.run_until_complete(run())


def test_what_is_settled_is_in_memory_no_longer(loop: JumpingLoop) -> None:
    class Watched(MessageExt):
        """One that can be referred to weakly."""

    async def run() -> None:
        renewals = Renewals(Broker().extend)
        messages = [Watched("T", b""), Watched("T", b"")]
        seen = [weakref.ref(message) for message in messages]
        keeping = asyncio.create_task(renewals.keep(renewals.hold(messages, 3600), 3600))
        await asyncio.sleep(0)
        for left in (1, 0):
            async with renewals.settling(messages.pop()):
                pass
            assert sum(one() is not None for one in seen) == left
        await keeping
        assert asyncio.get_running_loop().time() == 0, "nothing waits for the time of a message that is done"

    loop.run_until_complete(run())
