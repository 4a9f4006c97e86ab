"""The broker's part when steps fail: one that cannot serve keeps no lease, and no step ends for good."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from orbitmq.broker.election.election import Address, Election
from orbitmq.errors import AgreementError
from orbitmq.failover.agreed import Agreed, Boundary
from orbitmq.failover.replica import Propose, Role, Timing, View
from orbitmq.replication.protocol import Introduction
from orbitmq.store.options import StoreOptions
from tests.support.loops import turned_loop, until

pytestmark = pytest.mark.usefixtures("turned_clock")
QUICK = Timing(lease_ms=2000, turn_ms=10, open_ms=4000)
ADDRESS = Address("h:1", "h:2")
OTHER = "h:3 h:4 other"


class Store:
    """What all clients see. `fails` is raised by each request; each write is one revision."""

    def __init__(self, view: View | None = None) -> None:
        self.view = view or View(None, 0, None, 1)
        self.fails: Exception | None = None
        self.proposed: list[Propose] = []
        self.leases = 0
        self.kept = 0

    def _ask(self) -> None:
        if self.fails is not None:
            raise self.fails

    def change(self, **changes: object) -> None:
        self.view = replace(self.view, read_at=self.view.read_at + 1, **changes)  # type: ignore[arg-type]

    async def read(self) -> View:
        self._ask()
        return self.view

    async def grant(self, lease_ms: int) -> str:
        self._ask()
        self.leases += 1
        return str(self.leases)

    async def keep(self, lease: str) -> bool:
        self._ask()
        self.kept += 1
        return True

    async def revoke(self, lease: str) -> None:
        self._ask()
        self.change(holder=None)

    async def propose(self, proposal: Propose, lease: str, session: str) -> View:
        self._ask()
        self.proposed.append(proposal)
        if proposal.revision == self.view.revision and (self.view.holder is None) is proposal.takes_lease:
            holder = (session, proposal.agreed.epoch) if proposal.takes_lease else self.view.holder
            self.change(agreed=proposal.agreed, revision=self.view.read_at + 1, holder=holder)
        return self.view

    async def changes(self) -> AsyncIterator[None]:
        await asyncio.sleep(0.05)
        yield

    async def stop(self) -> None: ...


class Site:
    """A broker that can be any role at once."""

    def __init__(self, election: Election, *, is_master: bool = False) -> None:
        self.election = election
        self.is_master = is_master
        self.address = ADDRESS
        self.log_end = 100
        self.fenced: list[str] = []
        self.followed: list[int] = []
        self.confirmed = -1
        self.refusal = ""

    async def halt(self) -> int:
        return self.log_end

    def fence(self, reason: str) -> None:
        self.fenced.append(reason)

    def follow(self, epoch: int, _master: Address) -> None:
        self.followed.append(epoch)

    def refuse(self, reason: str) -> None:
        self.refusal = reason

    def confirm_up_to(self, end: int) -> None:
        self.confirmed = end

    def become(self, role: str, /) -> None:
        self.election.detach()
        following = Site(self.election, is_master=role != "SLAVE")
        self.following = asyncio.get_running_loop().create_task(self.election.attach(following, was_killed=False))


def _clock() -> float:
    return asyncio.get_running_loop().time() * 1000


async def pass_by(milliseconds: float) -> None:
    """In steps, so that each timer has its turn."""
    for _ in range(int(milliseconds / 50)):
        await turned_loop().turn(0.05)


@asynccontextmanager
async def elected(root: Path, store: Store, *, founds: bool = True) -> AsyncIterator[tuple[Election, Site]]:
    options = StoreOptions.parse({"storePathRootDir": str(root)})
    election = Election(store, options, slave_id=1, timing=QUICK, founds=founds, clock=_clock)
    site = Site(election)
    await election.attach(site, was_killed=False)
    try:
        yield election, site
    finally:
        store.fails = None
        await election.leave()
        await election.leave()


async def test_a_first_master_serves_when_it_is_open(tmp_path: Path) -> None:
    store = Store()
    async with elected(tmp_path, store) as (election, _):
        assert election.refusal != ""
        await until(lambda: not election.refusal, "a master")
        assert store.view.agreed is not None
        assert (store.view.agreed.epoch, election.is_master, election.took_over) == (1, True, False)
        assert election.member.history == (Boundary(1, 0),)
    assert store.view.holder is None, "one that leaves gives its lease up"


async def test_one_that_cannot_begin_lets_others_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with elected(tmp_path, store) as (election, site):
        monkeypatch.setattr(election.member, "follow", full)
        await until(lambda: site.fenced, "its resignation")
        await until(lambda: store.view.holder is None and election.replica.role is Role.HALTED, "a vacant lease")
        assert site.fenced == ["it could not begin"]
        count = len(store.proposed)
        await pass_by(QUICK.open_ms / 8)
        assert len(store.proposed) == count, "it rests first"
        monkeypatch.undo()
        await pass_by(QUICK.open_ms)
        await until(lambda: not election.refusal, "a master, when there is room again")


async def test_an_unclean_election_holds_for_one_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agreed = Agreed(5, "a", ("a", "b"), (Boundary(1, 0), Boundary(5, 50)))
    store = Store(View(agreed, 7, (OTHER, 5), 7))
    monkeypatch.setattr("orbitmq.broker.election.election.TAKE_OVER_MS", 300.0)
    async with elected(tmp_path, store, founds=False) as (election, site):
        await until(lambda: site.refusal or site.followed, "a master to follow")
        me = election.replica.me
        assert "there is a master" in await election.take_over(me)
        assert "not other" in await election.take_over("other")
        store.change(holder=None)
        await until(lambda: election.replica.view.holder is None, "the news")
        store.fails = AgreementError("no member responds")
        assert "has not responded" in await election.take_over(me)
        store.fails = None
        await pass_by(400)
        assert store.proposed == [], "it was asked for once"
        assert await election.take_over(me) == ""
        assert (election.took_over, store.view.agreed and store.view.agreed.in_sync) == (True, (me,))


async def test_a_value_that_is_gone_fences_its_master_and_is_not_founded_again(tmp_path: Path) -> None:
    store = Store()
    async with elected(tmp_path, store) as (election, _):
        await until(lambda: not election.refusal, "a master")
        count = len(store.proposed)
        store.change(agreed=None, revision=0, holder=None)
        await until(lambda: election.refusal, "the fence")
        await pass_by(300)
        assert len(store.proposed) == count
        assert not election.is_master


async def test_a_lease_is_given_up_as_soon_as_the_store_responds(tmp_path: Path) -> None:
    """etcd lets leases begin anew when it has another leader: no replica could be elected until they end."""
    store = Store()
    async with elected(tmp_path, store) as (election, site):
        await until(lambda: not election.refusal, "a master")
        store.fails = AgreementError("no member responds")
        await until(lambda: site.following and election.replica.role is not Role.MASTER, "the fence")
        assert store.view.holder is not None
        store.fails = None
        await until(lambda: store.view.holder is None or store.view.holder[1] > 1, "a vacant lease")


async def test_whatever_a_store_raises_it_is_asked_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Store()
    store.fails = KeyError("responses")
    async with elected(tmp_path, store) as (election, _):
        await until(lambda: election.failure, "a failure")
        assert "responses" in election.failure
        store.fails = None
        await until(lambda: not election.refusal, "a master")
        assert election.failure == ""
    assert "agreement_silent" in caplog.text


async def test_a_store_that_went_back_in_time_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.broker.election.election.POLL_SECONDS", 0.01)
    store = Store()
    async with elected(tmp_path, store) as (election, _):
        await until(lambda: not election.refusal, "a master")
        store.view = View(None, 0, None, 0)
        await until(lambda: "restored backup" in election.failure, "the failure")


async def test_one_that_knows_of_a_later_election_does_not_stand(tmp_path: Path) -> None:
    """The agreement store is an older one: who was in sync later is forgotten."""
    first_store = Store()
    async with elected(tmp_path, first_store) as (election, _):
        await until(lambda: not election.refusal, "a master")
        me = election.replica.me
        later = Agreed(9, me, (me,), (Boundary(1, 0), Boundary(9, 100)))
        await election.note_epoch(later, 100)
    older = Store(View(Agreed(4, "b", (me, "b"), (Boundary(1, 0), Boundary(4, 50))), 3, None, 3))
    async with elected(tmp_path, older, founds=False) as (election, _):
        await pass_by(400)
        assert (older.proposed, election.replica.me) == ([], me)


async def test_a_master_has_maintenance_begun_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.broker.election.election.MAINTAIN_MS", 300.0)
    store = Store()
    async with elected(tmp_path, store) as (election, _):
        assert "has not found out yet" in await election.maintain(True)
        await until(lambda: not election.refusal, "a master")
        for is_on in (True, True, False):
            assert await election.maintain(is_on) == ""
            assert store.view.agreed is not None
            assert store.view.agreed.maintenance is is_on
            assert not election.refusal, "it goes on meanwhile"
        store.fails = AgreementError("no member responds")
        assert "has not responded" in await election.maintain(True)


async def test_maintenance_without_a_master_is_ended_by_an_election(tmp_path: Path) -> None:
    first_store = Store()
    async with elected(tmp_path, first_store) as (election, _):
        await until(lambda: not election.refusal, "a master")
        me = election.replica.me
        await election.note_epoch(Agreed(2, "b", (me, "b"), (Boundary(1, 0), Boundary(2, 50))), 100)
    agreed = Agreed(2, "b", (me, "b"), (Boundary(1, 0), Boundary(2, 50)), maintenance=True)
    store = Store(View(agreed, 3, (OTHER, 2), 3))
    async with elected(tmp_path, store, founds=False) as (election, site):
        await until(lambda: site.followed, "a master to follow")
        assert "neither the master" in await election.maintain(False)
        store.change(holder=None)
        await pass_by(400)
        assert store.proposed == []
        assert await election.maintain(True) == "", "it is on already"
        assert await election.maintain(False) == ""
        await until(lambda: not election.refusal, "a master")
        assert store.view.agreed is not None
        assert (store.view.agreed.master, store.view.agreed.maintenance) == (me, False)


async def test_what_changes_while_the_store_is_read_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A switch changes the store twice in a moment."""
    monkeypatch.setattr("orbitmq.broker.election.election.POLL_SECONDS", 1e6)
    agreed = Agreed(5, "a", ("a", "b"), (Boundary(1, 0), Boundary(5, 50)))
    store, news, gate = Store(View(agreed, 7, (OTHER, 5), 7)), asyncio.Event(), asyncio.Event()
    reads = 0

    async def read() -> View:
        nonlocal reads
        reads += 1
        found = store.view
        await gate.wait()
        return found

    async def changes() -> AsyncIterator[None]:
        while True:
            await news.wait()
            news.clear()
            yield

    monkeypatch.setattr(store, "read", read)
    monkeypatch.setattr(store, "changes", changes)
    async with elected(tmp_path, store, founds=False) as (election, _):
        await until(lambda: reads == 1, "a read")
        store.change(holder=None)
        news.set()
        await until(lambda: not news.is_set(), "the news of the change")
        gate.set()
        await until(lambda: reads == 2 and election.replica.view.holder is None, "another read")


