"""Files of queues are not made on the event loop: a message that needs them waits, and others do not."""

from __future__ import annotations

import asyncio
import errno
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.message.topics import OP_HALF_TOPIC, TRANSACTION_CHECK_MAX_TOPIC
from orbitmq.runtime.refusals import Limit
from orbitmq.store.files import Files, MappedFile
from orbitmq.store.queue_room import CALLED_A_TURN
from orbitmq.store.records import PutResult
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers import SendMessageResponseHeader
from orbitmq.wire.requests import RequestCode
from tests.broker.test_live_full_properties import LARGEST, filled
from tests.broker.test_live_slave import caught_up, made_slave, pair
from tests.support.live import Time, client_of, made_broker, running, send_header
from tests.support.loops import LoopFactory, until
from tests.support.stores import units
from tests.support.transactions import COMMIT, ROLLBACK, raw_producer

HELD_SECONDS = 8  # far longer than a test holds anything


class SlowDisk(Files):
    """Makes files of queues when it is let, and remembers which threads made them."""

    def __init__(self) -> None:
        self.makers: list[threading.Thread] = []
        self.asked_for: list[str] = []
        self.refusal: OSError | None = None
        self._held: str | None = None
        self._turned = threading.Condition()

    @property
    def asked(self) -> int:
        """How many files it was to make."""
        return len(self.asked_for)

    def hold(self, part: str = "consumequeue") -> None:
        """Make no file whose path has this part, but let others go on."""
        self._turn(part)

    def go_on(self) -> None:
        self._turn(None)

    def _turn(self, held: str | None) -> None:
        with self._turned:
            self._held = held
            self._turned.notify_all()

    def create(self, path: Path, size: int) -> MappedFile:
        if "consumequeue" in path.parts:
            self.asked_for.append(str(path))
            self.makers.append(threading.current_thread())
            with self._turned:
                is_held = lambda: self._held is not None and self._held in str(path)  # noqa: E731
                assert threading.current_thread() is not threading.main_thread() or not is_held()
                assert self._turned.wait_for(lambda: not is_held(), HELD_SECONDS)
            if self.refusal is not None:
                raise self.refusal
        return super().create(path, size)


def bodies(broker: Broker, topic: str) -> list[bytes]:
    return [bytes(unit.body) for unit in units(broker.store, topic)]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowDisk]:
    disk = SlowDisk()
    monkeypatch.setattr("orbitmq.store.engine.Files", lambda: disk)
    yield disk
    assert threading.main_thread() not in disk.makers


@pytest.mark.parametrize("kind", ["single", "batch", "delayed"])
async def test_the_first_messages_of_a_queue_wait_for_its_files_in_their_order_and_others_do_not(
    tmp_path: Path, disk: SlowDisk, kind: str
) -> None:
    broker = made_broker(tmp_path)
    properties = {"DELAY": "18"} if kind == "delayed" else {}
    async with running(broker), client_of(broker) as client, client_of(broker, "other") as other:
        await client.send("Orders", queue_id=1)
        disk.hold()
        if kind == "batch":
            sends = [client.send_batch("Orders", [b"%d" % n, b"+"], queue_id=0) for n in range(3)]
        else:
            sends = [client.send("Orders", b"%d" % n, properties, queue_id=0) for n in range(3)]
        waiting = [asyncio.create_task(send) for send in sends]
        await until(lambda: disk.asked == 2, "a file that is made")
        assert (await other.send("Orders", queue_id=1)).code == 0, "others are served meanwhile"
        assert not any(one.done() for one in waiting)
        disk.go_on()
        await until(lambda: broker.store._room._waiting == {}, "those that waited are stored")
        late = await client.send("Orders", b"3", properties, queue_id=0)
        answers = [(await one).header(SendMessageResponseHeader).queue_offset for one in waiting]
        assert answers == ([0, 2, 4] if kind == "batch" else [0, 1, 2]), "dense and in order"
        assert late.header(SendMessageResponseHeader).queue_offset == (6 if kind == "batch" else 3)
        if kind == "single":
            assert [message.body for message in await client.read("Orders", 0)] == [b"0", b"1", b"2", b"3"]


