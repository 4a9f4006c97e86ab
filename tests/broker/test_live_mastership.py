"""Who is the master: slaves whose log differs hand nothing on, and of two masters the one promoted first stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from orbitmq.admin.runtime import parse
from orbitmq.broker.broker import Broker
from orbitmq.broker.mastership import watch
from orbitmq.broker.mastership.fence import PAUSE_SECONDS, Fence
from orbitmq.broker.mastership.record import Mastership, MastershipRecord
from orbitmq.broker.mastership.watch import SLAVES_MAX, when
from orbitmq.broker.slave import promotion
from orbitmq.errors import BrokerError, ConfigurationError, SendRequestError, StoreDamaged
from orbitmq.message.model import MessageQueue
from orbitmq.operations.mastership import exchange_mastership, promote_slave
from orbitmq.operations.offsets import update_consumer_offset
from orbitmq.operations.routes import cluster_info
from orbitmq.operations.statistics import runtime_info
from orbitmq.store.options import ASYNC_MASTER, SYNC_MASTER
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers_namesrv import RegisterBrokerResponseHeader
from orbitmq.wire.mastership import EPOCH_MAX, BrokerMastershipHeader
from orbitmq.wire.requests import RequestCode
from tests.broker.test_live_promotion import name_server
from tests.broker.test_live_slave import caught_up, files, made_slave, pair
from tests.support.live import BROKER, Client, client_of, made_broker, running
from tests.support.loops import until

QUEUE = MessageQueue("T", BROKER, 0)


@asynccontextmanager
async def diverged(directory: Path) -> AsyncIterator[tuple[Broker, Client, Broker, Client]]:
    """A master that was promoted, and the former one as its slave: it has 60 messages that the new master never got,
    and that one has 60 others there.
    """
    async with name_server(directory) as names:
        former = made_broker(directory / "one")
        await former.start()
        async with running(made_slave(directory / "two", former)) as slave, client_of(former) as client:
            await client.send_batch("T", [b"both"] * 10)
            await caught_up(slave, former)
            assert slave.following is not None
            await slave.following.stop()  # it is cut off
            await client.send_batch("T", [b"lost"] * 60)
        await former.stop()
        later = made_broker(directory / "two", namesrvAddr=names)  # by its configuration: a promotion, too
        async with running(later) as master, client_of(master) as at_master:
            await at_master.send_batch("T", [b"kept"] * 60)
            refused = made_broker(directory / "one", namesrvAddr=names, brokerRole="SLAVE", brokerId="1")
            async with running(refused), client_of(refused) as at_refused:
                await until(lambda: "does not follow its master" in refused.not_serving, "it is refused")
                yield master, at_master, refused, at_refused


async def test_a_slave_whose_log_differs_hands_no_progress_to_its_master(tmp_path: Path) -> None:
    async with diverged(tmp_path) as (master, at_master, refused, at_refused):
        await update_consumer_offset(at_master.remoting, at_master.address, "g", QUEUE, 10)
        with pytest.raises(BrokerError, match="does not follow its master") as caught:
            await update_consumer_offset(at_refused.remoting, at_refused.address, "g", QUEUE, 70)
        assert caught.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
        copying = refused._copying
        assert copying is not None
        assert refused.offsets.query("g", "T", 0) is None
        refused.offsets.commit("g", "T", 0, 70)  # what it had taken before
        assert copying._master() is None, "so no table goes in either direction"
        assert master.offsets.query("g", "T", 0) == 10
        assert files(refused) != files(master)


async def test_a_slave_whose_log_differs_serves_no_reads_and_is_in_no_route(tmp_path: Path) -> None:
    async with diverged(tmp_path) as (master, at_master, refused, at_refused):
        for code, header in (
            (RequestCode.PULL_MESSAGE, None),
            (RequestCode.GET_MAX_OFFSET, None),
            (RequestCode.QUERY_MESSAGE, None),
            (RequestCode.QUERY_CONSUMER_OFFSET, None),
        ):
            answer = await at_refused.ask(code, header)
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE, code
            assert "does not follow its master" in (answer.remark or "")
        known = (await cluster_info(at_master.remoting, refused.options.name_servers[0], timeout_ms=3000)).brokers
        assert known[BROKER].addresses == {0: master.address}
        assert [one.body for one in await at_master.read("T", offset=69)] == [b"kept"]


async def test_master_and_slave_say_that_the_slave_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with diverged(tmp_path) as (master, at_master, refused, at_refused):
        assert master.watch is not None
        await until(lambda: refused.address in master.watch.refused_slaves, "the master knows")
        told = parse(await runtime_info(at_master.remoting, master.address, timeout_ms=3000)).replication
        assert told.refused_slaves is not None
        assert refused.address in told.refused_slaves
        assert "they differ from" in told.refused_slaves
        own = parse(await runtime_info(at_refused.remoting, refused.address, timeout_ms=3000)).replication
        assert "they differ from" in str(own.refusal)
        assert own.not_serving is not None
    assert f"event=slave_differs name={BROKER} slave={refused.address}" in caplog.text
    assert "event=replication_refused" in caplog.text


async def test_a_former_master_serves_nothing_before_its_log_is_compared(tmp_path: Path) -> None:
    master = made_broker(tmp_path / "one")
    async with running(master), client_of(master) as client:
        await client.send("T")
    nowhere = made_broker(tmp_path / "one", brokerRole="SLAVE", brokerId="1", haMasterAddress="127.0.0.1:1")
    async with running(nowhere), client_of(nowhere) as client:
        answer = await client.pull("T")
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "has not been compared with its master yet" in (answer.remark or "")


async def test_a_slave_that_followed_serves_reads_after_a_restart_without_its_master(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, at_master, slave, _):
        await at_master.send("T")
        await caught_up(slave, master)
        await until(lambda: "T" in slave.topics.table and slave.readiness is not None and not slave.readiness.reason)
    alone = made_broker(tmp_path / "slave", brokerRole="SLAVE", brokerId="1", haMasterAddress="127.0.0.1:1")
    async with running(alone), client_of(alone) as client:
        assert len(await client.read("T")) == 1


# ---------------------------------------------------------------------------------------------------- two masters


@asynccontextmanager
async def two_masters(directory: Path, **of_both: str) -> AsyncIterator[tuple[Broker, Client, Broker, Client]]:
    """The former one goes on behind a broken network, without name servers, while its slave is promoted."""
    former = made_broker(directory / "one", **of_both)
    await former.start()
    try:
        async with running(made_slave(directory / "two", former, **of_both)) as slave, client_of(slave) as client:
            await caught_up(slave, former)
            assert slave.following is not None
            await until(lambda: slave.following.is_following)
            slave.following._options = slave.store.options.replace(ha_master_address="127.0.0.1:1")
            assert (await promote_slave(client.remoting, slave.address, force=True)).done
            assert slave.successor is not None
        later = Broker(*slave.successor)
        assert later.watch is not None
        async with running(later), client_of(former) as at_former, client_of(later) as at_later:
            yield former, at_former, later, at_later
    finally:
        await former.stop()


async def test_a_master_that_a_later_one_tells_takes_and_gives_nothing_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with two_masters(tmp_path) as (former, at_former, later, at_later):
        assert former.watch is not None
        assert later.watch is not None
        assert later.watch.epoch > former.watch.epoch == 0
        assert (await at_former.send("T")).code == ResponseCode.SUCCESS
        end = former.store.commit_log_max_offset
        await later.watch._exchange(former.address)
        answer = await at_former.send("T")
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE, "clients try another broker"
        assert f"{BROKER} has a later master, {later.address}" in (answer.remark or "")
        assert (await at_former.pull("T")).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert former.store.commit_log_max_offset == end
        assert (await at_later.send("T")).code == ResponseCode.SUCCESS
        told = parse(await runtime_info(at_later.remoting, later.address, timeout_ms=3000)).replication
        assert told.other_masters is None or "stopped" in told.other_masters
        told = parse(await runtime_info(at_former.remoting, former.address, timeout_ms=3000)).replication
        assert "later master" in str(told.superseded_by)
    assert f"event=superseded name={BROKER} by={later.address}" in caplog.text


async def test_what_a_master_knows_of_a_later_one_outlives_its_restart(tmp_path: Path) -> None:
    async with two_masters(tmp_path) as (former, _, later, _):
        assert later.watch is not None
        await later.watch._exchange(former.address)
        await until(lambda: MastershipRecord(former.store.options).known.superseded_by == later.address)
    with pytest.raises(ConfigurationError, match=f"was given another master, {later.address}, promoted at"):
        await made_broker(tmp_path / "one").start()


async def test_a_slave_tells_a_former_master_that_it_has_followed_a_later_one(tmp_path: Path) -> None:
    async with running(made_broker(tmp_path / "one")) as former, client_of(former) as client:
        own = BrokerMastershipHeader(BROKER, "127.0.0.1:9", is_master=False, epoch=5)
        other = await exchange_mastership(client.remoting, former.address, own, timeout_ms=3000)
        assert other is not None
        assert "later master" in other.refusal
        assert (await client.send("T")).code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_a_promoted_slave_that_its_operator_makes_a_slave_again_does_not_stop_its_master(tmp_path: Path) -> None:
    """The other one is the master by the operator's word, so it is the later one from then on."""
    async with running(made_broker(tmp_path / "one")) as master, client_of(master) as client:
        slave = made_slave(tmp_path / "two", master)
        slave._record.save(epoch=9, led=True)
        async with running(slave):
            await until(lambda: not slave.not_serving, "it follows")
            assert slave._record.known.epoch == 10
            assert not slave._record.known.led
        assert (await client.send("T")).code == ResponseCode.SUCCESS
        await until(lambda: MastershipRecord(master.store.options).known == Mastership(epoch=10, led=True))


