"""Timer messages are delivered when they are due, once, also after a crash; none is lost with a file of the log."""

from __future__ import annotations

import asyncio
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.broker.message_writer import MessageWriter
from orbitmq.broker.options import BrokerOptions
from orbitmq.broker.schedule import entry_codes
from orbitmq.broker.statistics import Statistics
from orbitmq.broker.timers.accepting import TimerAcceptance
from orbitmq.broker.timers.delivery import TRIES_MAX, TURN_MAX, TimerDelivery
from orbitmq.broker.topics import Topics
from orbitmq.message.config import TopicConfig
from orbitmq.message.flags import PERM_READ, PERM_WRITE
from orbitmq.message.hosts import encode_host
from orbitmq.message.properties import decode_properties, encode_properties
from orbitmq.message.timers import RecallHandle
from orbitmq.message.topics import TIMER_TOPIC
from orbitmq.message.unit import Unit, decode_unit
from orbitmq.replication.master import Replicas
from orbitmq.runtime.clock import ManualClock
from orbitmq.store.engine import MessageStore
from orbitmq.store.options import StoreOptions
from orbitmq.store.records import PutRecord, PutResult, PutStatus
from tests.support.loops import until

HOST = encode_host("127.0.0.1", 10911)
FILE = 1 << 20
START_MS = ManualClock().now_ms()


class Bench:
    """A store, what accepts timer messages, and their delivery without its task."""

    def __init__(self, directory: Path, clock: ManualClock | None = None, slot_max: int = 1000) -> None:
        self.directory, self.clock = directory, clock or ManualClock()
        where = {"storePathRootDir": str(directory), "mappedFileSizeCommitLog": str(FILE)}
        where |= {"flushIntervalCommitLog": "10", "flushCommitLogLeastPages": "0"}
        self.store = MessageStore(StoreOptions.parse(where), clock=self.clock, entry_codes=entry_codes((1000,)))
        self.store.open()
        for topic in ("Orders", TIMER_TOPIC):
            self.store.consume_queues.find_or_create(topic, 0).make_room()
        self.options = BrokerOptions.parse({"brokerName": "b", "timerCongestNumEachSlot": str(slot_max)})
        topics = Topics(directory / "config", self.options, self.clock, lambda _: None)
        topics.table[TIMER_TOPIC] = TopicConfig(TIMER_TOPIC, 1, 1, PERM_READ | PERM_WRITE)
        replicas = Replicas(self.store, self.store.options, self.clock)
        self.delivery = TimerDelivery(self.store, directory / "config", self.clock)
        timers = TimerAcceptance(self.store, topics, self.options, self.clock, self.delivery.waiting_with)
        self.writing = MessageWriter(self.store, 1, timers, Statistics(self.store, "c", self.clock), replicas)
        self.delivery.load()
        asyncio.run(self.delivery.restore())

    def send(self, body: bytes = b"x", **properties: str) -> PutResult:
        text = encode_properties({"UNIQ_KEY": body.decode()[:100]} | properties).encode()
        return self.writing.put(PutRecord("Orders", 0, body, text, 1, HOST, HOST))

    def at(self, due_ms: int, body: bytes = b"x") -> PutResult:
        result = self.send(body, TIMER_DELIVER_MS=str(START_MS + due_ms))
        assert result.status is PutStatus.PUT_OK
        return result

    def units(self, topic: str = "Orders") -> list[Unit]:
        entries = self.store.entries(topic, 0, 0, 1_000_000)
        return [decode_unit(self.store.unit_at(place)) for place, _, _ in entries]  # type: ignore[arg-type]

    def delivered(self) -> list[bytes]:
        return [bytes(unit.body) for unit in self.units()]

    def go_to(self, at_ms: int) -> None:
        """Let it be so late after the start, and deliver what is due."""
        self.clock.advance(START_MS + at_ms - self.clock.now_ms())
        self.turn()

    def turn(self) -> None:
        while self.delivery.deliver_turn():
            pass

    def save(self) -> None:
        """As the broker does each second; what is saved is true on disk."""
        end = self.store.commit_log_max_offset

        async def saved() -> None:
            await until(lambda: self.store.flushed_offset >= end, "the log on disk")
            self.delivery.file.mark()
            await self.delivery.file.flush()

        asyncio.run(saved())

    def killed(self) -> Bench:
        """The same directory after the process was killed: what was not saved is as it was before."""
        self.store.close()
        return Bench(self.directory, self.clock, self.options.timer_congest_num_each_slot)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.store.close()