async def test_an_operator_learns_why_a_master_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.broker.election.election.HAND_OVER_MS", 300.0)
    store = Store()
    async with elected(tmp_path, store) as (election, _):
        await until(lambda: not election.refusal, "a master")
        election.reported(Introduction("b", 1), 100)
        await until(lambda: election.agreed is not None and "b" in election.agreed.in_sync, "the slave in sync")
        assert isinstance(election._site, Site)
        election._site.log_end = 200
        waiting = asyncio.create_task(election.hand_over("b"))
        await until(lambda: election.refusal, "a refusal of sends")
        assert await election.hand_over("b") == "it hands over to b already"
        assert "did not have everything" in await waiting
        assert not election.refusal
        election.reported(Introduction("b", 1), 200)
        store.fails = AgreementError("no member responds")
        assert "has not responded" in await election.hand_over("b")


async def test_a_switch_waits_for_what_is_about_to_be_confirmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its senders would have to send it again, though the successor has it."""
    monkeypatch.setattr("orbitmq.broker.election.election.HAND_OVER_MS", 60_000.0)
    store = Store()
    async with elected(tmp_path, store) as (election, _):
        await until(lambda: not election.refusal, "a master")
        for member in ("b", "c"):
            election.reported(Introduction(member, 1), 100)
            await until(lambda: election.agreed is not None and member in election.agreed.in_sync, "a slave in sync")  # noqa: B023
        assert isinstance(election._site, Site)
        election._site.log_end = 200
        waiting = asyncio.create_task(election.hand_over("b"))
        await until(lambda: election.replica.log_end == 200, "a message")
        election.reported(Introduction("b", 1), 200)
        await pass_by(300)
        assert not any(one.agreed.successor for one in store.proposed)
        election.reported(Introduction("c", 1), 200)
        assert await waiting == ""
        assert [one.agreed.successor for one in store.proposed if one.agreed.successor] == ["b"]
