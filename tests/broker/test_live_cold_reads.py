"""Messages that have left memory are read by threads: meanwhile the broker serves others."""

from __future__ import annotations

import asyncio
import mmap
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.message.flags import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION
from orbitmq.store.files import MappedFile, _is_in_memory
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers import ViewMessageHeader
from orbitmq.wire.requests import RequestCode
from tests.broker.test_live_slave import caught_up, files, made_slave
from tests.support.live import Client, Time, client_of, made_broker, running
from tests.support.loops import LoopFactory, until

MIB = 1 << 20
MORE = 72  # MiB of other messages: more than what counts as written a moment ago
OPTIONS = {"mappedFileSizeCommitLog": str(16 * MIB)}


class Disk:
    """Says that nothing is in memory that was not fetched, and lets no fetch end before `release`."""

    def __init__(self) -> None:
        self.fetched: list[tuple[MappedFile, int, int]] = []
        self.threads: set[int] = set()
        self.may_read = threading.Event()
        self.error: OSError | None = None
        self._fetch = MappedFile.fetch

    def resident_end(self, file: MappedFile, start: int, size: int) -> int:
        end = max((begin + length for one, begin, length in self.fetched if one is file and begin <= start), default=0)
        return min(start + size, max(start, end))

    def fetch(self, file: MappedFile, start: int, size: int, ahead: int) -> None:
        self.threads.add(threading.get_ident())
        assert self.may_read.wait(60)
        if self.error is not None:
            raise self.error
        self._fetch(file, start, size, ahead)
        self.fetched.append((file, start, size))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    made = Disk()
    monkeypatch.setattr(MappedFile, "resident_end", lambda *arguments: made.resident_end(*arguments))
    monkeypatch.setattr(MappedFile, "fetch", lambda *arguments: made.fetch(*arguments))
    yield made
    made.may_read.set()  # or the reader would keep the process alive


@asynccontextmanager
async def backlog(directory: Path, time: Time | None = None) -> AsyncIterator[tuple[Broker, Client]]:
    """A broker with ten messages of topic T that many others follow."""
    broker = made_broker(directory / "master", time.clock if time is not None else None, **OPTIONS)
    async with running(broker), client_of(broker) as client:
        for number in range(10):
            await client.send("T", b"old %d" % number)
        if time is not None:
            await client.send("T", b"delayed", {"DELAY": "1"})
        await fill(client)
        yield broker, client


async def fill(client: Client) -> None:
    for _ in range(MORE):
        await client.send("Other", bytes(MIB))


async def test_a_pull_of_old_messages_keeps_nobody_waiting(tmp_path: Path, disk: Disk) -> None:
    async with backlog(tmp_path) as (_, client):
        pulling = asyncio.create_task(client.read("T"))
        await until(lambda: disk.threads, "a thread reads")
        for number in range(20):
            await client.send("Other", b"new %d" % number)
        assert not pulling.done()
        disk.may_read.set()
        assert [message.body for message in await pulling] == [b"old %d" % number for number in range(10)]
        assert threading.get_ident() not in disk.threads
        assert disk.fetched


async def test_new_messages_are_not_asked_for(tmp_path: Path, disk: Disk) -> None:
    async with backlog(tmp_path) as (_, client):
        await client.send("T", b"new")
        assert [message.body for message in await client.read("T", offset=10)] == [b"new"]
        assert not disk.threads


async def test_a_short_queue_is_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []

    def resident_end(file: MappedFile, start: int, size: int) -> int:
        """One page of a new file of a queue is written, and only that is in memory."""
        asked.append(file.path)
        return min(start + size, mmap.PAGESIZE) if "consumequeue" in str(file.path) else start + size

    monkeypatch.setattr(MappedFile, "resident_end", resident_end)
    async with backlog(tmp_path) as (_, client):
        assert len(await client.read("T")) == 10
        assert asked
        asked.clear()
        assert len(await client.read("T")) == 10
        assert not asked


async def test_a_pull_gets_the_error_of_the_disk(tmp_path: Path, disk: Disk) -> None:
    disk.may_read.set()
    disk.error = OSError(5, "Input/output error")
    async with backlog(tmp_path) as (_, client):
        answer = await client.pull("T")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "Input/output error" in (answer.remark or "")
        disk.error = None
        assert len(await client.read("T")) == 10


