"""Both ends of a link when something is missing: the beginning of the master's log, or room in the slave's queues."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from pathlib import Path

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.replication.protocol import HEAD, REPORT
from orbitmq.wire.codes import ResponseCode
from tests.broker.test_live_slave import SYNC, caught_up, files, made_slave, replica, scripted
from tests.support.live import Client, Time, client_of, made_broker, running
from tests.support.loops import LoopFactory, until

FILE_SIZE = 64 << 10
SMALL = {"mappedFileSizeCommitLog": str(FILE_SIZE)}


async def fill(client: Client, count: int) -> None:
    """A file of the log takes 18 of them."""
    for _ in range(count):
        await client.send("T", bytes(3500))


def lose_first_file(broker: Broker) -> int:
    """What retention does; where the log begins now."""
    log = broker.store.commit_log
    file = log.files.remove_first()
    file.path.unlink()
    file.close()
    return log.files.start


# ------------------------------------------------------------------------------------- a slave that retention overtakes


async def test_a_link_ends_when_the_log_loses_what_its_slave_gets_next(
    tmp_path: Path, turned_clock: LoopFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """It would get signs of life for ever, and both ends believe that all is well."""
    time = Time()
    async with running(made_broker(tmp_path, time.clock, **SMALL, **SYNC)) as master, client_of(master) as client:
        await fill(client, 1)
        end = master.store.commit_log_max_offset
        reader, writer = await scripted(master, end)
        (link,) = master.replicas.links
        link.pause_writing()
        for _ in range(40):
            await client.send("T", bytes(3500), {"WAIT": "false"})
        start = lose_first_file(master)
        await time.pass_by(0.2)
        assert await reader.read() == b""
        await until(lambda: not master.replicas.links, "the slave is gone")
        told = [one.getMessage() for one in caplog.records if "slave_too_old" in one.getMessage()]
        assert told == [
            f"event=slave_too_old peer={link.address} slave={end} master_from={start} remedy=empty_its_store"
        ]
        assert (await client.send("T")).code == ResponseCode.SLAVE_NOT_AVAILABLE, "nobody is waited for"
        writer.close()


async def test_a_slave_whose_next_bytes_are_gone_is_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One of RocketMQ reports every five seconds, each time over a new connection: no send may wait for it then."""
    caplog.set_level(logging.INFO)
    async with running(made_broker(tmp_path, **SMALL)) as master, client_of(master) as client:
        await fill(client, 40)
        start = lose_first_file(master)
        reader, writer = await asyncio.open_connection("127.0.0.1", master.port + 1)
        writer.write(REPORT.pack(start - 1))
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        assert f"slave={start - 1} master_from={start}" in caplog.text
        assert "slave_connected" not in caplog.text
        reader, writer = await scripted(master, start)
        assert HEAD.unpack(await reader.readexactly(HEAD.size))[0] == start, "one that has all before it goes on"
        writer.close()


async def test_a_slave_that_was_overtaken_says_what_to_do(tmp_path: Path) -> None:
    async with (
        running(made_broker(tmp_path / "master", **SMALL)) as master,
        client_of(master) as client,
        running(made_slave(tmp_path / "slave", master, **SMALL)) as slave,
    ):
        await fill(client, 5)
        await caught_up(slave, master)
        (link,) = master.replicas.links
        link.pause_writing()
        end = replica(slave).copied_to
        await fill(client, 40)
        start = lose_first_file(master)
        following = slave.following
        assert following is not None
        await until(lambda: following.state.refusal, "the refusal")
        assert f"has its log from {start} on and this one ends at {end}" in following.state.refusal
        assert "move this store's directory away and start empty" in following.state.refusal
        assert replica(slave).copied_to == end


# --------------------------------------------------------------------------------- a slave without room in its queues


async def test_what_a_slave_has_answered_for_outlives_its_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no block for the entry")

    def attempts(why: str) -> int:
        texts = [one.getMessage() for one in caplog.records]
        return sum("replication_interrupted" in text and why in text for text in texts)

    caplog.set_level(logging.INFO)
    async with (
        running(made_broker(tmp_path / "master", **SYNC)) as master,
        client_of(master) as client,
        running(made_slave(tmp_path / "slave", master)) as slave,
    ):
        await until(lambda: any(link.place is not None for link in master.replicas.links), "the slave")
        assert (await client.send("T", b"one")).code == ResponseCode.SUCCESS
        await until(lambda: "T" in slave.topics.table, "the topic, without which nobody could read")
        with monkeypatch.context() as patched:
            patched.setattr(slave.store._dispatcher, "dispatch", full)
            assert (await client.send("T", b"two")).code == ResponseCode.SUCCESS, "a slave's log has it, as RocketMQ's"
            end = master.store.commit_log_max_offset
            for link in master.replicas.links:
                link.refuse("the network fails")
            await until(lambda: attempts("have no room in their queues"), "a log that cannot be compared")
            assert replica(slave).copied_to == end
            assert slave.following is not None
            assert slave.following.state.master_end == end, "what a promotion would miss is known all the same"
            assert not master.replicas.links
        await until(lambda: master.replicas.links, "there is room, and a link")
        assert (await client.send("T", b"three")).code == ResponseCode.SUCCESS
        assert files(slave) == files(master)
        await until(lambda: slave.store.max_offset("T", 0) == 3)
        with monkeypatch.context() as patched:
            patched.setattr(slave.store._dispatcher, "dispatch", full)
            assert (await client.send("T", b"four")).code == ResponseCode.SUCCESS
            failed = attempts("")
            await master.kill()
            await until(lambda: attempts("") > failed + 1, "the slave has looked for its master in vain")
            await slave.stop()
    async with running(made_broker(tmp_path / "slave")) as promoted, client_of(promoted) as client:
        assert [one.body for one in await client.read("T")] == [b"one", b"two", b"three", b"four"]
