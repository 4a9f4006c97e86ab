"""What tests of the stores of agreement have in common: a lease that is taken, and a clock that is turned."""

from __future__ import annotations

from orbitmq.agreement.store import AgreementStore
from orbitmq.failover.agreed import first
from orbitmq.failover.replica import Propose

LEASE_MS = 2000  # no store takes less


class TurnedClock:
    """Seconds of a monotonic clock that stands still until it is turned."""

    def __init__(self, at: float = 1000.0) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at

    def turn(self, milliseconds: float) -> None:
        self.at += milliseconds / 1000


async def founded(store: AgreementStore, member: str = "a") -> tuple[str, Propose]:
    """The first value of all, and the lease of its master."""
    lease = await store.grant(LEASE_MS)
    proposal = Propose(first(member), 0, takes_lease=True)
    view = await store.propose(proposal, lease, f"{member}/1")
    assert (view.agreed, view.holder) == (first(member), (f"{member}/1", 1))
    return lease, proposal
