"""A broker whose disk kept less than consumers have seen sends them back, so that none misses what is stored next."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from orbitmq.broker import resumption
from orbitmq.broker.broker import Broker
from orbitmq.broker.resumption import WINDOW_S
from orbitmq.broker.slave.kept_role import is_fresh, keep_role
from orbitmq.message.flags import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND
from orbitmq.message.model import MessageQueue
from orbitmq.message.topics import TOOLS_CONSUMER_GROUP
from orbitmq.operations.offsets import query_consumer_offset, update_consumer_offset
from orbitmq.store.options import ASYNC_MASTER
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers import GetMaxOffsetHeader, PullMessageResponseHeader, SearchOffsetHeader
from orbitmq.wire.headers_admin import GetConsumeStatsHeader, GetTopicStatsInfoHeader
from orbitmq.wire.headers_groups import InvokeBrokerToResetOffsetHeader
from orbitmq.wire.requests import RequestCode
from tests.support.live import BROKER, Client, Time, client_of, consumer, made_broker, running
from tests.support.loops import LoopFactory, until

KEPT, SEEN, NEW = 5, 10, 8
END = KEPT + NEW
MOVED, FOUND = ResponseCode.PULL_OFFSET_MOVED, ResponseCode.SUCCESS
T0 = MessageQueue("T", BROKER, 0)


@asynccontextmanager
async def after_power_loss(directory: Path, new: int = NEW, **of_broker: str) -> AsyncIterator[tuple[Client, Client]]:
    """Two clients of a broker that had `SEEN` messages, kept `KEPT`, and has got `new` ones since its start."""
    async with running(made_broker(directory / "before", **of_broker)) as before, client_of(before) as client:
        for number in range(SEEN):
            if number == KEPT:
                shutil.copytree(directory / "before", directory / "after")
            await client.send("T", b"old %d" % number)
    async with (
        running(made_broker(directory / "after", **of_broker)) as after,
        client_of(after) as client,
        client_of(after, "other") as other,
    ):
        for number in range(new):
            await client.send("T", b"new %d" % number)
        yield client, other


async def pulled(client: Client, offset: int, *, flags: int = PULL_SUSPEND, **fields: object) -> tuple[int, int]:
    """Code of the answer, and where to go on."""
    flags |= PULL_SUBSCRIPTION
    answer = await client.pull("T", 0, offset, sys_flag=flags, suspend_timeout_millis=1, **fields)
    return answer.code, answer.header(PullMessageResponseHeader).next_begin_offset


async def committed(client: Client, offset: int, group: str = "readers") -> int | None:
    """What is stored after this was told."""
    await update_consumer_offset(client.remoting, client.address, group, T0, offset)
    return await stored(client, group)


async def stored(client: Client, group: str = "readers") -> int | None:
    return await query_consumer_offset(client.remoting, client.address, group, T0)


@pytest.mark.parametrize("new", [0, 2, NEW])
async def test_who_has_seen_what_is_lost_goes_on_where_the_log_ended(tmp_path: Path, new: int) -> None:
    async with after_power_loss(tmp_path, new) as (client, _):
        assert await pulled(client, SEEN) == (MOVED, KEPT)
        assert await pulled(client, SEEN) == (MOVED, KEPT)  # until it has understood
        bodies = [one.body for one in await client.read("T", 0, KEPT)]
        assert bodies == [b"new %d" % number for number in range(new)]


async def test_who_was_told_where_to_go_on_may_go_on_there(tmp_path: Path) -> None:
    async with after_power_loss(tmp_path) as (client, _):
        assert await pulled(client, KEPT, max_msg_nums=2) == (FOUND, KEPT + 2)
        assert await pulled(client, KEPT + 2) == (FOUND, END)
        assert await pulled(client, END, flags=0) == (ResponseCode.PULL_NOT_FOUND, END)
        assert await committed(client, END) == END


async def test_groups_and_connections_are_looked_at_one_by_one(tmp_path: Path) -> None:
    async with after_power_loss(tmp_path) as (client, other):
        await pulled(client, KEPT)
        assert await pulled(client, SEEN) == (FOUND, END)
        assert await pulled(client, SEEN, consumer_group="others") == (MOVED, KEPT)
        assert await pulled(other, SEEN) == (MOVED, KEPT)


async def test_another_member_is_sent_to_what_the_group_has_stored(tmp_path: Path) -> None:
    async with after_power_loss(tmp_path, new=3) as (client, other):
        assert await pulled(client, KEPT) == (FOUND, KEPT + 3)
        assert await committed(client, KEPT + 1) == KEPT + 1
        assert await committed(other, SEEN) == KEPT + 1
        assert await pulled(other, SEEN) == (MOVED, KEPT + 1)


async def test_a_group_gets_again_what_its_member_has_pulled_and_not_consumed(tmp_path: Path) -> None:
    """The end of the queue would be behind that, and a client forgets it when it is sent back."""
    async with after_power_loss(tmp_path) as (client, _):
        assert await committed(client, 2) == 2
        assert await pulled(client, SEEN) == (MOVED, 2)
        assert await pulled(client, 2, max_msg_nums=1) == (FOUND, 3)
        assert await pulled(client, SEEN) == (MOVED, 3)


async def test_progress_is_stored_as_far_as_pulls_have_come(tmp_path: Path) -> None:
    async with after_power_loss(tmp_path) as (client, _):
        assert await committed(client, SEEN) == KEPT
        await pulled(client, KEPT, max_msg_nums=2)
        assert await committed(client, SEEN) == KEPT + 2  # what it says it had, not what it can have
        await pulled(client, KEPT + 2)
        assert await committed(client, SEEN) == SEEN


async def test_progress_that_comes_with_a_pull_is_no_better(tmp_path: Path) -> None:
    async with after_power_loss(tmp_path) as (client, _):
        flags = PULL_SUSPEND | PULL_COMMIT_OFFSET
        await pulled(client, KEPT, flags=flags, commit_offset=SEEN)
        assert await stored(client) == KEPT
        await pulled(client, END, flags=flags, commit_offset=SEEN)
        assert await stored(client) == SEEN


@pytest.mark.parametrize("how", ["end", "time"])
async def test_a_position_that_was_told_is_believed_and_no_other(tmp_path: Path, how: str) -> None:
    async with after_power_loss(tmp_path) as (client, other):
        if how == "end":
            answer = await client.ask(RequestCode.GET_MAX_OFFSET, GetMaxOffsetHeader("T", 0))
        else:
            answer = await client.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffsetHeader("T", 0, 1 << 60))
        told = int((answer.ext or {})["offset"])
        assert told > KEPT
        assert await pulled(client, SEEN) == (MOVED, KEPT)
        assert await pulled(other, told) == (MOVED, KEPT)
        assert (await pulled(client, told))[1] in (told, END)


async def test_who_asks_for_stored_progress_gets_what_may_be_used(tmp_path: Path) -> None:
    async with after_power_loss(tmp_path) as (client, _):
        assert await committed(client, SEEN) == KEPT
        assert await pulled(client, SEEN) == (MOVED, KEPT)


async def test_ranges_and_groups_of_tools_read_what_they_ask_for(tmp_path: Path) -> None:
    async with after_power_loss(tmp_path) as (client, _):
        assert await pulled(client, SEEN, flags=0) == (FOUND, END)
        assert await committed(client, END) == END
        assert await pulled(client, SEEN, consumer_group=TOOLS_CONSUMER_GROUP) == (FOUND, END)


@pytest.mark.parametrize("looks", ["group", "topic"])
async def test_what_a_tool_stores_is_meant(tmp_path: Path, looks: str) -> None:
    async with after_power_loss(tmp_path) as (client, _):
        if looks == "group":
            await client.ask(RequestCode.GET_CONSUME_STATS, GetConsumeStatsHeader("readers", "T"))
        else:
            await client.ask(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoHeader("T"))
        assert await committed(client, SEEN + 1) == SEEN + 1


async def test_members_may_use_positions_a_reset_sent_them_to(tmp_path: Path) -> None:
    async with after_power_loss(tmp_path) as (client, tool):
        await client.heartbeat(consumer("readers"))
        for queue_id in range(4):
            queue = MessageQueue("T", BROKER, queue_id)
            await update_consumer_offset(client.remoting, client.address, "readers", queue, 0)
        header = InvokeBrokerToResetOffsetHeader("T", "readers", timestamp=-1, is_force=True)
        answer = await tool.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert await committed(client, END) == END
        assert (await pulled(client, END))[1] == END


async def test_later_positions_are_taken_as_they_are(tmp_path: Path, turned_clock: LoopFactory) -> None:
    async with after_power_loss(tmp_path) as (client, other):
        assert await pulled(client, SEEN) == (MOVED, KEPT)
        await Time().pass_by(WINDOW_S)
        assert await pulled(client, SEEN) == (FOUND, END)
        assert await committed(other, SEEN) == SEEN


@pytest.mark.parametrize("stop", ["clean", "killed"])
async def test_a_broker_that_ends_soon_after_reckons_with_the_same_clients(tmp_path: Path, stop: str) -> None:
    """What it took between its two starts is no proof that a client has seen that."""
    async with after_power_loss(tmp_path) as (client, _):
        assert await committed(client, KEPT + 1) == KEPT
        if stop == "killed":
            shutil.copytree(tmp_path / "after", tmp_path / "killed")
    directory = tmp_path / ("killed" if stop == "killed" else "after")
    async with running(made_broker(directory)) as again, client_of(again) as client:
        assert again.store.max_offset("T", 0) == END
        assert await pulled(client, SEEN) == (MOVED, KEPT)
        assert await committed(client, SEEN) == KEPT


async def test_progress_is_moved_back_before_anybody_is_served(tmp_path: Path) -> None:
    """Else a broker that is killed before it has saved takes the old progress for what it allowed itself."""
    async with running(made_broker(tmp_path / "before")) as before, client_of(before) as client:
        for number in range(SEEN):
            if number == KEPT:
                shutil.copytree(tmp_path / "before", tmp_path / "after")
            await client.send("T", b"old %d" % number)
        assert await committed(client, SEEN) == SEEN
    saved = "config/consumerOffset.json"
    shutil.copy(tmp_path / "before" / saved, tmp_path / "after" / saved)
    async with running(made_broker(tmp_path / "after")) as after, client_of(after) as client:
        await client.send_batch("T", [b"new"] * NEW)
        shutil.copytree(tmp_path / "after", tmp_path / "killed")
    async with running(made_broker(tmp_path / "killed")) as again, client_of(again) as client:
        assert again.store.max_offset("T", 0) == END
        assert await stored(client) == KEPT


async def test_a_kept_end_that_cannot_be_read_proves_no_position(tmp_path: Path) -> None:
    async with after_power_loss(tmp_path) as (client, _):
        await committed(client, 2)
    (tmp_path / "after/config/resumption.json").write_text("")
    async with running(made_broker(tmp_path / "after")) as again, client_of(again) as client:
        assert await pulled(client, SEEN) == (MOVED, 2)


@pytest.mark.parametrize("stop", ["clean", "killed, with what readers saw on disk"])
async def test_where_nothing_can_be_lost_positions_are_taken_as_they_are(tmp_path: Path, stop: str) -> None:
    if stop == "clean":
        async with running(made_broker(tmp_path)) as broker, client_of(broker) as client:
            await client.send("T")
        async with running(made_broker(tmp_path)) as broker, client_of(broker) as client:
            await client.send_batch("T", [b"2", b"3", b"4"])
            assert (await pulled(client, 2))[0] == FOUND
    else:
        async with after_power_loss(tmp_path, flushDiskType="SYNC_FLUSH") as (client, _):
            assert await pulled(client, SEEN) == (FOUND, END)


async def test_a_promoted_broker_reckons_with_positions_of_its_former_master_until_clients_have_come_over(
    tmp_path: Path, turned_clock: LoopFactory
) -> None:
    def made() -> Broker:
        return made_broker(tmp_path, flushDiskType="SYNC_FLUSH")

    async with running(made()) as broker, client_of(broker) as client:
        for _ in range(KEPT):
            await client.send("T")
        options = broker.store.options
    kept = options.root / "config/resumption.json"
    keep_role(options, ASYNC_MASTER)
    for ended_early in (True, False):
        async with running(made()) as broker, client_of(broker) as client:
            for _ in range(NEW):
                await client.send("T")
            assert await pulled(client, KEPT + 1) == (MOVED, KEPT)
            if not ended_early:
                await Time().pass_by(WINDOW_S)
                await until(lambda: not is_fresh(options) and not kept.exists(), "the note that clients have come over")
    async with running(made()) as broker, client_of(broker) as client:
        end = broker.store.max_offset("T", 0)
        for _ in range(NEW):
            await client.send("T")
        assert await pulled(client, end + 1) == (FOUND, end + NEW)


async def test_too_many_positions_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resumption, "REMEMBERED_MAX", 10)
    async with after_power_loss(tmp_path) as (client, _):
        assert await pulled(client, SEEN) == (MOVED, KEPT)
        for _ in range(10):
            await client.send("T")
            await client.ask(RequestCode.GET_MAX_OFFSET, GetMaxOffsetHeader("T", 0))
        assert await pulled(client, SEEN) == (FOUND, END + 10)


async def test_names_that_are_made_up_are_not_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be of any length, and 200,000 of them would end it for everybody."""
    monkeypatch.setattr(resumption, "REMEMBERED_MAX", 10)
    async with after_power_loss(tmp_path) as (client, _):
        for number in range(20):
            await client.ask(RequestCode.GET_MAX_OFFSET, GetMaxOffsetHeader(f"A{number}", 0))
            await client.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffsetHeader(f"B{number}", 0, 1))
            queue = MessageQueue(f"C{number}", BROKER, 0)
            await update_consumer_offset(client.remoting, client.address, "readers", queue, 7)
        assert await pulled(client, SEEN) == (MOVED, KEPT)
