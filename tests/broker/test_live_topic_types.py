"""What RocketMQ 5 adds to topics and groups, at a live broker: set by its tools, kept by others, stored and read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.message.config import (
    CustomizedRetries,
    ExponentialRetries,
    FixedSubscription,
    RetryPolicy,
    RetryPolicyType,
    SubscriptionGroup,
    TopicConfig,
)
from orbitmq.wire.bodies import SubscriptionGroupTable, TopicConfigList, TopicTable
from orbitmq.wire.command import Command
from orbitmq.wire.headers_admin import CreateTopicHeader, GetSubscriptionGroupConfigHeader, GetTopicConfigHeader
from orbitmq.wire.objects import decode, encode
from orbitmq.wire.requests import RequestCode
from tests.support.live import Client, client_of, made_broker, running

OF_FIVE = {
    "groupName": "five",
    "attributes": {},
    "consumeMessageOrderly": True,
    "consumeTimeoutMinute": 3,
    "groupRetryPolicy": {
        "type": "EXPONENTIAL",
        "exponentialRetryPolicy": {"initial": 1000, "max": 5000, "multiplier": 3},
    },
    "groupSysFlag": 1,
    "subscriptionDataSet": [{"topic": "T", "expressionType": "TAG", "expression": "a", "version": 3}],
}
"""As a tool of 5.3.3 sends it."""


async def alter(client: Client, attributes: str | None, topic: str = "Orders") -> Command:
    header = CreateTopicHeader(topic, "TBW102", 4, 4, 6, "SINGLE_TAG", False, attributes=attributes)
    return await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


def attributes_of(broker: Broker, topic: str = "Orders") -> dict[str, str] | None:
    config = broker.topics.table.get(topic)
    return None if config is None else config.attributes


async def test_attributes_are_set_changed_kept_and_removed(tmp_path: Path) -> None:
    """A 4.x tool that changes the topic does not know them."""
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        for text, after in (
            ("+message.type=FIFO,+queue.type=SimpleCQ", {"message.type": "FIFO", "queue.type": "SimpleCQ"}),
            ("+message.type=DELAY", {"message.type": "DELAY", "queue.type": "SimpleCQ"}),
            (None, {"message.type": "DELAY", "queue.type": "SimpleCQ"}),
            ("", {"message.type": "DELAY", "queue.type": "SimpleCQ"}),
            ("-message.type,+reserve.time=007", {"queue.type": "SimpleCQ", "reserve.time": "007"}),
        ):
            assert (await alter(client, text)).code == 0
            assert attributes_of(broker) == after
        one = await client.ask(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigHeader("Orders"))
        assert one.body.startswith(
            b'{"attributes":{"queue.type":"SimpleCQ","reserve.time":"007"},"order":false,"perm":6,'
        )
        table = decode(TopicTable, (await client.ask(RequestCode.GET_ALL_TOPIC_CONFIG)).body)
        assert table.topics["Orders"].attributes == attributes_of(broker)
    again = made_broker(tmp_path)
    async with running(again):
        assert attributes_of(again) == {"queue.type": "SimpleCQ", "reserve.time": "007"}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("+message.type=LITE", 1),
        ("+foo=bar", 1),
        ("-queue.type", 1),
        ("+cleanup.policy=DELETE", 1),
        ("message.type", 1),
        ("+message.type=MIXED", 29),
    ],
)
async def test_what_is_refused_changes_nothing(tmp_path: Path, text: str, code: int) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        assert (await alter(client, "+message.type=FIFO")).code == 0
        before = broker.topics.table["Orders"], broker.topics.version
        answer = await alter(client, text)
        assert answer.code == code
        assert answer.remark
        assert (broker.topics.table["Orders"], broker.topics.version) == before


async def test_mixed_topics_need_an_option(tmp_path: Path) -> None:
    broker = made_broker(tmp_path, enableMixedMessageType="true")
    async with running(broker), client_of(broker) as client:
        assert (await alter(client, "+message.type=MIXED")).code == 0
        assert attributes_of(broker) == {"message.type": "MIXED"}


async def test_a_list_of_topics_has_changes_as_well(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        for changes, code in (({"+message.type": "FIFO"}, 0), ({"message.type": "FIFO"}, 1)):
            body = encode(TopicConfigList([TopicConfig("Orders", attributes=changes)]))
            assert (await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)).code == code
            assert attributes_of(broker) == {"message.type": "FIFO"}


async def test_settings_of_a_group_are_kept_as_a_tool_of_5x_sends_them(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        assert (await client.ask(code, body=json.dumps(OF_FIVE).encode())).code == 0
        group = broker.groups.table["five"]
        policy = RetryPolicy(RetryPolicyType.EXPONENTIAL, ExponentialRetries(1000, 5000, 3))
        assert group == SubscriptionGroup(
            "five", consume_orderly=True, retry_policy=policy, sys_flag=1, consume_timeout_minutes=3,
            subscriptions=(FixedSubscription("T", "TAG", "a", 3),),
        )  # fmt: skip
        header = GetSubscriptionGroupConfigHeader("five")
        told = json.loads((await client.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)).body)
        assert {name: value for name, value in OF_FIVE.items() if value != {}}.items() <= told.items()
        everything = await client.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        assert decode(SubscriptionGroupTable, everything.body).groups["five"] == group
        refused = await client.ask(code, body=json.dumps(OF_FIVE | {"attributes": {"+a": "b"}}).encode())
        assert (refused.code, refused.remark) == (1, "attribute a of a group is unknown")
        assert broker.groups.table["five"] == group
    again = made_broker(tmp_path)
    async with running(again), client_of(again) as client:
        assert again.groups.table["five"] == group
        assert (await client.ask(code, body=encode(SubscriptionGroup("five")))).code == 0
        assert again.groups.table["five"] == SubscriptionGroup("five"), "a tool of 4.x replaces all settings"


def test_the_steps_of_a_policy_are_a_list_of_numbers() -> None:
    group = decode(
        SubscriptionGroup, '{"groupName":"g","groupRetryPolicy":{"customizedRetryPolicy":{"next":[1000,2000]}}}'
    )
    assert group.retry_policy == RetryPolicy(customized=CustomizedRetries((1000, 2000)))
    assert b'"groupRetryPolicy":{"customizedRetryPolicy":{"next":[1000,2000]},"type":"CUSTOMIZED"}' in encode(group)


def test_without_anything_of_5x_the_texts_are_those_of_4x() -> None:
    """Which write these members and no others."""
    assert b"attributes" not in encode(TopicConfig("T"))
    of_five = (
        b'{"groupName":"g","attributes":{},"consumeMessageOrderly":false,"consumeTimeoutMinute":15,"groupSysFlag":0,'
    )
    group = decode(SubscriptionGroup, of_five + b'"groupRetryPolicy":{"type":"CUSTOMIZED"}}')
    assert group == SubscriptionGroup("g")
    assert set(json.loads(encode(group))) == {
        "brokerId", "consumeBroadcastEnable", "consumeEnable", "consumeFromMinEnable", "groupName",
        "notifyConsumerIdsChangedEnable", "retryMaxTimes", "retryQueueNums", "whichBrokerWhenConsumeSlowly",
    }  # fmt: skip
