"""Topics and groups administered at a live broker over TCP, and codes it does not know."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orbitmq.message.config import MULTI_TAG, SubscriptionGroup, TopicConfig
from orbitmq.wire.bodies import SubscriptionGroupList, SubscriptionGroupTable, TopicConfigList, TopicTable
from orbitmq.wire.codes import SerializeType
from orbitmq.wire.command import Command, request
from orbitmq.wire.headers import UpdateConsumerOffsetHeader
from orbitmq.wire.headers_admin import (
    CreateTopicHeader,
    DeleteSubscriptionGroupHeader,
    DeleteTopicHeader,
    GetSubscriptionGroupConfigHeader,
    GetTopicConfigHeader,
)
from orbitmq.wire.objects import decode, encode
from orbitmq.wire.requests import RequestCode
from tests.support.live import Client, client_of, live, made_broker, running
from tests.support.loops import until


async def create(
    client: Client, name: str, filter_type: str = "SINGLE_TAG", queues: int = 4, **fields: object
) -> Command:
    header = CreateTopicHeader(name, "TBW102", queues, queues, 6, filter_type, False, **fields)  # type: ignore[arg-type]
    return await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


# -------------------------------------------------------------------------------------------------------------- topics


async def test_a_topic_is_created_changed_and_read(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        assert (await create(client, "Orders", MULTI_TAG, topic_sys_flag=1)).code == 0
        made = TopicConfig("Orders", 4, 4, 6, MULTI_TAG, sys_flag=1)
        assert '"Orders"' in broker.topics.file.path.read_text()
        assert (await create(client, "Orders", queues=9)).code == 0
        assert made != broker.topics.get("Orders") == TopicConfig("Orders", 9, 9, 6)
        answer = await client.ask(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigHeader("Orders"))
        assert decode(TopicConfig, answer.body) == broker.topics.get("Orders")
        assert (await client.ask(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigHeader("Unknown"))).code == 17


async def test_several_topics_come_with_one_request(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    configs = [TopicConfig("Orders", 2, 2), TopicConfig("Bills", 3, 3, perm=4)]
    async with running(broker), client_of(broker) as client:
        answer = await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=encode(TopicConfigList(configs)))
        assert answer.code == 0
        assert [broker.topics.get(config.name) for config in configs] == configs


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("", {}),
        (" ", {}),
        ("Orders!", {}),
        ("t" * 128, {}),
        ("TBW102", {}),
        ("SCHEDULE_TOPIC_XXXX", {}),
        ("RMQ_SYS_TRANS_HALF_TOPIC", {}),
        ("DefaultCluster", {}),
        ("rmq_sys_mine", {}),
        ("Orders", {"filter_type": "NO_TAG"}),
        ("Orders", {"queues": -1}),
        ("Orders", {"queues": 1 << 20}),
    ],
)
async def test_a_topic_that_may_not_be_is_refused(tmp_path: Path, name: str, fields: dict[str, object]) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        before = dict(broker.topics.table)
        answer = await create(client, name, **fields)  # type: ignore[arg-type]
        assert answer.code == 1
        assert answer.remark
        assert broker.topics.table == before


async def test_the_whole_table_with_its_version(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        await create(client, "Orders")
        answer = await client.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
        assert (answer.code, answer.ext) == (0, {})
        table = decode(TopicTable, answer.body)
        assert table.topics == broker.topics.table
        assert table.data_version == broker.topics.version


async def test_a_deleted_topic_takes_its_queues_and_offsets_along(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        for topic in ("Orders", "Kept"):
            await client.send(topic, b"old")
            await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetHeader("g", topic, 0, 1))
        assert (await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicHeader("Orders"))).code == 0
        assert (await client.pull("Orders")).code == 17
        assert set(broker.offsets.table) == {"Kept@g"}
        assert '"Orders"' not in broker.topics.file.path.read_text()
        await client.send("Orders", b"new")
        assert [message.body for message in await client.read("Orders")] == [b"new"]
        assert [message.body for message in await client.read("Kept")] == [b"old"]


async def test_a_topic_is_deleted_with_all_its_queues_though_the_tool_is_gone(tmp_path: Path) -> None:
    queues = 500
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        broker.topics.put(TopicConfig("Wide", queues, queues))
        for queue_id in range(queues):
            await client.send("Wide", queue_id=queue_id)
        await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetHeader("g", "Wide", 0, 1))
        async with client_of(broker, "tool") as tool:
            asking = asyncio.create_task(tool.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicHeader("Wide")))
            await until(lambda: broker.topics.get("Wide") is None)
            assert broker.store.max_offset("Wide", queues - 1) == 1, "it is under way"
        await asyncio.gather(asking, return_exceptions=True)
        await until(lambda: not broker.offsets.table)
        assert [broker.store.max_offset("Wide", queue_id) for queue_id in range(queues)] == [0] * queues


@pytest.mark.parametrize("name", ["", "TBW102", "SELF_TEST_TOPIC", "broker-a"])
async def test_system_topics_are_not_deleted(tmp_path: Path, name: str) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        before = dict(broker.topics.table)
        assert (await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicHeader(name))).code == 1
        assert broker.topics.table == before


async def test_deleting_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        assert (await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicHeader("Unknown"))).code == 0


# -------------------------------------------------------------------------------------------------------------- groups


async def test_a_group_is_created_changed_and_read(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    group = SubscriptionGroup("g", consume_broadcast_enabled=False, retry_queues=2, retry_max=3)
    async with running(broker), client_of(broker) as client:
        assert (await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=encode(group))).code == 0
        answer = await client.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GetSubscriptionGroupConfigHeader("g"))
        assert decode(SubscriptionGroup, answer.body) == group
        everything = await client.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        table = decode(SubscriptionGroupTable, everything.body)
        assert table.groups == broker.groups.table
        assert table.data_version == broker.groups.version
        assert '"g"' in broker.groups.file.path.read_text()
        unknown = await client.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GetSubscriptionGroupConfigHeader("h"))
        assert unknown.code == 26


async def test_several_groups_come_with_one_request(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    groups = [SubscriptionGroup("g", retry_max=1), SubscriptionGroup("h", retry_max=2)]
    async with running(broker), client_of(broker) as client:
        body = encode(SubscriptionGroupList(groups))
        assert (await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=body)).code == 0
        assert [broker.groups.table[group.name] for group in groups] == groups


@pytest.mark.parametrize(("field", "kept"), [(None, True), ("removeOffset", False), ("cleanOffset", False)])
async def test_a_deleted_group_may_take_its_offsets_along(tmp_path: Path, field: str | None, kept: bool) -> None:
    """4.9 and 5.x tools spell the wish differently."""
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        for group in ("g", "h"):
            await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=encode(SubscriptionGroup(group)))
            await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetHeader(group, "Orders", 0, 1))
        command = request(RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteSubscriptionGroupHeader("g"))
        command.ext = {"groupName": "g"} | ({field: "true"} if field else {})
        assert (await client.call(command)).code == 0
        assert "g" not in broker.groups.table
        assert "h" in broker.groups.table
        assert set(broker.offsets.table) == {"Orders@h"} | ({"Orders@g"} if kept else set())


@pytest.mark.parametrize("body", [b"", b"nothing", b'{"groupName":""}', b'{"groupName":"g!"}', b"{}"])
async def test_a_group_that_is_none_is_refused(tmp_path: Path, body: bytes) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        before = dict(broker.groups.table)
        assert (await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)).code == 1
        assert broker.groups.table == before


# --------------------------------------------------------------------------------------------------------------- codes


@pytest.mark.parametrize("kind", list(SerializeType))
@pytest.mark.parametrize("code", [13, 22, 105, 209, 301, 371, 403, 3001, 200_056])
async def test_a_code_nobody_handles_is_answered_as_not_supported(
    tmp_path: Path, code: int, kind: SerializeType
) -> None:
    async with live(tmp_path) as client:
        answer = await client.ask(code, kind=kind)
        assert (answer.code, answer.serialize_type) == (3, kind)
        assert "not supported" in (answer.remark or "")


async def test_every_code_without_fields_or_body_gets_an_answer(tmp_path: Path) -> None:
    """None of them may end in a bug of ours, nor in silence."""
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        for code in sorted(broker.router.handlers):
            answer = await client.ask(code)
            assert "Error:" not in (answer.remark or ""), (code, answer.remark)
            assert answer.code in (0, 1, 3, 13, 17, 26, 209, 210, 211), (code, answer)


# ------------------------------------------------------------------------------------------------------------ clean-up


async def test_queues_without_messages_and_without_a_topic_are_removed_on_request(tmp_path: Path) -> None:
    broker = made_broker(
        tmp_path, mappedFileSizeCommitLog="4096", fileReservedTime="0", deleteCommitLogFilesInterval="0"
    )
    async with running(broker), client_of(broker) as client:
        for topic in ("Old", "Forgotten", "New"):
            await client.send(topic, bytes(3000))
        assert (await client.ask(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)).code == 0
        assert broker.store.queue_ids("Old") == [0]
        assert (await client.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)).code == 0
        await until(lambda: broker.store.commit_log_min_offset == 8192)
        assert (await client.ask(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)).code == 0
        assert (broker.store.queue_ids("Old"), broker.store.queue_ids("New")) == ([], [0])
        broker.topics.delete("New")
        assert (await client.ask(RequestCode.CLEAN_UNUSED_TOPIC)).code == 0
        assert broker.store.queue_ids("New") == []


async def test_a_full_disk_is_told_with_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.store.files.Files.used_ratio", lambda _files, _path: 0.91)
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        await until(lambda: broker.store._cleaner.is_full)
        answer = await client.send("Orders")
        assert answer.code == 14
        assert answer.remark is not None
        assert answer.remark.endswith("CL:  0.91 CQ:  0.91 INDEX:  0.91")
