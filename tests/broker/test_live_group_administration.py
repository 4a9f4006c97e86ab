"""Tools ask a live broker about one consumer group: members, progress, offsets to be set."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.message.config import SQL92, SubscriptionData, TopicConfig
from orbitmq.message.model import MessageQueue
from orbitmq.wire.bodies import (
    ConsumeFromWhere,
    ConsumerConnection,
    ConsumeStats,
    ConsumeType,
    KVTable,
    MessageModel,
    ProducerConnection,
    QueueOffset,
    QueueOffsetList,
    QueueOffsets,
)
from orbitmq.wire.command import Command, request
from orbitmq.wire.headers_admin import (
    GetConsumerConnectionListHeader,
    GetConsumeStatsHeader,
    GetProducerConnectionListHeader,
)
from orbitmq.wire.headers_groups import (
    CloneGroupOffsetHeader,
    InvokeBrokerToResetOffsetHeader,
    ResetConsumerClientOffsetHeader,
)
from orbitmq.wire.objects import decode
from orbitmq.wire.requests import RequestCode
from tests.support.live import BROKER, Client, Time, client_of, consumer, live, made_broker, running
from tests.support.loops import LoopFactory, until

ORDERS = SubscriptionData("Orders", version=1)
RETRY = SubscriptionData("%RETRY%g", version=1)


def queue(number: int, topic: str = "Orders") -> MessageQueue:
    return MessageQueue(topic, BROKER, number)


async def members(client: Client, group: str = "g") -> ConsumerConnection:
    answer = await client.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, GetConsumerConnectionListHeader(group))
    assert answer.code == 0
    return decode(ConsumerConnection, answer.body)


async def stats(client: Client, topic: str | None = None) -> ConsumeStats:
    answer = await client.ask(RequestCode.GET_CONSUME_STATS, GetConsumeStatsHeader("g", topic))
    assert answer.code == 0
    return decode(ConsumeStats, answer.body)


# ------------------------------------------------------------------------------------------------------------- members


async def test_the_members_of_a_consumer_group_are_told(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker, "anna") as anna, client_of(broker, "bert") as bert:
        kind: dict[str, Any] = {
            "consume_type": ConsumeType.CONSUME_PASSIVELY,
            "message_model": MessageModel.BROADCASTING,
            "consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        }
        await anna.heartbeat(consumer("g", ORDERS, RETRY, **kind))
        await bert.heartbeat(consumer("g", ORDERS, RETRY, **kind))
        found = await members(anna)
        assert [(one.client_id, one.language, one.version) for one in found.connection_set] == [
            ("anna", "JAVA", 407),
            ("bert", "JAVA", 407),
        ]
        ports = {f"127.0.0.1:{one.remoting.connection(broker.address).local[1]}" for one in (anna, bert)}  # type: ignore[union-attr]
        assert {one.client_addr for one in found.connection_set} == ports
        assert found.subscription_table == {"Orders": ORDERS, "%RETRY%g": RETRY}
        assert (found.consume_type, found.message_model, found.consume_from_where) == tuple(kind.values())
        assert found.differing is None


async def test_a_group_that_is_not_online_has_a_code_of_its_own(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        answer = await client.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, GetConsumerConnectionListHeader("g"))
        assert answer.code == 206
        answer = await client.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, GetProducerConnectionListHeader("p"))
        assert answer.code == 1


async def test_the_members_of_a_producer_group_are_told(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        await client.heartbeat(producers=["p"])
        answer = await client.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, GetProducerConnectionListHeader("p"))
        (found,) = decode(ProducerConnection, answer.body).connection_set
        assert (found.client_id, found.language, found.version) == ("client", "JAVA", 407)


async def test_members_that_subscribe_differently_are_found_told_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker, "anna") as anna:
        await anna.heartbeat(consumer("g", SubscriptionData("Orders", "TagA || TagB", frozenset(("TagA", "TagB")))))
        async with client_of(broker, "bert") as bert:
            same = SubscriptionData("Orders", "TagB||TagA", frozenset(("TagA", "TagB")), version=9)
            await bert.heartbeat(consumer("g", same, RETRY))
            assert (await members(anna)).differing is None
            for version in (10, 11):
                await bert.heartbeat(consumer("g", SubscriptionData("Orders", "*", version=version), RETRY))
            assert (await members(anna)).differing == {
                "anna": {"Orders": "TagA || TagB"},
                "bert": {"Orders": "*"},
            }
            assert await differing_groups(anna) == ("1", "1")
            await anna.heartbeat(consumer("g", SubscriptionData("Orders", "a > 5", expression_type=SQL92)))
            assert caplog.text.count("event=subscriptions_differ group=g") == 1, "once, not at each heartbeat"
        await until(lambda: not broker.consumers.differing)
        assert (await members(anna)).differing is None
        assert caplog.text.count("event=subscriptions_agree group=g") == 1
        assert await differing_groups(anna) == ("0", "1")


async def differing_groups(client: Client) -> tuple[str, str]:
    """At this moment, and since the start."""
    table = decode(KVTable, (await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body).table
    return table["differingGroups"], table["differingGroupsTotal"]


async def test_a_member_that_reads_queues_of_its_own_choice_differs_from_nobody(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker, "anna") as anna, client_of(broker, "bert") as bert:
        await anna.heartbeat(consumer("g", ORDERS))
        await bert.heartbeat(consumer("g"))
        assert broker.consumers.differing == set()


# ------------------------------------------------------------------------------------------------------------ progress


async def filled(broker: Broker, client: Client, time: Time | None = None) -> None:
    """Two queues with three messages a second apart; the group has consumed one of the first, none of the second."""
    broker.topics.put(TopicConfig("Orders", 2, 2))
    for number in range(3):
        for queue_id in (0, 1):
            await client.send("Orders", b"%d" % number, queue_id=queue_id)
        if time is not None:
            await time.pass_by(1)
    broker.offsets.commit("g", "Orders", 0, 1)
    broker.offsets.commit("g", "Orders", 1, 0)


async def test_progress_is_told_for_each_readable_queue(tmp_path: Path, turned_clock: LoopFactory) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock)
    begun = time.clock.now_ms()
    async with running(broker), client_of(broker) as client:
        await filled(broker, client, time)
        broker.topics.put(TopicConfig("Orders", 3, 2))
        broker.offsets.commit("g", "Gone", 0, 7)
        for topic in (None, "Orders"):
            found = (await stats(client, topic)).offset_table
            assert {
                one.queue_id: (held.broker_offset, held.consumer_offset, held.last_timestamp)
                for one, held in found.items()
            } == {0: (3, 1, begun), 1: (3, 0, 0), 2: (0, 0, 0)}
        assert {(one.topic, one.broker_name) for one in found} == {("Orders", BROKER)}
        assert (await stats(client, "Gone")).offset_table == {}


async def test_progress_of_topics_that_members_no_longer_subscribe_is_left_out(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        await filled(broker, client)
        await client.heartbeat(consumer("g", SubscriptionData("Bills", version=1)))
        assert (await stats(client)).offset_table == {}


# ------------------------------------------------------------------------------------------------------------- setting


async def reset(client: Client, timestamp: int = -1, *, force: bool = True, **fields: Any) -> Command:
    header = InvokeBrokerToResetOffsetHeader("Orders", "g", timestamp, force, **fields)
    return await client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)


def targets(answer: Command) -> dict[int, int]:
    assert answer.code == 0
    return {one.queue_id: offset for one, offset in decode(QueueOffsets, answer.body).offset_table.items()}


@pytest.mark.parametrize(("after_s", "force", "wanted"), [
    (None, True, {0: 3, 1: 3}),
    (None, False, {0: 1, 1: 0}),
    (0, False, {0: 0, 1: 0}),
    (2, True, {0: 2, 1: 2}),
    (2, False, {0: 1, 1: 0}),
])  # fmt: skip
async def test_members_are_told_the_offsets_of_a_time(
    tmp_path: Path, turned_clock: LoopFactory, after_s: int | None, force: bool, wanted: dict[int, int]
) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock)
    timestamp = -1 if after_s is None else time.clock.now_ms() + after_s * 1000
    async with running(broker), client_of(broker, "tool") as tool, client_of(broker, "anna") as anna:
        await filled(broker, tool, time)
        await anna.heartbeat(consumer("g", ORDERS))
        anna.heard.clear()
        assert targets(await reset(tool, timestamp, force=force)) == wanted
        await until(lambda: anna.heard)
        (pushed,) = anna.heard
        assert (pushed.code, pushed.is_oneway) == (RequestCode.RESET_CONSUMER_CLIENT_OFFSET, True)
        assert pushed.header(ResetConsumerClientOffsetHeader) == ResetConsumerClientOffsetHeader(
            "Orders", "g", timestamp, is_force=False
        )
        assert decode(QueueOffsets, pushed.body).offset_table == {queue(number): at for number, at in wanted.items()}
        assert [broker.offsets.query("g", "Orders", number) for number in (0, 1)] == [1, 0], "the members commit"


async def test_a_tool_for_cpp_clients_has_them_told_a_list(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        await filled(broker, client)
        await client.heartbeat(consumer("g", ORDERS))
        client.heard.clear()
        header = InvokeBrokerToResetOffsetHeader("Orders", "g", -1, True)
        answer = await client.call(request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header, language="CPP"))
        assert targets(answer) == {0: 3, 1: 3}
        await until(lambda: client.heard)
        assert decode(QueueOffsetList, client.heard[0].body).offset_table == [
            QueueOffset(BROKER, 3, 0, "Orders"),
            QueueOffset(BROKER, 3, 1, "Orders"),
        ]


async def test_a_group_without_members_is_left_to_the_tool(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        await filled(broker, client)
        assert (await reset(client)).code == 206
        assert broker.offsets.query("g", "Orders", 0) == 1


@pytest.mark.parametrize("case", ["topic", "offset", "version"])
async def test_what_cannot_be_reset_is_refused(tmp_path: Path, case: str) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        if case != "topic":
            await filled(broker, client)
        if case == "offset":
            broker.topics.put(TopicConfig("Orders", 2, 3))
        await client.heartbeat(consumer("g", ORDERS))
        if case == "version":
            next(iter(broker.consumers.groups["g"].members.values())).version = 27
        answer = await reset(client)
        assert answer.code == 1
        assert answer.remark


async def test_one_queue_is_set_to_an_offset_whoever_is_online(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        await filled(broker, client)
        assert targets(await reset(client, 0, queue_id=1, offset=2)) == {1: 2}
        assert [broker.offsets.query("g", "Orders", number) for number in (0, 1)] == [1, 2]
        await client.heartbeat(consumer("g", ORDERS))
        client.heard.clear()
        assert targets(await reset(client, 0, queue_id=0, offset=3)) == {0: 3}
        await until(lambda: client.heard)
        assert decode(QueueOffsets, client.heard[0].body).offset_table == {queue(0): 3}
        assert broker.offsets.query("g", "Orders", 0) == 3
        assert (await reset(client, 0, queue_id=0, offset=4)).code == 1
        assert broker.offsets.query("g", "Orders", 0) == 3


async def clone(client: Client, topic: str | None = None, *, offline: bool = False) -> int:
    header = CloneGroupOffsetHeader("g", "copy", topic, offline)
    return (await client.ask(RequestCode.CLONE_GROUP_OFFSET, header)).code


async def test_a_group_gets_the_offsets_of_another(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        await filled(broker, client)
        broker.topics.put(TopicConfig("Bills", 1, 1))
        broker.offsets.commit("g", "Bills", 0, 9)
        broker.offsets.commit("g", "Gone", 0, 9)
        broker.offsets.commit("copy", "Orders", 5, 7)
        assert await clone(client, "Orders") == 0
        assert broker.offsets.table["Orders@copy"] == {0: 1, 1: 0}, "what it had before is gone"
        assert "Bills@copy" not in broker.offsets.table
        assert await clone(client) == 0
        assert broker.offsets.table["Bills@copy"] == {0: 9}
        assert "Gone@copy" not in broker.offsets.table
        assert broker.offsets.table["Orders@copy"] is not broker.offsets.table["Orders@g"]


async def test_only_subscribed_topics_are_cloned_from_a_group_that_is_online(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        await filled(broker, client)
        await client.heartbeat(consumer("g", SubscriptionData("Bills", version=1)))
        assert await clone(client, "Orders") == 0
        assert "Orders@copy" not in broker.offsets.table
        assert await clone(client, "Orders", offline=True) == 0
        assert broker.offsets.table["Orders@copy"] == {0: 1, 1: 0}
