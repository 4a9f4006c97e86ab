"""A cluster of two brokers, one of which does not answer: figures become unknown and name it, never smaller."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace as changed

from orbitmq.admin import cluster
from orbitmq.admin.runtime import DailyCount, MeanRates
from orbitmq.admin.session import Session
from orbitmq.admin.verdict import Severity
from orbitmq.net.connection import Connection
from orbitmq.net.remoting import Remoting
from orbitmq.net.routing import Router
from orbitmq.testing.cluster import Cluster
from orbitmq.wire.bodies import BrokerData, ClusterInfo
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.objects import encode
from orbitmq.wire.requests import RequestCode
from tests.admin.test_verdict import WELL, seen
from tests.support.live import client_of, made_broker
from tests.support.live import running as running_broker
from tests.support.loops import until
from tests.support.peers import serving
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
    assert whole.max_disk_ratio is not None
    running.disconnect(RequestCode.GET_BROKER_RUNTIME_INFO, times=None, broker="broker-b")
    try:
        found = asked(running.namesrv_address, cluster.overview)
    finally:
        running.heal()
    (part,) = found.items
    assert (part.masters, part.put_today, part.in_per_s, part.max_disk_ratio) == (2, None, None, None)
    assert [name.partition(" ")[0] for name in part.unreachable] == ["broker-b"]
    assert part.severity is Severity.CRITICAL
    assert "broker-b" in part.verdict
    assert found.partial


def test_sums_are_those_of_masters_alone() -> None:
    day = DailyCount(today=100)
    busy = changed(WELL, put_per_s=MeanRates(last_10_s=10.0), put_messages=day, got_messages=day)
    for slave in (busy, None):
        (row,) = cluster.overviews_of(seen(busy, slave))
        assert (row.in_per_s, row.put_today, row.got_today) == (10.0, 100, 100), "a slave has copies"


def test_a_group_that_cannot_be_judged_is_no_failed_node(running: Cluster) -> None:
    running.refuse(RequestCode.GET_ALL_CONSUMER_OFFSET, ResponseCode.NO_PERMISSION, times=None)
    try:
        found = asked(running.namesrv_address, cluster.health)
        whole = asked(running.namesrv_address, cluster.overview)
    finally:
        running.heal()
    assert (found.failures, found.check_failed) == ([], False)
    assert "refused by the test" in whole.failures[0].message


def test_health_fails_for_what_is_critical_and_for_who_is_missed(half_dead: Cluster) -> None:
    found = asked(half_dead.namesrv_address, cluster.health)
    assert ("reachable", Severity.CRITICAL) in [(row.rule, row.severity) for row in found.items]
    assert found.check_failed
    half_dead.heal()
    assert not asked(half_dead.namesrv_address, cluster.health).check_failed
    found = asked(half_dead.namesrv_address, lambda session: cluster.health(session, expected=["broker-c"]))
    assert found.items[-1].message == "broker broker-c is not registered"
    assert found.check_failed


def test_without_slaves_there_is_nothing_to_tell_of_them(running: Cluster) -> None:
    assert asked(running.namesrv_address, cluster.replicas).items == []


async def test_a_slave_is_told_with_what_it_lacks(tmp_path: Path) -> None:
    """The master stays ahead when its slave has gone; then nobody knows how far behind that one is."""
    async with running_broker(made_broker(tmp_path / "master")) as master:
        role = {"brokerRole": "SLAVE", "brokerId": "1", "haMasterAddress": f"127.0.0.1:{master.port + 1}"}
        addresses = {0: f"127.0.0.1:{master.port}"}
        async with running_broker(made_broker(tmp_path / "slave", **role)) as slave:
            addresses[1] = f"127.0.0.1:{slave.port}"
            async with client_of(master) as at_master:
                await at_master.send("Copied", b"x")
            await until(lambda: slave.store.commit_log_max_offset == master.store.commit_log_max_offset, "the copy")
            async with session_of(addresses) as session:
                (row,) = (await cluster.replicas(session)).items
                (whole,) = (await cluster.overview(session)).items
        assert (row.behind_bytes, row.connected, row.master) == (0, True, addresses[0])
        assert (whole.masters, whole.slaves, whole.headless) == (1, 1, [])
        async with session_of(addresses) as session:
            found = await cluster.replicas(session)
            (alone,) = found.items
            assert (alone.behind_bytes, alone.connected) == (None, None)
            assert [failure.target for failure in found.failures] == [f"broker-a:1 ({addresses[1]})"]
        async with session_of({1: addresses[1]}) as session:
            (headless,) = (await cluster.overview(session)).items
            assert (headless.headless, headless.in_per_s) == (["broker-a"], None)


@asynccontextmanager
async def session_of(addresses: dict[int, str]) -> AsyncIterator[Session]:
    """A session whose name server says that broker-a is at these addresses."""
    info = ClusterInfo({"broker-a": BrokerData("broker-a", "c", addresses)}, {"c": ["broker-a"]})

    async def told(connection: Connection, command: Command) -> Command:
        return command.response(ResponseCode.SUCCESS, body=encode(info))

    router = Router("test")
    router.add(RequestCode.GET_BROKER_CLUSTER_INFO, told)
    remoting = Remoting()
    async with serving(router) as (_, address):
        try:
            yield Session(remoting, [address])
        finally:
            await remoting.close()
