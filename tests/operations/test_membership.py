"""Heartbeats, members and locks are asked as the Java client asks them."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.errors import BrokerError
from orbitmq.operations import membership
from orbitmq.operations.membership import consume_directly
from orbitmq.wire.bodies import CheckClientRequest, ConsumeResult, HeartbeatData, LockedQueues, QueueLockRequest
from orbitmq.wire.objects import decode
from orbitmq.wire.requests import RequestCode
from tests.support.recorded import ADDRESS, exchange


def test_a_heartbeat_says_what_java_says_and_learns_the_version() -> None:
    found = exchange(RequestCode.HEART_BEAT)
    data = decode(HeartbeatData, found.question.body)
    assert asyncio.run(membership.heartbeat(found.remoting, ADDRESS, data)) == 407
    (asked,) = found.remoting.asked
    assert decode(HeartbeatData, asked.body) == data


@pytest.mark.parametrize("group", [{"producerGroup": "gsync_1"}, {"consumerGroup": "gcc_1"}])
def test_a_client_leaves_its_group(group: dict[str, str]) -> None:
    found = exchange(RequestCode.UNREGISTER_CLIENT, 0, **group)
    asyncio.run(
        membership.unregister_client(
            found.remoting,
            ADDRESS,
            found.ext["clientID"],
            producer_group=found.ext.get("producerGroup"),
            consumer_group=found.ext.get("consumerGroup"),
        )
    )
    found.assert_asked_as_java()


def test_members_of_a_group() -> None:
    found = exchange(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
    members = asyncio.run(membership.consumer_ids(found.remoting, ADDRESS, found.ext["consumerGroup"]))
    assert members
    found.assert_asked_as_java()


def test_a_group_without_members_is_refused_by_the_broker() -> None:
    found = exchange(RequestCode.GET_CONSUMER_LIST_BY_GROUP, 1)
    with pytest.raises(BrokerError, match="no consumer"):
        asyncio.run(membership.consumer_ids(found.remoting, ADDRESS, "g"))


def test_queues_are_locked() -> None:
    found = exchange(RequestCode.LOCK_BATCH_MQ)
    asked = decode(QueueLockRequest, found.question.body)
    locked = asyncio.run(
        membership.lock_queues(found.remoting, ADDRESS, asked.client_id, asked.consumer_group, asked.mq_set)
    )
    assert found.remoting.answer
    assert locked == set(decode(LockedQueues, found.remoting.answer.body).locked)
    assert decode(QueueLockRequest, found.remoting.asked[0].body).client_id == asked.client_id


def test_queues_are_unlocked() -> None:
    found = exchange(RequestCode.UNLOCK_BATCH_MQ)
    left = decode(QueueLockRequest, found.question.body)
    asyncio.run(membership.unlock_queues(found.remoting, ADDRESS, left.client_id, left.consumer_group, left.mq_set))
    (asked,) = found.remoting.asked
    assert not asked.is_oneway
    assert decode(QueueLockRequest, asked.body).mq_set == sorted(left.mq_set)


def test_a_subscription_is_checked() -> None:
    found = exchange(RequestCode.CHECK_CLIENT_CONFIG)
    asked = decode(CheckClientRequest, found.question.body)
    assert asked.subscription_data
    asyncio.run(membership.check_client(found.remoting, ADDRESS, asked.client_id, asked.group, asked.subscription_data))
    found.assert_asked_as_java()


def test_what_the_listener_made_of_it_is_told() -> None:
    found = exchange(RequestCode.CONSUME_MESSAGE_DIRECTLY)
    ext = found.ext
    result = asyncio.run(consume_directly(found.remoting, ADDRESS, ext["consumerGroup"], ext["clientId"], ext["msgId"]))
    assert result.consume_result is ConsumeResult.CR_SUCCESS
    found.assert_asked_as_java()
