"""What stands against a promotion, and against a second master of one name."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.broker.slave import metadata
from orbitmq.broker.slave.kept_role import kept_role_path
from orbitmq.broker.slave.promotion import TABLES_OLD_S, Promotion
from orbitmq.broker.table_recovery import TOPICS_A_TURN
from orbitmq.errors import ConfigurationError, RequestRejected
from orbitmq.message.model import MessageQueue
from orbitmq.message.topics import TRANSACTION_GROUP
from orbitmq.namesrv.options import NamesrvOptions
from orbitmq.namesrv.server import NameServer
from orbitmq.net.connection import Connection
from orbitmq.operations.mastership import promote_slave
from orbitmq.operations.offsets import update_consumer_offset
from orbitmq.replication.slave import is_refused, is_unreachable
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.mastership import PromotionReport
from orbitmq.wire.requests import RequestCode
from tests.broker.test_live_slave import caught_up, made_slave, pair
from tests.support.live import BROKER, Client, client_of, made_broker, running
from tests.support.loops import until


@asynccontextmanager
async def name_server(directory: Path) -> AsyncIterator[str]:
    server = NameServer(NamesrvOptions(listen_port=0, kv_config_path=str(directory / "kv.json")))
    await server.start()
    yield server.address
    await server.stop()


async def asked(slave: Broker, client: Client, **wanted: bool) -> PromotionReport:
    return await promote_slave(client.remoting, slave.address, **wanted)


async def test_a_master_that_answers_is_not_outvoted(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, _, slave, at_slave):
        report = await asked(slave, at_slave, force=True)
        assert report.alive == f"the master at {master.address} answers"
        assert not report.done
        assert not slave.superseded.is_set()


@pytest.mark.parametrize(("step", "goes_on"), [("_master_found", False), ("_find_topics", True)])
async def test_a_promotion_goes_on_without_its_connection_only_once_the_role_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, goes_on: bool
) -> None:
    """Else a broker that is stopped while it asks for its master would hear no answer, and take that for a dead one."""
    begun, may_go_on = asyncio.Event(), asyncio.Event()
    real = getattr(Promotion, step)

    async def wait(promotion: Promotion) -> object:
        begun.set()
        await may_go_on.wait()
        return await real(promotion)

    master = made_broker(tmp_path / "master")
    await master.start()
    async with running(made_slave(tmp_path / "slave", master)) as slave:
        await caught_up(slave, master)
        await master.stop()
        monkeypatch.setattr(Promotion, step, wait)
        connections = len(slave._server.connections)
        async with client_of(slave, "tool") as tool:
            asking = asyncio.create_task(asked(slave, tool, force=True))
            await begun.wait()
        await asyncio.gather(asking, return_exceptions=True)
        await until(lambda: len(slave._server.connections) == connections)
        may_go_on.set()
        await slave.router.shielded.settled()
        assert slave.superseded.is_set() is goes_on
        assert kept_role_path(slave.store.options).exists() is goes_on


async def test_a_master_that_refuses_to_tell_is_alive(tmp_path: Path) -> None:
    def refuse(_connection: object, _command: object) -> None:
        raise RequestRejected(ResponseCode.NO_PERMISSION, "who are you?")

    async with name_server(tmp_path) as names:
        master = made_broker(tmp_path / "master", namesrvAddr=names)
        master.router.add(RequestCode.GET_BROKER_RUNTIME_INFO, refuse)
        async with running(master):
            second = made_broker(tmp_path / "second", namesrvAddr=names)
            with pytest.raises(ConfigurationError, match=f"the master of broker-a is at {master.address} and answers"):
                await second.start()
            again = made_broker(tmp_path / "other", namesrvAddr=names, brokerName="broker-b")
            async with running(again):
                pass


async def test_a_broker_of_another_name_at_the_address_of_a_dead_master_stands_in_nobodys_way(tmp_path: Path) -> None:
    """Name servers list a machine that has lost its power for two minutes, and its address may be given away."""
    async with name_server(tmp_path) as names, running(made_broker(tmp_path / "b", brokerName="broker-b")) as other:
        dead = made_broker(tmp_path / "dead", namesrvAddr=names)
        dead.identity.port = other.port
        registrar = dead._make_registrar()
        registrar._must_tell_all = None
        await registrar.again()
        slave = made_broker(
            tmp_path / "slave", namesrvAddr=names, brokerRole="SLAVE", brokerId="1", haMasterAddress="127.0.0.1:1"
        )
        async with running(slave), client_of(slave) as client:
            report = await asked(slave, client, dry_run=True, force=True)
            assert report.alive is None
        async with running(made_broker(tmp_path / "again", namesrvAddr=names)):
            pass
        await dead._remoting.close()


async def test_what_is_missing_or_unknown_needs_force(tmp_path: Path) -> None:
    master = made_broker(tmp_path / "master")
    await master.start()
    async with running(made_slave(tmp_path / "slave", master)) as slave, client_of(slave) as client:
        following = slave.following
        assert following is not None
        async with client_of(master) as at_master:
            await at_master.send("T")
        await caught_up(slave, master)
        await until(lambda: following.state.tables_at is not None)
        await following.look()
        await master.stop()
        assert (await asked(slave, client, dry_run=True)).doubts == []
        following.state.master_end += 1000
        following.state.was_unreachable = True
        report = await asked(slave, client)
        assert (report.missing_bytes, report.done) == (1000, False)
        assert [doubt[:23] for doubt in report.doubts] == ["at least 1000 bytes of ", "replication stopped bef"]
        assert not slave.superseded.is_set()
        report = await asked(slave, client, force=True)
        assert report.done
        assert slave.superseded.is_set()
        assert slave.successor is not None
        options, store_options = slave.successor
        assert (options.broker_id, options.listen_port, store_options.broker_role) == (0, slave.port, "ASYNC_MASTER")
    successor = Broker(options, store_options)
    async with running(successor), client_of(successor) as client:
        assert (await client.send("T")).code == ResponseCode.SUCCESS
        assert [one.queue_offset for one in await client.read("T")] == [0, 1]


async def test_tables_that_were_not_copied_need_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slave with all of the log and no offsets would have every group begin anew."""
    monkeypatch.setattr(metadata, "FIRST_SECONDS", metadata.SOON_SECONDS)
    async with running(made_broker(tmp_path / "master")) as master, client_of(master) as at_master:
        await at_master.send("T")
        await update_consumer_offset(at_master.remoting, master.address, "readers", MessageQueue("T", BROKER, 0), 1)
        offsets, refused = master.router.handlers[RequestCode.GET_ALL_CONSUMER_OFFSET], asyncio.Event()

        def refuse(_: Connection, command: Command) -> Command:
            refused.set()
            return command.response(ResponseCode.SYSTEM_BUSY, "not now")

        master.router.add(RequestCode.GET_ALL_CONSUMER_OFFSET, refuse)
        async with running(made_slave(tmp_path / "slave", master)) as slave, client_of(slave) as client:
            await refused.wait()
            assert slave.following is not None
            await slave.following.look()
            not_copied = ["topics, groups and offsets of the master have not been copied since this slave started"]
            assert (await asked(slave, client, dry_run=True)).doubts == not_copied
            master.router.add(RequestCode.GET_ALL_CONSUMER_OFFSET, offsets)
            await until(lambda: slave.offsets.query("readers", "T", 0) == 1)
            await until(lambda: slave.following and slave.following.state.tables_at is not None)
            assert (await asked(slave, client, dry_run=True)).doubts == []
            slave.following.state.master_end_at += 2 * TABLES_OLD_S
            (doubt,) = (await asked(slave, client, dry_run=True)).doubts
            assert doubt.startswith("topics, groups and offsets were last copied 12")


