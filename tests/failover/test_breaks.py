"""Each rule that keeps an invariant is broken on purpose: simulations that did not find it would prove nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from orbitmq.failover.agreed import Agreed, Boundary
from orbitmq.failover.replica import Command, Confirm, Halt, Propose, Replica, Role, View
from tests.failover.test_simulation import LONG
from tests.failover.world import Broken, LeaseClient, LeaseStore, Node, Store, World

SEEDS_MAX = 6000


class AcknowledgesBeforeTheSetChanges(Replica):
    """A set that was asked for counts as agreed."""

    def _change(self, now: float) -> list[Command]:
        found = super()._change(now)
        if self.pending is not None:
            self.view = dataclasses.replace(self.view, agreed=self.pending.agreed)
        return found


class ForgetsWhatItAskedFor(Replica):
    """Only the agreed set counts, though another may be agreed by now."""

    def _confirm(self, now: float) -> list[Command]:
        kept, self.pending = self.pending, None
        found = super()._confirm(now)
        self.pending = kept
        return found


class AnySlaveWillDo(Replica):
    """As SYNC_MASTER has it."""

    def _confirm(self, now: float) -> list[Command]:
        ends = [one.position for one in self.slaves.values()]
        if now < self.lease_until and ends and max(ends) > self.confirmed:
            self.confirmed = max(ends)
            return [Confirm(self.confirmed)]
        return []


class ElectsWhoeverIsThere(Replica):
    """Members that are not in sync stand, too."""

    def _stand(self, now: float) -> list[Command]:
        if (agreed := self.view.agreed) is not None and self.me not in agreed.in_sync:
            self.view = dataclasses.replace(self.view, agreed=agreed.with_in_sync((*agreed.in_sync, self.me)))
        return super()._stand(now)


class StandsWhileItFollows(Replica):
    """It goes on following until it is elected."""

    def _stand(self, now: float) -> list[Command]:
        role, self.role = self.role, Role.HALTED
        found = super()._stand(now)
        self.role = role
        return [one for one in found if not isinstance(one, Halt)]


class LetsSlavesJoinTooEarly(Replica):
    """One that is near the end is in sync, though it has not all that was acknowledged."""

    def _has_joined(self, now: float) -> bool:
        return True


class NeverLooksAtTheClock(Replica):
    """It serves until the store says that another one is elected."""

    @property
    def lease_until(self) -> float:
        return float("inf")

    @lease_until.setter
    def lease_until(self, _until: float) -> None:
        pass


class CountsTheLeaseFromTheResponse(Replica):
    """As if the store had renewed it when the response came."""

    clock: Callable[[], float]

    def kept(self, asked_at: float) -> None:
        super().kept(self.clock())


class StandsWhileAnotherHasTheLease(Replica):
    """It takes one that has been silent for a while for dead, and does not ask for the lease."""

    def tick(self, now: float) -> list[Command]:
        self.view = dataclasses.replace(self.view, holder=None)
        return super().tick(now)


class LeadsAgainByAnOldLease(Replica):
    """A process takes the lease of the one before it for its own."""

    def seen(self, view: View, now: float) -> list[Command]:
        agreed = view.agreed
        if agreed is not None and agreed.master == self.me and view.holder is not None and not self.epoch:
            self.kept(now)
            self.session = view.holder[0]
        return super().seen(view, now)


class TakesTheAgreedHistoryForItsOwn(Replica):
    """It is elected with an epoch of which nothing has come to its log."""

    def _stand(self, now: float) -> list[Command]:
        if self.view.agreed is not None:
            self.history = self.view.agreed.history
        return super()._stand(now)


class IsElectedInMaintenance(Replica):
    """Maintenance holds none back."""

    def _may_stand(self, agreed: Agreed) -> bool:
        return self.me in agreed.in_sync


@dataclass(frozen=True)
class Break:
    """`change` is done to a world before its simulation, and `kinds` of faults show it sooner than others. `is_long`:
    it takes many faults in one simulation.
    """

    make: type[Replica] = Replica
    change: Callable[[World, pytest.MonkeyPatch], None] = lambda _world, _patch: None
    kinds: tuple[str, ...] = ()
    is_long: bool = False
    by_leases: bool = False


def tells_it_the_time(world: World, patch: pytest.MonkeyPatch) -> None:
    start = Node.start

    def starts(self: Node) -> None:
        start(self)
        self.replica.clock = lambda: self.clock  # type: ignore[attr-defined]

    patch.setattr(Node, "start", starts)


def same_member_after_lost_power(world: World, patch: pytest.MonkeyPatch) -> None:
    kill = Node.kill

    def kills(self: Node, *, power: bool) -> None:
        member = self.member
        kill(self, power=power)
        self.member = member

    patch.setattr(Node, "kill", kills)


def keeps_what_differs(world: World, patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tests.failover.world.common_end", lambda _own, log_end, _agreed: log_end)


def parts_at_the_end_of_the_shorter(world: World, patch: pytest.MonkeyPatch) -> None:
    def shorter(_own: list[Boundary], log_end: int, agreed: tuple[Boundary, ...]) -> int:
        return min(log_end, agreed[-1].start)

    patch.setattr("tests.failover.world.common_end", shorter)


def keeps_later_epochs(world: World, patch: pytest.MonkeyPatch) -> None:
    patch.setattr("orbitmq.failover.agreed.reached", lambda history, _log_end: list(history))


def sets_without_comparing(world: World, patch: pytest.MonkeyPatch) -> None:
    propose = Store.propose

    def proposes(self: Store, proposal: Propose, lease: int, session: str) -> None:
        propose(self, dataclasses.replace(proposal, revision=self.revision), lease, session)

    patch.setattr(Store, "propose", proposes)


def keeps_its_history(world: World, patch: pytest.MonkeyPatch) -> None:
    """A slave does not note the epochs that it copies."""
    follow = Node._follow

    def follows(self: Node, agreed: Agreed) -> None:
        before = list(self.history)
        follow(self, agreed)
        self.history = before or self.history

    patch.setattr(Node, "_follow", follows)


def writes_whatever_is_there(world: World, patch: pytest.MonkeyPatch) -> None:
    put = LeaseStore.put
    patch.setattr(LeaseStore, "put", lambda self, _after, new: put(self, self.written, new))


def ends_a_lease_early(world: World, patch: pytest.MonkeyPatch) -> None:
    """It counts half of the time."""
    remaining = LeaseClient._remaining
    patch.setattr(LeaseClient, "_remaining", lambda self, now: remaining(self, now) - world.timing.lease_ms / 2)


def has_slow_networks(world: World, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(World, "_delay", lambda self: self.random.uniform(5, 100))


BREAKS = {
    "sends are acknowledged before the set has changed": Break(AcknowledgesBeforeTheSetChanges),
    "a set that was asked for and may be agreed does not count": Break(ForgetsWhatItAskedFor),
    "any slave will do, as with SYNC_MASTER": Break(AnySlaveWillDo),
    "a member that is not in sync is elected": Break(ElectsWhoeverIsThere),
    "a candidate goes on following": Break(StandsWhileItFollows, has_slow_networks, ("isolate",)),
    "a slave joins before it has all that is acknowledged": Break(LetsSlavesJoinTooEarly),
    "there is no lease": Break(NeverLooksAtTheClock),
    "the lease counts from the response": Break(CountsTheLeaseFromTheResponse, tells_it_the_time, ("lossy", "isolate")),
    "a candidate does not wait for the end of the lease": Break(StandsWhileAnotherHasTheLease),
    "a process takes the lease of the one before it": Break(LeadsAgainByAnOldLease),
    "a store that has lost pages counts as in sync": Break(change=same_member_after_lost_power, kinds=("kill",)),
    "a former master keeps what differs": Break(change=keeps_what_differs),
    "logs part where the last epoch begins": Break(change=parts_at_the_end_of_the_shorter),
    "the history has epochs that the log has not": Break(
        change=keeps_later_epochs, kinds=("kill", "freeze", "store_down")
    ),
    "the agreed value is set without comparing": Break(change=sets_without_comparing, kinds=("freeze", "lossy")),
    "a slave does not note the epochs that it copies": Break(change=keeps_its_history),
    "another one is elected in maintenance": Break(IsElectedInMaintenance, kinds=("maintain", "kill", "isolate")),
    "a Lease is written over a later one": Break(change=writes_whatever_is_there, by_leases=True),
    "a Lease ends for others too early": Break(change=ends_a_lease_early, by_leases=True),
    "the agreed history is taken for that of the log": Break(
        TakesTheAgreedHistoryForItsOwn, kinds=("isolate", "kill", "freeze"), is_long=True
    ),
}


def caught(broken: Break, patch: pytest.MonkeyPatch, seeds: int = SEEDS_MAX) -> tuple[int, str] | None:
    for seed in range(seeds):
        world: Any = World(
            seed, replicas=2 + seed % 2, min_in_sync=1 + (seed // 2) % 2, make=broken.make, by_leases=broken.by_leases
        )
        with patch.context() as patched:
            broken.change(world, patched)
            try:
                world.simulate(*(LONG if broken.is_long else ()), kinds=broken.kinds)
            except (Broken, AssertionError, ValueError, IndexError) as error:
                return seed, str(error)
    return None


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_rule_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = caught(BREAKS[name], monkeypatch)
    assert found is not None, f"{SEEDS_MAX} simulations do not show it"
    print(f"{name}: after {found[0] + 1} simulations: {found[1]}")


def test_slow_networks_alone_break_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert caught(Break(Replica, has_slow_networks, ("isolate",)), monkeypatch, 500) is None