async def test_a_master_that_asks_a_promoted_slave_that_was_made_a_slave_again_goes_on(tmp_path: Path) -> None:
    """Whoever of the two speaks first, it is the operator's word that counts."""
    resigned = made_broker(tmp_path / "two", brokerRole="SLAVE", brokerId="1", haMasterAddress="127.0.0.1:1")
    resigned._record.save(epoch=9, led=True)
    async with running(made_broker(tmp_path / "one")) as master, client_of(master) as client, running(resigned):
        assert master.watch is not None
        await master.watch._exchange(resigned.address)
        assert (await client.send("T")).code == ResponseCode.SUCCESS
        assert master.watch.epoch == 10


async def test_a_former_master_can_be_promoted_when_the_later_one_is_gone(tmp_path: Path) -> None:
    async with running(made_broker(tmp_path)) as former, client_of(former) as client:
        await client.send("T")
    MastershipRecord(former.store.options).save(epoch=5, superseded_by="127.0.0.1:1")
    slave = made_broker(tmp_path, brokerRole="SLAVE", brokerId="1", haMasterAddress="127.0.0.1:1")
    async with running(slave), client_of(slave) as client:
        assert (await promote_slave(client.remoting, slave.address, force=True)).done
        assert slave.successor is not None
    async with running(Broker(*slave.successor)) as again, client_of(again) as client:
        assert (await client.send("T")).code == ResponseCode.SUCCESS
        assert len(await client.read("T")) == 2
        assert again.watch is not None
        assert again.watch.epoch > 5


