"""What tools ask a live broker about topics, groups and itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.filter.tags import tag_subscription
from orbitmq.message.config import DataVersion, SubscriptionData, TopicConfig
from orbitmq.message.model import MessageQueue
from orbitmq.store.engine import MessageStore
from orbitmq.wire.bodies import (
    BrokerStatsData,
    ConsumeQueueEntries,
    ConsumerOffsetTable,
    ConsumeStatsList,
    ConsumeTimeSpans,
    CorrectionOffsets,
    DelayOffsetTable,
    GroupList,
    GroupSubscription,
    KVTable,
    ProducerTableInfo,
    QueueProgress,
    QueueRange,
    TopicList,
    TopicStatsTable,
)
from orbitmq.wire.headers import UpdateConsumerOffsetHeader
from orbitmq.wire.headers_admin import (
    DeleteSubscriptionGroupHeader,
    DeleteTopicHeader,
    GetBrokerConsumeStatsHeader,
    GetTopicStatsInfoHeader,
    QueryConsumeQueueHeader,
    QueryConsumeTimeSpanHeader,
    QueryCorrectionOffsetHeader,
    QuerySubscriptionByConsumerHeader,
    QueryTopicConsumeByWhoHeader,
    QueryTopicsByConsumerHeader,
    ViewBrokerStatsDataHeader,
)
from orbitmq.wire.objects import decode
from orbitmq.wire.requests import RequestCode
from tests.support.live import CLUSTER, Client, Time, client_of, consumer, live, made_broker, running
from tests.support.loops import LoopFactory, until


async def commit(client: Client, group: str, topic: str, offset: int, queue_id: int = 0) -> None:
    await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetHeader(group, topic, queue_id, offset))


def queue(topic: str, queue_id: int = 0) -> MessageQueue:
    return MessageQueue(topic, "broker-a", queue_id)


# -------------------------------------------------------------------------------------------------------------- topics


async def test_what_the_queues_of_a_topic_hold(tmp_path: Path, turned_clock: LoopFactory) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock)
    async with running(broker), client_of(broker) as client:
        await client.send("T", queue_id=1)
        await time.pass_by(5)
        await client.send("T", queue_id=1)
        last = time.clock.now_ms()
        await time.pass_by(5)
        answer = await client.ask(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoHeader("T"))
        table = decode(TopicStatsTable, answer.body).offset_table
        assert table == {queue("T", i): QueueRange(last, 2, 0) if i == 1 else QueueRange() for i in range(4)}
        unknown = await client.ask(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoHeader("U"))
        assert (unknown.code, unknown.remark) == (17, "topic[U] not exist")


async def test_who_consumes_a_topic(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        await client.heartbeat(consumer("online", SubscriptionData("T")), consumer("other", SubscriptionData("U")))
        await commit(client, "offline", "T", 1)
        await commit(client, "online", "T", 1)
        answer = await client.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, QueryTopicConsumeByWhoHeader("T"))
        assert sorted(decode(GroupList, answer.body).group_list) == ["offline", "online"]
        topics = await client.ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, QueryTopicsByConsumerHeader("offline"))
        assert decode(TopicList, topics.body) == TopicList(client.address, ["T"])


async def test_how_late_a_group_is(tmp_path: Path, turned_clock: LoopFactory) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock)
    async with running(broker), client_of(broker) as client:
        stored = []
        for _ in range(3):
            stored.append(time.clock.now_ms())
            await client.send("T")
            await time.pass_by(10)
        header = QueryConsumeTimeSpanHeader("T", "g")
        spans = {}
        for offset in (None, 1, 3):
            if offset is not None:
                await commit(client, "g", "T", offset)
            answer = await client.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, header)
            first = decode(ConsumeTimeSpans, answer.body).consume_time_span_set[0]
            assert (first.min_time_stamp, first.max_time_stamp) == (stored[0], stored[2])
            assert first.message_queue == queue("T")
            spans[offset] = (first.consume_time_stamp, first.delay_time)
        assert spans == {None: (stored[0], 0), 1: (stored[0], 20_000), 3: (stored[2], 0)}


async def test_the_entries_of_a_queue(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        for tag in ("A", "B", "A"):
            await client.send("T", properties={"TAGS": tag})
        subscription = tag_subscription("T", "A", 1)
        await client.heartbeat(consumer("g", subscription))
        header = QueryConsumeQueueHeader("T", 0, 1, 10, "g")
        answer = await client.ask(RequestCode.QUERY_CONSUME_QUEUE, header)
        body = decode(ConsumeQueueEntries, answer.body)
        assert (body.min_queue_index, body.max_queue_index, body.filter_data) == (0, 3, "null")
        assert body.subscription_data == subscription
        assert [entry.tags_code for entry in body.queue_data] == [ord("B"), ord("A")]
        stored = broker.store.unit_at(body.queue_data[0].physical_offset)
        assert stored is not None
        assert len(stored) == body.queue_data[0].physical_size
        nobody = await client.ask(RequestCode.QUERY_CONSUME_QUEUE, QueryConsumeQueueHeader("T", 0, 0, 1, "nobody"))
        assert decode(ConsumeQueueEntries, nobody.body).filter_data == "nobody@T is not online!"
        beyond = await client.ask(RequestCode.QUERY_CONSUME_QUEUE, QueryConsumeQueueHeader("T", 0, 3, 1))
        assert (beyond.code, beyond.body, beyond.remark) == (0, b"", "Index 3 of 0@T is not exist!")
        absent = await client.ask(RequestCode.QUERY_CONSUME_QUEUE, QueryConsumeQueueHeader("T", 7, 0, 1))
        assert (absent.code, absent.remark) == (1, "7@T is not exist!")


async def test_system_topics_are_those_of_rocketmq(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        answer = await client.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    assert set(decode(TopicList, answer.body).topic_list) == {
        "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRACE_TOPIC", "DefaultCluster_REPLY_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC", "BenchmarkTest", "TRANS_CHECK_MAX_TIME_TOPIC", "OFFSET_MOVED_EVENT", "TBW102",
        "broker-a", "SELF_TEST_TOPIC", "DefaultCluster",
    }  # fmt: skip


# -------------------------------------------------------------------------------------------------------------- groups


async def test_all_offsets_at_once(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        await commit(client, "g", "T", 7, 2)
        await commit(client, "h", "T", 9)
        answer = await client.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
        assert decode(ConsumerOffsetTable, answer.body).offset_table == {"T@g": {2: 7}, "T@h": {0: 9}}
        assert b'"T@g":{2:7}' in answer.body
        assert decode(ConsumerOffsetTable, answer.body).data_version == DataVersion(), "for slaves of RocketMQ 5"


async def test_the_progress_of_delay_levels(tmp_path: Path, turned_clock: LoopFactory) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock)
    async with running(broker), client_of(broker) as client:
        await client.send("T", properties={"DELAY": "1"})
        await time.pass_by(2)
        await until(lambda: broker.store.max_offset("T", 0) == 1)
        answer = await client.ask(RequestCode.GET_ALL_DELAY_OFFSET)
        assert decode(DelayOffsetTable, answer.body).offset_table[1] == 1
        assert b"{1:1" in answer.body
        assert (await runtime_of(client))["scheduleMessageOffset_1"] == "1,1"
        assert await figure(client, "TOPIC_PUT_NUMS", "T") == 1
        assert await figure(client, "GROUP_GET_NUMS", "SCHEDULE_TOPIC_XXXX@SCHEDULE_CONSUMER") == 1


async def test_all_producers_at_once(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        await client.heartbeat(producers=["p", "q"])
        answer = await client.ask(RequestCode.GET_ALL_PRODUCER_INFO)
        data = decode(ProducerTableInfo, answer.body).data
        assert set(data) == {"p", "q"}
        (member,) = data["p"]
        assert (member.client_id, member.language, member.version) == ("client", "JAVA", 407)
        assert re.fullmatch(r"/127\.0\.0\.1:\d+", member.remote_ip or "")


async def test_how_far_every_group_is_behind(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        for topic, count in (("T", 5), ("U", 3)):
            for _ in range(count):
                await client.send(topic)
        broker.topics.put(TopicConfig("T", 4, 1, order=True))
        broker.topics.put(TopicConfig("U", 4, 1))
        for group, topic, offset in (("g", "T", 2), ("g", "U", 3), ("g", "Gone", 1), ("h", "U", 1)):
            broker.groups.find(group)
            await commit(client, group, topic, offset)
        answer = await client.ask(RequestCode.GET_BROKER_CONSUME_STATS, GetBrokerConsumeStatsHeader(False))
        stats = decode(ConsumeStatsList, answer.body)
        assert (stats.broker_addr, stats.total_diff) == (client.address, 3 + 0 + 2)
        rows = {group: found for row in stats.consume_stats_list for group, found in row.items()}
        assert set(rows) == set(broker.groups.table)
        (first, second) = rows["g"]
        progress = first.offset_table[queue("T")]
        assert (progress.broker_offset, progress.consumer_offset) == (5, 2)
        assert progress.last_timestamp == pytest.approx(broker._clock.now_ms(), abs=60_000)
        assert second.offset_table[queue("U")].consumer_offset == 3
        ordered = await client.ask(RequestCode.GET_BROKER_CONSUME_STATS, GetBrokerConsumeStatsHeader(True))
        assert decode(ConsumeStatsList, ordered.body).total_diff == 3


async def test_a_topic_that_online_members_do_not_subscribe_does_not_count_as_backlog(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        for topic in ("T", "U"):
            await client.send(topic)
            await commit(client, "g", topic, 0)
        await client.heartbeat(consumer("g", SubscriptionData("T")))
        answer = await client.ask(RequestCode.GET_BROKER_CONSUME_STATS, GetBrokerConsumeStatsHeader())
        (row,) = [row["g"] for row in decode(ConsumeStatsList, answer.body).consume_stats_list if "g" in row]
        assert [sorted({one.topic for one in stats.offset_table}) for stats in row] == [["T"]]
        assert row[0].offset_table[queue("T")] == QueueProgress(1, 0, 0)


async def test_offsets_are_compared_with_the_slowest_other_group(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        for group, offset in (("a", 5), ("b", 3), ("slow", 1), ("mine", 4)):
            await commit(client, group, "T", offset)
        header = QueryCorrectionOffsetHeader("mine", "T", "slow,mine")
        answer = await client.ask(RequestCode.QUERY_CORRECTION_OFFSET, header)
        assert decode(CorrectionOffsets, answer.body).correction_offsets == {0: 3}
        behind = await client.ask(
            RequestCode.QUERY_CORRECTION_OFFSET, QueryCorrectionOffsetHeader("slow", "T", "slow,mine")
        )
        assert decode(CorrectionOffsets, behind.body).correction_offsets == {0: (1 << 63) - 1}
        kept = await client.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
        assert set(decode(ConsumerOffsetTable, kept.body).offset_table) == {"T@a", "T@b", "T@slow", "T@mine"}


async def test_what_a_group_subscribes(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        subscription = tag_subscription("T", "A || B", 3)
        await client.heartbeat(consumer("g", subscription))
        for topic, expected in (("T", subscription), ("U", None)):
            header = QuerySubscriptionByConsumerHeader("g", topic)
            answer = await client.ask(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, header)
            assert decode(GroupSubscription, answer.body) == GroupSubscription("g", topic, expected)


# ------------------------------------------------------------------------------------------------------------- figures


async def runtime_of(client: Client) -> dict[str, str]:
    answer = await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    assert answer.code == 0
    return decode(KVTable, answer.body).table


async def figure(client: Client, name: str, key: str) -> int | None:
    answer = await client.ask(RequestCode.VIEW_BROKER_STATS_DATA, ViewBrokerStatsDataHeader(name, key))
    if answer.code:
        assert (answer.code, answer.remark) == (1, f"The stats <{name}> <{key}> not exist")
        return None
    data = decode(BrokerStatsData, answer.body)
    assert data.stats_day.sum == data.stats_minute.sum
    return data.stats_minute.sum


async def test_figures_count_what_clients_do(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        await client.send("T", bytes(100))
        await client.send_batch("T", [bytes(50)] * 4)
        pulled = await client.read("T")
        assert len(pulled) == 5
        assert await figure(client, "TOPIC_PUT_NUMS", "T") == 5
        assert await figure(client, "TOPIC_PUT_SIZE", "T") == broker.store.commit_log_max_offset
        assert await figure(client, "GROUP_GET_NUMS", "T@readers") == 5
        assert await figure(client, "GROUP_GET_SIZE", "T@readers") == broker.store.commit_log_max_offset
        assert await figure(client, "BROKER_PUT_NUMS", CLUSTER) == 5
        assert await figure(client, "BROKER_GET_NUMS", CLUSTER) == 5
        assert await figure(client, "TOPIC_PUT_NUMS", "U") is None
        await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicHeader("T"))
        assert await figure(client, "TOPIC_PUT_NUMS", "T") is None


async def test_how_far_a_group_is_behind_at_this_moment(tmp_path: Path, turned_clock: LoopFactory) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock)
    async with running(broker), client_of(broker) as client:
        sizes = []
        for _ in range(3):
            await client.send("T", bytes(100))
            sizes.append(broker.store.commit_log_max_offset - sum(sizes))
            await time.pass_by(10)
        expected = {0: (sum(sizes), 30_000), 2: (sizes[2], 10_000), 3: (0, 0), 7: (0, 0)}
        for offset, fall in expected.items():
            await commit(client, "g", "T", offset)
            names = ("GROUP_GET_FALL_SIZE", "GROUP_GET_FALL_TIME")
            assert tuple([await figure(client, name, "0@T@g") for name in names]) == fall
        for key in ("1@T@g", "0@T@other", "T@g", "x@T@g"):
            assert await figure(client, "GROUP_GET_FALL_SIZE", key) is None


async def test_messages_sent_back_are_counted_for_topic_and_group(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        await client.send("T")
        from orbitmq.wire.headers import ConsumerSendMsgBackHeader

        header = ConsumerSendMsgBackHeader(offset=0, group="g", delay_level=0)
        assert (await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header)).code == 0
        assert await figure(client, "SNDBCK_PUT_NUMS", "T@g") == 1
        await client.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteSubscriptionGroupHeader("g"))
        assert await figure(client, "SNDBCK_PUT_NUMS", "T@g") is None


# What the captured table of RocketMQ 4.9.7 holds; levels of delay and directories of the log are named apart.
RUNTIME_KEYS = """
EndTransactionQueueSize EndTransactionThreadPoolQueueCapacity bootTimestamp brokerVersion brokerVersionDesc
commitLogDirCapacity commitLogDiskRatio commitLogMaxOffset commitLogMinOffset consumeQueueDiskRatio
dispatchBehindBytes dispatchMaxBuffer earliestMessageTimeStamp getFoundTps getMessageEntireTimeMax getMissTps
getTotalTps getTransferedTps msgGetTotalTodayMorning msgGetTotalTodayNow msgGetTotalYesterdayMorning
msgPutTotalTodayMorning msgPutTotalTodayNow msgPutTotalYesterdayMorning pageCacheLockTimeMills
pullThreadPoolQueueCapacity pullThreadPoolQueueHeadWaitTimeMills pullThreadPoolQueueSize putLatency99 putLatency999
putMessageAverageSize putMessageDistributeTime putMessageEntireTimeMax putMessageFailedTimes putMessageSizeTotal
putMessageTimesTotal putTps queryThreadPoolQueueCapacity queryThreadPoolQueueHeadWaitTimeMills
queryThreadPoolQueueSize remainHowManyDataToFlush remainTransientStoreBufferNumbs runtime sendThreadPoolQueueCapacity
sendThreadPoolQueueHeadWaitTimeMills sendThreadPoolQueueSize startAcceptSendRequestTimeStamp
"""
FIVE_KEYS = {"brokerActive", "getTransferredTps"}  # what 5.x tools read besides
OWN_KEYS = {"buildForm", "differingGroups", "differingGroupsTotal", "eventLoopDelayMax"}
OWN_KEYS |= {"damagedState", "diskHeldFor", "diskRefusesMessages"}
OWN_KEYS |= {
    "replicationEpoch", "replicationOtherMasters", "replicationOtherMastersServing", "replicationRefusedSlaves",
    "replicationSupersededBy",
}  # fmt: skip


async def test_the_runtime_table_has_rocketmqs_keys_and_true_figures(tmp_path: Path, turned_clock: LoopFactory) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock)
    async with running(broker), client_of(broker) as client:
        young = await runtime_of(client)
        named_apart = {name for name in young if name.startswith(("scheduleMessageOffset_", "commitLogDiskRatio_"))}
        assert set(young) - named_apart == set(RUNTIME_KEYS.split()) | FIVE_KEYS | OWN_KEYS
        assert named_apart == {f"commitLogDiskRatio_{tmp_path / 'commitlog'}"}
        assert (young["putTps"], young["putMessageDistributeTime"], young["earliestMessageTimeStamp"]) == (
            "  ", "null", "-1",
        )  # fmt: skip
        first = time.clock.now_ms()
        for _ in range(30):
            await client.send("T", bytes(100))
        await client.pull("T")
        await client.pull("T", offset=30)
        for _ in range(61):
            await time.pass_by(1)
        table = await runtime_of(client)
        assert table["runtime"] == "[ 0 days, 0 hours, 1 minutes, 1 seconds ]"
        assert (table["putMessageTimesTotal"], table["msgPutTotalTodayNow"], table["msgGetTotalTodayNow"]) == (
            "30", "30", "30",
        )  # fmt: skip
        end = broker.store.commit_log_max_offset
        assert (table["putMessageSizeTotal"], table["commitLogMaxOffset"]) == (str(end), str(end))
        assert float(table["putMessageAverageSize"]) == pytest.approx(end / 30)
        assert float(table["putTps"].split(" ")[0]) == 0
        assert table["putTps"].split(" ")[2] == ""
        assert table["getTotalTps"].split(" ")[2] == "0.0"
        assert table["earliestMessageTimeStamp"] == str(first)
        counts = map(int, re.findall(r"\]:(\d+) ", table["putMessageDistributeTime"]))
        assert sum(counts) == 30
        assert re.fullmatch(r"Total : [\d.]+ \w+, Free : [\d.]+ \w+\.", table["commitLogDirCapacity"])
        assert 0 <= float(table["commitLogDiskRatio"]) <= 1


async def test_sends_that_wait_for_their_flush_stand_in_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turned_clock: LoopFactory
) -> None:
    time = Time()
    monkeypatch.setattr(MessageStore, "_wake_flusher", lambda _: None)
    broker = made_broker(tmp_path, time.clock, flushDiskType="SYNC_FLUSH", syncFlushTimeout="5000")
    async with running(broker), client_of(broker) as client, client_of(broker) as sender:
        await started(broker, sender)
        await time.pass_by(2)
        table = await runtime_of(client)
        assert (table["sendThreadPoolQueueSize"], table["sendThreadPoolQueueHeadWaitTimeMills"]) == ("1", "2000")
        await time.pass_by(4)
        assert (await runtime_of(client))["sendThreadPoolQueueSize"] == "0"
        monkeypatch.undo()


async def started(broker: Broker, sender: Client) -> None:
    """A send whose answer waits."""
    import asyncio

    task = asyncio.create_task(sender.send("DefaultCluster"))
    await until(lambda: len(broker.store.flush_waits) == 1)
    task.add_done_callback(lambda done: done.exception())


async def test_a_busy_event_loop_is_told_as_the_time_requests_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        monkeypatch.setattr(broker.lateness, "waited_ms", lambda: 150.7)
        table = await runtime_of(client)
        waits = [table[f"{name}ThreadPoolQueueHeadWaitTimeMills"] for name in ("send", "pull", "query")]
        assert waits == ["150", "150", "0"]


async def test_a_stall_is_told_for_a_while_after_the_loop_has_caught_up(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        broker.lateness._count(broker.lateness._clock(), 0.4382, 0.4)
        assert int((await runtime_of(client))["eventLoopDelayMax"]) >= 438
