"""POP consumption at a live broker: waiting, crashes, promotion, limits. `tests/interop/test_pop.py` compares it with
RocketMQ's.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from pathlib import Path

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.broker.pop import in_flight, revival
from orbitmq.message.javajson import loads
from orbitmq.message.unit import Unit, decode_unit, decode_units
from orbitmq.operations.mastership import promote_slave
from orbitmq.runtime.clock import ManualClock
from orbitmq.wire.command import Command
from orbitmq.wire.headers_admin import DeleteTopicHeader
from orbitmq.wire.headers_pop import (
    AckMessageHeader,
    ChangeInvisibleTimeHeader,
    NotificationHeader,
    PollingInfoHeader,
    PopMessageHeader,
)
from orbitmq.wire.requests import RequestCode
from tests.broker.test_live_slave import caught_up, made_slave
from tests.support.live import Client, client_of, live, made_broker, running
from tests.support.loops import until

TOPIC, GROUP = "T", "G"


def asked(most: int = 32, **fields: object) -> PopMessageHeader:
    common: dict[str, object] = {
        "consumer_group": GROUP, "topic": TOPIC, "queue_id": -1, "max_msg_nums": most, "invisible_time": 60_000,
        "poll_time": 0, "born_time": 0, "init_mode": 0,
    }  # fmt: skip
    return PopMessageHeader(**{**common, **fields})  # type: ignore[arg-type]


async def pop(client: Client, most: int = 32, **fields: object) -> tuple[Command, list[Unit]]:
    answer = await client.ask(RequestCode.POP_MESSAGE, asked(most, **fields))
    return answer, decode_units(answer.body)


async def ack(client: Client, answer: Command, unit: Unit, topic: str = TOPIC) -> Command:
    return await client.ask(
        RequestCode.ACK_MESSAGE, AckMessageHeader(GROUP, topic, unit.queue_id, receipt(answer, unit), unit.queue_offset)
    )


def receipt(answer: Command, unit: Unit) -> str:
    fields = answer.ext or {}
    parts = [one.split(" ") for one in (fields["startOffsetInfo"] or "").split(";")]
    kind, queue, start = next(one for one in parts if one[1] == str(unit.queue_id))
    times = f"{fields['popTime']} {fields['invisibleTime']} {fields['reviveQid']}"
    return f"{start} {times} {kind} broker-a {queue} {unit.queue_offset}"


def bodies(units: list[Unit]) -> list[bytes]:
    return [unit.body for unit in units]


async def filled(client: Client, messages: int, queues: int = 1) -> None:
    for number in range(messages):
        answer = await client.send(TOPIC, b"%d" % number, queue_id=number % queues, default_topic_queue_nums=queues)
        assert answer.code == 0


async def test_a_request_waits_for_a_message(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        await filled(client, 1)
        await pop(client)
        waiting = [asyncio.ensure_future(pop(client, 1, poll_time=30_000)) for _ in range(2)]

        async def held() -> int:
            found = await client.ask(RequestCode.POLLING_INFO, PollingInfoHeader(GROUP, TOPIC, -1))
            return int((found.ext or {})["pollingNum"] or 0)

        while await held() < 2:  # each look is a request
            pass
        await client.send(TOPIC, b"one")
        done, left = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert [bodies(one.result()[1]) for one in done] == [[b"one"]]
        await client.send(TOPIC, b"two")
        assert bodies((await left.pop())[1]) == [b"two"]
        assert await held() == 0


async def test_a_request_that_waited_in_vain_is_answered(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        await filled(client, 1)
        await pop(client)
        for fields in ({"poll_time": 100}, {"poll_time": 100, "born_time": 1}, {"poll_time": -5}):
            answer, units = await pop(client, **fields)
            assert (answer.code, units) == (210, [])
        header = NotificationHeader(GROUP, TOPIC, -1, 100, 0)
        assert (await client.ask(RequestCode.NOTIFICATION, header)).ext == {"hasMsg": "false", "pollingFull": "false"}


async def test_a_notification_waits_for_messages_and_for_retries(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        await filled(client, 1)
        await pop(client, invisible_time=200)
        header = NotificationHeader(GROUP, TOPIC, -1, 30_000, 0)
        assert (await client.ask(RequestCode.NOTIFICATION, header)).ext == {"hasMsg": "true", "pollingFull": "false"}


async def test_who_reads_many_queues_gets_messages_of_all(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        await filled(client, 40, queues=4)
        first, units = await pop(client)
        assert len(units) == 32
        assert (first.ext or {})["restNum"] == "8"
        for unit in units:
            assert (await ack(client, first, unit)).code == 0
        _, others = await pop(client)
        assert sorted(bodies(units) + bodies(others)) == sorted(b"%d" % number for number in range(40))


async def test_a_killed_broker_knows_what_is_in_flight(tmp_path: Path) -> None:
    """And what was acknowledged; the group goes on where it was, although offsets were never saved."""
    clock = ManualClock()
    first = made_broker(tmp_path, clock)
    await first.start()
    async with client_of(first) as client:
        await filled(client, 6)
        answer, units = await pop(client, 4, invisible_time=400)
        for unit in units[:2]:
            await ack(client, answer, unit)
        await first.kill()
    async with running(made_broker(tmp_path, clock)) as broker, client_of(broker) as client:
        _, units = await pop(client)
        assert bodies(units) == [b"4", b"5"]
        clock.advance(400)
        again, units = await pop(client, poll_time=30_000)
        assert [(unit.body, unit.reconsume_times) for unit in units] == [(b"2", 1), (b"3", 1)]
        retry = f"%RETRY%{GROUP}_{TOPIC}"
        for unit in units:
            assert (await ack(client, again, unit, retry)).code == 0
        await until(lambda: not broker.journal.in_flight.messages[retry, GROUP, 0], "the acknowledgements")


async def test_a_stopped_broker_keeps_an_offset_that_was_set_meanwhile(tmp_path: Path) -> None:
    async with running(made_broker(tmp_path)) as first, client_of(first) as client:
        await filled(client, 5)
        await pop(client, 5, invisible_time=3_600_000)
        first.offsets.commit(GROUP, TOPIC, 0, 2)
    async with running(made_broker(tmp_path)) as broker, client_of(broker) as client:
        assert bodies((await pop(client))[1]) == [b"2", b"3", b"4"]


async def test_a_promoted_slave_hands_out_what_its_master_did_not_get_back(tmp_path: Path) -> None:
    clock = ManualClock()
    master = made_broker(tmp_path / "master", clock)
    await master.start()
    async with running(made_slave(tmp_path / "slave", master)) as slave, client_of(slave) as at_slave:
        async with client_of(master) as at_master:
            await filled(at_master, 4)
            following = slave.following
            assert following is not None
            await until(lambda: following.state.tables_at is not None, "the tables")
            answer, units = await pop(at_master, 3, invisible_time=300)
            await ack(at_master, answer, units[0])
            assert (await pop(at_slave))[0].code == 1, "a slave delivers nothing"
        await caught_up(slave, master)
        await following.look()
        await master.kill()
        report = await promote_slave(at_slave.remoting, slave.address, force=True)
        assert report.done, report
        assert slave.successor is not None
        options, store_options = slave.successor
    async with running(Broker(options, store_options, clock)) as promoted, client_of(promoted) as client:
        assert bodies((await pop(client))[1]) == [b"3"]
        clock.advance(300)
        assert bodies((await pop(client, poll_time=30_000))[1]) == [b"1", b"2"]


async def test_a_promoted_slave_knows_what_an_orderly_group_has_in_flight(tmp_path: Path) -> None:
    """And how groups read topics."""
    mode = {"topic": TOPIC, "consumerGroup": GROUP, "mode": "POP", "popShareQueueNum": 2}
    async with running(made_broker(tmp_path / "master")) as master, client_of(master) as at_master:
        await filled(at_master, 3)
        answer, units = await pop(at_master, 2, order=True, attempt_id="a", invisible_time=3_600_000)
        await ack(at_master, answer, units[0])
        assert (await at_master.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, body=json.dumps(mode).encode())).code == 0
        async with running(made_slave(tmp_path / "slave", master)) as slave:
            following = slave.following
            assert following is not None
            await until(lambda: following.state.tables_at is not None, "the tables")
            await caught_up(slave, master)
    made = made_broker(tmp_path / "slave", brokerRole="ASYNC_MASTER")
    async with running(made) as promoted, client_of(promoted) as client:
        assert (await pop(client, order=True, attempt_id="b"))[0].code == 210, "one of its messages is in flight"
        await ack(client, answer, units[1])
        assert bodies((await pop(client, order=True))[1]) == [b"2"]
        modes = loads((await client.ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)).body)
        assert modes == {"messageRequestModeMap": {TOPIC: {GROUP: mode}}}


async def test_an_order_outlives_a_stop(tmp_path: Path) -> None:
    async with running(made_broker(tmp_path)) as first, client_of(first) as client:
        await filled(client, 3)
        answer, units = await pop(client, 2, order=True, attempt_id="a", invisible_time=3_600_000)
        await ack(client, answer, units[0])
    saved = loads((tmp_path / "config" / "consumerOrderInfo.json").read_text())
    assert saved["table"][f"{TOPIC}@{GROUP}"][0]["o"] == [0, 1]
    async with running(made_broker(tmp_path)) as broker, client_of(broker) as client:
        assert (await pop(client, order=True, attempt_id="b"))[0].code == 210, "one of its messages is in flight"
        waiting = asyncio.ensure_future(pop(client, order=True, poll_time=30_000))
        await asyncio.sleep(0)
        await ack(client, answer, units[1])
        assert bodies((await waiting)[1]) == [b"2"]


async def test_a_message_that_came_again_cannot_be_hidden_or_acknowledged_by_the_old_receipt(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running(made_broker(tmp_path, clock)) as broker, client_of(broker) as client:
        await filled(client, 1)
        answer, units = await pop(client, invisible_time=1000)
        clock.advance(1000)
        await until(lambda: not len(broker.journal.in_flight), "the message to be redelivered")
        hide = ChangeInvisibleTimeHeader(GROUP, TOPIC, 0, receipt(answer, units[0]), 0, 60_000)
        assert (await client.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, hide)).code == 0
        assert (await ack(client, answer, units[0])).code == 0
        assert not len(broker.journal.in_flight)
        assert bodies((await pop(client))[1]) == [b"0"]


async def test_what_is_in_flight_of_a_deleted_topic_is_forgotten(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running(made_broker(tmp_path, clock)) as broker, client_of(broker) as client:
        await filled(client, 2)
        await pop(client, 2, invisible_time=1000)
        broker.topics.delete(TOPIC)
        clock.advance(1000)
        await until(lambda: not len(broker.journal.in_flight), "them to be forgotten")
        assert f"%RETRY%{GROUP}_{TOPIC}" not in broker.topics.table


async def test_the_records_are_the_brokers_alone(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        await filled(client, 1)
        await pop(client)
        answer = await client.send("rmq_sys_REVIVE_LOG_DefaultCluster", b"{}", {"TAGS": "ck"})
        assert answer.code == 16


async def test_no_more_is_delivered_than_can_be_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with live(tmp_path) as client:
        await filled(client, 3)
        monkeypatch.setattr(in_flight, "GROUP_MAX", 1)
        answer, units = await pop(client, 1)
        refused, _ = await pop(client, 1)
        assert (refused.code, (refused.ext or {})["restNum"]) == (210, "2")
        others, _ = await pop(client, 1, consumer_group="H")
        assert others.code == 0, "other groups go on"
        await ack(client, answer, units[0])
        assert bodies((await pop(client, 1))[1]) == [b"1"]


async def test_an_offset_beyond_the_queue_loses_nothing(tmp_path: Path) -> None:
    """As after the queue of a retry topic had expired, and was made anew."""
    async with running(made_broker(tmp_path)) as broker, client_of(broker) as client:
        await filled(client, 2)
        broker.offsets.commit(GROUP, TOPIC, 0, 50)
        assert bodies((await pop(client))[1]) == [b"0", b"1"]


async def test_a_filter_that_leaves_out_much_finds_the_rest(tmp_path: Path) -> None:
    """One read looks over 800 messages; a request that waits goes on by itself."""
    async with live(tmp_path) as client:
        for _ in range(1000):
            await client.send(TOPIC, b"no", {"TAGS": "no"}, queue_id=0, default_topic_queue_nums=1)
        await client.send(TOPIC, b"yes", {"TAGS": "yes"}, queue_id=0)
        _, units = await pop(client, expression_type="TAG", expression="yes", poll_time=30_000)
        assert bodies(units) == [b"yes"]


async def test_messages_far_apart_are_acknowledged_at_once(tmp_path: Path) -> None:
    async with running(made_broker(tmp_path)) as broker, client_of(broker) as client:
        for number in range(250):
            tag = "yes" if number in (0, 249) else "no"
            await client.send(TOPIC, b"x", {"TAGS": tag}, queue_id=0, default_topic_queue_nums=1)
        answer, units = await pop(client, expression_type="TAG", expression="yes")
        assert [unit.queue_offset for unit in units] == [0, 249]
        fields = answer.ext or {}
        bits = b64encode((1 | 1 << 249).to_bytes(32, "little")).decode()
        one = {"c": GROUP, "t": TOPIC, "so": 0, "q": 0, "rq": int(fields["reviveQid"] or 0), "it": 60_000, "b": bits}
        body = json.dumps({"acks": [{**one, "pt": int(fields["popTime"] or 0)}]}).encode()
        assert (await client.ask(RequestCode.BATCH_ACK_MESSAGE, body=body)).code == 0
        assert not len(broker.journal.in_flight)


async def test_a_queue_in_order_waits_for_all_its_messages(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running(made_broker(tmp_path, clock)) as broker, client_of(broker) as client:
        await filled(client, 3)
        answer, units = await pop(client, 2, order=True, invisible_time=1000)
        hide = ChangeInvisibleTimeHeader(GROUP, TOPIC, 0, receipt(answer, units[0]), 0, 60_000)
        assert (await client.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, hide)).code == 0
        clock.advance(2000)
        assert (await pop(client, order=True))[0].code == 210, "its first message is still in flight"
        broker.offsets.commit(GROUP, TOPIC, 0, 1)
        assert bodies((await pop(client, order=True))[1]) == [b"1", b"2"], "the offset was set"
        await ack(client, answer, units[0])
        assert broker.offsets.query(GROUP, TOPIC, 0) == 1, "what was delivered before is over"


async def test_a_closed_connection_leaves_nothing_waiting(tmp_path: Path) -> None:
    async with running(made_broker(tmp_path)) as broker, client_of(broker) as client:
        await filled(client, 1)
        await pop(client)
        async with client_of(broker) as other:
            waiting = asyncio.ensure_future(pop(other, poll_time=600_000))
            await until(lambda: len(broker._popping.waiting) == 1, "it waits")
        await until(lambda: not len(broker._popping.waiting), "nothing waits")
        waiting.cancel()
        await client.send(TOPIC, b"next")
        assert bodies((await pop(client))[1]) == [b"next"]


async def test_light_groups_get_their_messages_again(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running(made_broker(tmp_path, clock, enableLmq="true")) as broker, client_of(broker) as client:
        await filled(client, 1)
        await pop(client, consumer_group="%LMQ%g", invisible_time=1000)
        clock.advance(1000)
        await until(lambda: not len(broker.journal.in_flight), "it is redelivered")
        assert bodies((await pop(client, consumer_group="%LMQ%g"))[1]) == [b"0"]


async def test_one_that_cannot_be_redelivered_holds_nobody_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the reason is. It is tried again."""
    clock, faults = ManualClock(), [True]

    def decode(stored: bytes) -> Unit:
        unit = decode_unit(stored)
        if unit.body == b"0" and faults[0]:
            raise LookupError("a fault of our own")
        return unit

    monkeypatch.setattr(revival, "decode_unit", decode)
    async with running(made_broker(tmp_path, clock)) as broker, client_of(broker) as client:
        await filled(client, 3)
        for _ in range(3):  # a checkpoint each
            await pop(client, 1, invisible_time=1000)
        clock.advance(1000)
        await until(lambda: len(broker.journal.in_flight) == 1, "the others to be redelivered")
        assert sorted(bodies((await pop(client))[1])) == [b"1", b"2"]
        faults[0] = False
        clock.advance(revival.SET_ASIDE_MS)
        await until(lambda: len(broker.journal.in_flight) == 1, "the first to be redelivered")
        assert bodies((await pop(client))[1]) == [b"0"]
    (line,) = [one for one in caplog.records if "event=pop_revival_failed" in one.message]
    assert (line.levelname, line.exc_info is not None) == ("ERROR", True)


