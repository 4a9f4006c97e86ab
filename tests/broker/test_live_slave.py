"""A master and its slave on one loop: what is copied, what a slave refuses, what a send to a SYNC_MASTER waits for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.broker.registration import Registrar
from orbitmq.broker.roles import SlaveRole
from orbitmq.broker.slave.metadata import ANSWER_OLD_SECONDS
from orbitmq.errors import BrokerError, ConfigurationError, RequestRejected
from orbitmq.message.config import SubscriptionGroup, TopicConfig
from orbitmq.message.flags import PULL_COMMIT_OFFSET, pull_flag
from orbitmq.message.model import MessageQueue
from orbitmq.operations.offsets import query_consumer_offset, update_consumer_offset
from orbitmq.operations.statistics import runtime_info
from orbitmq.replication.agreement import check_agreement
from orbitmq.replication.master import SILENT_MAX, SLAVES_MAX, networks_of
from orbitmq.replication.protocol import HEAD, REPORT
from orbitmq.store.replica import ReplicaStore
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers import PullMessageResponseHeader
from orbitmq.wire.headers_admin import CreateTopicHeader, DeleteTopicHeader
from orbitmq.wire.headers_transaction import EndTransactionHeader
from orbitmq.wire.objects import encode
from orbitmq.wire.requests import RequestCode
from tests.support.live import BROKER, Client, Time, client_of, live, made_broker, running
from tests.support.loops import LoopFactory, until

SYNC = {"brokerRole": "SYNC_MASTER"}


def made_slave(directory: Path, master: Broker, **pairs: str) -> Broker:
    """A slave that was told where its master is: it needs no name server."""
    role = {"brokerRole": "SLAVE", "brokerId": "1", "haMasterAddress": f"127.0.0.1:{master.port + 1}"}
    return made_broker(directory, **{**role, **pairs})


def replica(broker: Broker) -> ReplicaStore:
    assert isinstance(broker.store, ReplicaStore)
    return broker.store


async def caught_up(slave: Broker, master: Broker) -> None:
    await until(lambda: slave.store.readable_offset == master.store.commit_log_max_offset, "the slave has everything")


@asynccontextmanager
async def pair(directory: Path, **of_master: str) -> AsyncIterator[tuple[Broker, Client, Broker, Client]]:
    """Both with a client each."""
    async with (
        running(made_broker(directory / "master", **of_master)) as master,
        running(made_slave(directory / "slave", master)) as slave,
        client_of(master) as at_master,
        client_of(slave) as at_slave,
    ):
        yield master, at_master, slave, at_slave


async def scripted(master: Broker, first_report: int = 0) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A slave that says what the test has it say."""
    reader, writer = await asyncio.open_connection("127.0.0.1", master.port + 1)
    writer.write(REPORT.pack(first_report))
    await until(lambda: any(link.place is not None for link in master.replicas.links), "the first report")
    return reader, writer


def files(broker: Broker) -> bytes:
    log = broker.store.options.commit_log_directories[0]
    return b"".join(path.read_bytes() for path in sorted(log.iterdir()))[: broker.store.commit_log_max_offset]


# ------------------------------------------------------------------------------------------------------- the copy


async def test_a_slave_has_the_same_log_queues_and_tables(tmp_path: Path) -> None:
    async with running(made_broker(tmp_path / "master")) as master, client_of(master) as at_master:
        for number in range(300):
            await at_master.send("Before", b"%d" % number * 1500, queue_id=number % 4)
        async with running(made_slave(tmp_path / "slave", master)) as slave, client_of(slave) as at_slave:
            await caught_up(slave, master)
            for number in range(300):
                await at_master.send("After", b"%d" % number * 1500, {"KEYS": f"k{number}"}, queue_id=number % 4)
            await caught_up(slave, master)
            assert files(slave) == files(master)
            assert len(slave.store.commit_log.files.files) > 2
            for topic in ("Before", "After"):
                for queue_id in range(4):
                    assert slave.store.entries(topic, queue_id, 0, 999) == master.store.entries(topic, queue_id, 0, 999)
            await until(lambda: "Before" in slave.topics.table, "the topics of the first copy")
            found = await at_slave.read("Before", 2)
            assert [one.body for one in found] == [one.body for one in await at_master.read("Before", 2)]
            assert len(slave.store.query("After", "k7", 32, 0, 1 << 60).buffers) == 1