async def test_a_slave_with_more_is_named(tmp_path: Path) -> None:
    async with name_server(tmp_path) as names:
        master = made_broker(tmp_path / "master", namesrvAddr=names)
        await master.start()
        behind = made_slave(tmp_path / "behind", master, namesrvAddr=names)
        ahead = made_slave(tmp_path / "ahead", master, namesrvAddr=names, brokerId="2")
        async with running(behind), running(ahead), client_of(behind) as client, client_of(master) as at_master:
            await caught_up(behind, master)
            assert behind.following is not None
            await behind.following.stop()
            await at_master.send("T", bytes(500))
            await caught_up(ahead, master)
            more = ahead.store.commit_log_max_offset - behind.store.commit_log_max_offset
            await master.stop()
            report = await asked(behind, client)
            assert f"the slave at {ahead.address} has {more} bytes more: promote that one" in report.doubts
            assert not report.done


async def test_topics_of_the_masters_last_moment_are_found_in_the_log(tmp_path: Path) -> None:
    master = made_broker(tmp_path / "master")
    await master.start()
    async with running(made_slave(tmp_path / "slave", master)) as slave, client_of(slave) as client:
        async with client_of(master) as at_master:
            await at_master.send("Newborn", queue_id=2)
        await caught_up(slave, master)
        await master.stop()
        slave.topics.table.pop("Newborn", None)
        assert (await asked(slave, client, force=True)).done
        assert slave.topics.table["Newborn"].read_queues == 3


