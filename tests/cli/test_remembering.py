"""How long a broker that is gone is missed, and how that is ended: in the context, the environment, or by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orbitmq.testing.cluster import Cluster
from tests.support.commands import answer, items, orbitmq
from tests.support.process import wait_until
from tests.support.registration import is_registered

GONE = "broker-b"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2) as running:
        running.create_topic("T", 2)
        yield running


@contextmanager
def without(cluster: Cluster) -> Iterator[None]:
    cluster.kill(GONE)
    try:
        yield
    finally:
        cluster.restart(GONE)
        wait_until(lambda: is_registered(cluster.namesrv_address, GONE), 30, f"{GONE} is back")


def test_a_broker_that_was_taken_away_is_forgotten_on_demand(cluster: Cluster) -> None:
    at = ("-n", cluster.namesrv_address)
    answer("topic", "status", "T", *at)
    with without(cluster):
        (error,) = answer("topic", "status", "T", *at, code=5)["errors"]
        assert (error["target"].split(" ")[0], error["name"]) == (GONE, "UNREACHABLE")
        (found,) = [row for row in items("doctor", *at, code=8) if row["severity"] == "critical"]
        assert found["message"].count("no name server knows it any more") == 1
        told = orbitmq("cluster", "forget", "broker-z", *at, code=3)
        assert "did you mean broker-" in told.stderr
        told = orbitmq("cluster", "forget", GONE, *at)
        assert f"forgotten: {GONE}" in told.stderr
        assert not answer("topic", "status", "T", *at)["partial"]
    assert not answer("topic", "status", "T", *at)["partial"]


def test_how_long_a_broker_is_missed_is_said_by_the_context_or_the_environment(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ORBITMQ_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    orbitmq("context", "add", "short", "-n", cluster.namesrv_address, "--remember", "0")
    assert "no span of time" in orbitmq("context", "add", "odd", "-n", "h:1", "--remember", "a while", code=2).stderr
    answer("topic", "status", "T")
    with without(cluster):
        assert not answer("topic", "status", "T")["partial"], "the context says 0"
        monkeypatch.setenv("ORBITMQ_REMEMBER", "2h")
        assert answer("topic", "status", "T", code=5)["partial"], "it was written down all the same"
        monkeypatch.setenv("ORBITMQ_REMEMBER", "soon")
        assert "no span of time" in orbitmq("topic", "list", code=2).stderr


def test_a_cluster_whose_brokers_are_all_gone_is_not_an_unknown_one(cluster: Cluster) -> None:
    at = ("-n", cluster.namesrv_address, "--cluster", "DefaultCluster")
    answer("topic", "status", "T", *at)
    with without(cluster):
        cluster.kill("broker-a")
        try:
            told = answer("group", "list", *at, code=5)
            assert {error["target"].split(" ")[0] for error in told["errors"]} == {"broker-a", GONE}
            assert answer("topic", "status", "T", *at, code=5)["items"] == []
        finally:
            cluster.restart("broker-a")
