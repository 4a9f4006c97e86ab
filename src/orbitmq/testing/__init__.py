"""A complete orbitmq cluster for tests of applications that use RocketMQ: it runs in the test's process and starts in a
fraction of a second.

    from orbitmq.testing import Cluster

    with Cluster() as cluster:
        producer = Producer("orders", cluster.namesrv_address)

pytest discovers the fixtures `orbitmq` and `orbitmq_shared`; see `orbitmq.testing.plugin`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitmq.testing.cluster import Cluster
    from orbitmq.testing.faults import Fault, Kind

__all__ = ["Cluster", "Fault", "Kind"]


def __getattr__(name: str) -> object:
    """Import at first use: pytest loads this package in every run, whether or not a test needs a broker."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from orbitmq.testing import cluster, faults

    return {"Cluster": cluster.Cluster, "Fault": faults.Fault, "Kind": faults.Kind}[name]