async def test_a_held_pull_at_a_slave_gets_what_arrives(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, at_master, slave, at_slave):
        await at_master.send("T", b"one")
        await caught_up(slave, master)
        await until(lambda: slave.topics.table, "topics")
        slave.topics.put(TopicConfig("T", 4, 4, 6))
        flag = pull_flag(commit_offset=False, suspend=True, subscription=True, class_filter=False)
        held = asyncio.create_task(at_slave.pull("T", 0, 1, sys_flag=flag, suspend_timeout_millis=60_000))
        await until(lambda: len(slave._pulling.held), "the pull is held")
        await at_master.send("T", b"two")
        assert (await held).code == ResponseCode.SUCCESS


async def test_a_slave_that_was_away_goes_on_where_it_stopped(tmp_path: Path) -> None:
    async with running(made_broker(tmp_path / "master")) as master, client_of(master) as at_master:
        for end in ("stop", "kill", "stop"):
            slave = made_slave(tmp_path / "slave", master)
            await slave.start()
            await at_master.send("T", end.encode() * 1000)
            await caught_up(slave, master)
            await getattr(slave, end)()
            await at_master.send("T", b"missed")
        async with running(made_slave(tmp_path / "slave", master)) as slave:
            await caught_up(slave, master)
            assert files(slave) == files(master)


async def test_a_master_that_was_away_is_found_again(tmp_path: Path) -> None:
    master = made_broker(tmp_path / "master")
    await master.start()
    port = master.port
    async with running(made_slave(tmp_path / "slave", master)) as slave:
        await until(lambda: slave.following is not None and slave.following.state.is_connected)
        await master.stop()
        again = made_broker(tmp_path / "master", listenPort=str(port))
        async with running(again), client_of(again) as client:
            await client.send("T", b"after")
            await caught_up(slave, again)