def test_a_message_comes_at_its_time_not_a_millisecond_before(bench: Bench) -> None:
    bench.at(500)
    bench.send(b"2", TIMER_DELAY_MS="700")
    bench.send(b"3", TIMER_DELAY_SEC="1")
    for at_ms, expected in ((499, 0), (500, 1), (699, 1), (700, 2), (999, 2), (1000, 3)):
        bench.go_to(at_ms)
        assert len(bench.delivered()) == expected, at_ms
    properties = decode_properties(bench.units()[0].properties)
    assert properties["TIMER_DELIVER_MS"] == str(START_MS + 500)
    assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("Orders", "0")
    assert int(properties["TIMER_DEQUEUE_MS"]) == START_MS + 500


def test_messages_come_in_the_order_of_their_times_and_those_of_one_time_as_they_were_sent(bench: Bench) -> None:
    for number, due_ms in enumerate((300, 100, 200, 100, 300)):
        bench.at(due_ms, b"%d" % number)
    bench.go_to(1000)
    assert bench.delivered() == [b"1", b"3", b"2", b"0", b"4"]


def test_a_turn_is_bounded(bench: Bench) -> None:
    for number in range(TURN_MAX + 3):
        bench.at(100, b"%d" % number)
    bench.clock.advance(100)
    assert bench.delivery.deliver_turn()
    assert len(bench.delivered()) == TURN_MAX
    assert not bench.delivery.deliver_turn()
    assert bench.delivered() == [b"%d" % number for number in range(TURN_MAX + 3)]


@pytest.mark.parametrize("is_saved", [True, False], ids=["progress saved", "progress of the start"])
def test_after_a_kill_each_message_comes_once(bench: Bench, is_saved: bool) -> None:
    for number in range(10):
        bench.at(100 * number + 50, b"%d" % number)
    bench.go_to(200)
    if is_saved:
        bench.save()
    bench.at(2000, b"later")
    bench.go_to(500)
    again = bench.killed()
    assert len(again.delivery.pending) == 6
    again.go_to(500)
    assert len(again.delivered()) == 5, "what was delivered after the progress was saved is found in the log"
    again.go_to(700)
    last = again.killed()
    last.go_to(3000)
    assert last.delivered() == [*(b"%d" % number for number in range(10)), b"later"]
    last.store.close()


def test_a_kill_between_two_messages_of_one_time_loses_and_repeats_none(bench: Bench) -> None:
    for number in range(TURN_MAX + 50):
        bench.at(100, b"%d" % number)
    bench.clock.advance(100)
    assert bench.delivery.deliver_turn()
    bench.save()
    again = bench.killed()
    again.turn()
    assert again.delivered() == [b"%d" % number for number in range(TURN_MAX + 50)]
    again.store.close()


def test_a_clock_that_is_set_back_loses_and_repeats_none(bench: Bench) -> None:
    bench.at(100, b"1")
    bench.at(5000, b"2")
    bench.go_to(4000)
    bench.clock.advance(-3000)
    bench.at(2000, b"3")
    bench.turn()
    bench.save()
    again = bench.killed()
    again.go_to(1999)
    assert again.delivered() == [b"1"]
    again.go_to(2000)
    again.save()
    again = again.killed()
    again.go_to(5000)
    assert again.delivered() == [b"1", b"3", b"2"]
    again.store.close()


def test_what_waits_in_a_file_that_goes_is_moved_and_comes_once(bench: Bench) -> None:
    bench.at(100_000, b"far")
    bench.at(100, b"near")
    for number in range(30):
        bench.send(b"%d" % number * 50_000)
    bench.at(200_000, b"behind")
    bench.go_to(1000)
    assert bench.store.commit_log_max_offset > FILE

    assert not bench.delivery.pending.lowest
    assert asyncio.run(bench.delivery.move_below(FILE)) == 1
    bench.turn()
    assert (bench.delivery.pending.lowest or 0) >= FILE
    assert len(bench.delivery.pending) == 2
    moved = bench.units(TIMER_TOPIC)[-1]
    assert moved.body == b"far"
    assert decode_properties(moved.properties)["TIMER_ROLL_TIMES"] == "1"
    again = bench.killed()
    assert len(again.delivery.pending) == 2, "that it was moved is found in the log"
    again.go_to(300_000)
    assert again.delivered()[-2:] == [b"far", b"behind"]
    assert again.delivered().count(b"far") == 1
    again.store.close()


