"""A look at everything, from the name servers on: what is well is said, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.admin.doctor import is_private
from orbitmq.testing.cluster import Cluster
from orbitmq.wire.requests import RequestCode
from tests.support.access import write_acl
from tests.support.commands import answer, items, orbitmq
from tests.support.orbit_process import OrbitUp


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with Cluster(brokers=2) as started:
        yield started


@pytest.fixture
def here(running: Cluster) -> tuple[str, str]:
    return "-n", running.namesrv_address


def test_everything_that_was_looked_at(here: tuple[str, str]) -> None:
    rows = {row["check"]: row for row in items("doctor", *here)}
    assert {"name server", "masters", "reachable", "clocks", "disk", "permission", "trace"} <= rows.keys()
    assert rows["reachable"]["message"] == "every broker responds at the address it registers"
    assert "TRACE" in rows["trace"]["message"]


def test_nobody_answers() -> None:
    (row,) = items("doctor", "-n", "127.0.0.1:1", code=8)
    assert (row["check"], row["severity"]) == ("name server", "critical")
    assert row["remedy"].startswith("is it running?")


def test_one_name_server_of_two_is_a_warning(here: tuple[str, str]) -> None:
    rows = items("doctor", "-n", f"127.0.0.1:1;{here[1]}")
    assert [row["severity"] for row in rows if row["check"] == "name server"] == ["well", "warning"]


def test_a_broker_that_does_not_answer_is_critical(running: Cluster, here: tuple[str, str]) -> None:
    running.disconnect(RequestCode.GET_BROKER_RUNTIME_INFO, times=None, broker="broker-b")
    try:
        found = answer("doctor", *here, code=8)
    finally:
        running.heal()
    rows = {row["check"]: row for row in found["items"]}
    assert rows["reachable"]["severity"] == "critical"
    assert "broker-b" in rows["reachable"]["message"]
    assert rows["disk"]["message"] == "there is room on the disks (1 of 2 brokers)"


def test_without_an_account_nothing_is_called_well_that_was_not_seen(tmp_path: Path) -> None:
    write_acl(tmp_path)
    with OrbitUp(aclEnable="true", rocketmqHome=tmp_path) as up:
        rows = {row["check"]: row for row in items("doctor", "-n", up.namesrv_address, code=8)}
    assert "refused: AclException: No accessKey is configured" in rows["reachable"]["message"]
    assert rows["reachable"]["remedy"].startswith("use an account with the permission")
    assert rows.keys() == {"name server", "masters", "one master", "registrations", "reachable", "trace"}


def test_a_permission_that_was_taken_is_found_with_its_remedy(here: tuple[str, str]) -> None:
    orbitmq("broker", "forbid-writing", "broker-a", "--yes", *here)
    try:
        (row,) = [row for row in items("doctor", *here) if row["check"] == "permission"]
    finally:
        orbitmq("broker", "allow-writing", "broker-a", "--yes", *here)
    assert (row["severity"], row["remedy"]) == ("warning", "orbitmq broker allow-writing broker-a")


@pytest.mark.parametrize(
    ("host", "private"),
    [("172.17.0.2", True), ("10.0.0.1", True), ("127.0.0.1", False), ("8.8.8.8", False), ("broker", False)],
)
def test_addresses_that_mean_another_machine_elsewhere(host: str, private: bool) -> None:
    assert is_private(host) is private