async def test_a_rocketmq_broker_of_another_name_at_an_old_address_is_no_second_master(tmp_path: Path) -> None:
    other = made_broker(tmp_path / "two", brokerName="broker-b")
    del other.router.handlers[RequestCode.EXCHANGE_MASTERSHIP]  # RocketMQ has none
    async with running(made_broker(tmp_path / "one")) as master, running(other):
        assert master.watch is not None
        await master.watch._exchange(other.address)
        assert master.watch.others == {}


async def test_a_slave_that_is_not_in_the_routes_copies_from_the_address_that_slaves_are_told(tmp_path: Path) -> None:
    async with name_server(tmp_path) as names:
        master = made_broker(tmp_path / "one", namesrvAddr=names, brokerIP2="127.0.0.2")
        slave = made_broker(tmp_path / "two", namesrvAddr=names, brokerRole="SLAVE", brokerId="1")
        async with running(master), running(slave):
            assert slave.readiness is not None
            found = await slave.readiness.find_master([names])
            assert found is not None
            assert (found.ha_server_addr, found.master_addr) == (f"127.0.0.2:{master.port + 1}", master.address)


async def test_refused_slaves_that_are_gone_leave_room_for_others(tmp_path: Path) -> None:
    async with running(made_broker(tmp_path)) as master, client_of(master) as client:
        assert master.watch is not None

        async def tell(port: int) -> None:
            own = BrokerMastershipHeader(BROKER, f"192.0.2.1:{port}", is_master=False, epoch=0, refusal="it differs")
            await exchange_mastership(client.remoting, master.address, own, timeout_ms=3000)

        for port in range(SLAVES_MAX):
            await tell(port)
        master.watch._refused = {slave: (reason, at - 61) for slave, (reason, at) in master.watch._refused.items()}
        await tell(SLAVES_MAX)
        assert list(master.watch.refused_slaves) == [f"192.0.2.1:{SLAVES_MAX}"]


