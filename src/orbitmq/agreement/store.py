"""What a store of agreement can do for the replicas of one broker name. Each kind passes the same tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from orbitmq.failover.replica import Propose, View


class AgreementStore(Protocol):
    """All methods raise AgreementError when no member of the store responds in time: what was asked for may have
    happened, or may happen yet.
    """

    async def read(self) -> View:
        """The agreed value and the holder of the lease, of one moment."""

    async def grant(self, lease_ms: int) -> str:
        """A new lease, which ends that long after its last renewal, or later."""

    async def keep(self, lease: str) -> bool:
        """Renew a lease; False if it has ended."""

    async def revoke(self, lease: str) -> None:
        """End a lease, if it has not ended."""

    async def propose(self, proposal: Propose, lease: str, session: str) -> View:
        """Do what is proposed if its conditions hold; what is there afterwards says whether they did."""

    def changes(self) -> AsyncIterator[None]:
        """Something may have changed: read it. It ends with AgreementError."""

    async def stop(self) -> None:
        """Close what is open."""
