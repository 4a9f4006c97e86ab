"""Clients and their groups at a live broker over TCP: heartbeats, leaving, notices, queue locks."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from orbitmq.broker import membership
from orbitmq.errors import SendRequestError
from orbitmq.message.config import SubscriptionData, SubscriptionGroup, TopicConfig
from orbitmq.message.model import MessageQueue
from orbitmq.runtime.refusals import Limit
from orbitmq.wire.bodies import (
    CheckClientRequest,
    ConsumerData,
    ConsumerIdList,
    HeartbeatData,
    LockedQueues,
    QueueLockRequest,
)
from orbitmq.wire.headers import GetConsumerListByGroupHeader, NotifyConsumerIdsChangedHeader, UnregisterClientHeader
from orbitmq.wire.objects import decode, encode
from orbitmq.wire.requests import RequestCode
from tests.support.live import BROKER, Client, Time, client_of, consumer, live, made_broker, running
from tests.support.loops import LoopFactory, settle, until

ORDERS = SubscriptionData("Orders", version=1)


async def ids(client: Client, group: str) -> list[str] | None:
    """The members of a group as the broker tells them, None when it knows none."""
    answer = await client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupHeader(group))
    if answer.code == 1:
        assert not answer.body
        return None
    assert answer.code == 0
    return sorted(decode(ConsumerIdList, answer.body).consumer_id_list)


def notices(client: Client) -> list[str]:
    """Groups the client was told of since the last look."""
    heard, client.heard = client.heard, []
    assert all(command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED and command.is_oneway for command in heard)
    return [command.header(NotifyConsumerIdsChangedHeader).consumer_group for command in heard]


async def told(client: Client, count: int = 1) -> list[str]:
    await until(lambda: len(client.heard) >= count)
    return notices(client)


# ------------------------------------------------------------------------------------------------------- coming, going


async def test_a_heartbeat_makes_a_member_and_its_retry_topic(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker, "anna") as anna:
        broker.groups.put(SubscriptionGroup("thorough", retry_queues=3))
        answer = await anna.heartbeat(consumer("g", ORDERS), consumer("thorough", unit_mode=True), producers=["p"])
        assert (answer.code, answer.version) == (0, 407)
        assert await ids(anna, "g") == ["anna"]
        assert broker.topics.get("%RETRY%g") == TopicConfig("%RETRY%g", 1, 1, 6)
        assert broker.topics.get("%RETRY%thorough") == TopicConfig("%RETRY%thorough", 3, 3, 6, sys_flag=2)
        assert "g" in broker.groups.table
        assert [client.client_id for client in broker.producers.groups["p"].values()] == ["anna"]


@pytest.mark.parametrize("groups", [3, membership.TURN_GROUPS + 3])
async def test_a_group_without_retry_topic_is_refused_and_the_others_are_members(tmp_path: Path, groups: int) -> None:
    long = "g" * 125
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker, "anna") as anna:
        broker.groups.table[long] = SubscriptionGroup(long)  # of a store of RocketMQ
        names = ["first", long, *(f"g{number}" for number in range(groups - 2))]
        answer = await anna.heartbeat(*(consumer(name, ORDERS) for name in names), producers=["p" * 125])
        assert answer.code == 26
        assert f"group '{long}' has 125 characters, at most 120 are allowed" in (answer.remark or "")
        assert sorted(broker.consumers.groups) == sorted({*names} - {long})
        assert "p" * 125 in broker.producers.groups, "nothing is derived from a producer's group"


async def test_nobody_online_is_a_system_error(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        assert await ids(client, "nobody") is None


async def test_all_members_hear_when_one_joins_leaves_or_breaks_off(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker, "anna") as anna:
        await anna.heartbeat(consumer("g", ORDERS))
        assert await told(anna) == ["g"]
        async with client_of(broker, "bert") as bert, client_of(broker, "carl") as carl:
            await bert.heartbeat(consumer("g", ORDERS))
            assert await told(anna) == await told(bert) == ["g"]
            await carl.heartbeat(consumer("g", ORDERS), consumer("other", ORDERS))
            assert await told(anna) == await told(bert) == ["g"]
            assert sorted(await told(carl, 2)) == ["g", "other"]
            assert await ids(anna, "g") == ["anna", "bert", "carl"]
            left = await bert.ask(RequestCode.UNREGISTER_CLIENT, UnregisterClientHeader("bert", consumer_group="g"))
            assert (left.code, left.ext) == (0, {})
            assert await told(anna) == await told(carl) == ["g"]
            assert notices(bert) == []
        assert await told(anna) == ["g"]
        assert await ids(anna, "g") == ["anna"]
        assert await ids(anna, "other") is None


async def test_a_heartbeat_without_news_is_told_to_nobody(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        await client.heartbeat(consumer("g", ORDERS))
        assert await told(client) == ["g"]
        await client.heartbeat(consumer("g", ORDERS))
        await client.heartbeat(consumer("g", SubscriptionData("Orders", "TagA", version=2)))
        assert notices(client) == []
        await client.heartbeat(consumer("g", ORDERS, SubscriptionData("Bills")))
        assert await told(client) == ["g"]


@pytest.mark.parametrize("whose", ["broker", "group"])
async def test_notices_can_be_off(tmp_path: Path, whose: str) -> None:
    broker = made_broker(tmp_path, notifyConsumerIdsChangedEnable=str(whose != "broker").lower())
    async with running(broker), client_of(broker) as client:
        if whose == "group":
            broker.groups.put(SubscriptionGroup("g", notify_consumer_ids_changed=False))
        await client.heartbeat(consumer("g", ORDERS))
        assert await ids(client, "g") == ["client"]
        assert notices(client) == []


async def test_leaving_as_producer(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        await client.heartbeat(producers=["p", "q"])
        await client.ask(RequestCode.UNREGISTER_CLIENT, UnregisterClientHeader("client", producer_group="p"))
        assert list(broker.producers.groups) == ["q"]


async def test_a_client_without_heartbeats_is_dropped_after_two_minutes(
    tmp_path: Path, turned_clock: LoopFactory
) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock)
    async with running(broker), client_of(broker, "anna") as anna, client_of(broker, "bert") as bert:
        await anna.heartbeat(consumer("g", ORDERS), producers=["p"])
        await bert.heartbeat(consumer("g", ORDERS))
        for _ in range(4):
            await time.pass_by(29)
            await bert.heartbeat(consumer("g", ORDERS))
            assert await ids(anna, "g") == ["anna", "bert"]  # a request is no heartbeat
        notices(bert)
        await time.pass_by(14)
        assert await told(bert) == ["g"]
        assert await ids(bert, "g") == ["bert"]
        assert broker.producers.groups == {}
        await until(lambda: anna.remoting.connection(anna.address) is None)


async def test_a_group_that_may_not_exist_gets_no_retry_topic(tmp_path: Path) -> None:
    broker = made_broker(tmp_path, autoCreateSubscriptionGroup="false")
    async with running(broker), client_of(broker) as client:
        assert (await client.heartbeat(consumer("g", ORDERS))).code == 0
        assert "%RETRY%g" not in broker.topics.table


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"consumerDataSet":[{}]}', b'{"consumerDataSet":7}'])
async def test_a_heartbeat_that_is_none_is_refused(tmp_path: Path, body: bytes) -> None:
    async with live(tmp_path) as client:
        assert (await client.ask(RequestCode.HEART_BEAT, body=body)).code == 1
        assert (await client.heartbeat(consumer("g"))).code == 0


@pytest.mark.parametrize(
    ("subscription", "code"),
    [
        (SubscriptionData("Orders", "TagA || TagB"), 0),
        (SubscriptionData("Orders", "||"), 0),  # only other types are looked at
        (SubscriptionData("Orders", "a > 5", expression_type="SQL92"), 0),
        (SubscriptionData("Orders", "a >", expression_type="SQL92"), 23),
        (SubscriptionData("Orders", "a > 5", expression_type="SQL99"), 23),
        (None, 0),
    ],
)
async def test_a_subscription_can_be_checked(tmp_path: Path, subscription: SubscriptionData | None, code: int) -> None:
    async with live(tmp_path, enablePropertyFilter="true") as client:
        body = encode(CheckClientRequest("client", "g", subscription))
        assert (await client.ask(RequestCode.CHECK_CLIENT_CONFIG, body=body)).code == code


# --------------------------------------------------------------------------------------------------------------- locks


async def lock(client: Client, *numbers: int) -> list[int]:
    """Ask for queues of `Orders`; those owned now."""
    queues = [MessageQueue("Orders", BROKER, number) for number in numbers]
    answer = await client.ask(RequestCode.LOCK_BATCH_MQ, body=encode(QueueLockRequest(client.client_id, "g", queues)))
    assert answer.code == 0
    owned = decode(LockedQueues, answer.body).locked
    assert all((queue.topic, queue.broker_name) == ("Orders", BROKER) for queue in owned)
    return sorted(queue.queue_id for queue in owned)


async def unlock(client: Client, *numbers: int) -> None:
    queues = [MessageQueue("Orders", BROKER, number) for number in numbers]
    answer = await client.ask(RequestCode.UNLOCK_BATCH_MQ, body=encode(QueueLockRequest(client.client_id, "g", queues)))
    assert (answer.code, answer.body) == (0, b"")


async def test_queues_are_locked_by_one_client_until_it_frees_them(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker, "anna") as anna, client_of(broker, "bert") as bert:
        assert await lock(anna, 0, 1) == [0, 1]
        assert await lock(bert, 0, 1, 2) == [2]
        await unlock(bert, 0)
        assert await lock(bert, 0) == []
        await unlock(anna, 0)
        assert await lock(bert, 0, 1) == [0]
        assert await lock(anna, 0, 1) == [1]


async def test_a_lock_nobody_renews_is_free_after_a_minute(tmp_path: Path, turned_clock: LoopFactory) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock)
    async with running(broker), client_of(broker, "anna") as anna, client_of(broker, "bert") as bert:
        await lock(anna, 0, 1)
        await time.pass_by(50)
        await lock(anna, 1)
        await time.pass_by(11)
        assert await lock(bert, 0, 1) == [0]


# -------------------------------------------------------------------------------------------------------------- limits


async def test_a_client_of_thousands_of_groups_is_registered_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "TURN_GROUPS", 10)
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client, client_of(broker, "other") as other:
        groups = [consumer(f"g{number}", ORDERS) for number in range(95)]
        beating = asyncio.ensure_future(client.heartbeat(*groups))
        counts: list[int] = []
        while not beating.done():
            counts.append(len(broker.consumers.groups))
            await asyncio.sleep(0)
        assert (await beating).code == 0
        assert len(broker.consumers.groups) == 95
        assert max(after - before for before, after in pairwise(counts)) <= 10
        assert {f"%RETRY%g{number}" for number in range(95)} <= set(broker.topics.table)
        assert await ids(other, "g94") == ["client"]


async def test_a_client_that_goes_while_it_is_registered_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "TURN_GROUPS", 1)
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        beating = asyncio.ensure_future(client.heartbeat(*(consumer(f"g{number}", ORDERS) for number in range(500))))
        await until(lambda: broker.consumers.groups)
        client.remoting.disconnect(client.address)
        with pytest.raises(SendRequestError):
            await beating
        await until(lambda: not broker.consumers.groups)
        await settle(50)
        assert not broker.consumers.groups


def containers_in(*groups: ConsumerData) -> int:
    body = encode(HeartbeatData("client", list(groups)))
    return body.count(b"{") + body.count(b"[")


@pytest.mark.parametrize("limit", ["GROUPS_MAX", "SUBSCRIPTIONS_MAX", "HEARTBEAT_SIZE_MAX", "CONTAINERS_MAX"])
async def test_what_a_heartbeat_may_bring_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    topics = [SubscriptionData(f"T{number}") for number in range(3)]
    size = len(encode(HeartbeatData("client", [consumer("g", *topics[:2])])))
    if limit == "CONTAINERS_MAX":
        monkeypatch.setattr(membership, limit, containers_in(consumer("g", *topics[:2])))
    elif limit == "HEARTBEAT_SIZE_MAX":
        monkeypatch.setattr(RequestCode.HEART_BEAT, "body_max", size)
    else:
        monkeypatch.setattr(membership, limit, 2)
    async with live(tmp_path) as client:
        if limit == "GROUPS_MAX":
            assert (await client.heartbeat(*(consumer(f"g{number}") for number in range(2)))).code == 0
            assert (await client.heartbeat(*(consumer(f"g{number}") for number in range(3)))).code == 1
            assert (await client.heartbeat(producers=["p", "q", "r"])).code == 1
        else:
            assert (await client.heartbeat(consumer("g", *topics[:2]))).code == 0
            assert (await client.heartbeat(consumer("g", *topics))).code == 1


async def test_memberships_of_all_clients_are_limited(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broker = made_broker(tmp_path)
    broker.consumers._memberships._limit = broker.producers._memberships._limit = 2
    async with running(broker), client_of(broker) as client:
        await client.heartbeat(*(consumer(f"g{number}", ORDERS) for number in range(3)), producers=["p", "q", "r"])
        assert (set(broker.consumers.groups), set(broker.producers.groups)) == ({"g0", "g1"}, {"p", "q"})
        assert caplog.text.count("event=membership_refused") == 1, "one line for both"
        assert broker.refusals.counts[Limit.MEMBERSHIPS] == 2
        await client.ask(RequestCode.UNREGISTER_CLIENT, UnregisterClientHeader("client", "p", "g0"))
        await client.heartbeat(consumer("g2", ORDERS), producers=["r"])
        assert (set(broker.consumers.groups), set(broker.producers.groups)) == ({"g1", "g2"}, {"q", "r"})
