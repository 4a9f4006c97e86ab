"""Members that subscribe differently are found, and a new one warns of them."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.client import MessageSelector
from orbitmq.client.consistency import SubscriptionDifference, differences, subscribed
from orbitmq.client.core.selectors import Selector, subscription_of
from orbitmq.errors import BrokerError
from orbitmq.message.config import SubscriptionData
from orbitmq.net.connection import Connection
from orbitmq.wire.bodies import ConsumerRunningInfo
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers_groups import GetConsumerRunningInfoHeader
from orbitmq.wire.objects import encode
from orbitmq.wire.requests import RequestCode
from tests.client.test_push import Listener, push
from tests.support.fake_system import FakeSystem, fake_system, refuse
from tests.support.loops import run, until


def of(**topics: Selector) -> list[SubscriptionData]:
    return [subscription_of(topic, selector, version) for version, (topic, selector) in enumerate(topics.items())]


def test_what_members_subscribe_is_compared_by_its_meaning() -> None:
    members = {
        "a": subscribed([*of(T="a || b", U="*"), SubscriptionData("%RETRY%g")], "g"),
        "b": subscribed(of(U="*", T="b||a"), "g"),
    }
    assert differences(members) == []
    members["c"] = subscribed(of(T="a", U=MessageSelector.sql("n > 1")), "g")
    members["d"] = subscribed(of(T="a"), "g")
    assert differences(members) == [
        SubscriptionDifference("T", {"a || b": ["a", "b"], "a": ["c", "d"]}),
        SubscriptionDifference("U", {"*": ["a", "b"], "SQL92: n > 1": ["c"], "(nothing)": ["d"]}),
    ]
    assert differences({}) == []


def answering(system: FakeSystem, others: dict[str, list[SubscriptionData]]) -> None:
    """The broker passes questions on to these members, and knows nobody else."""

    def relay(_: Connection, command: Command) -> Any:
        client_id = command.header(GetConsumerRunningInfoHeader).client_id
        if client_id not in others:
            return command.response(ResponseCode.SYSTEM_ERROR, "not online")
        return command.response(0, body=encode(ConsumerRunningInfo(subscription_set=others[client_id])))

    system.answers[RequestCode.GET_CONSUMER_RUNNING_INFO] = relay


def test_a_member_warns_of_others_that_subscribe_differently(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            answering(system, {"same": of(T="TagA"), "other": of(T="TagB")})
            system.members["g"] += ["same", "other", "gone"]
            async with push(system, Listener(), "TagA") as consumer:
                await until(lambda: "event=subscriptions_differ" in caplog.text)
                assert consumer.is_running

    run(scenario())
    (line,) = [r.getMessage() for r in caplog.records if "subscriptions_differ" in r.getMessage()]
    assert "topic=T" in line
    assert "'TagB': ['other']" in line


def test_members_that_agree_are_no_matter(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            answering(system, {"same": of(T="TagA || TagB")})
            system.members["g"].append("same")
            async with push(system, Listener(), "TagB||TagA"):
                await until(lambda: system.count(RequestCode.GET_CONSUMER_RUNNING_INFO))
            assert system.count(RequestCode.GET_CONSUMER_RUNNING_INFO) == 1
        async with fake_system() as system, push(system, Listener()):
            pass
        assert system.count(RequestCode.GET_CONSUMER_RUNNING_INFO) == 0, "who is alone asks nobody"

    run(scenario())
    assert "subscriptions_differ" not in caplog.text


def test_any_group_can_be_checked() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["%RETRY%h"] = 1
            system.members["h"] += ["one", "two", "silent"]
            answering(system, {"one": of(T="*"), "two": of(T="a")})
            async with push(system, Listener()) as consumer:
                found = await consumer.check_subscription_consistency("h")
                assert (found.members, list(found.silent), found.is_consistent) == (["one", "two"], ["silent"], False)
                assert found.differences == [SubscriptionDifference("T", {"*": ["one"], "a": ["two"]})]
                system.answers[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = refuse(ResponseCode.SYSTEM_ERROR)
                nobody = await consumer.check_subscription_consistency()
                assert (nobody.members, nobody.is_consistent) == ([], True)
                system.answers[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = refuse(ResponseCode.NO_PERMISSION)
                with pytest.raises(BrokerError):
                    await consumer.check_subscription_consistency()

    run(scenario())