def test_a_recalled_message_does_not_come_and_others_of_its_time_do(bench: Bench) -> None:
    handles = [bench.at(500, b"%d" % number).recall_handle for number in range(3)]
    handle = RecallHandle.decode(handles[1])
    assert handle == ("Orders", "b", START_MS + 500, "1")
    recall = {"TIMER_DEL_UNIQKEY": f"Orders+{handle.unique_id}", "TIMER_DELIVER_MS": str(handle.due_ms)}
    bench.send(b"0", TAGS="_RECALL_TAG_", **recall)
    again = bench.killed()
    again.go_to(500)
    assert again.delivered() == [b"0", b"2"]
    assert not len(again.delivery.pending)
    again.store.close()


def test_a_message_whose_topic_cannot_take_it_now_waits_and_is_not_lost(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.at(100, b"1")
    bench.clock.advance(100)
    put = bench.store.put
    monkeypatch.setattr(bench.store, "put", lambda *_: PutResult(PutStatus.SERVICE_NOT_AVAILABLE))
    assert not bench.delivery.deliver_turn()
    assert len(bench.delivery.pending) == 1
    monkeypatch.setattr(bench.store, "put", put)
    bench.turn()
    assert bench.delivered() == [b"1"]


@pytest.mark.parametrize(
    ("properties", "status"),
    [
        ({"TIMER_DELAY_SEC": "259200"}, PutStatus.PUT_OK),
        ({"TIMER_DELAY_SEC": "259201"}, PutStatus.MESSAGE_ILLEGAL),
        ({"TIMER_DELAY_SEC": "9223372036854775807"}, PutStatus.MESSAGE_ILLEGAL),
        ({"TIMER_DELAY_SEC": "soon"}, PutStatus.MESSAGE_ILLEGAL),
        ({"TIMER_DELAY_MS": "1e3"}, PutStatus.MESSAGE_ILLEGAL),
        ({"TIMER_DELIVER_MS": "99999999999999999999"}, PutStatus.MESSAGE_ILLEGAL),
    ],
)
def test_a_time_beyond_the_limit_or_no_number_is_refused(
    bench: Bench, properties: dict[str, str], status: PutStatus
) -> None:
    assert bench.send(**properties).status is status
    assert len(bench.units(TIMER_TOPIC)) == (status is PutStatus.PUT_OK)
    assert not bench.delivered()


@pytest.mark.parametrize("properties", [{"TIMER_DELIVER_MS": "1"}, {"TIMER_DELAY_MS": "0"}, {"TIMER_DELAY_SEC": "-1"}])
def test_a_time_that_is_over_is_no_reason_to_wait(bench: Bench, properties: dict[str, str]) -> None:
    assert bench.send(**properties).recall_handle == ""
    assert bench.delivered() == [b"x"]


def test_a_delay_level_wins_over_a_time(bench: Bench) -> None:
    bench.send(DELAY="1", TIMER_DELAY_SEC="5")
    waiting = bench.units("SCHEDULE_TOPIC_XXXX")
    assert len(waiting) == 1
    assert "TIMER" not in waiting[0].properties


def test_an_entry_of_the_queue_holds_the_time(bench: Bench) -> None:
    bench.at(777)
    ((_place, _size, code),) = bench.store.entries(TIMER_TOPIC, 0, 0, 10)
    assert code == START_MS + 777
    bench.turn()
    assert bench.delivery.pending.next_due_ms() == code


def damage(bench: Bench, result: PutResult) -> None:
    """Overwrite the magic of a stored message: it cannot be read any more."""
    with (bench.directory / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(result.physical_offset + 4)
        file.write(bytes(4))


def test_what_cannot_be_read_keeps_no_file_and_is_not_counted_as_moved(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.at(100_000, b"1")
    damage(bench, bench.at(200_000, b"2"))
    end = bench.at(300_000, b"3").end_offset
    bench.turn()
    assert asyncio.run(bench.delivery.move_below(end)) == 2
    bench.turn()
    assert len(bench.delivery.pending) == 2
    assert asyncio.run(bench.delivery.move_below(end)) == 0
    assert caplog.text.count("event=timer_message_unreadable") == 1
    bench.go_to(300_000)
    assert bench.delivered() == [b"1", b"3"]


def test_a_message_that_always_fails_does_not_hold_the_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        bench.at(100 + number, b"%d" % number)
    put = bench.store.put

    def failing(record: PutRecord, at_once: bool) -> PutResult:
        if record.body == b"1":
            raise ValueError("an error of our own")
        return put(record, at_once)

    monkeypatch.setattr(bench.store, "put", failing)
    bench.clock.advance(1000)
    for _ in range(TRIES_MAX - 1):
        with pytest.raises(ValueError, match="of our own"):
            bench.delivery.deliver_turn()
    assert bench.delivered() == [b"0"]
    bench.turn()
    assert bench.delivered() == [b"0", b"2"]
    assert "event=timer_message_dropped topic=Orders id=1 " in caplog.text


def test_no_more_messages_wait_for_one_second_than_may(tmp_path: Path) -> None:
    """As many as RocketMQ 5.3.3 takes before it refuses any: one more than the number. Counted as exactly after a
    crash, and when a message was moved.
    """

    def refused(at: Bench, due_ms: int) -> bool:
        result = at.send(TIMER_DELIVER_MS=str(START_MS + due_ms))
        assert result.status in (PutStatus.PUT_OK, PutStatus.WHEEL_TIMER_FLOW_CONTROL)
        return result.status is not PutStatus.PUT_OK

    bench = Bench(tmp_path, slot_max=2)
    assert [refused(bench, due_ms) for due_ms in (5001, 5500, 6000, 5001, 6000)] == [False] * 3 + [True] * 2
    assert not refused(bench, 5000)
    assert not refused(bench, 6001)
    recall = {"TIMER_DEL_UNIQKEY": "Orders+x", "TIMER_DELIVER_MS": str(START_MS + 5500)}
    assert bench.send(**recall).status is PutStatus.PUT_OK
    assert asyncio.run(bench.delivery.move_below(bench.store.commit_log_max_offset)) > 0
    again = bench.killed()
    assert refused(again, 5700)
    assert not refused(again, 5000)
    again.go_to(6000)
    again.clock.advance(-4000)
    assert not refused(again, 5700), "what was delivered waits no more"
    again.store.close()


def taken_over(bench: Bench, read_ms: int, queue_offset: int, *, was_killed: bool = False) -> Bench:
    """The store as if RocketMQ 5 had served it: it delivered what was due at `read_ms` and before."""
    (bench.directory / "config").mkdir(exist_ok=True)
    check = struct.pack(">qqqqqqq", START_MS + read_ms, 5200, queue_offset, queue_offset, 0, START_MS, 7)
    (bench.directory / "config" / "timercheck").write_bytes(check.ljust(4096, b"\0"))
    if was_killed:
        bench.store.close()
        (bench.directory / "abort").touch()
        return Bench(bench.directory, bench.clock)
    return bench.killed()


def test_what_rocketmq_delivered_does_not_come_again(bench: Bench) -> None:
    for number in range(4):
        bench.at(1000 * (number + 1), b"%d" % number)
    bench.at(1500, b"not in the wheel yet")
    again = taken_over(bench, 2000, 4)
    assert len(again.delivery.pending) == 3
    again.go_to(3000)
    assert again.delivered() == [b"not in the wheel yet", b"2"]
    last = again.killed()
    last.go_to(5000)
    assert last.delivered() == [b"not in the wheel yet", b"2", b"3"]
    last.store.close()


def test_a_promoted_slave_of_rocketmq_goes_on_where_that_was(bench: Bench) -> None:
    for number in range(4):
        bench.at(1000 * (number + 1), b"%d" % number)
    bench.at(1500, b"later")

    async def taken() -> None:
        bench.delivery.take_check_point(START_MS + 2000, 4)
        await bench.delivery.file.flush()

    asyncio.run(taken())
    promoted = bench.killed()
    promoted.go_to(3000)
    assert promoted.delivered() == [b"later", b"2"]
    promoted.store.close()


def test_slaves_of_rocketmq_learn_what_is_done(bench: Bench) -> None:
    assert bench.delivery.check_point() == (START_MS // 1000 * 1000, 0)
    begin = START_MS // 1000 * 1000 - START_MS  # RocketMQ counts in full seconds
    for number in range(4):
        bench.at(begin + 1000 * (number + 1), b"%d" % number)
    bench.go_to(begin + 2500)
    assert bench.delivered() == [b"0", b"1"]
    assert bench.delivery.check_point() == (START_MS + begin, 0), "the disk may not have it yet"
    bench.save()
    assert bench.delivery.check_point() == (START_MS + begin + 2000, 4)
    bench.clock.advance(10_000)
    assert bench.delivery.check_point() == (START_MS + begin + 2000, 4), "the next one waits"


def counts(bench: Bench) -> dict[str, int]:
    asyncio.run(bench.delivery.count())
    return {topic: one.count for topic, one in bench.delivery.counts.metrics().timing_count.items()}


def test_what_waits_is_counted_by_topic(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert counts(bench) == {}
    for number in range(4):
        bench.at(1000 * (number + 1), b"%d" % number)
    bench.turn()
    bench.go_to(1000)
    assert counts(bench) == {"Orders": 3}
    version = bench.delivery.counts.metrics().data_version
    assert counts(bench) == {"Orders": 3}
    assert bench.delivery.counts.metrics().data_version == version, "nothing has changed"
    bench.at(5000, b"5")
    recall = {"TIMER_DEL_UNIQKEY": "Orders+3", "TIMER_DELIVER_MS": str(START_MS + 4000)}
    assert bench.send(**recall).status is PutStatus.PUT_OK
    bench.turn()
    assert counts(bench) == {"Orders": 3}, "one came, one is recalled"
    assert bench.delivery.counts.metrics().data_version != version
    bench.go_to(2000)
    assert counts(bench) == {"Orders": 2}
    assert asyncio.run(bench.delivery.move_below(bench.store.commit_log_max_offset)) == 4
    bench.turn()
    assert counts(bench) == {"Orders": 2}
    bench.go_to(4000)
    assert counts(bench) == {"Orders": 1}
    again = bench.killed()
    assert counts(again) == {"Orders": 1}
    again.go_to(5000)
    assert counts(again) == {}
    again.store.close()


async def test_two_who_ask_at_a_time_count_each_message_once(tmp_path: Path) -> None:
    bench = await asyncio.to_thread(Bench, tmp_path)
    for number in range(3 * TURN_MAX):
        bench.at(1000 + number, b"%d" % number)
    bench.turn()
    await asyncio.gather(bench.delivery.count(), bench.delivery.count())
    (count,) = bench.delivery.counts.metrics().timing_count.values()
    assert count.count == 3 * TURN_MAX
    bench.store.close()


def test_after_a_crash_of_rocketmq_what_is_in_doubt_comes_rather_twice_than_never(bench: Bench) -> None:
    for number in range(4):
        bench.at(30_000 * (number + 1), b"%d" % number)
    bench.clock.advance(95_000)
    bench.send(b"end of the log")
    again = taken_over(bench, 120_000, 4, was_killed=True)
    again.go_to(120_000)
    assert again.delivered() == [b"end of the log", b"2", b"3"], "due 5 s before the end of the log and behind it"
    again.store.close()


@pytest.mark.parametrize("expired", [False, True], ids=["original and copy", "copy alone"])
def test_a_message_that_rocketmq_copied_comes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expired: bool
) -> None:
    """Entries of RocketMQ hold no time, so the messages are read."""
    monkeypatch.setattr(sys.modules[__name__], "entry_codes", lambda _: {})
    bench = Bench(tmp_path)
    original = {"TIMER_OUT_MS": str(START_MS + 4999), "REAL_TOPIC": "Orders", "REAL_QID": "0", "UNIQ_KEY": "u"}
    for times in ["1", "2"] if expired else ["", "1", "2"]:
        properties = encode_properties(original | ({"TIMER_ROLL_TIMES": times} if times else {})).encode()
        bench.store.put(PutRecord(TIMER_TOPIC, 0, b"body", properties, 1, HOST, HOST))
    again = taken_over(bench, 1000, 3)
    again.go_to(5000)
    assert again.delivered() == [b"body"]
    again.store.close()
