"""A cluster of two brokers, one of which does not answer: figures become unknown and name it, never smaller."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orbitmq.admin import cluster
from orbitmq.admin.verdict import Severity
from orbitmq.testing.cluster import Cluster
from orbitmq.wire.codes import RequestCode
from tests.support.sessions import asked


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with Cluster(brokers=2) as started:
        yield started


@pytest.fixture
def half_dead(running: Cluster) -> Iterator[Cluster]:
    """broker-b is registered and hangs up when it is asked for its figures."""
    running.disconnect(RequestCode.GET_BROKER_RUNTIME_INFO, times=None, broker="broker-b")
    yield running
    running.heal()


def test_every_broker_with_its_figures(running: Cluster) -> None:
    found = asked(running.namesrv_address, cluster.listed)
    assert [(one.broker, one.role, one.answers, one.version) for one in found.items] == [
        ("broker-a", "master", True, "V4_9_7"),
        ("broker-b", "master", True, "V4_9_7"),
    ]
    assert not found.partial


def test_a_broker_that_does_not_answer_stays_in_the_list_without_figures(half_dead: Cluster) -> None:
    found = asked(half_dead.namesrv_address, cluster.listed)
    assert [(one.broker, one.answers, one.version) for one in found.items] == [
        ("broker-a", True, "V4_9_7"),
        ("broker-b", False, None),
    ]
    assert [failure.target.partition(" ")[0] for failure in found.failures] == ["broker-b"]


def test_sums_are_unknown_when_a_part_is(running: Cluster) -> None:
    (whole,) = asked(running.namesrv_address, cluster.overview).items
    assert (whole.masters, whole.put_today, whole.unreachable) == (2, 0, [])
    running.disconnect(RequestCode.GET_BROKER_RUNTIME_INFO, times=None, broker="broker-b")
    try:
        found = asked(running.namesrv_address, cluster.overview)
    finally:
        running.heal()
    (part,) = found.items
    assert (part.masters, part.put_today, part.in_per_s) == (2, None, None)
    assert [name.partition(" ")[0] for name in part.unreachable] == ["broker-b"]
    assert part.severity is Severity.CRITICAL
    assert "broker-b" in part.verdict
    assert found.partial


def test_health_fails_for_what_is_critical_and_for_who_is_missed(half_dead: Cluster) -> None:
    found = asked(half_dead.namesrv_address, cluster.health)
    assert ("reachable", Severity.CRITICAL) in [(row.check, row.severity) for row in found.items]
    assert found.check_failed
    half_dead.heal()
    assert not asked(half_dead.namesrv_address, cluster.health).check_failed
    found = asked(half_dead.namesrv_address, lambda session: cluster.health(session, expected=["broker-c"]))
    assert found.items[-1].message == "broker broker-c is not registered"
    assert found.check_failed


def test_without_slaves_there_is_nothing_to_tell_of_them(running: Cluster) -> None:
    assert asked(running.namesrv_address, cluster.replicas).items == []
