"""Name servers are asked and changed one by one, and where they differ is told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orbitmq.admin import namesrv
from orbitmq.admin.plans import Plan, StepOutcome
from orbitmq.admin.session import Session
from orbitmq.errors import Conflict, NotFound
from orbitmq.testing.cluster import Cluster
from tests.support.sessions import asked


@pytest.fixture(scope="module")
def two() -> Iterator[tuple[Cluster, Cluster]]:
    """Two name servers that have nothing in common but their system topics."""
    with Cluster() as one, Cluster(brokers=2) as other:
        yield one, other


def both(two: tuple[Cluster, Cluster]) -> str:
    return ";".join(cluster.namesrv_address for cluster in two)


async def made(plan: Plan) -> list[StepOutcome]:
    return [step.outcome for step in (await plan.verify(await plan.make())).items]


def test_what_one_knows_and_another_does_not(two: tuple[Cluster, Cluster]) -> None:
    two[0].create_topic("OnlyHere")
    first, second = asked(both(two), namesrv.listed).items
    assert (first.brokers, second.brokers) == (1, 2)
    assert first.missing_brokers == ["broker-a:0", "broker-b:0"]
    assert "OnlyHere" in second.missing_topics
    assert "OnlyHere" not in first.missing_topics


def test_one_that_is_silent_is_named(two: tuple[Cluster, Cluster]) -> None:
    found = asked(f"{two[0].namesrv_address};127.0.0.1:1", namesrv.listed)
    assert len(found.items) == 1
    assert [failure.target for failure in found.failures] == ["127.0.0.1:1"]


def test_settings_are_compared_and_changed_at_each(two: tuple[Cluster, Cluster]) -> None:
    async def change(session: Session) -> list[StepOutcome]:
        return await made(await namesrv.plan_settings(session, {"orderMessageEnable": "true"}))

    assert asked(two[0].namesrv_address, change) == [StepOutcome.CONFIRMED]
    rows = asked(both(two), lambda session: namesrv.settings(session, containing="ordermess")).items
    assert [(row.key, row.value, row.differs) for row in rows] == [
        ("orderMessageEnable", "true", True),
        ("orderMessageEnable", "false", True),
    ]
    assert asked(both(two), change) == [StepOutcome.UNCHANGED, StepOutcome.CONFIRMED]
    rows = asked(both(two), lambda session: namesrv.settings(session, containing="ordermess")).items
    assert not any(row.differs for row in rows)


def test_paths_and_unknown_settings_are_refused(two: tuple[Cluster, Cluster]) -> None:
    with pytest.raises(Conflict, match="kvConfigPath"):
        asked(both(two), lambda session: namesrv.plan_settings(session, {"kvConfigPath": "/etc/passwd"}))
    with pytest.raises(NotFound, match="no setting orderMessage"):
        asked(both(two), lambda session: namesrv.plan_settings(session, {"orderMessage": "true"}))


def test_pairs_are_put_read_and_removed_at_each(two: tuple[Cluster, Cluster]) -> None:
    async def put(session: Session, value: str | None) -> list[StepOutcome]:
        return await made(await namesrv.plan_pair(session, "space", "key", value))

    assert asked(two[0].namesrv_address, lambda session: put(session, "v")) == [StepOutcome.CONFIRMED]
    rows = asked(both(two), lambda session: namesrv.pair(session, "space", "key")).items
    assert [(row.value, row.differs) for row in rows] == [("v", True), (None, True)]
    assert asked(both(two), lambda session: put(session, None)) == [StepOutcome.CONFIRMED, StepOutcome.UNCHANGED]
    with pytest.raises(NotFound, match="no key in the namespace space"):
        asked(both(two), lambda session: namesrv.pair(session, "space", "key"))
