"""Timer messages of live brokers: a promoted slave delivers what its master did not, and nothing again."""

from __future__ import annotations

from pathlib import Path

from orbitmq.broker.broker import Broker
from orbitmq.message.topics import TIMER_TOPIC
from orbitmq.operations.mastership import promote_slave
from orbitmq.operations.timers import pending_timers
from orbitmq.runtime.clock import ManualClock
from orbitmq.wire.bodies import KVTable
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.objects import decode
from orbitmq.wire.requests import RequestCode
from tests.broker.test_live_slave import caught_up, made_slave
from tests.support.live import Client, client_of, made_broker, running
from tests.support.loops import until


async def test_a_promoted_slave_delivers_the_rest_once(tmp_path: Path) -> None:
    """Also what its master delivered after the slave had copied its tables for the last time."""
    master = made_broker(tmp_path / "master")
    await master.start()
    async with running(made_slave(tmp_path / "slave", master)) as slave, client_of(slave) as at_slave:
        async with client_of(master) as at_master:
            await at_master.send("T", b"now")
            following = slave.following
            assert following is not None
            await until(lambda: following.state.tables_at is not None, "the tables")
            for number in range(20):
                await at_master.send("T", b"%d" % number, {"TIMER_DELAY_MS": "10"})
            for number in range(20, 30):
                await at_master.send("T", b"%d" % number, {"TIMER_DELAY_SEC": "2"})
            await until(lambda: master.store.max_offset("T", 0) == 21, "the first twenty")
        await caught_up(slave, master)
        await following.look()
        await master.kill()
        assert not len(slave.timers.pending), "a slave delivers nothing, so it need not know"
        report = await promote_slave(at_slave.remoting, slave.address, force=True)
        assert report.done, report
        assert slave.successor is not None
        options, store_options = slave.successor
    async with running(Broker(options, store_options)) as promoted, client_of(promoted) as client:
        await until(lambda: promoted.timers.is_ready, "what waits")
        listed = await pending_timers(client.remoting, promoted.address)
        assert (listed.waiting, listed.is_complete, len(listed.timers)) == (10, True, 10)
        await until(lambda: promoted.store.max_offset("T", 0) == 31, "the others")
        found = await client.read("T")
        assert sorted(one.body for one in found) == sorted([b"now", *(b"%d" % number for number in range(30))])


async def test_a_broker_wakes_for_the_next_message_alone(tmp_path: Path) -> None:
    """Whatever the time of the day: nothing waits, then one does, and comes when its time has come."""
    clock = ManualClock()
    async with running(made_broker(tmp_path, clock)) as broker, client_of(broker) as client:
        await client.send("T", b"far", {"TIMER_DELAY_SEC": "7200"})
        clock.advance(7_199_000)
        await until(lambda: len(broker.timers.pending) == 1, "the message to be known")
        runtime = decode(KVTable, (await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body).table
        assert (runtime["timerCongestNum"], runtime["timerReadBehind"]) == ("1", "0")
        assert not broker.timers.deliver_turn()
        assert broker.store.max_offset("T", 0) == 0
        clock.advance(1000)
        await until(lambda: broker.store.max_offset("T", 0) == 1, "the message")


async def test_a_broker_that_takes_none_says_so(tmp_path: Path) -> None:
    async with running(made_broker(tmp_path, timerWheelEnable="false")) as broker, client_of(broker) as client:
        answer = await client.send("T", b"x", {"TIMER_DELAY_SEC": "1"})
        assert (answer.code, "timerWheelEnable" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
        assert TIMER_TOPIC not in broker.topics.table


async def test_the_timer_topic_is_the_brokers_alone(tmp_path: Path) -> None:
    async with running(made_broker(tmp_path)) as broker, client_of(broker) as client:
        assert (await sent(client, TIMER_TOPIC)) == ResponseCode.NO_PERMISSION


async def sent(client: Client, topic: str) -> int:
    return (await client.send(topic, b"x")).code