async def test_a_slave_leaves_the_routes_before_it_stops_replicating(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[str] = []

    def noting(owner: type[Any], name: str) -> None:
        stop = owner.stop

        async def noted(self: Any) -> None:
            stopped.append(name)
            await stop(self)

        monkeypatch.setattr(owner, "stop", noted)

    noting(Registrar, "routes")
    noting(SlaveRole, "replication")
    async with running(made_broker(tmp_path / "master")) as master:
        slave = made_slave(tmp_path / "slave", master)
        await slave.start()
        await slave.stop()
    assert stopped[:2] == ["routes", "replication"]


async def test_an_empty_slave_gets_the_whole_log_or_as_rocketmq_the_last_file(tmp_path: Path) -> None:
    async with running(made_broker(tmp_path / "master")) as master, client_of(master) as client:
        for _ in range(5):
            await client.send("T", bytes(600_000))
        async with running(made_slave(tmp_path / "whole", master)) as slave:
            await caught_up(slave, master)
            assert files(slave) == files(master)
        async with running(made_slave(tmp_path / "last", master, haCopyWholeLog="false")) as slave:
            await caught_up(slave, master)
            assert slave.store.commit_log_min_offset == 4 << 20
            assert slave.store.min_offset("T", 0) == 4


# ---------------------------------------------------------------------------------------------- logs that differ


async def test_a_log_that_differs_is_named_and_left_alone(tmp_path: Path) -> None:
    async with live(tmp_path / "slave") as client:  # it was a master itself, and got a message of its own
        for number in range(20):
            await client.send("T", b"mine" if number == 13 else b"same", born_timestamp=number)
    before = (tmp_path / "slave/commitlog/00000000000000000000").read_bytes()
    async with running(made_broker(tmp_path / "master")) as master, client_of(master) as client:
        for number in range(30):
            await client.send("T", b"same", born_timestamp=number)
        async with running(made_slave(tmp_path / "slave", master)) as slave:
            following = slave.following
            assert following is not None
            await until(lambda: following.state.refusal, "the refusal")
            assert "is not the beginning of that of 127.0.0.1" in following.state.refusal
            assert "differ from 0 on" in following.state.refusal  # hosts and times differ from the first on
            assert replica(slave).copied_to < master.store.commit_log_max_offset
    assert (tmp_path / "slave/commitlog/00000000000000000000").read_bytes() == before


async def test_a_former_master_with_more_than_its_successor_is_told_from_where_on(tmp_path: Path) -> None:
    async with running(made_broker(tmp_path / "first")) as first, client_of(first) as client:
        async with running(made_slave(tmp_path / "second", first)) as slave:
            for _ in range(10):
                await client.send("T", b"both")
            await caught_up(slave, first)
        end = first.store.commit_log_max_offset
        for _ in range(3):
            await client.send("T", b"only the first has it")
    async with (
        running(made_broker(tmp_path / "second")) as second,
        client_of(second) as client,
        running(made_slave(tmp_path / "first", second)) as rejoining,
    ):
        following = rejoining.following
        assert following is not None
        await until(lambda: following.state.refusal, "the refusal")
        assert f"which ends at {end}" in following.state.refusal
        assert f"differ from {end} on" in following.state.refusal
        assert replica(rejoining).copied_to > end


async def test_a_former_master_whose_log_is_a_beginning_joins(tmp_path: Path) -> None:
    async with (
        running(made_broker(tmp_path / "first")) as first,
        client_of(first) as client,
        running(made_slave(tmp_path / "second", first)) as slave,
    ):
        await client.send("T", b"both")
        await caught_up(slave, first)
    async with running(made_broker(tmp_path / "second")) as second, client_of(second) as client:
        await client.send("T", b"new")
        async with running(made_slave(tmp_path / "first", second)) as joining:
            await caught_up(joining, second)
            assert files(joining) == files(second)


# ------------------------------------------------------------------------------------------------- the wire of a master


async def test_a_slave_is_sent_pieces_that_end_with_a_file_and_signs_of_life(
    tmp_path: Path, turned_clock: LoopFactory
) -> None:
    time = Time()
    async with running(made_broker(tmp_path, time.clock, mappedFileSizeCommitLog=str(64 << 10))) as master:
        async with client_of(master) as client:
            for _ in range(46):
                await client.send("T", bytes(3500))
        end, begin = master.store.commit_log_max_offset, master.store.commit_log_max_offset // 65_536 * 65_536
        assert end - begin > 32_768
        reader, writer = await scripted(master)
        heads, copied = [], b""
        while begin + len(copied) < end:
            offset, size = HEAD.unpack(await reader.readexactly(HEAD.size))
            heads.append((offset, size))
            copied += await reader.readexactly(size)
        assert heads == [(begin, 32_768), (begin + 32_768, end - begin - 32_768)]
        assert copied == files(master)[begin:]
        await time.pass_by(5.2)
        await time.pass_by(0.2)
        assert HEAD.unpack(await reader.readexactly(HEAD.size)) == (end, 0)
        writer.write(REPORT.pack(end) + REPORT.pack(end)[:3])
        await until(lambda: master.replicas.acknowledged == end, "the report")
        writer.close()
        await until(lambda: not master.replicas.links, "the slave is gone")


async def test_a_slave_that_claims_more_than_there_is_or_says_nothing_is_closed(
    tmp_path: Path, turned_clock: LoopFactory
) -> None:
    time = Time()
    async with running(made_broker(tmp_path, time.clock)) as master:
        reader, writer = await asyncio.open_connection("127.0.0.1", master.port + 1)
        writer.write(REPORT.pack(1))
        assert await reader.read() == b""
        reader, writer = await scripted(master)
        await time.pass_by(20.2)
        await time.pass_by(0.2)
        await until(lambda: not master.replicas.links, "the silent one is closed")


async def silent(master: Broker, host: str, count: int) -> list[asyncio.StreamWriter]:
    """Connections that say nothing, and do not end."""
    made = [await asyncio.open_connection("127.0.0.1", master.port + 1, local_addr=(host, 0)) for _ in range(count)]
    return [writer for _, writer in made]


async def test_connections_that_say_nothing_keep_no_slave_out_and_no_send_waiting(tmp_path: Path) -> None:
    async with running(made_broker(tmp_path, **SYNC)) as master, client_of(master) as client:
        open_writers = await silent(master, "127.0.0.5", 2 * SILENT_MAX)
        late, slow = await asyncio.open_connection("127.0.0.1", master.port + 1)  # as RocketMQ's, that speak late
        open_writers += await silent(master, "127.0.0.5", 2 * SILENT_MAX)
        await until(lambda: len(master.replicas._silent) == SILENT_MAX, "the others are closed")
        assert (await client.send("T")).code == ResponseCode.SLAVE_NOT_AVAILABLE, "there is nobody to wait for"
        slow.write(REPORT.pack(0))
        assert (await late.readexactly(HEAD.size))[:8] == bytes(8)
        assert len(master.replicas.links) == 1
        for writer in (*open_writers, slow):
            writer.close()


async def test_no_more_slaves_than_the_limit_says(tmp_path: Path) -> None:
    async with running(made_broker(tmp_path)) as master, client_of(master) as client:
        slaves = [await scripted(master) for _ in range(SLAVES_MAX)]
        await until(lambda: len(master.replicas.links) == SLAVES_MAX)
        reader, writer = await asyncio.open_connection("127.0.0.1", master.port + 1)
        writer.write(REPORT.pack(0))
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        await client.send("T")
        await asyncio.gather(*(one.readexactly(HEAD.size) for one, _ in slaves))
        for _, one in slaves:
            one.close()


async def test_a_byte_now_and_then_is_no_sign_of_life(tmp_path: Path, turned_clock: LoopFactory) -> None:
    time = Time()
    async with running(made_broker(tmp_path, time.clock)) as master:
        reader, writer = await asyncio.open_connection("127.0.0.1", master.port + 1)
        await until(lambda: master.replicas._silent, "the connection")
        for _ in range(3):
            writer.write(b"\0")
            await time.pass_by(7)
        await time.pass_by(0.2)
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""


async def test_slaves_come_from_where_they_may(tmp_path: Path) -> None:
    async with running(made_broker(tmp_path, haSlaveAddresses="10.0.0.0/8")) as master:
        reader, _ = await asyncio.open_connection("127.0.0.1", master.port + 1)
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        assert not master.replicas.links
    assert networks_of("", only_local=False) is None
    assert [str(network) for network in networks_of("", only_local=True) or ()] == ["127.0.0.0/8", "::1/128"]
    with pytest.raises(ConfigurationError, match=r"haSlaveAddresses: 10\.0\.0\.1/8 has host bits set"):
        networks_of("10.0.0.1/8", only_local=False)


# --------------------------------------------------------------------------------------------------------- SYNC_MASTER


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_send_is_answered_when_a_slave_has_it(tmp_path: Path, flush: str) -> None:
    async with running(made_broker(tmp_path, flushDiskType=flush, **SYNC)) as master, client_of(master) as client:
        assert (await client.send("T")).code == ResponseCode.SLAVE_NOT_AVAILABLE
        reader, writer = await scripted(master)
        sends = [asyncio.create_task(client.send("T", b"x" * 100)) for _ in range(10)]
        await until(lambda: master.store.put_count == 11, "all are stored")
        await until(lambda: master.store.flushed_offset == master.store.commit_log_max_offset or flush[0] == "A")
        assert not any(send.done() for send in sends)
        await until(lambda: master.store.max_offset("T", 0) == 11, "all can be read")
        third = master.store.entries("T", 0, 3, 1)[0]
        writer.write(REPORT.pack(third[0] + third[1]))
        await until(lambda: sum(send.done() for send in sends) == 3, "three are answered")
        writer.write(REPORT.pack(master.store.commit_log_max_offset))
        answers = await asyncio.gather(*sends)
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
        writer.close()
        await reader.read()


async def test_a_send_waits_for_a_slave_as_long_as_slave_timeout_says(
    tmp_path: Path, turned_clock: LoopFactory
) -> None:
    time = Time()
    async with running(made_broker(tmp_path, time.clock, **SYNC)) as master, client_of(master) as client:
        await client.send("T")
        _, writer = await scripted(master)
        send = asyncio.create_task(client.send("T"))
        await until(lambda: master.store.put_count == 2)
        await time.pass_by(2.5)
        assert not send.done()
        await time.pass_by(0.7)
        answer = await send
        assert (answer.code, (answer.ext or {})["queueOffset"]) == (ResponseCode.FLUSH_SLAVE_TIMEOUT, "1")
        without_wait = await client.send("T", properties={"WAIT": "false"})
        assert without_wait.code == ResponseCode.SUCCESS
        writer.close()


async def test_a_slave_that_is_far_behind_is_not_waited_for(tmp_path: Path) -> None:
    async with (
        running(made_broker(tmp_path, haSlaveFallbehindMax="2000", **SYNC)) as master,
        client_of(master) as client,
    ):
        await client.send("T")
        _, writer = await scripted(master)
        assert (await client.send("T", bytes(3000))).code == ResponseCode.SLAVE_NOT_AVAILABLE
        writer.close()


async def test_a_real_slave_answers_for_a_sync_master(tmp_path: Path) -> None:
    async with pair(tmp_path, **SYNC) as (master, at_master, slave, _):
        await until(lambda: any(link.place is not None for link in master.replicas.links), "the slave")
        answers = await asyncio.gather(*(at_master.send("T", b"x" * 500) for _ in range(50)))
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
        assert replica(slave).copied_to == master.store.commit_log_max_offset


# ------------------------------------------------------------------------------------------------ requests to a slave


async def test_a_slave_leaves_to_its_master_what_only_a_master_may_do(tmp_path: Path) -> None:
    async with pair(tmp_path) as (_, at_master, slave, at_slave):
        await at_master.send("T")
        assert (await at_slave.send("T")).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert (await at_slave.send_batch("New", [b"a"])).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "New" not in slave.topics.table
        topic = CreateTopicHeader(
            topic="X",
            default_topic="TBW102",
            read_queue_nums=4,
            write_queue_nums=4,
            perm=6,
            topic_filter_type="SINGLE_TAG",
            order=False,
        )
        refused = await at_slave.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic)
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "changed at its master" in (refused.remark or "")
        delete = await at_slave.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicHeader("T"))
        assert delete.code == ResponseCode.SYSTEM_ERROR
        group = encode(SubscriptionGroup("g"))
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        assert (await at_slave.ask(code, body=group)).code == ResponseCode.SYSTEM_ERROR
        end = EndTransactionHeader("p", 0, 0, 8, from_transaction_check=False, msg_id="m", transaction_id="t")
        assert (await at_slave.ask(RequestCode.END_TRANSACTION, end)).code == ResponseCode.SLAVE_NOT_AVAILABLE


