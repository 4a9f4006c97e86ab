"""What every store of agreement promises: members of etcd, and an API server of Kubernetes for tests."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from itertools import count
from pathlib import Path

import pytest

from orbitmq.agreement.etcd import Etcd
from orbitmq.agreement.kubernetes import Kubernetes
from orbitmq.agreement.store import AgreementStore
from orbitmq.errors import AgreementError
from orbitmq.failover.agreed import first
from orbitmq.failover.replica import Propose
from tests.support.agreement import LEASE_MS, TurnedClock, founded
from tests.support.etcd import Etcds
from tests.support.kubernetes_api import KubernetesApi
from tests.support.process import free_port

_names = count()


class Kind(ABC):
    """A kind of store: what runs, its clients, and how time passes for it."""

    silence: str
    """What the error says when nobody responds."""

    @abstractmethod
    def running(self) -> AbstractAsyncContextManager[object]: ...

    @abstractmethod
    def client(self, broker: str) -> AgreementStore: ...

    @abstractmethod
    async def wait(self, milliseconds: float) -> None: ...


class OfEtcd(Kind):
    silence = "no member of etcd"

    def __init__(self, *endpoints: str) -> None:
        self._endpoints = endpoints

    def running(self) -> AbstractAsyncContextManager[object]:
        return nullcontext()

    def client(self, broker: str) -> AgreementStore:
        return Etcd(self._endpoints, "test", broker)

    async def wait(self, milliseconds: float) -> None:
        await asyncio.sleep(milliseconds / 1000)


class OfKubernetes(Kind):
    silence = "API server of Kubernetes at .* does not respond"

    def __init__(self, home: Path) -> None:
        self._api = KubernetesApi(home)
        self._clock = TurnedClock()

    def running(self) -> AbstractAsyncContextManager[object]:
        return self._api

    def client(self, broker: str) -> AgreementStore:
        return Kubernetes("", "test", broker, access=self._api.access, monotonic=self._clock)

    async def wait(self, milliseconds: float) -> None:
        self._clock.turn(milliseconds)


@pytest.fixture(scope="module")
def etcds() -> Iterator[Etcds]:
    with Etcds() as made:
        yield made


@pytest.fixture(params=["etcd", "kubernetes"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    if request.param == "etcd":
        return OfEtcd(*request.getfixturevalue("etcds").urls)
    return OfKubernetes(tmp_path)


@asynccontextmanager
async def stores(kind: Kind, *, clients: int = 1, is_up: bool = True) -> AsyncIterator[list[AgreementStore]]:
    """Clients of one broker name that nobody else has."""
    name = f"broker-{next(_names)}"
    async with kind.running() if is_up else nullcontext():
        made = [kind.client(name) for _ in range(clients)]
        try:
            yield made
        finally:
            for one in made:
                await one.stop()


async def test_one_of_two_founders_is_first(kind: Kind) -> None:
    async with stores(kind, clients=2) as (one, other):
        empty = await one.read()
        assert (empty.agreed, empty.revision, empty.holder) == (None, 0, None)
        await founded(one)
        late = await other.propose(Propose(first("b"), 0, takes_lease=True), await other.grant(LEASE_MS), "b/1")
        assert (late.agreed, late.holder) == (first("a"), ("a/1", 1))
        assert await one.read() == await other.read()
        assert late.read_at >= late.revision > empty.read_at


async def test_of_founders_that_meet_one_is_first(kind: Kind) -> None:
    async with stores(kind, clients=4) as clients:
        leases = [await one.grant(LEASE_MS) for one in clients]
        proposals = [Propose(first(f"m{number}"), 0, takes_lease=True) for number in range(4)]
        views = await asyncio.gather(
            *(
                one.propose(proposal, lease, proposal.agreed.master)
                for one, proposal, lease in zip(clients, proposals, leases, strict=True)
            )
        )
        assert len({view.agreed for view in views}) == 1
        assert {view.holder for view in views} == {(views[0].agreed.master, 1)}


async def test_nobody_is_elected_while_there_is_a_lease(kind: Kind) -> None:
    async with stores(kind, clients=2) as (one, other):
        lease, _ = await founded(one)
        view = await other.read()
        assert view.agreed is not None
        stands = Propose(view.agreed.elect("b", 0, view.agreed.history), view.revision, takes_lease=True)
        own = await other.grant(LEASE_MS)
        assert (await other.propose(stands, own, "b/1")).agreed == first("a")
        await one.revoke(lease)
        await one.revoke(lease)
        assert (await other.read()).holder is None
        elected = await other.propose(stands, own, "b/1")
        assert (elected.agreed, elected.holder) == (stands.agreed, ("b/1", 2))
        assert not await one.keep(lease)


async def test_a_lease_ends_unless_it_is_kept(kind: Kind) -> None:
    async with stores(kind) as (store,):
        lease, _ = await founded(store)
        for _ in range(4):
            await kind.wait(LEASE_MS / 2)
            assert await store.keep(lease)
            assert (await store.read()).holder is not None
        changes = store.changes()
        await anext(changes)  # that it watches
        await kind.wait(LEASE_MS)
        await asyncio.wait_for(anext(changes), 3 * LEASE_MS / 1000)
        assert (await store.read()).holder is None
        assert not await store.keep(lease)
        view = await store.read()
        assert view.agreed is not None
        again = Propose(view.agreed.elect("a", 0, view.agreed.history), view.revision, takes_lease=True)
        assert (await store.propose(again, lease, "a/1")).agreed == first("a"), "by a lease that has ended"


async def test_a_renewal_is_no_change_of_the_value(kind: Kind) -> None:
    async with stores(kind, clients=2) as (one, other):
        lease, _ = await founded(one)
        before = await other.read()
        assert await one.keep(lease)
        after = await other.read()
        assert (after.agreed, after.revision, after.holder) == (before.agreed, before.revision, before.holder)
        assert after.read_at >= before.read_at


async def test_a_lease_that_holds_nothing_yet_is_kept_and_ends(kind: Kind) -> None:
    async with stores(kind) as (store,):
        lease = await store.grant(LEASE_MS)
        for _ in range(2):
            await kind.wait(LEASE_MS / 2)
            assert await store.keep(lease)
        await kind.wait(2 * LEASE_MS)
        assert not await store.keep(lease)
        view = await store.propose(Propose(first("a"), 0, takes_lease=True), lease, "a/1")
        assert (view.agreed, view.holder) == (None, None)


async def test_the_value_changes_only_from_its_revision_and_with_the_lease(kind: Kind) -> None:
    async with stores(kind, clients=2) as (one, other):
        lease, _ = await founded(one)
        before = await one.read()
        wider = first("a").with_in_sync(("a", "b"))
        foreign = await other.propose(Propose(wider, before.revision), await other.grant(LEASE_MS), "b/1")
        assert foreign.agreed == first("a")
        assert await one.keep(lease)
        changed = await one.propose(Propose(wider, before.revision), lease, "a/1")
        assert (changed.agreed, changed.holder) == (wider, ("a/1", 1))
        assert changed.revision > before.revision
        stale = await one.propose(Propose(first("a"), before.revision), lease, "a/1")
        assert stale.agreed == wider


async def test_a_change_is_told(kind: Kind) -> None:
    async with stores(kind, clients=2) as (one, other):
        changes = other.changes()
        await anext(changes)
        await founded(one)
        await asyncio.wait_for(anext(changes), 5)
        assert (await other.read()).agreed == first("a")


async def test_without_anybody_who_responds_there_is_an_error_in_time(tmp_path: Path) -> None:
    for kind in OfEtcd(f"http://127.0.0.1:{free_port()}"), OfKubernetes(tmp_path):
        async with stores(kind, is_up=False) as (store,), asyncio.timeout(10):
            for ask in (store.read(), store.grant(LEASE_MS), store.keep("1"), anext(store.changes())):
                with pytest.raises(AgreementError, match=kind.silence):
                    await ask


# ---------------------------------------------------------------------------------------------------- members of etcd


async def test_a_member_that_is_away_costs_no_answer(etcds: Etcds) -> None:
    async with stores(OfEtcd(f"http://127.0.0.1:{free_port()}", *etcds.urls)) as (store,):
        await founded(store)
        assert (await store.read()).agreed == first("a")


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
        async with stores(OfEtcd(*etcds.urls)) as (store,):
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
