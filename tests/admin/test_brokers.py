"""Brokers one by one: settings are read, changed and read back; refusals are told; sends are timed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orbitmq.admin import brokers
from orbitmq.admin.brokers import Cleaning
from orbitmq.admin.plans import StepOutcome
from orbitmq.admin.session import Session
from orbitmq.errors import AdminError, BadArgument, Conflict, NotFound
from orbitmq.testing.cluster import Cluster
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.requests import RequestCode
from tests.support.sessions import asked


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with Cluster(brokers=2) as started:
        yield started


def test_figures_of_one_broker_and_of_all(running: Cluster) -> None:
    everything = asked(running.namesrv_address, brokers.status)
    assert [one.broker for one in everything.items] == ["broker-a", "broker-b"]
    (one,) = asked(running.namesrv_address, lambda session: brokers.status(session, "broker-b")).items
    assert one.runtime.version == "V4_9_7"
    with pytest.raises(NotFound) as error:
        asked(running.namesrv_address, lambda session: brokers.status(session, "broker-c"))
    assert error.value.hint == "did you mean broker-b, broker-a?"


def test_the_runtime_table_as_it_is(running: Cluster) -> None:
    rows = asked(running.namesrv_address, brokers.runtime_table).items
    keys = [row.key for row in rows if row.broker == "broker-a"]
    assert keys == sorted(keys)
    assert {row.value for row in rows if row.key == "brokerVersionDesc"} == {"V4_9_7"}


def test_settings_are_changed_and_read_back(running: Cluster) -> None:
    async def change(session: Session) -> list[tuple[str, object, object, StepOutcome]]:
        plan = await brokers.plan_settings(session, {"fileReservedTime": "71"})
        made = await plan.verify(await plan.make())
        return [(step.subject, step.before, step.after, step.outcome) for step in made.items]

    assert asked(running.namesrv_address, change) == [("fileReservedTime", "72", "71", StepOutcome.CONFIRMED)] * 2
    assert {step[3] for step in asked(running.namesrv_address, change)} == {StepOutcome.UNCHANGED}
    rows = asked(running.namesrv_address, lambda session: brokers.settings(session, containing="filereserved")).items
    assert [(row.key, row.value) for row in rows] == [("fileReservedTime", "71")] * 2


def test_settings_nobody_may_change_or_nobody_has(running: Cluster) -> None:
    with pytest.raises(Conflict, match="storePathRootDir sets the broker's identity"):
        asked(running.namesrv_address, lambda session: brokers.plan_settings(session, {"storePathRootDir": "/etc"}))
    with pytest.raises(NotFound) as error:
        asked(running.namesrv_address, lambda session: brokers.plan_settings(session, {"fileReservedTimes": "1"}))
    assert error.value.hint is not None
    assert "fileReservedTime" in error.value.hint


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [("flushDiskType", "SYNC", "ASYNC_FLUSH, SYNC_FLUSH"), ("slaveReadEnable", "yes", "true, false")],
)
def test_a_plan_has_no_value_that_brokers_ignore(key: str, value: str, allowed: str, running: Cluster) -> None:
    with pytest.raises(BadArgument, match=f"'{value}' is no value of the setting {key}") as error:
        asked(running.namesrv_address, lambda session: brokers.plan_settings(session, {key: value}))
    assert error.value.hint == f"use one of {allowed}"


def test_a_refused_setting_is_a_failure_with_the_brokers_words(running: Cluster) -> None:
    async def change(session: Session) -> tuple[list[StepOutcome], list[str]]:
        plan = await brokers.plan_settings(session, {"aclEnable": "true"}, "broker-a")
        made = await plan.make()
        return [step.outcome for step in made.items], [failure.message for failure in made.failures]

    outcomes, messages = asked(running.namesrv_address, change)
    assert outcomes == [StepOutcome.FAILED]
    assert "aclEnable cannot be changed by a request" in messages[0]


@pytest.mark.parametrize("what", Cleaning)
def test_brokers_are_told_to_clean_up(running: Cluster, what: Cleaning) -> None:
    async def clean(session: Session) -> list[StepOutcome]:
        return [step.outcome for step in (await (await brokers.plan_cleaning(session, what)).make()).items]

    assert asked(running.namesrv_address, clean) == [StepOutcome.DONE] * 2


def test_writing_is_forbidden_and_allowed_again(running: Cluster) -> None:
    async def write(session: Session, *, allowed: bool) -> list[StepOutcome]:
        plan = await brokers.plan_writing(session, "broker-a", allowed=allowed)
        return [step.outcome for step in (await plan.verify(await plan.make())).items]

    for allowed in (False, True):
        for outcome in (StepOutcome.CONFIRMED, StepOutcome.UNCHANGED):
            assert asked(running.namesrv_address, lambda session: write(session, allowed=allowed)) == [outcome]  # noqa: B023
    with pytest.raises(NotFound, match="no broker broker-z"):
        asked(running.namesrv_address, lambda session: brokers.plan_writing(session, "broker-z", allowed=True))


def test_sends_are_timed_and_failures_counted(running: Cluster) -> None:
    found = asked(running.namesrv_address, lambda session: brokers.send_test(session, count=3))
    assert [(one.broker, one.sent, one.failed) for one in found.items] == [("broker-a", 3, 0), ("broker-b", 3, 0)]
    assert all(one.mean_ms is not None and one.mean_ms > 0 for one in found.items)
    (alone,) = asked(running.namesrv_address, lambda session: brokers.send_test(session, "broker-a", count=1)).items
    assert (alone.sent, alone.mean_ms) == (1, None)
    with pytest.raises(AdminError):
        asked(running.namesrv_address, lambda session: brokers.send_test(session, count=0))


def test_a_broker_that_takes_nothing_is_a_failure(running: Cluster) -> None:
    running.refuse(RequestCode.SEND_MESSAGE_V2, ResponseCode.SYSTEM_BUSY, times=None, broker="broker-b")
    try:
        found = asked(running.namesrv_address, lambda session: brokers.send_test(session, count=2))
    finally:
        running.heal()
    assert [one.broker for one in found.items] == ["broker-a"]
    assert [failure.name for failure in found.failures] == ["SYSTEM_BUSY"]


def test_consumption_of_a_cluster_that_nobody_consumes(running: Cluster) -> None:
    assert asked(running.namesrv_address, brokers.consumption).items == []