async def test_thousands_of_topics_are_found_in_turns_of_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    turn = 0

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    master = made_broker(tmp_path / "master")
    await master.start()
    async with running(made_slave(tmp_path / "slave", master)) as slave, client_of(slave) as client:
        await until(lambda: slave.topics.version == master.topics.version, "the tables")
        await master.stop()
        monkeypatch.setattr(slave.store.consume_queues, "counts", lambda: {f"t{number}": 1 for number in range(1000)})
        monkeypatch.setattr(slave.topics, "add_found", lambda *_: made.append(turn))
        counting = asyncio.create_task(count_turns())
        assert (await asked(slave, client, force=True)).done
        counting.cancel()
    assert len(made) == 1000
    assert max(Counter(made).values()) <= TOPICS_A_TURN


async def test_progress_of_the_masters_own_work_is_taken_when_the_log_has_what_it_stands_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "CATCH_UP_SECONDS", 0.05)
    async with pair(tmp_path) as (master, at_master, slave, _):
        await at_master.send("T")
        await caught_up(slave, master)
        copying = slave._copying
        assert copying is not None
        await copying.stop()
        master._delayed.offsets[3] = 7
        master.offsets.commit(TRANSACTION_GROUP, "half", 0, 5)
        master.offsets.commit("g", "T", 0, 1)
        copying._copied = lambda: 0
        await copying.copy(master.address)
        assert 3 not in slave._delayed.offsets
        assert slave.offsets.query(TRANSACTION_GROUP, "half", 0) is None
        assert slave.offsets.query("g", "T", 0) == 1
        copying._copied = lambda: slave.store.commit_log_max_offset
        await copying.copy(master.address)
        assert slave._delayed.offsets[3] == 7
        assert slave.offsets.query(TRANSACTION_GROUP, "half", 0) == 5


async def test_more_progress_than_one_round_hands_back_waits_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "HANDED_BACK_MAX", 1)
    async with pair(tmp_path) as (master, at_master, slave, _):
        for queue_id in range(3):
            await at_master.send_batch("T", [b"x"] * 12, queue_id=queue_id)
        await caught_up(slave, master)
        await until(lambda: slave.topics.version == master.topics.version, "the first copy")
        copying = slave._copying
        assert copying is not None
        await copying.stop()
        for queue_id in range(3):
            master.offsets.commit("g", "T", queue_id, 1)
            slave.offsets.commit("g", "T", queue_id, 10 + queue_id)
        for round_number in range(1, 4):
            await copying.copy(master.address)
            assert slave.offsets.of("g", "T") == {0: 10, 1: 11, 2: 12}
            assert sum(offset >= 10 for offset in master.offsets.of("g", "T").values()) == round_number


def test_refused_is_down_and_silence_is_not() -> None:
    refused, lost = OSError("outer"), TimeoutError()
    refused.__cause__ = ConnectionRefusedError()
    assert is_refused(refused)
    assert not is_unreachable(refused)
    assert is_unreachable(lost)
    assert not is_refused(lost)