async def test_a_pull_from_a_slave_commits_nothing_and_corrects_nothing(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, at_master, slave, at_slave):
        await at_master.send("T")
        await caught_up(slave, master)
        await until(lambda: slave.topics.table)
        slave.topics.put(TopicConfig("T", 4, 4, 6))
        flag = PULL_COMMIT_OFFSET | pull_flag(commit_offset=True, suspend=False, subscription=True, class_filter=False)
        await at_slave.pull("T", 0, 0, sys_flag=flag, commit_offset=1)
        assert slave.offsets.table == {}
        beyond = await at_slave.pull("T", 0, 77)
        header = beyond.header(PullMessageResponseHeader)
        assert (beyond.code, header.next_begin_offset) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 77)
        assert header.suggest_which_broker_id == 0


async def test_a_slave_needs_an_id_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="brokerId: a broker with brokerRole SLAVE needs an id above 0"):
        made_broker(tmp_path, brokerRole="SLAVE")
    assert made_broker(tmp_path, brokerId="3").options.broker_id == 0


# --------------------------------------------------------------------------------------------------------------- tables


async def test_topics_groups_offsets_and_delays_are_copied(tmp_path: Path) -> None:
    async with running(made_broker(tmp_path / "master")) as master, client_of(master) as client:
        await client.send("T")
        await client.send("Later", properties={"DELAY": "1"})
        master.topics.put(TopicConfig("Ordered", attributes={"message.type": "FIFO"}))
        master.groups.put(SubscriptionGroup("g", consume_enabled=False, consume_orderly=True))
        queue = MessageQueue("T", BROKER, 0)
        await update_consumer_offset(client.remoting, client.address, "g", queue, 1)
        await until(lambda: master._delayed.offsets.get(1) == 1, "the delayed message")
        async with running(made_slave(tmp_path / "slave", master)) as slave:
            await until(lambda: slave._delayed.offsets.get(1) == 1, "the copy, of which this is the last part")
            assert slave.topics.table == master.topics.table
            assert slave.topics.version == master.topics.version
            assert slave.groups.table == master.groups.table
            assert slave.groups.version == master.groups.version
            assert slave.offsets.table == {"T@g": {0: 1}}
    kept = {path.name for path in (tmp_path / "slave/config").iterdir()}
    assert {"topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json"} <= kept


