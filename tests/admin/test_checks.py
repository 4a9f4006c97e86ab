"""Checks end as Nagios plugins do; what is not known is never told to be well."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import pytest

from orbitmq.admin import checks
from orbitmq.admin.checks import CheckResult, Measurement, nagios, prometheus, result
from orbitmq.admin.results import Failure
from orbitmq.admin.runtime import Runtime
from orbitmq.admin.session import Session
from orbitmq.admin.verdict import ClusterEvidence, Limits
from orbitmq.client.sync import Producer
from orbitmq.message.model import Message
from orbitmq.testing.cluster import Cluster
from orbitmq.wire.requests import RequestCode
from tests.admin.test_verdict import MASTER, SLAVE, WELL, seen
from tests.support.commands import orbitmq

SILENT = Failure("broker-b (10.0.0.2:10911)", None, "TIMEOUT", "no answer", None, retryable=True)


def measured(value: float) -> Measurement:
    return Measurement("billing", value, "", 10, 100)


@pytest.mark.parametrize(("value", "state"), [(9.9, "OK"), (10, "WARNING"), (99, "WARNING"), (100, "CRITICAL")])
def test_a_limit_is_reached_by_its_value(value: float, state: str) -> None:
    assert result("lag", [measured(0), measured(value)], "behind").state == state


@pytest.mark.parametrize(("value", "state"), [(5, "UNKNOWN"), (50, "UNKNOWN"), (500, "CRITICAL")])
def test_what_is_missing_makes_it_unknown_unless_the_rest_is_critical(value: float, state: str) -> None:
    checked = result("lag", [measured(value)], "behind", failures=[SILENT])
    assert checked.state == state
    assert "without broker-b (10.0.0.2:10911)" in checked.message


def test_a_line_for_nagios() -> None:
    checked = CheckResult("lag", "WARNING", "12000 |\nbehind", [Measurement("g", 1_200_000.0, "B", 10_000, 100_000)])
    assert nagios(checked) == "ORBITMQ LAG WARNING - 12000 / behind | 'g'=1200000B;10000;100000;0"
    assert nagios(CheckResult("lag", "UNKNOWN", "gone", [])) == "ORBITMQ LAG UNKNOWN - gone"


def test_lines_for_a_collector_of_files() -> None:
    told = prometheus(CheckResult("disk", "OK", "fine", [Measurement('a"b', 30.25, "%", 75, 85)]))
    assert 'orbitmq_check_state{check="disk"} 0' in told
    assert 'orbitmq_check_value{check="disk",subject="a\\"b",unit="%"} 30.25' in told


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with Cluster(brokers=2) as started:
        yield started


@pytest.fixture
def here(running: Cluster) -> tuple[str, str]:
    return "-n", running.namesrv_address


def test_a_cluster_that_is_well(here: tuple[str, str]) -> None:
    told = orbitmq("check", "connection", "-w", 4000, "-c", 5000, *here).stdout
    assert re.match(r"ORBITMQ CONNECTION OK - 1 name server responds \| '127.0.0.1:\d+'=[\d.]+ms;4000;5000;0$", told)
    assert "2 brokers respond" in orbitmq("check", "broker", "-w", 4000, "-c", 5000, *here).stdout
    orbitmq("check", "disk", "-w", 99.9, "-c", 100, *here)
    orbitmq("check", "disk", "-w", 0.1, "-c", 100, *here, code=1)
    orbitmq("check", "disk", "-w", 0, "-c", 0.1, *here, code=2)
    orbitmq("check", "replica", *here)
    orbitmq("check", "dlq", "nobody", *here)


def test_dead_letters_are_counted(here: tuple[str, str]) -> None:
    orbitmq("topic", "create", "%DLQ%checked", "--queues", 1, "--yes", *here)
    with Producer("checked", here[1]) as producer:
        for _ in range(3):
            producer.send(Message("%DLQ%checked", b"dead"))
    told = json.loads(orbitmq("check", "dlq", "checked", "--format", "json", *here, code=1).stdout)
    assert (told["state"], told["figures"][0]["value"]) == ("WARNING", 3.0)
    orbitmq("check", "dlq", "checked", "-w", 1, "-c", 3, *here, code=2)


def test_a_dead_broker_is_critical_and_its_disk_unknown(running: Cluster, here: tuple[str, str]) -> None:
    running.disconnect(RequestCode.GET_BROKER_RUNTIME_INFO, times=None, broker="broker-b")
    try:
        assert "broker-b" in orbitmq("check", "broker", *here, code=2).stdout
        assert "without broker-b" in orbitmq("check", "disk", "-w", 99, "-c", 100, *here, code=3).stdout
    finally:
        running.heal()


@pytest.mark.parametrize(("master", "slave"), [(WELL, None), (None, WELL)])
async def test_a_broker_that_does_not_respond_is_critical_also_if_it_is_a_slave(
    monkeypatch: pytest.MonkeyPatch, master: Runtime | None, slave: Runtime | None
) -> None:
    async def brokers(*_: object) -> tuple[ClusterEvidence, list[Failure]]:
        return seen(master, slave), []

    monkeypatch.setattr(checks, "_brokers", brokers)
    checked = await checks.broker(cast("Session", None), Limits(200, 1000))
    assert (checked.state, "does not respond" in checked.message) == ("CRITICAL", True)


@pytest.mark.parametrize(("name", "state"), [("broker-a:1", "OK"), (SLAVE.address, "OK"), ("broker-a", "CRITICAL")])
async def test_a_slave_is_not_blamed_for_a_master_that_was_not_looked_up(
    monkeypatch: pytest.MonkeyPatch, name: str, state: str
) -> None:
    """A name alone stands for a slave only if there is no master."""

    async def brokers(*_: object) -> tuple[ClusterEvidence, list[Failure]]:
        return ClusterEvidence([SLAVE], {SLAVE: WELL}, {}, []), []

    monkeypatch.setattr(checks, "_brokers", brokers)
    assert (await checks.broker(cast("Session", None), Limits(200, 1000), name)).state == state


async def test_a_master_that_is_gone_is_critical_also_if_its_slave_responds(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = replace(MASTER, seen_at_ms=1)

    async def brokers(*_: object) -> tuple[ClusterEvidence, list[Failure]]:
        return replace(seen(None, WELL), nodes=[gone, SLAVE]), []

    monkeypatch.setattr(checks, "_brokers", brokers)
    checked = await checks.broker(cast("Session", None), Limits(200, 1000))
    assert (checked.state, "broker-a" in checked.message) == ("CRITICAL", True)


def test_nobody_to_ask_and_a_wrong_use_are_unknown(here: tuple[str, str]) -> None:
    orbitmq("check", "connection", "-n", "127.0.0.1:1", code=2)
    orbitmq("check", "connection", "-n", f"{here[1]};127.0.0.1:1", code=2)
    orbitmq("check", "broker", "-n", "127.0.0.1:1", code=3)
    orbitmq("check", "lag", "no-such-group", *here, code=3)
    orbitmq("check", "disk", "-w", 90, "-c", 80, *here, code=3)
    orbitmq("check", "disk", "--format", "xml", *here, code=3)


def test_a_bug_is_unknown_and_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python ends a process with 1, which is a warning."""

    async def broken(*_: object, **__: object) -> CheckResult:
        raise TypeError("a table\nthat is none")

    monkeypatch.setattr(checks, "disk", broken)
    told = orbitmq("check", "disk", "-n", "127.0.0.1:1", code=3).stdout
    assert told == "ORBITMQ DISK UNKNOWN - TypeError: a table that is none\n"