async def test_no_room_for_the_first_message_of_a_queue_is_a_refusal_and_the_next_one_may_find_some(
    tmp_path: Path, disk: SlowDisk, caplog: pytest.LogCaptureFixture
) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        disk.refusal = OSError(errno.ENOSPC, "the disk is full")
        answer = await client.send("Orders", queue_id=0)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert broker.store.put_count == 0
        assert broker.refusals.counts[Limit.DISK] == 1
        assert "event=message_refused reason=disk_full topic=Orders" in caplog.text
        assert broker.statistics.totals.put_failures == 1
        disk.refusal = None
        assert (await client.send("Orders", queue_id=0)).header(SendMessageResponseHeader).queue_offset == 0


async def test_an_error_that_nobody_foresaw_is_the_answer_of_a_message_that_waited(
    tmp_path: Path, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        put = broker.store.put

        def fail_later(*arguments: Any) -> PutResult:
            if disk.asked:
                raise ValueError("unforeseen")
            return put(*arguments)

        monkeypatch.setattr(broker.store, "put", fail_later)
        disk.hold()
        waiting = asyncio.create_task(client.send("Orders", queue_id=0))
        await until(lambda: disk.asked == 1)
        disk.go_on()
        answer = await waiting
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "ValueError: unforeseen")


async def test_a_message_waits_for_a_silent_disk_for_as_long_as_a_busy_page_cache_may_take(
    tmp_path: Path, disk: SlowDisk, turned_clock: LoopFactory
) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock, osPageCacheBusyTimeOutMills="1000")
    async with running(broker), client_of(broker) as client:
        disk.hold()
        waiting = asyncio.create_task(client.send("Orders", queue_id=0))
        await until(lambda: disk.asked == 1)
        await time.pass_by(1.5, while_disks_stand=True)
        answer = await waiting
        assert (answer.code, "PC_SYNCHRONIZED" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
        disk.go_on()
        await until(lambda: not broker.store._room._under_way)
        assert (await client.send("Orders", queue_id=0)).header(SendMessageResponseHeader).queue_offset == 0


async def test_a_message_that_waits_for_a_further_queue_keeps_its_place_among_those_that_wait(
    tmp_path: Path, disk: SlowDisk
) -> None:
    broker = made_broker(tmp_path, enableMultiDispatch="true", enableLmq="true")
    async with running(broker), client_of(broker) as client:
        disk.hold()
        light = {"INNER_MULTI_DISPATCH": "%LMQ%a"}
        waiting = [
            asyncio.create_task(client.send("Orders", b"%d" % number, light if number == 1 else {}, queue_id=0))
            for number in range(3)
        ]
        await until(lambda: broker.store._room._waiting and len(*broker.store._room._waiting.values()) == 3)
        disk.hold("%LMQ%")
        await waiting[0]
        await until(lambda: disk.asked == 2, "the file of the light queue is being made")
        assert not waiting[1].done()
        assert not waiting[2].done()
        disk.go_on()
        answers = [(await one).header(SendMessageResponseHeader).queue_offset for one in waiting]
        assert answers == [0, 1, 2]
        assert [message.body for message in await client.read("%LMQ%a")] == [b"1"]


async def test_the_delivery_of_a_delayed_message_waits_for_the_files_of_its_queue_and_other_levels_do_not(
    tmp_path: Path, disk: SlowDisk, turned_clock: LoopFactory
) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock, messageDelayLevel="1s 1s")
    async with running(broker), client_of(broker) as client:
        await client.send("Orders", queue_id=1)
        for number in range(3):
            await client.send("Orders", b"%d" % number, {"DELAY": "1"}, queue_id=0)
        await client.send("Orders", b"other level", {"DELAY": "2"}, queue_id=1)
        disk.hold()
        await time.pass_by(1, while_disks_stand=True)
        assert [message.body for message in await client.read("Orders", 1, 1)] == [b"other level"]
        assert broker.delay_offsets.get(1, 0) == 0
        disk.go_on()
        await until(lambda: broker.delay_offsets.get(1) == 3, "the level goes on without another look at the clock")
        assert [message.body for message in await client.read("Orders", 0)] == [b"0", b"1", b"2"]


