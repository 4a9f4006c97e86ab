"""Undo files bring back what a change lost of topics and accounts, and say what they cannot: messages and secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from orbitmq.admin import acl
from orbitmq.admin.plans import Plan, joined
from orbitmq.admin.undo import plan_undo
from orbitmq.errors import AdminError
from orbitmq.testing.cluster import Cluster
from tests.support.commands import items, orbitmq
from tests.support.sessions import asked


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with Cluster(brokers=2) as started:
        yield started


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def newest(home: Path) -> Path:
    return max((home / "orbitmq" / "undo").iterdir(), key=lambda path: path.stat().st_mtime_ns)


def configurations(at: tuple[str, ...], topic: str) -> list[tuple[object, ...]]:
    found = items("topic", "config", topic, *at)
    return [(row["broker"], row["readQueues"], row["writeQueues"], row["perm"], row["ordered"]) for row in found]


def test_a_topic_that_was_deleted_is_as_it_was_but_for_its_messages(running: Cluster, home: Path) -> None:
    at = ("-n", running.namesrv_address)
    orbitmq("topic", "create", "Lost", "--queues", 3, "--perm", "R", "--broker", "broker-a", "--yes", *at)
    orbitmq("topic", "create", "Lost", "--queues", 5, "--broker", "broker-b", "--yes", *at)
    orbitmq("topic", "order", "Lost", "broker-b:5", "--yes", *at)
    before = configurations(at, "Lost")
    told = orbitmq("topic", "delete", "Lost", "--yes", *at)
    file = newest(home)
    assert f"to undo it: orbitmq topic undo {file}" in told.stderr
    orbitmq("topic", "status", "Lost", *at, code=3)
    told = orbitmq("topic", "undo", file, "--yes", *at)
    assert "messages of Lost, and the offsets of groups in it, are not restored" in told.stderr
    assert [row[:4] for row in configurations(at, "Lost")] == [row[:4] for row in before]
    assert items("namesrv", "kv", "get", "ORDER_TOPIC_CONFIG", "Lost", *at)[0]["value"] == "broker-b:5"
    assert "nothing to change" in orbitmq("topic", "undo", file, "--yes", *at).stderr


def test_a_topic_that_was_altered_is_as_it_was_on_each_broker(running: Cluster, home: Path) -> None:
    at = ("-n", running.namesrv_address)
    orbitmq("topic", "create", "Changed", "--queues", 2, "--broker", "broker-a", "--yes", *at)
    orbitmq("topic", "create", "Changed", "--queues", 4, "--broker", "broker-b", "--yes", *at)
    before = configurations(at, "Changed")
    orbitmq("topic", "alter", "Changed", "--queues", 9, "--perm", "W", "--yes", *at)
    assert configurations(at, "Changed") != before
    told = orbitmq("topic", "undo", newest(home), "--yes", *at)
    assert configurations(at, "Changed") == before
    assert "not restored" not in told.stderr
    running.kill("broker-b")
    try:
        told = orbitmq("topic", "undo", newest(home), "--yes", *at, code=5)
        assert "broker-b" in told.stderr
    finally:
        running.restart("broker-b")


def test_what_a_document_changed_has_one_way_back(running: Cluster, home: Path) -> None:
    at = ("-n", running.namesrv_address)
    orbitmq("topic", "create", "Applied", "--queues", 2, "--yes", *at)
    orbitmq("group", "create", "applied", "--retry-max-times", 3, "--yes", *at)
    document = home / "cluster.yaml"
    document.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "orbitmq/v1",
                "topics": [{"name": "Applied", "readQueues": 6, "writeQueues": 6}],
                "groups": [{"name": "applied", "retryMaxTimes": 9}],
            }
        )
    )
    told = orbitmq("config", "apply", "-f", document, "--yes", *at)
    assert "to undo it: orbitmq config undo" in told.stderr
    assert {row[1] for row in configurations(at, "Applied")} == {6}
    orbitmq("offset", "undo", newest(home), *at, code=2)
    orbitmq("config", "undo", newest(home), "--yes", *at)
    assert {row[1] for row in configurations(at, "Applied")} == {2}
    assert {row["retryMaxTimes"] for row in items("group", "config", "applied", *at)} == {3}


def test_a_file_of_another_form_changes_nothing(running: Cluster, home: Path) -> None:
    at = ("-n", running.namesrv_address)
    file = home / "odd.json"
    for undo in ({"topic": "T"}, {"topic": "T", "configs": {"broker-a": {"read_queues": "many"}}}):
        file.write_text(json.dumps({"format": "orbitmq-undo/v1", "command": "topic undo", **undo}))
        assert "no undo file of a topic" in orbitmq("topic", "undo", file, *at, code=2).stderr
    with pytest.raises(AdminError, match="no undo file"):
        asked(running.namesrv_address, lambda session: acl.plan_undo(session, {"rights": 1}))
    with pytest.raises(AdminError, match="no undo file"):
        asked(running.namesrv_address, lambda session: plan_undo(session, {"parts": 1}))


def test_plans_of_several_kinds_have_one_file() -> None:
    plans = [Plan(name, undo={"command": f"{name} undo"}) for name in ("topic", "offset")]
    assert joined("both", plans).undo is None, "nothing changes"
