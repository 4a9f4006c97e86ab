"""Accounts: what may be asked for is checked before anybody is asked, and a secret is in no step."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from orbitmq.admin import acl
from orbitmq.admin.acl import AccountChanges, plain_account
from orbitmq.admin.session import Session
from orbitmq.errors import AdminError
from orbitmq.net.remoting import Remoting
from orbitmq.testing.cluster import Cluster
from orbitmq.wire.bodies_access import AccountConfig
from tests.support.sessions import asked

ACCOUNT = AccountConfig("an-account", "a long secret", topic_perms=["orders=PUB"], default_topic_perm="DENY")


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with Cluster() as started:
        yield started


def test_what_is_not_given_stays() -> None:
    assert AccountChanges().over(ACCOUNT) == ACCOUNT
    changed = AccountChanges(topic_perms=["bills=SUB"], admin=True).over(ACCOUNT)
    assert (changed.secret_key, changed.default_topic_perm) == ("a long secret", "DENY")
    assert (changed.topic_perms, changed.admin) == (["bills=SUB"], True)


def test_an_empty_list_is_wanted_only_where_there_is_something() -> None:
    """RocketMQ refuses one."""
    same = AccountChanges(topic_perms=[], group_perms=[]).over(AccountConfig("an-account", "a long secret"))
    assert (same.topic_perms, same.group_perms) == (None, None)
    assert AccountChanges(topic_perms=[]).over(ACCOUNT).topic_perms == []
    assert AccountChanges(topic_perms=[]).empties(ACCOUNT)
    assert not AccountChanges(topic_perms=["orders=DENY"], group_perms=[]).empties(ACCOUNT)


def test_a_step_tells_that_a_secret_changes_and_not_which() -> None:
    before, after = plain_account(ACCOUNT), plain_account(AccountChanges("another secret").over(ACCOUNT))
    assert before != after
    assert plain_account(ACCOUNT) == before
    assert "secret" not in str(before).replace("secretKey", "") + str(after).replace("secretKey", "")


@pytest.mark.parametrize(
    ("access_key", "wanted"),
    [
        ("short", AccountChanges("a long secret")),
        ("long-enough", AccountChanges("short")),
        ("long-enough", AccountChanges("a long secret", topic_perms=["orders"])),
        ("long-enough", AccountChanges("a long secret", group_perms=["g=ALL"])),
        ("long-enough", AccountChanges("a long secret", default_topic_perm="RW")),
    ],
)
def test_what_a_broker_would_refuse_is_not_sent(access_key: str, wanted: AccountChanges) -> None:
    with pytest.raises(AdminError):
        asyncio.run(acl.plan_account(Session(Remoting(), ["127.0.0.1:1"]), access_key, wanted))


def test_a_broker_without_access_control_says_so(running: Cluster) -> None:
    found = asked(running.namesrv_address, acl.listed)
    assert found.items == []
    assert [failure.message.partition(" at ")[0] for failure in found.failures] == ["access control is off"]
    assert found.failures[0].hint is not None
    assert "aclEnable=true" in found.failures[0].hint
