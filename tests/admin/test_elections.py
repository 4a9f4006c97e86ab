"""What a change of brokers that elect their master reports about itself."""

from __future__ import annotations

from typing import cast

import pytest
from msgspec.structs import replace

from orbitmq.admin import elections
from orbitmq.admin.elections import ElectedReplica, plan_maintenance
from orbitmq.admin.results import Result
from orbitmq.admin.session import Session

HALTED = ElectedReplica(
    "c", "broker-a", 2, "h:1", role="halted", epoch=2, in_sync=True, end_offset=10, member="m", maintenance=True
)
SILENT = ElectedReplica("c", "broker-a", 2, "h:1")


@pytest.mark.parametrize(("state", "reported"), [(True, "on"), (False, "off")])
async def test_what_a_broker_does_not_say_is_not_reported(
    monkeypatch: pytest.MonkeyPatch, state: bool, reported: str
) -> None:
    """One that is elected by the end of maintenance does not respond for a moment."""
    rows = iter([HALTED, SILENT, replace(HALTED, maintenance=state)])

    async def replicas(_session: Session) -> Result[ElectedReplica]:
        return Result([next(rows)])

    monkeypatch.setattr(elections, "replicas", replicas)
    monkeypatch.setattr(elections, "LOOK_SECONDS", 0.0)
    (change,) = (await plan_maintenance(cast("Session", None), "broker-a", is_on=False)).changes
    assert change.read_back is not None
    assert await change.read_back() == reported
