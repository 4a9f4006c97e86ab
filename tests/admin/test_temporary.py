"""What was made for a run is gone after it, also where only a part was made; what stays is told and hides nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orbitmq.admin.results import Result
from orbitmq.admin.session import Session
from orbitmq.admin.temporary import NAME, own_topic, with_own_topic
from orbitmq.admin.topics import listed
from orbitmq.errors import AdminError
from orbitmq.testing.cluster import Cluster
from orbitmq.wire.requests import RequestCode
from tests.support.sessions import asked


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2) as running:
        yield running


@pytest.fixture
def healed(cluster: Cluster) -> Iterator[Cluster]:
    yield cluster
    cluster.heal()


def left_over(cluster: Cluster) -> list[str]:
    found = asked(cluster.namesrv_address, lambda session: listed(session, containing=NAME))
    return [row.topic for row in found.items]


def test_a_topic_that_one_master_refuses_is_removed_from_the_others(healed: Cluster) -> None:
    async def use(session: Session) -> None:
        left: list[str] = []
        with pytest.raises(AdminError, match=r"broker-b.*refused by the test"):
            async with own_topic(session, left):
                pytest.fail("it is not there")
        assert left == []

    healed.refuse(RequestCode.UPDATE_AND_CREATE_TOPIC, broker="broker-b")
    asked(healed.namesrv_address, use)
    assert left_over(healed) == []


def test_what_cannot_be_removed_is_told_beside_what_was_measured(healed: Cluster) -> None:
    async def work(_topic: str) -> Result[int]:
        healed.refuse(RequestCode.DELETE_TOPIC_IN_BROKER, times=None)
        return Result([42])

    found = asked(healed.namesrv_address, lambda session: with_own_topic(session, 1, work))
    assert found.items == [42]
    (warning,) = found.warnings
    (name,) = left_over(healed)
    assert warning.startswith(f"topic {name} could not be removed and is left: ")


def test_what_ended_the_run_is_told_with_what_is_left(healed: Cluster) -> None:
    async def work(_topic: str) -> Result[int]:
        healed.refuse(RequestCode.DELETE_TOPIC_IN_BROKER, times=None)
        raise AdminError("nothing could be sent")

    with pytest.raises(AdminError, match=r"nothing could be sent; topic orbitmq-bench.* could not be removed"):
        asked(healed.namesrv_address, lambda session: with_own_topic(session, 1, work))
