"""Accounts are read as RocketMQ reads them, and grant what it grants."""

from __future__ import annotations

import pytest

from orbitmq.broker.access.accounts import PUB, SUB, Config, account_of, config_of, resource_text
from orbitmq.errors import ConfigurationError


def account(**fields: object) -> object:
    return account_of(config_of({"accessKey": "accesskey", "secretKey": "secretkey", **fields}))


def test_a_permission_of_its_own_goes_before_the_default() -> None:
    found = account(defaultTopicPerm="PUB", defaultGroupPerm="SUB", topicPerms=["a=DENY"], groupPerms=["g=PUB"])
    assert found.missing([("b", PUB), ("%RETRY%h", SUB)]) is None
    assert found.missing([("a", PUB)]) == "a"
    assert found.missing([("b", SUB)]) == "b"
    assert found.missing([("%RETRY%g", SUB)]) == "%RETRY%g"


@pytest.mark.parametrize("text", ["pub", "PUB | SUB", "ALL", "ANY", "", "DENY"])
def test_a_permission_that_is_not_spelt_right_denies(text: str) -> None:
    assert account(defaultTopicPerm=text).missing([("a", PUB)]) == "a"


def test_everybody_may_write_traces_and_nobody_may_read_them_for_that() -> None:
    found = account(topicPerms=["RMQ_SYS_TRACE_TOPIC=DENY"])
    assert found.missing([("RMQ_SYS_TRACE_TOPIC", PUB)]) is None
    assert found.missing([("RMQ_SYS_TRACE_TOPIC", SUB)]) == "RMQ_SYS_TRACE_TOPIC"


def test_an_administrator_with_permissions_is_held_to_them() -> None:
    assert account(admin=True).missing([("a", PUB)]) is None
    assert account(admin="true", topicPerms=["b=PUB"]).missing([("a", PUB)]) == "a"


def test_numbers_stand_for_themselves() -> None:
    config = config_of({"accessKey": 12345678, "secretKey": 0o123456701})
    assert (config.access_key, config.secret_key) == ("12345678", "21913025")


@pytest.mark.parametrize(
    "fields",
    [
        {"accessKey": "short", "secretKey": "hush hush"},
        {"accessKey": "long enough", "secretKey": "hush"},
        {"accessKey": "long enough"},
        {"accessKey": "long enough", "secretKey": ["hush hush"]},
        {"accessKey": "long enough", "secretKey": "hush hush", "topicPerms": "a=PUB"},
        {"accessKey": "long enough", "secretKey": "hush hush", "topicPerms": ["a"]},
        {"accessKey": "long enough", "secretKey": "hush hush", "groupPerms": ["a=b=c"]},
        {"accessKey": "long enough", "secretKey": "hush hush", "whiteRemoteAddress": "1.2.3"},
        "no mapping",
    ],
)
def test_an_account_that_cannot_be_used_is_refused_without_its_secret(fields: object) -> None:
    with pytest.raises(ConfigurationError) as refused:
        account_of(config_of(fields))
    assert "hush" not in str(refused.value)


def test_a_secret_stands_in_no_representation() -> None:
    config = Config("long enough", "hush hush")
    assert "hush" not in repr(config) + repr(account_of(config))


def test_resources_are_shown_as_people_know_them() -> None:
    assert resource_text("orders") == "topic:orders"
    assert resource_text("%RETRY%billing") == "group:billing"
