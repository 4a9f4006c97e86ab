"""A store of which it is not certain that it has all it has reported is another member."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from orbitmq.broker.election.configured import make_election
from orbitmq.broker.election.member import Member
from orbitmq.broker.options import BrokerOptions
from orbitmq.errors import ConfigurationError, StoreDamaged
from orbitmq.failover.agreed import first
from orbitmq.store.options import StoreOptions


def options(root: Path, **more: str) -> StoreOptions:
    return StoreOptions.parse({"storePathRootDir": str(root), **more})


@pytest.mark.parametrize(
    ("flush", "was_killed", "boot", "log_end", "is_same"),
    [
        ("ASYNC_FLUSH", False, "one", 100, True),
        ("ASYNC_FLUSH", True, "one", 100, True),
        ("ASYNC_FLUSH", False, "two", 100, True),
        ("ASYNC_FLUSH", True, "two", 100, False),
        ("SYNC_FLUSH", True, "two", 100, True),
        ("SYNC_FLUSH", True, "two", 99, False),
        ("ASYNC_FLUSH", False, "one", 99, False),
        ("ASYNC_FLUSH", True, "one", 0, False),
    ],
)
def test_a_store_is_the_same_member_if_it_has_all(
    tmp_path: Path, flush: str, was_killed: bool, boot: str, log_end: int, is_same: bool
) -> None:
    before = Member(options(tmp_path), "one")
    name = before.identify(10, was_killed=False)
    before.note_end(100)
    after = Member(options(tmp_path, flushDiskType=flush), boot)
    assert (after.identify(log_end, was_killed=was_killed) == name) is is_same
    assert Member(options(tmp_path), boot).name == after.name


def test_a_new_store_is_a_new_member(tmp_path: Path) -> None:
    roots = [tmp_path / str(number) for number in range(20)]
    for root in roots:
        root.mkdir()
    names = {Member(options(root)).identify(0, was_killed=False) for root in roots}
    assert len(names) == 20
    assert all(names)


def test_a_copy_is_another_member(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    name = Member(options(tmp_path / "one")).identify(100, was_killed=False)
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    assert Member(options(tmp_path / "other")).identify(100, was_killed=False) != name
    (tmp_path / "one").rename(tmp_path / "elsewhere")
    assert Member(options(tmp_path / "elsewhere")).identify(100, was_killed=False) == name


def test_two_changes_at_a_time_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end is noted by one thread while another one notes an epoch."""
    member = Member(options(tmp_path))
    agreed = first(member.identify(0, was_killed=False))
    waits, goes_on = threading.Event(), threading.Event()
    save = Member._save

    def saves(self: Member, content: Any) -> None:
        if not content.history:
            waits.set()
            goes_on.wait(10)
        save(self, content)

    monkeypatch.setattr(Member, "_save", saves)
    with ThreadPoolExecutor() as threads:
        noted = threads.submit(member.note_end, 50)
        waits.wait(10)
        followed = threads.submit(member.follow, agreed, 60)
        goes_on.set()
        noted.result(10)
        followed.result(10)
    assert member.history == Member(options(tmp_path)).history == agreed.history


def test_where_its_log_parts_outlives_a_restart(tmp_path: Path) -> None:
    member = Member(options(tmp_path))
    me = member.identify(0, was_killed=False)
    assert (member.history, member.parts(first("other"), 0)) == ((), 0)
    agreed = first(me)
    member.follow(agreed, 0)
    elsewhere = agreed.elect("other", 300, agreed.history)
    again = Member(options(tmp_path))
    assert again.history
    assert [again.parts(elsewhere, end) for end in (200, 300, 400)] == [200, 300, 300]
    assert again.parts(first("other"), 100) == 100, "an epoch has one master"


def test_a_record_that_cannot_be_read_is_no_new_member(tmp_path: Path) -> None:
    Member(options(tmp_path)).identify(0, was_killed=False)
    (tmp_path / "config" / "member.json").write_text("{")
    with pytest.raises(StoreDamaged, match=r"is no record of a member .*remove it"):
        Member(options(tmp_path))


@pytest.mark.parametrize(
    ("broker", "store", "text"),
    [
        ({"agreement": "zookeeper://h:1", "brokerId": "1"}, {}, "'zookeeper://h:1' is no agreement store"),
        ({"agreement": "etcd://", "brokerId": "1"}, {}, "'etcd://' is no agreement store"),
        ({"agreement": "h:2379", "brokerId": "1"}, {}, "'h:2379' is no agreement store"),
        ({"agreement": "etcd://a:2379;b:2379", "brokerId": "1"}, {}, "'etcd://a:2379;b:2379' is no agreement store"),
        ({"agreement": "etcd://h:1", "brokerId": "1"}, {"haCopyWholeLog": "false"}, "option haCopyWholeLog"),
        ({"agreement": "etcd://h:1"}, {}, "option brokerId: .* above 0, each its own"),
        ({"agreement": "etcd://h:1", "brokerId": "1", "brokerName": ""}, {}, "option brokerName"),
        ({"agreement": "etcd://h:1", "brokerId": "1"}, {"haMasterAddress": "h:2"}, "option haMasterAddress"),
        ({"agreement": "etcd://h:1", "brokerId": "1"}, {"transientStorePoolEnable": "true"}, "transientStorePool"),
        (
            {"agreement": "etcd://h:1", "brokerId": "1", "agreementPasswordFile": "/none"}, {},
            "option agreementPasswordFile: .*/none",
        ),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_are_named(
    tmp_path: Path, broker: dict[str, str], store: dict[str, str], text: str
) -> None:
    with pytest.raises(ConfigurationError, match=text):
        make_election(BrokerOptions.parse({"brokerName": "a", **broker}), options(tmp_path, **store))


def test_without_the_option_nobody_is_elected(tmp_path: Path) -> None:
    assert make_election(BrokerOptions.parse({"brokerName": "a"}), options(tmp_path)) is None