async def test_a_delayed_message_that_finds_no_room_is_delivered_when_there_is_some(
    tmp_path: Path, disk: SlowDisk, turned_clock: LoopFactory, caplog: pytest.LogCaptureFixture
) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock, messageDelayLevel="1s")
    async with running(broker), client_of(broker) as client:
        await client.send("Orders", b"late", {"DELAY": "1"}, queue_id=0)
        disk.refusal = OSError(errno.ENOSPC, "the disk is full")
        await time.pass_by(1)
        await until(lambda: "event=delivery_waits level=1 offset=0 reason=SERVICE_NOT_AVAILABLE" in caplog.text)
        disk.refusal = None
        await time.pass_by(1)
        await until(lambda: broker.delay_offsets.get(1) == 1, "it is delivered")
        assert [message.body for message in await client.read("Orders", 0)] == [b"late"]


async def test_the_commit_of_a_transaction_waits_for_files_and_counts_once(tmp_path: Path, disk: SlowDisk) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client, raw_producer(broker.address, "payers") as producer:
        await client.send("Orders", queue_id=1)
        prepared = await producer.prepare("Orders", b"paid", "u1")
        disk.hold()
        ends = [asyncio.create_task(producer.end(prepared, decision)) for decision in (COMMIT, COMMIT, ROLLBACK)]
        await until(lambda: disk.asked == 3, "the file of the op topic is being made")
        assert (await client.send("Orders", queue_id=1)).code == 0, "others are served meanwhile"
        disk.hold("Orders")
        await until(lambda: disk.asked == 4, "the file of the message's own queue is being made")
        assert not any(end.done() for end in ends)
        assert broker.store.max_offset(OP_HALF_TOPIC, 0) == 0, "no op message without the message"
        disk.go_on()
        await asyncio.gather(*ends)
        assert [message.body for message in await client.read("Orders", 0)] == [b"paid"]
        assert broker.store.max_offset(OP_HALF_TOPIC, 0) == 1


async def test_more_decisions_than_one_turn_makes_wait_for_files_and_keep_their_order(
    tmp_path: Path, disk: SlowDisk
) -> None:
    broker = made_broker(tmp_path)
    count = 3 * CALLED_A_TURN
    async with running(broker), client_of(broker) as client, raw_producer(broker.address, "payers") as producer:
        prepared = [await producer.prepare("Orders", b"%d" % n, f"u{n}") for n in range(count)]
        disk.hold()
        ends = [asyncio.create_task(producer.end(one, COMMIT)) for one in prepared]
        await until(lambda: sum(map(len, broker.store._room._waiting.values())) == count, "all of them wait")
        disk.hold("Orders")
        await until(lambda: any("Orders" in path for path in disk.asked_for), "the message's own queue gets its file")
        sends = [asyncio.create_task(client.send("Orders", b"sent", queue_id=0)) for _ in range(count)]
        disk.go_on()
        await asyncio.gather(*ends, *sends)
        assert [body for body in bodies(broker, "Orders") if body != b"sent"] == [b"%d" % n for n in range(count)]
        assert broker.store.max_offset(OP_HALF_TOPIC, 0) == count
        assert broker.store.max_offset("Orders", 0) == 2 * count


async def test_a_transaction_that_finds_no_room_is_refused_and_may_be_ended_later(
    tmp_path: Path, disk: SlowDisk
) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client, raw_producer(broker.address, "payers") as producer:
        prepared = await producer.prepare("Orders", b"paid", "u1")
        disk.refusal = OSError(errno.ENOSPC, "the disk is full")
        for decision in (COMMIT, ROLLBACK):
            code, _ = await producer.refusal(prepared, decision)
            assert code == ResponseCode.SERVICE_NOT_AVAILABLE
        disk.refusal = None
        await producer.end(prepared, COMMIT)
        assert [message.body for message in await client.read("Orders", 0)] == [b"paid"]


async def test_half_messages_that_are_given_up_wait_for_files_and_the_round_goes_on(
    tmp_path: Path, disk: SlowDisk, turned_clock: LoopFactory
) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock, transactionCheckMax="0")
    async with running(broker), client_of(broker) as client, raw_producer(broker.address, "payers") as producer:
        for number in range(2):
            await producer.prepare("Orders", b"%d" % number, f"u{number}", born_ms=time.clock.now_ms())
        disk.hold()
        await time.pass_by(60, while_disks_stand=True)
        await until(lambda: disk.asked == 2, "the file of what is given up is being made")
        assert (await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).code == 0, "others are served meanwhile"
        disk.go_on()
        await until(lambda: broker.store.max_offset(TRANSACTION_CHECK_MAX_TOPIC, 0) == 2)


