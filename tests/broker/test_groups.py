"""Groups exist from the start, come with their first member if they may, and survive a restart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orbitmq.broker import groups as groups_module
from orbitmq.broker.groups import Groups
from orbitmq.broker.options import BrokerOptions
from orbitmq.errors import RequestRejected
from orbitmq.message.config import DataVersion, SubscriptionGroup
from orbitmq.message.javajson import loads
from orbitmq.runtime.clock import ManualClock
from tests.support.golden import GOLDEN

NOW_MS = 1_700_000_000_000
BUILT_IN = {
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
}


def made(directory: Path, **options: object) -> Groups:
    return Groups(directory, BrokerOptions(**options), ManualClock(NOW_MS))  # type: ignore[arg-type]


def test_the_groups_of_a_fresh_broker_are_rocketmqs(tmp_path: Path) -> None:
    assert set(made(tmp_path).table) == BUILT_IN


async def test_a_group_comes_with_its_first_member(tmp_path: Path) -> None:
    groups = made(tmp_path)
    assert groups.find("g") == groups.find("g") == SubscriptionGroup("g")
    assert groups.version == DataVersion(1, NOW_MS)
    assert groups.find("") is None
    await groups.file.flush()


async def test_creation_can_be_off_but_not_for_system_groups(tmp_path: Path) -> None:
    groups = made(tmp_path, auto_create_subscription_group=False)
    assert groups.find("g") is None
    assert groups.find("CID_RMQ_SYS_TRANS") == SubscriptionGroup("CID_RMQ_SYS_TRANS")
    assert groups.find("TOOLS_CONSUMER") is not None
    await groups.file.flush()


async def test_invented_names_have_a_limit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Clients meet it first, administrators later."""
    groups = made(tmp_path, auto_created_groups_max=len(BUILT_IN) + 1, groups_max=len(BUILT_IN) + 2)
    assert groups.find("first") is not None
    assert groups.find("second") is None
    assert "event=group_refused group=second" in caplog.text
    assert groups.find("first") is not None
    groups.put(SubscriptionGroup("made"))
    with pytest.raises(RequestRejected, match="groupsMax"):
        groups.put(SubscriptionGroup("surplus"))
    groups.put(SubscriptionGroup("made", retry_max=3))
    await groups.file.flush()


async def test_all_groups_fit_into_one_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is refused for that is not told of an option that would not help."""
    monkeypatch.setattr(groups_module, "TEXT_SIZE_MAX", 0)
    groups = made(tmp_path)
    groups.put(SubscriptionGroup("first"))
    with pytest.raises(RequestRejected, match="one frame"):
        groups.put(SubscriptionGroup("second"))
    await groups.file.flush()


async def test_a_name_that_no_client_may_have_makes_no_group(tmp_path: Path) -> None:
    groups = made(tmp_path)
    assert groups.find("g" * 121) is None
    assert groups.find("g" * 120) is not None
    await groups.file.flush()


async def test_a_group_whose_retry_topic_cannot_be_is_refused_by_name_and_limit(tmp_path: Path) -> None:
    groups = Groups(tmp_path, BrokerOptions(), ManualClock(NOW_MS), with_light_queues=True)
    for name in ("g" * 121, "%LMQ%" + "g" * 116):
        with pytest.raises(RequestRejected, match=f"group '{name}' has 121 characters, at most 120 are allowed"):
            groups.require(name)


async def test_a_group_of_an_older_store_without_retry_topic_is_named_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    groups = made(tmp_path)
    groups.put(SubscriptionGroup("g" * 125))
    await groups.file.flush()
    again = made(tmp_path)
    again.load()
    assert f"event=group_refused group={'g' * 125} reason=no_retry_topic" in caplog.text


async def test_a_restart_keeps_groups_and_version(tmp_path: Path) -> None:
    groups = made(tmp_path)
    groups.put(SubscriptionGroup("g", consume_enabled=False, retry_queues=3, retry_max=2, broker_id_when_slow=7))
    groups.put(SubscriptionGroup("gone"))
    groups.delete("gone")
    groups.delete("unknown")
    await groups.file.flush()
    again = made(tmp_path)
    again.load()
    assert again.table == groups.table
    assert again.version == groups.version == DataVersion(3, NOW_MS)


async def test_a_file_of_rocketmq_is_read_and_written_again(tmp_path: Path) -> None:
    text = (GOLDEN / "configs/broker_subscriptionGroup.json").read_text(encoding="utf-8")
    java = loads(text)
    groups = made(tmp_path)
    groups.file.path.write_text(text, encoding="utf-8")
    groups.load()
    assert groups.version == DataVersion(**java["dataVersion"])
    assert not groups.table["admGroup_1"].consume_broadcast_enabled
    groups.file.mark()
    await groups.file.flush()
    written = json.loads(groups.file.path.read_text(encoding="utf-8"))
    assert written["dataVersion"] == java["dataVersion"]
    table = java["subscriptionGroupTable"]
    assert set(written["subscriptionGroupTable"]) == set(table) | BUILT_IN
    assert {name: written["subscriptionGroupTable"][name] for name in table} == table