async def test_a_master_without_its_slave_delivers_all_the_same(tmp_path: Path) -> None:
    async with live(tmp_path, brokerRole="SYNC_MASTER", syncFlushTimeout="50") as client:
        answer = await client.send(TOPIC, b"0", queue_id=0, default_topic_queue_nums=1)
        assert answer.code in (0, 11, 12)
        answer, units = await pop(client)
        assert bodies(units) == [b"0"]
        assert (await ack(client, answer, units[0])).code == 0


async def test_names_that_leave_no_room_for_a_retry_topic_are_refused(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        await client.send("T" * 100, b"x")
        answer, _ = await pop(client, topic="T" * 100, consumer_group="G" * 30)
        assert (answer.code, "longer than 127" in (answer.remark or "")) == (29, True)
        await filled(client, 1)
        assert (await pop(client, order=True, attempt_id="x" * 300))[0].code == 29


async def test_a_topic_is_deleted_with_its_retries(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running(made_broker(tmp_path, clock)) as broker, client_of(broker) as client:
        await filled(client, 2)
        await pop(client, 2, invisible_time=1000)
        retry = f"%RETRY%{GROUP}_{TOPIC}"
        clock.advance(1000)
        await until(lambda: broker.store.max_offset(retry, 0) == 2, "the retries")
        await pop(client, 1)
        assert (await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicHeader(TOPIC))).code == 0
        assert retry not in broker.topics.table
        assert broker.store.max_offset(retry, 0) == 0
        assert broker.offsets.query(GROUP, retry, 0) is None
        assert not len(broker.journal.in_flight)
        await filled(client, 1)
        assert bodies((await pop(client))[1]) == [b"0"]


async def test_a_topic_that_is_made_anew_has_nothing_in_flight(tmp_path: Path) -> None:
    first = made_broker(tmp_path)
    await first.start()
    async with client_of(first) as client:
        await filled(client, 2)
        await pop(client, 2)
        await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicHeader(TOPIC))
        assert not len(first.journal.in_flight)
        await first.kill()
    async with running(made_broker(tmp_path)) as broker, client_of(broker) as client:
        await filled(client, 1)
        assert bodies((await pop(client))[1]) == [b"0"]
        assert broker.journal.in_flight.messages[TOPIC, GROUP, 0] == 1
