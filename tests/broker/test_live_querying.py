"""Messages asked for by key or unique id, of a live broker over TCP: which of them come, and how many."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from orbitmq.broker import query_handler
from orbitmq.message.unit import decode_units
from orbitmq.store.files import MappedFile
from orbitmq.store.index.search import QueryResult
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers import QueryMessageHeader, QueryMessageResponseHeader, ViewMessageHeader
from orbitmq.wire.requests import RequestCode
from tests.support.live import Client, Time, client_of, live, made_broker, running
from tests.support.loops import LoopFactory

EVER_MS = (1 << 63) - 1


async def ask(
    client: Client, key: str, count: int = 64, begin: int = 0, end: int = EVER_MS, *, unique: bool = False
) -> Command:
    header = QueryMessageHeader("Orders", key, count, begin, end, unique)
    return await client.ask(RequestCode.QUERY_MESSAGE, header)


async def found(client: Client, key: str, *limits: int, unique: bool = False) -> list[bytes]:
    answer = await ask(client, key, *limits, unique=unique)
    assert answer.code == (ResponseCode.SUCCESS if answer.body else ResponseCode.QUERY_NOT_FOUND)
    return [unit.body for unit in decode_units(answer.body)]


async def test_the_newest_come_oldest_first_and_no_more_than_asked_for_or_allowed(tmp_path: Path) -> None:
    async with live(tmp_path, maxMsgsNumBatch="5", defaultQueryMaxNum="4") as client:
        for number in range(8):
            await client.send("Orders", b"%d" % number, {"KEYS": f"red k{number}", "UNIQ_KEY": "U"})
        await client.send("Orders", b"without")
        assert await found(client, "red") == [b"3", b"4", b"5", b"6", b"7"]
        assert await found(client, "red", 2) == [b"6", b"7"]
        assert await found(client, "k0", 2) == [b"0"]
        assert await found(client, "red", 0) == []
        assert await found(client, "U", 1, unique=True) == [b"4", b"5", b"6", b"7"], "the broker says how many"
        assert await found(client, "U", 1) == [b"7"]
        assert await found(client, "blue") == []


async def test_both_ends_of_the_time_count(tmp_path: Path, turned_clock: LoopFactory) -> None:
    time = Time()
    async with live(tmp_path, time) as client:
        begin = time.clock.now_ms()
        for number in range(5):
            await client.send("Orders", b"%d" % number, {"KEYS": "k"})
            await time.pass_by(1)
        assert await found(client, "k", 64, begin + 1000, begin + 3000) == [b"1", b"2", b"3"]
        assert await found(client, "k", 64, begin + 4000, begin + 9000) == [b"4"]
        assert await found(client, "k", 64, begin + 5000, EVER_MS) == []
        assert await found(client, "k", 64, 0, begin - 1) == []
        assert await found(client, "k", 2, 0, begin + 2000) == [b"1", b"2"]


async def test_the_answer_tells_where_the_index_ends(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        await client.send("Orders", b"first", {"KEYS": "k"})
        second = broker.store.commit_log_max_offset
        await client.send("Orders", b"second", {"KEYS": "other"})
        answer = await ask(client, "k")
        header = answer.header(QueryMessageResponseHeader)
        (newest,) = decode_units((await ask(client, "other")).body)
        assert header.index_last_update_phyoffset == second == newest.physical_offset
        assert header.index_last_update_timestamp == newest.store_timestamp


async def test_an_answer_stays_below_the_size_of_a_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest of them are left out then; one message always goes."""
    async with live(tmp_path) as client:
        for number in range(4):
            await client.send("Orders", b"%d" % number + bytes(1000), {"KEYS": "k"})
        size = len((await ask(client, "k", 1)).body)
        for limit, count in ((4 * size, 4), (4 * size - 1, 3), (size, 1), (1, 1)):
            monkeypatch.setattr(query_handler, "ANSWER_SIZE_MAX", limit)
            assert [body[:1] for body in await found(client, "k")] == [b"0", b"1", b"2", b"3"][-count:]


async def test_no_place_of_the_log_brings_more_than_a_frame_can_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever names a place inside a message has its bytes taken for a size."""
    async with live(tmp_path) as client:
        await client.send("Orders", (5000).to_bytes(4, "big") * 2000)
        inside = ViewMessageHeader(88)
        assert len((await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, inside)).body) == 5000
        monkeypatch.setattr(query_handler, "ANSWER_SIZE_MAX", 4999)
        answer = await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, inside)
        assert (answer.code, answer.body) == (ResponseCode.SYSTEM_ERROR, b"")


async def test_without_an_index_nothing_is_found(tmp_path: Path) -> None:
    async with live(tmp_path, messageIndexEnable="false") as client:
        await client.send("Orders", b"x", {"KEYS": "k"})
        assert await found(client, "k") == []


async def test_only_what_has_to_come_from_disk_is_looked_for_by_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Command] = []
    search = query_handler.QueryHandler._search

    def told(
        self: query_handler.QueryHandler, command: Command, query: Callable[[], QueryResult]
    ) -> Awaitable[Command]:
        looked.append(command)
        return search(self, command, query)

    monkeypatch.setattr(query_handler.QueryHandler, "_search", told)
    async with live(tmp_path) as client:
        await client.send("Orders", b"there", {"KEYS": "red"})
        assert await found(client, "red") == [b"there"]  # brings the index up to date, if the worker has not yet
        looked.clear()
        monkeypatch.setattr(MappedFile, "read_at_once", MappedFile.read)  # as if all was in memory
        assert await found(client, "red") == [b"there"]
        assert not looked
        monkeypatch.setattr(MappedFile, "read_at_once", _on_disk)
        assert await found(client, "red") == [b"there"]
        assert len(looked) == 1


def _on_disk(*_: object) -> bytes:
    raise BlockingIOError(errno.EAGAIN, "not in memory")