async def test_progress_made_at_a_slave_is_handed_to_the_master_that_returns(tmp_path: Path) -> None:
    queue = MessageQueue("T", BROKER, 0)
    async with pair(tmp_path) as (master, at_master, slave, at_slave):
        for _ in range(5):
            await at_master.send("T")
        await update_consumer_offset(at_master.remoting, at_master.address, "g", queue, 2)
        copying = slave._copying
        assert copying is not None
        await copying.copy(master.address)
        assert slave.offsets.query("g", "T", 0) == 2
        await update_consumer_offset(at_slave.remoting, at_slave.address, "g", queue, 4)
        await copying.copy(master.address)
        assert await query_consumer_offset(at_master.remoting, at_master.address, "g", queue) == 4
        await update_consumer_offset(at_master.remoting, at_master.address, "g", queue, 1)  # a reset
        await copying.copy(master.address)
        assert slave.offsets.query("g", "T", 0) == 1
        assert await query_consumer_offset(at_master.remoting, at_master.address, "g", queue) == 1


async def test_what_is_handed_back_lowers_nothing_that_came_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slave reads that the master is at 2, freezes, and thaws when a consumer has brought the master to 9."""
    queue = MessageQueue("T", BROKER, 0)
    async with pair(tmp_path) as (master, at_master, slave, _):
        await at_master.send_batch("T", [b"x"] * 11)
        await caught_up(slave, master)
        await until(lambda: slave.topics.version == master.topics.version, "the first copy")
        copying = slave._copying
        assert copying is not None
        await copying.stop()
        slave.offsets.commit("g", "T", 0, 4)
        await update_consumer_offset(at_master.remoting, at_master.address, "g", queue, 9)
        now = asyncio.get_running_loop().time()
        await copying._hand_back(master.address, {"T@g": {0: 2}}, now)
        assert master.offsets.query("g", "T", 0) == 9
        assert slave.offsets.committed_here == {}, "the master knows better"

        slave.offsets.commit("g", "T", 0, 11)
        await copying._hand_back(master.address, {"T@g": {0: 2}}, now - ANSWER_OLD_SECONDS - 1)
        assert master.offsets.query("g", "T", 0) == 9, "a master of RocketMQ would take it: it is asked anew before"
        await copying.copy(master.address)
        assert master.offsets.query("g", "T", 0) == 11

        slave.offsets.commit("g", "T", 0, 12)
        await copying.copy(master.address)
        assert master.offsets.query("g", "T", 0) == 11, "nobody has read a twelfth message of this log"


async def test_progress_made_at_a_slave_outlives_its_restart(tmp_path: Path) -> None:
    queue = MessageQueue("T", BROKER, 3)
    master = made_broker(tmp_path / "master")
    await master.start()
    async with client_of(master) as at_master:
        await at_master.send_batch("T", [b"x"] * 4, queue_id=3)
        await update_consumer_offset(at_master.remoting, at_master.address, "g", queue, 2)
    async with running(made_slave(tmp_path / "slave", master)) as slave, client_of(slave) as at_slave:
        await until(lambda: slave.offsets.query("g", "T", 3) == 2, "the copy")
        await caught_up(slave, master)
        port = master.port
        await master.stop()
        await update_consumer_offset(at_slave.remoting, at_slave.address, "g", queue, 4)
    async with running(made_broker(tmp_path / "master", listenPort=str(port))) as again, client_of(again) as client:
        async with running(made_slave(tmp_path / "slave", again)) as slave:
            await until(lambda: again.offsets.query("g", "T", 3) == 4, "the master is told")
            await until(lambda: slave.offsets.committed_here == {})
        await update_consumer_offset(client.remoting, client.address, "g", queue, 1)  # a reset, while it is away
        async with running(made_slave(tmp_path / "slave", again)) as slave:
            await until(lambda: slave.offsets.query("g", "T", 3) == 1, "the reset counts: nothing is told twice")
            assert again.offsets.query("g", "T", 3) == 1


def test_the_layouts_are_those_of_the_sheet() -> None:
    assert REPORT.pack(0x40008000) == bytes.fromhex("0000000040008000")
    assert HEAD.pack(0x40000000, 0x8000) == bytes.fromhex("000000004000000000008000")


async def test_figures_tell_how_replication_goes(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, at_master, slave, at_slave):
        for _ in range(3):
            await at_master.send("T")
        await caught_up(slave, master)
        end = str(master.store.commit_log_max_offset)
        await until(lambda: master.replicas.acknowledged == int(end), "the report")
        of_master = await runtime_info(at_master.remoting, master.address)
        assert of_master["replicationSlaves"].startswith("127.0.0.1:")
        assert of_master["replicationSlaveBytesBehind"] == "0"
        assert slave.following is not None
        await slave.following.look()
        of_slave = await runtime_info(at_slave.remoting, slave.address)
        assert of_slave["replicationMaster"] == f"127.0.0.1:{master.port + 1}"
        assert (of_slave["replicationConnected"], of_slave["replicationMasterEnd"]) == ("true", end)
        assert of_slave["replicationRefusal"] == ""


async def test_a_new_topic_is_known_at_once(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, at_master, slave, at_slave):
        await until(lambda: slave.topics.version == master.topics.version, "the first copy")
        await at_master.send("Newborn", b"first")
        await until(lambda: "Newborn" in slave.topics.table, "the second copy, long before its time")
        assert [one.body for one in await at_slave.read("Newborn")] == [b"first"]


async def test_a_master_that_stops_leaves_its_slave_with_everything(tmp_path: Path) -> None:
    master = made_broker(tmp_path / "master")
    await master.start()
    async with running(made_slave(tmp_path / "slave", master)) as slave, client_of(master) as client:
        await until(lambda: any(link.place is not None for link in master.replicas.links), "the slave")
        await asyncio.gather(*(client.send("T", bytes(50_000)) for _ in range(100)))
        await master.stop()
        assert replica(slave).copied_to == master.store.commit_log_max_offset


async def test_a_master_that_may_not_be_asked_for_messages_is_not_taken_for_another(tmp_path: Path) -> None:
    def refuse(_connection: object, _command: object) -> None:
        raise RequestRejected(ResponseCode.NO_PERMISSION, "not for you")

    async with pair(tmp_path) as (master, client, slave, _):
        await client.send("T")
        await caught_up(slave, master)
        master.router.add(RequestCode.VIEW_MESSAGE_BY_ID, refuse)
        with pytest.raises(BrokerError, match="not for you"):
            await check_agreement(replica(slave), client.remoting, master.address, 0, 1 << 40)
