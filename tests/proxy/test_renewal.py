"""Renewal while messages are acknowledged, clients leave, and brokers do not respond."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from orbitmq.errors import RemotingTimeout
from orbitmq.message.pop import Receipt
from orbitmq.proxy.handles import Handle
from orbitmq.proxy.renewal import GONE_MS, TRIES, Renewal
from orbitmq.proxy.sessions import Session
from orbitmq.runtime.clock import ManualClock

VOID = 999  # offset of a message that was delivered to another one meanwhile
ONE, OTHER = "one:10911", "other:10911"


class Brokers:
    """What renews, and the requests it sends. `answers` are awaited before the response."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.renewal = Renewal(self.clock, self.change)
        self.changes: list[tuple[str, int, int]] = []  # address, offset, milliseconds
        self.waits: asyncio.Event | None = None
        self.silent: set[str] = set()

    async def change(
        self, _session: Session, _group: str, _topic: str, address: str, receipt: Receipt, invisible_ms: int
    ) -> Receipt:
        self.changes.append((address, receipt.offset, invisible_ms))
        if address in self.silent:
            raise RemotingTimeout("no response")
        if self.waits is not None:
            await self.waits.wait()
        if offset_is_void(receipt):
            return receipt._replace(pop_ms=0, invisible_ms=0)
        return receipt._replace(pop_ms=receipt.pop_ms + 1, invisible_ms=invisible_ms)

    def add(self, session: Session, offset: int, address: str = ONE) -> str:
        """A message that is about to be visible again; its handle."""
        receipt = Receipt(offset, self.clock.now_ms(), 5000, 0, "0", "broker", 0, offset)
        handle = Handle(receipt, 0)
        self.renewal.add(session, "group", "topic", f"id{offset}", address, handle)
        return handle.encode()


def offset_is_void(receipt: Receipt) -> bool:
    return receipt.offset == VOID


def client() -> Session:
    made: Any = object()
    return cast("Session", made)


async def test_what_is_acknowledged_while_others_are_renewed_is_not_renewed() -> None:
    brokers, session = Brokers(), client()
    handles = [brokers.add(session, offset) for offset in range(40)]
    brokers.waits = asyncio.Event()
    looking = asyncio.create_task(brokers.renewal.look())
    await asyncio.sleep(0.01)
    assert await brokers.renewal.take(session, "id39", handles[39]) is not None
    brokers.waits.set()
    await looking
    assert sorted(offset for _, offset, _ in brokers.changes) == list(range(39))


async def test_nothing_is_renewed_for_a_client_that_has_left_meanwhile() -> None:
    brokers, session = Brokers(), client()
    handle = brokers.add(session, 1)
    taken = await brokers.renewal.take(session, "id1", handle)
    assert taken is not None
    await brokers.renewal.leave(session)
    brokers.renewal.restore(session, "id1", handle, taken)
    assert not len(brokers.renewal)


async def test_a_client_that_leaves_while_it_is_renewed_gives_back_by_the_new_receipt() -> None:
    brokers, session = Brokers(), client()
    for offset in range(40):
        brokers.add(session, offset)
    brokers.waits = asyncio.Event()
    looking = asyncio.create_task(brokers.renewal.look())
    await asyncio.sleep(0.01)
    leaving = asyncio.create_task(brokers.renewal.leave(session))
    await asyncio.sleep(0.01)
    assert not [one for one in brokers.changes if one[2] == GONE_MS], "the receipts are about to be void"
    brokers.waits.set()
    await asyncio.gather(looking, leaving)
    assert sorted(offset for _, offset, ms in brokers.changes if ms == GONE_MS) == list(range(40))
    assert not len(brokers.renewal)


async def test_a_broker_that_does_not_respond_keeps_no_other_waiting() -> None:
    brokers, session = Brokers(), client()
    brokers.silent.add(OTHER)
    for offset in range(100):
        brokers.add(session, offset, OTHER)
    brokers.add(session, 100)
    await brokers.renewal.look()
    assert len([one for one in brokers.changes if one[0] == OTHER]) < 50, "one timeout a round is enough"
    assert (ONE, 100, 60_000) in brokers.changes
    for _ in range(4 * TRIES):
        await brokers.renewal.look()
    assert len(brokers.renewal) == 1, "what could not be renewed is given up"


async def test_what_was_delivered_to_another_client_is_not_renewed_again() -> None:
    brokers, session = Brokers(), client()
    brokers.add(session, VOID)
    for _ in range(2):
        await brokers.renewal.look()
    assert (len(brokers.changes), len(brokers.renewal)) == (1, 0)


async def test_a_front_that_stops_gives_back_what_clients_cannot_acknowledge_any_more() -> None:
    brokers, session = Brokers(), client()
    brokers.add(session, 0)
    await brokers.renewal.look()
    brokers.add(session, 1)
    await brokers.renewal.stop()
    assert brokers.changes == [(ONE, 0, 60_000), (ONE, 0, GONE_MS)]