async def test_a_promotion_that_could_not_keep_its_role_leaves_the_slave_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no space")

    master = made_broker(tmp_path / "one")
    await master.start()
    async with running(made_slave(tmp_path / "two", master)) as slave, client_of(slave) as client:
        await until(lambda: not slave.not_serving)
        await master.stop()
        before = MastershipRecord(slave.store.options).known
        monkeypatch.setattr(promotion, "keep_role", refuse)
        with pytest.raises(BrokerError, match="nothing is changed"):
            await promote_slave(client.remoting, slave.address, force=True)
        assert MastershipRecord(slave.store.options).known == before


async def test_a_broker_of_another_name_cannot_stop_a_master(tmp_path: Path) -> None:
    async with running(made_broker(tmp_path / "one")) as master, client_of(master) as client:
        own = BrokerMastershipHeader("broker-b", "127.0.0.1:9", is_master=True, epoch=1 << 50)
        with pytest.raises(BrokerError, match=f"this is {BROKER}, not broker-b"):
            await exchange_mastership(client.remoting, master.address, own, timeout_ms=3000)
        assert (await client.send("T")).code == ResponseCode.SUCCESS


async def test_what_a_request_claims_of_masters_is_bounded_and_never_connected_to(tmp_path: Path) -> None:
    async with running(made_broker(tmp_path / "one")) as master, client_of(master) as client:
        for port in range(SLAVES_MAX + 5):
            own = BrokerMastershipHeader(BROKER, f"192.0.2.1:{port}", is_master=True, epoch=0)
            await exchange_mastership(client.remoting, master.address, own, timeout_ms=3000)
        assert master.watch is not None
        assert len(master.watch.others) == SLAVES_MAX
        assert not any(other.may_be_asked for other in master.watch.others.values())
        far = BrokerMastershipHeader(BROKER, "192.0.2.1:1", is_master=True, epoch=EPOCH_MAX)
        with pytest.raises(BrokerError, match="no broker has such an epoch"):
            await exchange_mastership(client.remoting, master.address, far, timeout_ms=3000)
        master.watch.note_registration(RegisterBrokerResponseHeader("192.0.2.1:2", "192.0.2.1:1", (1 << 63) - 1))
        assert (await client.send("T")).code == ResponseCode.SUCCESS


async def test_name_servers_keep_the_later_master_and_tell_the_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with name_server(tmp_path) as names:
        first = made_broker(tmp_path / "one", namesrvAddr=names)
        MastershipRecord(first.store.options).save(epoch=7)
        async with running(made_broker(tmp_path / "one", namesrvAddr=names)) as later, client_of(later) as client:
            older = made_broker(tmp_path / "two")
            async with running(older), client_of(older) as at_older:
                older.options = older.options.replace(namesrv_addr=names)
                registrar = older._make_registrar()
                registrar._must_tell_all = None  # a broker that asks before it registers would not get so far
                await registrar.again()
                assert (await at_older.send("T")).code == ResponseCode.SERVICE_NOT_AVAILABLE
                known = (await cluster_info(client.remoting, names, timeout_ms=3000)).brokers
                assert known[BROKER].addresses == {0: later.address}
    assert f"event=two_masters name={BROKER} in_routes={later.address} other={older.address}" in caplog.text


async def test_a_master_of_rocketmq_beside_a_promoted_one_is_noticed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It does not know the request, and says in its settings that it is a master."""
    java = made_broker(tmp_path / "java")
    del java.router.handlers[int(RequestCode.EXCHANGE_MASTERSHIP)]
    async with running(java), running(made_broker(tmp_path / "one")) as master:
        assert master.watch is not None
        await master.watch._exchange(java.address)
        assert master.watch.others[java.address].serves
    assert f"event=two_masters name={BROKER} this={master.address} other={java.address}" in caplog.text


# -------------------------------------------------------------------------------------------------------- pauses


async def test_after_a_pause_nothing_is_served_before_the_name_servers_were_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor before the master they list has answered: connections have ended meanwhile, and the first attempts fail."""
    failures = iter(range(3))
    exchange = watch.exchange_mastership

    async def fail_first(*arguments: Any, **more: Any) -> BrokerMastershipHeader | None:
        if next(failures, None) is not None:
            raise SendRequestError("the connection is closed")
        return await exchange(*arguments, **more)

    async with two_masters(tmp_path) as (former, at_former, later, _), name_server(tmp_path) as names:
        assert former.watch is not None
        assert later.watch is not None
        assert later.watch._looking is not None
        later.watch._looking.cancel()  # the network is broken in this direction
        end = former.store.commit_log_max_offset
        later.options = later.options.replace(namesrv_addr=names)
        await later._make_registrar().again()
        former.watch._name_servers.append(names)
        monkeypatch.setattr(watch, "exchange_mastership", fail_first)
        former._fence._beat -= PAUSE_SECONDS + 1
        answers = await asyncio.gather(*(at_former.send("T") for _ in range(5)), at_former.pull("T"))
        assert {one.code for one in answers} == {ResponseCode.SERVICE_NOT_AVAILABLE}
        assert former.store.commit_log_max_offset == end