async def test_a_reply_and_an_event_wait_for_their_files(tmp_path: Path, disk: SlowDisk) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client, client_of(broker, "other") as other:
        await client.send("Orders", queue_id=0)
        disk.hold()
        header = send_header("DefaultCluster_REPLY_TOPIC", {"REPLY_TO_CLIENT": "nobody"})
        reply = asyncio.create_task(client.ask(RequestCode.SEND_REPLY_MESSAGE_V2, header, b"yes"))
        await until(lambda: disk.asked == 2, "the file of the replies is being made")
        moved = await other.pull("Orders", 0, 9)
        assert moved.code == ResponseCode.PULL_OFFSET_MOVED, "others are served meanwhile"
        assert not reply.done()
        disk.go_on()
        assert ((await reply).ext or {})["queueOffset"] == "0"
        await until(lambda: broker.store.max_offset("OFFSET_MOVED_EVENT", 0) == 1, "the event is stored")
        (event,) = await client.read("OFFSET_MOVED_EVENT")
        assert json.loads(event.body)["offsetRequest"] == 9


async def test_a_dead_letter_waits_for_its_files(tmp_path: Path, disk: SlowDisk) -> None:
    """A retry without room for more properties becomes a dead letter at once."""
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        assert (await client.send("%RETRY%g", properties=filled(LARGEST, DELAY="3"), queue_id=0)).code == 0
        assert broker.store.max_offset("%DLQ%g", 0) == 1


async def test_a_slave_enters_messages_when_their_queue_has_its_files_and_serves_others_meanwhile(
    tmp_path: Path, disk: SlowDisk
) -> None:
    async with pair(tmp_path) as (master, at_master, slave, at_slave):
        await at_master.send("Orders", b"0")
        await until(lambda: slave.store.readable_offset == master.store.commit_log_max_offset)
        disk.hold("slave/consumequeue")
        for number in range(3):
            await at_master.send("New", b"%d" % number)
        await at_master.send("Orders", b"1")
        await until(lambda: disk.asked == 4, "the file is being made")
        assert bodies(slave, "Orders") == [b"0"], "readers see what is entered"
        assert (await at_slave.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).code == 0, "others are served meanwhile"
        disk.go_on()
        await until(lambda: slave.store.readable_offset == master.store.commit_log_max_offset)
        assert (bodies(slave, "New"), bodies(slave, "Orders")) == ([b"0", b"1", b"2"], [b"0", b"1"])


async def test_a_slave_whose_disk_is_full_enters_messages_when_there_is_room(tmp_path: Path, disk: SlowDisk) -> None:
    async with pair(tmp_path) as (master, at_master, slave, _):
        await at_master.send("Orders", b"0")
        await until(lambda: slave.store.readable_offset == master.store.commit_log_max_offset)
        await at_master.send("New", b"0", queue_id=1)
        await until(lambda: slave.store.readable_offset == master.store.commit_log_max_offset)
        disk.hold("slave/consumequeue")
        await at_master.send("New", b"1")
        await until(lambda: disk.asked == 6)
        disk.refusal = OSError(errno.ENOSPC, "the disk is full")
        disk.go_on()
        await until(lambda: slave.store.refuses_for_disk)
        disk.refusal = None
        await at_master.send("New", b"2")
        await until(lambda: slave.store.readable_offset == master.store.commit_log_max_offset)
        assert bodies(slave, "New") == [b"1", b"2"]


async def test_a_slave_that_begins_in_the_middle_makes_its_fillers_beside_the_loop(
    tmp_path: Path, disk: SlowDisk
) -> None:
    async with running(made_broker(tmp_path / "master")) as master, client_of(master) as client:
        for number in range(30):
            await client.send("Orders", b"%d" % number * 50_000)
        assert len(master.store.commit_log.files.files) > 1
        async with running(made_slave(tmp_path / "slave", master, haCopyWholeLog="false")) as slave:
            await caught_up(slave, master)
            first = slave.store.min_offset("Orders", 0)
            assert 0 < first < slave.store.max_offset("Orders", 0) == 30
            assert bodies(slave, "Orders") == bodies(master, "Orders")[first:]
