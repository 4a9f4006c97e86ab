"""What every store of agreement promises, at live ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count

import pytest

from orbitmq.agreement.etcd import Etcd
from orbitmq.agreement.store import AgreementStore
from orbitmq.errors import AgreementError
from orbitmq.failover.agreed import first
from orbitmq.failover.replica import Propose
from tests.support.etcd import Etcds
from tests.support.process import free_port

LEASE_MS = 2000  # no store takes less
_names = count()


@pytest.fixture(scope="module")
def etcds() -> Iterator[Etcds]:
    with Etcds() as made:
        yield made


@asynccontextmanager
async def stores(*endpoints: str, clients: int = 1) -> AsyncIterator[list[AgreementStore]]:
    """Clients of one broker name that nobody else has."""
    name = f"broker-{next(_names)}"
    made: list[AgreementStore] = [Etcd(endpoints, "test", name) for _ in range(clients)]
    try:
        yield made
    finally:
        for one in made:
            await one.stop()


async def founded(store: AgreementStore, member: str = "a") -> tuple[str, Propose]:
    lease = await store.grant(LEASE_MS)
    proposal = Propose(first(member), 0, takes_lease=True)
    view = await store.propose(proposal, lease, f"{member}/1")
    assert (view.agreed, view.holder) == (first(member), (f"{member}/1", 1))
    return lease, proposal


async def test_one_of_two_founders_is_first(etcds: Etcds) -> None:
    async with stores(*etcds.urls, clients=2) as (one, other):
        empty = await one.read()
        assert (empty.agreed, empty.revision, empty.holder) == (None, 0, None)
        await founded(one)
        late = await other.propose(Propose(first("b"), 0, takes_lease=True), await other.grant(LEASE_MS), "b/1")
        assert (late.agreed, late.holder) == (first("a"), ("a/1", 1))
        assert await one.read() == await other.read()
        assert late.read_at >= late.revision > empty.read_at


async def test_nobody_is_elected_while_there_is_a_lease(etcds: Etcds) -> None:
    async with stores(*etcds.urls, clients=2) as (one, other):
        lease, _ = await founded(one)
        view = await other.read()
        assert view.agreed is not None
        stands = Propose(view.agreed.elect("b", 0), view.revision, takes_lease=True)
        own = await other.grant(LEASE_MS)
        assert (await other.propose(stands, own, "b/1")).agreed == first("a")
        await one.revoke(lease)
        await one.revoke(lease)
        assert (await other.read()).holder is None
        elected = await other.propose(stands, own, "b/1")
        assert (elected.agreed, elected.holder) == (stands.agreed, ("b/1", 2))


async def test_a_lease_ends_unless_it_is_kept(etcds: Etcds) -> None:
    async with stores(*etcds.urls) as (store,):
        lease, _ = await founded(store)
        for _ in range(4):
            await asyncio.sleep(LEASE_MS / 2000)
            assert await store.keep(lease)
            assert (await store.read()).holder is not None
        changes = store.changes()
        await anext(changes)  # that it watches
        await asyncio.wait_for(anext(changes), 3 * LEASE_MS / 1000)
        assert (await store.read()).holder is None
        assert not await store.keep(lease)
        view = await store.read()
        assert view.agreed is not None
        again = Propose(view.agreed.elect("a", 0), view.revision, takes_lease=True)
        assert (await store.propose(again, lease, "a/1")).agreed == first("a"), "by a lease that has ended"


async def test_the_value_changes_only_from_its_revision_and_with_the_lease(etcds: Etcds) -> None:
    async with stores(*etcds.urls, clients=2) as (one, other):
        lease, _ = await founded(one)
        before = await one.read()
        wider = first("a").with_in_sync(("a", "b"))
        foreign = await other.propose(Propose(wider, before.revision), await other.grant(LEASE_MS), "b/1")
        assert foreign.agreed == first("a")
        changed = await one.propose(Propose(wider, before.revision), lease, "a/1")
        assert (changed.agreed, changed.holder) == (wider, ("a/1", 1))
        assert changed.revision > before.revision
        stale = await one.propose(Propose(first("a"), before.revision), lease, "a/1")
        assert stale.agreed == wider


async def test_a_change_is_told(etcds: Etcds) -> None:
    async with stores(*etcds.urls, clients=2) as (one, other):
        changes = other.changes()
        await anext(changes)
        await founded(one)
        await asyncio.wait_for(anext(changes), 5)
        assert (await other.read()).agreed == first("a")


async def test_a_member_that_is_away_costs_no_answer(etcds: Etcds) -> None:
    async with stores(f"http://127.0.0.1:{free_port()}", *etcds.urls) as (store,):
        await founded(store)
        assert (await store.read()).agreed == first("a")


async def test_without_any_member_there_is_an_error_in_time() -> None:
    async with stores(f"http://127.0.0.1:{free_port()}") as (store,):
        for ask in (store.read(), store.grant(LEASE_MS), store.keep("1"), anext(store.changes())):
            with pytest.raises(AgreementError, match="no member of etcd"):
                await ask


def test_a_cluster_that_loses_a_member_goes_on_and_without_two_of_three_it_decides_nothing() -> None:
    async def until(asked: Callable[[], Awaitable[object]], *, fails: bool) -> None:
        """A leader that has lost the others notices it after a second; before that it may renew leases."""
        async with asyncio.timeout(20):
            while True:
                try:
                    await asked()
                    has_failed = False
                except AgreementError:
                    has_failed = True
                if has_failed is fails:
                    return
                await asyncio.sleep(0.05)

    async def goes_on(etcds: Etcds) -> None:
        async with stores(*etcds.urls) as (store,):
            lease, _ = await founded(store)
            etcds.kill(0)
            await until(store.read, fails=False)
            view = await store.read()
            etcds.kill(1)
            await until(store.read, fails=True)
            await until(lambda: store.keep(lease), fails=True)
            with pytest.raises(AgreementError):
                await store.propose(Propose(first("a").with_in_sync(("a", "b")), view.revision), lease, "a/1")

    with Etcds(3) as three:
        asyncio.run(goes_on(three))