async def test_a_name_server_that_knows_no_master_yet_confirms_none(tmp_path: Path) -> None:
    """It was started anew during the pause, and the later master registers a moment later."""
    async with two_masters(tmp_path) as (former, at_former, later, _), name_server(tmp_path) as names:
        assert former.watch is not None
        assert later.watch is not None
        assert later.watch._looking is not None
        later.watch._looking.cancel()
        later.options = later.options.replace(namesrv_addr=names)
        former.watch._name_servers.append(names)
        former._fence._beat -= PAUSE_SECONDS + 1
        sending = asyncio.create_task(at_former.send("T"))
        await until(lambda: former._fence._confirming is not None)
        assert (await cluster_info(at_former.remoting, names, timeout_ms=3000)).brokers == {}
        await later._make_registrar().again()
        assert (await sending).code == ResponseCode.SERVICE_NOT_AVAILABLE


@pytest.mark.parametrize("listed", ["before the pause", "since"])
async def test_a_slave_that_is_just_being_promoted_is_waited_for_after_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: str
) -> None:
    """Name servers list the former master still, and the slave has closed its ports to open them as the master."""
    failures = iter(range(8))
    exchange = watch.exchange_mastership

    async def fail_first(*arguments: Any, **more: Any) -> BrokerMastershipHeader | None:
        if next(failures, None) is not None:
            raise SendRequestError("connection refused")
        return await exchange(*arguments, **more)

    async with two_masters(tmp_path) as (former, at_former, later, _), name_server(tmp_path) as names:
        assert former.watch is not None
        assert later.watch is not None
        assert later.watch._looking is not None
        later.watch._looking.cancel()
        if listed == "since":
            later.options = later.options.replace(namesrv_addr=names, broker_id=1)
            await later._make_registrar().again()
        else:
            former.watch._slaves["a name server that is gone"] = {later.address}
        former.options = former.options.replace(namesrv_addr=names)
        await former._make_registrar().again()
        former.watch._name_servers.append(names)
        monkeypatch.setattr(watch, "exchange_mastership", fail_first)
        end = former.store.commit_log_max_offset
        former._fence._beat -= PAUSE_SECONDS + 1
        assert (await at_former.send("T")).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert former.store.commit_log_max_offset == end


@asynccontextmanager
async def master_that_waits_for_slaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[str, Broker, watch.MasterWatch]]:
    """With the address of its name server. It looks there when a slave greets, and for no other reason."""
    monkeypatch.setattr(watch, "ROUND_LATER_SECONDS", 1000.0)
    monkeypatch.setattr(watch, "ROUND_SECONDS", 0.05)
    async with name_server(tmp_path) as names, running(made_broker(tmp_path / "one", namesrvAddr=names)) as master:
        assert master.watch is not None
        await master.announced()
        master._registrar.abandon()  # it asks, too, but only every thirty seconds
        yield names, master, master.watch


