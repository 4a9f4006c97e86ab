"""A broker whose disk kept less than consumers have seen sends them back, so that none misses what is stored next."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from orbitmq.broker.resumption import WINDOW_MS
from orbitmq.message.flags import PULL_SUBSCRIPTION, PULL_SUSPEND
from orbitmq.message.model import MessageQueue
from orbitmq.message.topics import TOOLS_CONSUMER_GROUP
from orbitmq.net.remoting import Remoting
from orbitmq.operations.offsets import query_consumer_offset, update_consumer_offset
from orbitmq.runtime.clock import Clock, ManualClock
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command, request
from orbitmq.wire.headers import GetMaxOffsetHeader, PullMessageResponseHeader, SearchOffsetHeader
from tests.support.live import BROKER, CALL_TIMEOUT_MS, Client, client_of, made_broker, pull_header, running

KEPT, SEEN = 5, 10
FLAGS = PULL_SUBSCRIPTION | PULL_SUSPEND
T0 = MessageQueue("T", BROKER, 0)


@asynccontextmanager
async def after_power_loss(directory: Path, new: int, clock: Clock | None = None) -> AsyncIterator[Client]:
    """A client of a broker that had `SEEN` messages, kept `KEPT`, and has got `new` ones since its start."""
    async with running(made_broker(directory / "before", clock)) as before, client_of(before) as client:
        for number in range(SEEN):
            if number == KEPT:
                shutil.copytree(directory / "before", directory / "after")
            await client.send("T", b"old %d" % number)
    async with running(made_broker(directory / "after", clock)) as after, client_of(after) as client:
        for number in range(new):
            await client.send("T", b"new %d" % number)
        yield client


async def pulled(client: Client, offset: int, **fields: object) -> tuple[int, int]:
    """Code of the answer, and where to go on."""
    answer = await client.pull("T", 0, offset, sys_flag=FLAGS, suspend_timeout_millis=1, **fields)
    return answer.code, answer.header(PullMessageResponseHeader).next_begin_offset


@pytest.mark.parametrize("new", [0, 2, 8])
async def test_who_has_seen_what_is_lost_goes_on_where_the_log_ended(tmp_path: Path, new: int) -> None:
    async with after_power_loss(tmp_path, new) as client:
        assert await pulled(client, SEEN) == (ResponseCode.PULL_OFFSET_MOVED, KEPT)
        assert await pulled(client, SEEN) == (ResponseCode.PULL_OFFSET_MOVED, KEPT)  # until it has understood
        bodies = [one.body for one in await client.read("T", 0, KEPT)]
        assert bodies == [b"new %d" % number for number in range(new)]


async def test_who_goes_on_where_the_log_ended_is_not_looked_at_again(tmp_path: Path) -> None:
    async with after_power_loss(tmp_path, 8) as client:
        assert await pulled(client, KEPT) == (ResponseCode.SUCCESS, KEPT + 8)
        assert await pulled(client, SEEN) == (ResponseCode.SUCCESS, KEPT + 8)
        assert (await pulled(client, SEEN, consumer_group="others"))[1] == KEPT


async def test_another_member_is_sent_to_what_the_group_has_stored(tmp_path: Path) -> None:
    async with after_power_loss(tmp_path, 3) as client:
        address = client.address
        assert await pulled(client, KEPT) == (ResponseCode.SUCCESS, KEPT + 3)
        await update_consumer_offset(client.remoting, address, "readers", T0, KEPT + 1)
        other = Remoting()
        await update_consumer_offset(other, address, "readers", T0, SEEN)
        assert await query_consumer_offset(client.remoting, address, "readers", T0) == KEPT + 1
        header = pull_header("T", 0, SEEN, sys_flag=FLAGS, suspend_timeout_millis=1)
        answer = await other.call(address, request(RequestCode.PULL_MESSAGE, header), CALL_TIMEOUT_MS)
        assert answer.header(PullMessageResponseHeader).next_begin_offset == KEPT + 1
        await other.close()


@pytest.mark.parametrize("how", ["end", "time", "progress"])
async def test_who_asked_for_a_position_may_use_it(tmp_path: Path, how: str) -> None:
    async with after_power_loss(tmp_path, 8) as client:
        await asked(client, how)
        assert await pulled(client, SEEN) == (ResponseCode.SUCCESS, KEPT + 8)


async def asked(client: Client, how: str) -> Command:
    if how == "end":
        return await client.ask(RequestCode.GET_MAX_OFFSET, GetMaxOffsetHeader("T", 0))
    if how == "time":
        return await client.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffsetHeader("T", 0, 0))
    await query_consumer_offset(client.remoting, client.address, "readers", T0)
    return Command(0)


async def test_ranges_and_tools_read_what_they_ask_for(tmp_path: Path) -> None:
    async with after_power_loss(tmp_path, 8) as client:
        assert [one.body for one in await client.read("T", 0, SEEN)] == [b"new 5", b"new 6", b"new 7"]
        assert (await pulled(client, SEEN, consumer_group=TOOLS_CONSUMER_GROUP))[0] == ResponseCode.SUCCESS


async def test_progress_from_before_is_kept_as_far_as_the_log_went(tmp_path: Path) -> None:
    async with after_power_loss(tmp_path, 8) as client:
        await update_consumer_offset(client.remoting, client.address, "readers", T0, SEEN)
        assert await query_consumer_offset(client.remoting, client.address, "readers", T0) == KEPT
        await pulled(client, KEPT)
        await update_consumer_offset(client.remoting, client.address, "readers", T0, SEEN)
        assert await query_consumer_offset(client.remoting, client.address, "readers", T0) == SEEN


async def test_later_positions_are_taken_as_they_are(tmp_path: Path) -> None:
    clock = ManualClock()
    async with after_power_loss(tmp_path, 8, clock) as client:
        clock.advance(WINDOW_MS)
        assert (await pulled(client, SEEN))[0] == ResponseCode.SUCCESS


async def test_after_a_clean_stop_positions_are_taken_as_they_are(tmp_path: Path) -> None:
    async with running(made_broker(tmp_path)) as broker, client_of(broker) as client:
        await client.send("T")
    async with running(made_broker(tmp_path)) as broker, client_of(broker) as client:
        await client.send_batch("T", [b"2", b"3", b"4"])
        assert (await pulled(client, 2))[0] == ResponseCode.SUCCESS
