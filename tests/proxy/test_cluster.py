"""What the front knows of a cluster while parts of it are away."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.errors import BrokerError, ConnectError
from orbitmq.message.config import SubscriptionGroup
from orbitmq.proxy import cluster
from orbitmq.proxy.cluster import AGAIN_MS, FRESH_MS, ClusterBackend
from orbitmq.runtime.clock import ManualClock
from orbitmq.wire.bodies import BrokerData, ClusterInfo
from orbitmq.wire.codes import ResponseCode


async def test_a_group_in_order_stays_so_while_no_broker_responds(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Any] = {"a:1": ConnectError("away"), "b:1": SubscriptionGroup("g", consume_orderly=True)}

    looked_up: list[str] = []

    async def cluster_info(*_: Any, **__: Any) -> ClusterInfo:
        return ClusterInfo({one: BrokerData(one, "c", {0: one}) for one in found}, {})

    async def group_config(_remoting: Any, address: str, _name: str, **_: Any) -> SubscriptionGroup:
        looked_up.append(address)
        if isinstance(found[address], Exception):
            raise found[address]
        known: SubscriptionGroup = found[address]
        return known

    monkeypatch.setattr(cluster.routes, "cluster_info", cluster_info)
    monkeypatch.setattr(cluster.groups, "group_config", group_config)
    clock = ManualClock()
    backend = ClusterBackend(["n:1"], clock, delay_max_ms=0)
    rules = await backend.group("g")
    assert rules is not None
    assert rules.is_fifo
    found["b:1"] = ConnectError("away")
    clock.advance(FRESH_MS)
    assert await backend.group("g") == rules
    asked = len(looked_up)
    assert await backend.group("g") == rules
    assert len(looked_up) == asked, "not every call waits for the next failure"
    with pytest.raises(ConnectError):
        await backend.group("never asked for")
    clock.advance(AGAIN_MS)
    found["b:1"] = BrokerError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "gone")
    assert await backend.group("g") is None
    await backend.stop()