async def test_a_master_soon_knows_a_slave_that_starts_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only slaves that it knew before a pause are asked after it, whatever name servers list by then."""
    async with (
        master_that_waits_for_slaves(tmp_path, monkeypatch) as (names, master, known),
        running(made_slave(tmp_path / "two", master, namesrvAddr=names)) as slave,
    ):
        await until(lambda: known._listed_slaves == {slave.address}, "the slave is known")


async def test_a_slave_that_greets_before_it_registers_is_looked_for_until_it_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with master_that_waits_for_slaves(tmp_path, monkeypatch) as (_, _, known):
        looked = []
        look = known._look_at

        async def looking(server: str) -> None:
            looked.append(server)
            await look(server)

        monkeypatch.setattr(known, "_look_at", looking)
        known._greet("127.0.0.1:1")
        await until(lambda: len(looked) > 3, "it is looked for again and again")
        monkeypatch.setattr(known, "_listed", partial(_lists_slave, known, "127.0.0.1:1"))
        await until(lambda: not known._new_slave.is_set(), "it was found")
        assert known._greeted == {}


async def _lists_slave(known: watch.MasterWatch, slave: str, server: str) -> None:
    known._slaves[server] = {slave}


async def test_an_answer_from_before_a_pause_does_not_count(tmp_path: Path) -> None:
    """A master that is frozen while it asks finds the answer to that when it goes on."""
    begun, may_end, rounds = asyncio.Event(), asyncio.Event(), []
    superseded = ""

    async def confirm() -> None:
        nonlocal superseded
        rounds.append(None)
        begun.set()
        await may_end.wait()
        if len(rounds) == 2:
            superseded = "a later master"

    async with running(made_broker(tmp_path)) as master, client_of(master) as client:
        fence = Fence(lambda: superseded, master._sending.refusal, confirm)
        fence.put_around(master.router, is_master=True)
        fence._beat -= PAUSE_SECONDS + 1
        sending = asyncio.create_task(client.send("T"))
        await begun.wait()
        fence._beat -= PAUSE_SECONDS + 1  # frozen once more
        fence.beat()
        may_end.set()
        assert (await sending).code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_after_a_pause_without_another_master_what_waited_is_served(tmp_path: Path) -> None:
    async with (
        name_server(tmp_path) as names,
        running(made_broker(tmp_path / "one", namesrvAddr=names)) as master,
        client_of(master) as client,
    ):
        master._fence._beat -= PAUSE_SECONDS + 1
        answers = await asyncio.gather(*(client.send("T", b"%d" % number) for number in range(5)))
        assert {one.code for one in answers} == {ResponseCode.SUCCESS}
        assert [one.body for one in await client.read("T")] == [b"%d" % number for number in range(5)]


# ------------------------------------------------------------------------------------------------------- the role


@pytest.mark.parametrize(
    ("wanted", "role", "status"),
    [("", SYNC_MASTER, ResponseCode.SLAVE_NOT_AVAILABLE), (ASYNC_MASTER, ASYNC_MASTER, ResponseCode.SUCCESS)],
)
async def test_a_promotion_keeps_the_role_of_the_pair_unless_told_otherwise(
    tmp_path: Path, wanted: str, role: str, status: int
) -> None:
    master = made_broker(tmp_path / "master", brokerRole=SYNC_MASTER)
    await master.start()
    async with running(made_slave(tmp_path / "slave", master)) as slave:
        await until(lambda: slave._record.known.master_role == SYNC_MASTER, "it is learned")
        await master.stop()
    again = made_slave(tmp_path / "slave", master)  # and remembered
    async with running(again), client_of(again) as client:
        report = await promote_slave(client.remoting, again.address, force=True, role=wanted)
        assert (report.done, report.role, report.master_role) == (True, role, SYNC_MASTER)
        assert again.successor is not None
    async with running(Broker(*again.successor)) as promoted, client_of(promoted) as client:
        assert promoted.store.options.broker_role == role
        assert (await client.send("T")).code == status


async def test_a_role_that_is_no_masters_is_refused(tmp_path: Path) -> None:
    async with pair(tmp_path) as (_, _, slave, at_slave):
        with pytest.raises(BrokerError, match="role SLAVE is none of a master"):
            await promote_slave(at_slave.remoting, slave.address, force=True, role="SLAVE")


# ------------------------------------------------------------------------------------------------------ the record


def test_epochs_rise_whatever_the_clock_says(tmp_path: Path) -> None:
    record = MastershipRecord(made_broker(tmp_path).store.options)
    assert record.next_epoch(1_000) == 1_000
    record.save(epoch=5_000)
    assert record.next_epoch(1_000) == 5_001
    assert MastershipRecord(made_broker(tmp_path).store.options).known == Mastership(epoch=5_000)
    assert when(1_764_090_000_000) == "promoted at 2025-11-25 17:00:00 UTC"


def test_a_record_that_cannot_be_read_is_not_taken_for_none(tmp_path: Path) -> None:
    record = MastershipRecord(made_broker(tmp_path).store.options)
    record.save(epoch=5_000)
    record.path.write_text("{")
    with pytest.raises(StoreDamaged, match=r"mastership\.json"):
        MastershipRecord(made_broker(tmp_path).store.options)