async def test_a_message_is_viewed_when_it_has_been_read(tmp_path: Path, disk: Disk) -> None:
    async with backlog(tmp_path) as (_, client):
        viewing = asyncio.create_task(client.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageHeader(offset=0)))
        await until(lambda: disk.threads, "a thread reads")
        await client.send("Other", b"new")
        disk.may_read.set()
        assert b"old 0" in (await viewing).body


async def test_a_delayed_message_is_delivered_when_it_has_been_read(
    tmp_path: Path, disk: Disk, turned_clock: LoopFactory
) -> None:
    time = Time()
    async with backlog(tmp_path, time) as (broker, client):
        await time.pass_by(1, while_disks_stand=True)
        await until(lambda: disk.threads, "a thread reads")
        assert broker.store.max_offset("T", 0) == 10
        await client.send("Other", b"new")
        disk.may_read.set()
        await until(lambda: broker.store.max_offset("T", 0) == 11, "it is delivered")


async def test_a_slave_that_begins_late_gets_what_has_been_read(tmp_path: Path, disk: Disk) -> None:
    async with (
        backlog(tmp_path) as (master, client),
        running(made_slave(tmp_path / "slave", master, **OPTIONS)) as slave,
    ):
        await until(lambda: disk.threads, "a thread reads")
        await client.send("Other", b"new")
        disk.may_read.set()
        await caught_up(slave, master)
        assert files(slave) == files(master)
        assert threading.get_ident() not in disk.threads


async def test_a_commit_that_comes_while_a_pull_is_read_is_not_undone(tmp_path: Path, disk: Disk) -> None:
    async with backlog(tmp_path) as (broker, client):
        pulling = asyncio.create_task(
            client.pull("T", sys_flag=PULL_COMMIT_OFFSET | PULL_SUBSCRIPTION, commit_offset=3)
        )
        await until(lambda: disk.threads, "a thread reads")
        group = "readers"
        assert broker.offsets.query(group, "T", 0) == 3
        broker.offsets.commit(group, "T", 0, 7)
        disk.may_read.set()
        await pulling
        assert broker.offsets.query(group, "T", 0) == 7


async def test_a_disk_that_never_tells_what_it_has_brought_does_not_hold_up_delivery(
    tmp_path: Path, disk: Disk, turned_clock: LoopFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MappedFile, "resident_end", lambda _file, start, _size: start)
    disk.may_read.set()
    time = Time()
    async with backlog(tmp_path, time) as (broker, client):
        await time.pass_by(1, while_disks_stand=True)
        await until(lambda: broker.store.max_offset("T", 0) == 11, "it is delivered")
        assert len(await client.read("T")) == 11
        assert (await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageHeader(offset=0))).code == 0
        async with running(made_slave(tmp_path / "slave", broker, **OPTIONS)) as slave:
            await caught_up(slave, broker)


async def test_a_place_inside_a_message_has_nobody_read_the_whole_log(tmp_path: Path, disk: Disk) -> None:
    """Any four bytes there may pass for a size."""
    disk.may_read.set()
    broker = made_broker(tmp_path / "master", None, mappedFileSizeCommitLog=str(64 * MIB))
    async with running(broker), client_of(broker) as client:
        await client.send("T", b"\x03\xff\xff\xff" * 100)
        await fill(client)
        answer = await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageHeader(offset=200))
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR)
        assert max(size for _, _, size in disk.fetched) <= 16 * MIB


def test_what_the_kernel_has_dropped_is_fetched(tmp_path: Path) -> None:
    file = MappedFile(tmp_path / "file", 4 * MIB, create=True, writable=True)
    file.write(0, os.urandom(4 * MIB))
    assert file.resident_end(5000, MIB) == 5000 + MIB
    file.sync()
    file.forget_pages(0, 4 * MIB)
    descriptor = os.open(file.path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    is_in_memory = _is_in_memory(descriptor)
    os.close(descriptor)
    if is_in_memory:
        pytest.skip("temporary files are on a file system in memory, which drops nothing")
    assert file.resident_end(5000, MIB) == 4096
    file.fetch(5000, MIB, 0)
    assert file.resident_end(5000, MIB) == 5000 + MIB
    file.close()
