"""Offsets, bounds and single messages asked of a live broker over TCP."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.message.unit import decode_unit
from orbitmq.wire.command import request
from orbitmq.wire.headers import (
    GetEarliestMsgStoretimeHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetHeader,
    ViewMessageHeader,
)
from orbitmq.wire.requests import RequestCode
from tests.support.live import Client, Time, client_of, live, made_broker, running
from tests.support.loops import LoopFactory, until


async def committed(client: Client, group: str, topic: str = "Orders", queue: int = 0) -> int | None:
    """QUERY_CONSUMER_OFFSET; None for the code that lets a client choose its start."""
    answer = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetHeader(group, topic, queue))
    if answer.code == 22:
        return None
    assert answer.code == 0
    return answer.header(QueryConsumerOffsetResponseHeader).offset


async def commit(client: Client, group: str, offset: int, topic: str = "Orders", queue: int = 0) -> None:
    header = UpdateConsumerOffsetHeader(group, topic, queue, offset)
    answer = await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)
    assert (answer.code, answer.ext) == (0, {})


async def test_an_offset_is_what_was_committed_last(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        await commit(client, "g", 7)
        assert await committed(client, "g") == 7
        await commit(client, "g", 3)
        assert await committed(client, "g") == 3
        await commit(client, "g", 5, topic="NoSuchTopic", queue=99)
        assert await committed(client, "g", "NoSuchTopic", 99) == 5


async def test_a_commit_may_be_oneway(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        header = UpdateConsumerOffsetHeader("g", "Orders", 0, 7)
        await client.remoting.oneway(client.address, request(RequestCode.UPDATE_CONSUMER_OFFSET, header))
        await until(lambda: broker.offsets.query("g", "Orders", 0) == 7)


async def test_a_new_group_starts_at_0_while_the_queue_is_whole_and_in_memory(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        assert await committed(client, "new") == 0
        await client.send("Orders")
        assert await committed(client, "new") == 0


async def test_a_new_group_chooses_its_start_once_the_first_message_counts_as_on_disk(tmp_path: Path) -> None:
    async with live(tmp_path, accessMessageInMemoryMaxRatio="0") as client:
        await client.send("Orders")
        await client.send("Orders", queue_id=1)
        assert await committed(client, "new") is None
        assert await committed(client, "new", queue=2) == 0
        await commit(client, "new", 0)
        assert await committed(client, "new") == 0


async def test_a_new_group_chooses_its_start_once_the_first_message_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        await client.send("Orders")
        monkeypatch.setattr(broker.store, "min_offset", lambda _topic, _queue: 7)
        assert await committed(client, "new") is None


async def test_a_queues_bounds(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        for _ in range(3):
            await client.send("Orders")
        for topic, largest in (("Orders", 3), ("Unknown", 0)):
            high = await client.ask(RequestCode.GET_MAX_OFFSET, GetMaxOffsetHeader(topic, 0))
            low = await client.ask(RequestCode.GET_MIN_OFFSET, GetMinOffsetHeader(topic, 0))
            assert (high.code, low.code) == (0, 0)
            assert high.header(GetMaxOffsetResponseHeader).offset == largest
            assert low.header(GetMinOffsetResponseHeader).offset == 0


async def test_store_times_find_offsets(tmp_path: Path, turned_clock: LoopFactory) -> None:
    """The first message since, or with UPPER the last one until; the end for a time to come."""
    time = Time()
    async with live(tmp_path, time) as client:
        start = time.clock.now_ms()
        for _ in range(3):
            await client.send("Orders")
            await time.pass_by(10)

        async def search(milliseconds: int, topic: str = "Orders", boundary: str | None = None) -> int:
            header = SearchOffsetHeader(topic, 0, start + milliseconds, boundary=boundary)
            answer = await client.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
            assert answer.code == 0
            return answer.header(SearchOffsetResponseHeader).offset

        sought = (-5000, 0, 4000, 5000, 6000, 10_000, 20_000, 1 << 40)
        assert [await search(milliseconds) for milliseconds in sought] == [0, 0, 1, 1, 1, 1, 2, 3]
        assert [await search(milliseconds, boundary="upper") for milliseconds in sought] == [0, 0, 0, 0, 0, 1, 2, 2]
        assert await search(0, "Unknown") == 0


async def test_the_earliest_store_time(tmp_path: Path, turned_clock: LoopFactory) -> None:
    time = Time()
    async with live(tmp_path, time) as client:
        started = time.clock.now_ms()
        await client.send("Orders")
        await time.pass_by(10)
        await client.send("Orders")

        async def earliest(queue: int) -> int:
            header = GetEarliestMsgStoretimeHeader("Orders", queue)
            answer = await client.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, header)
            assert answer.code == 0
            return answer.header(GetEarliestMsgStoretimeResponseHeader).timestamp

        assert await earliest(0) == started
        assert await earliest(1) == -1


async def test_a_message_is_found_by_its_place_in_the_log(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        for number in range(3):
            await client.send("Orders", b"%d" % number)
        places = [message.commit_log_offset for message in await client.read("Orders")]
        for number, place in enumerate(places):
            answer = await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageHeader(place))
            assert answer.code == 0
            assert decode_unit(answer.body).body == b"%d" % number


@pytest.mark.parametrize("offset", [-1, 1 << 40])
async def test_a_place_outside_the_log_is_an_error(tmp_path: Path, offset: int) -> None:
    async with live(tmp_path) as client:
        await client.send("Orders")
        answer = await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageHeader(offset))
        assert (answer.code, answer.body) == (1, b"")


async def test_a_number_that_is_none_is_named(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        command = request(RequestCode.GET_MAX_OFFSET)
        command.ext = {"topic": "Orders", "queueId": "zero"}
        answer = await client.call(command)
        assert answer.code == 1
        assert "queueId" in (answer.remark or "")
