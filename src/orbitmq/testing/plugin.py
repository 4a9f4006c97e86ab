"""The pytest fixtures; registered by an entry point, imports nothing of orbitmq until one is used.

    def test_an_order_is_booked(orbitmq):
        with Producer("orders", orbitmq.namesrv_address) as producer:
            producer.send(Message("orders", b"..."))

`orbitmq` is a new cluster for each test and starts in a few hundredths of a second. `orbitmq_shared` is one cluster for
the whole run, for tests that use their own topics and groups. Set options of the broker with the marker
`orbitmq_options`:

    @pytest.mark.orbitmq_options(autoCreateTopicEnable=False)
    def test_...(orbitmq): ...
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from orbitmq.testing.cluster import Cluster


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", "orbitmq_options(**options): keys of a broker.conf for the fixture orbitmq")


@pytest.fixture(name="orbitmq")
def _orbitmq(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A name server and a broker for this test."""
    from orbitmq.testing.cluster import Cluster

    marker = request.node.get_closest_marker("orbitmq_options")
    with Cluster(**(marker.kwargs if marker else {})) as cluster:
        yield cluster


@pytest.fixture(name="orbitmq_shared", scope="session")
def _orbitmq_shared() -> Iterator[Cluster]:
    """A name server and a broker for all tests of the run."""
    from orbitmq.testing.cluster import Cluster

    with Cluster() as cluster:
        yield cluster
