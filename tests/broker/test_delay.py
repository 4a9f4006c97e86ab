"""Delivery of delayed messages goes on from where it was, and is sure of each message before it counts it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.broker.delay import DROPPED_LINES, FAILURE_PAUSE_SECONDS, TURN_MAX, DelayedDelivery
from orbitmq.broker.schedule import entry_codes
from orbitmq.errors import StoreError, StorePoisoned
from orbitmq.message.hosts import encode_host
from orbitmq.message.ids import offset_message_id
from orbitmq.message.properties import PROPERTIES_SIZE_MAX, encode_properties
from orbitmq.message.topics import SCHEDULE_TOPIC
from orbitmq.message.unit import decode_unit
from orbitmq.runtime.clock import ManualClock
from orbitmq.store.engine import MessageStore
from orbitmq.store.options import StoreOptions
from orbitmq.store.records import PutRecord, PutResult, PutStatus
from tests.support.golden import GOLDEN
from tests.support.loops import LoopFactory, turned_loop

LEVELS = (1000, 5000)
HOST = encode_host("127.0.0.1", 10911)


class Bench:
    """A store with delayed messages, and their delivery without its timer."""

    def __init__(self, directory: Path, levels: tuple[int, ...] = LEVELS, **of_store: str) -> None:
        self.clock = ManualClock()
        where = {"storePathRootDir": str(directory), "mappedFileSizeCommitLog": str(8 << 20)}
        options = StoreOptions.parse(where | of_store)
        self.store = MessageStore(options, clock=self.clock, entry_codes=entry_codes(levels))
        self.store.open()
        self.store.consume_queues.find_or_create("Orders", 0).make_room()
        self.directory = directory / "config"
        self.delivery = self.new_delivery(levels)

    def new_delivery(self, levels: tuple[int, ...] = LEVELS) -> DelayedDelivery:
        return DelayedDelivery(self.store, levels, self.directory, self.clock)

    def put_aside(self, body: bytes, level: int = 1, **properties: str) -> None:
        """A message as a send leaves it in the schedule topic."""
        known = {"DELAY": str(level), "REAL_TOPIC": "Orders", "REAL_QID": "0"} | properties
        text = encode_properties({name: value for name, value in known.items() if value}).encode()
        assert self.store.put(PutRecord(SCHEDULE_TOPIC, level - 1, body, text, 1, HOST, HOST)).size > 0

    def delivered(self) -> list[bytes]:
        entries = self.store.entries("Orders", 0, 0, 10_000)
        return [bytes(decode_unit(self.store.unit_at(place)).body) for place, _, _ in entries]  # type: ignore[arg-type]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.store.close()


def test_only_what_is_due_is_delivered(bench: Bench) -> None:
    bench.put_aside(b"1")
    bench.clock.advance(400)
    bench.put_aside(b"2")
    bench.put_aside(b"far", level=2)
    bench.clock.advance(599)
    assert bench.delivery.deliver_due(1) == 0
    assert bench.delivered() == []
    bench.clock.advance(1)
    bench.delivery.deliver_due(1)
    assert bench.delivered() == [b"1"]
    bench.clock.advance(400)
    bench.delivery.deliver_due(1)
    bench.delivery.deliver_due(2)
    assert bench.delivered() == [b"1", b"2"]
    assert bench.delivery.offsets == {1: 2}


def test_a_turn_is_bounded_and_says_that_more_waits(bench: Bench) -> None:
    for number in range(TURN_MAX + 3):
        bench.put_aside(b"%d" % number)
    bench.clock.advance(1000)
    assert bench.delivery.deliver_turn()
    assert len(bench.delivered()) == TURN_MAX
    assert not bench.delivery.deliver_turn()
    assert bench.delivered() == [b"%d" % number for number in range(TURN_MAX + 3)]


def test_a_level_with_much_to_deliver_leaves_the_next_turn_to_the_others(bench: Bench) -> None:
    for number in range(2 * TURN_MAX):
        bench.put_aside(b"%d" % number)
    bench.put_aside(b"other", level=2)
    bench.clock.advance(5000)
    assert bench.delivery.deliver_turn()
    assert b"other" not in bench.delivered()
    bench.delivery.deliver_turn()
    assert b"other" in bench.delivered()


def test_what_is_not_due_is_not_read(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look every few milliseconds at queues of millions must cost nothing."""
    for number in range(100):
        bench.put_aside(b"%d" % number)
    read: list[int] = []
    entries = bench.store.entries
    monkeypatch.setattr(bench.store, "entries", lambda *where: read.append(where[3]) or entries(*where))
    assert bench.delivery.deliver_due(1) == 0
    assert read == [1]


@pytest.mark.parametrize("levels", [(1000,), (7000, 1000)])
def test_levels_of_a_longer_table_are_delivered_at_their_time(bench: Bench, levels: tuple[int, ...]) -> None:
    bench.put_aside(b"first", level=1)
    bench.put_aside(b"second", level=2)
    later = bench.new_delivery(levels)
    later.load()
    due = {1: 1000, 2: 5000 if len(levels) == 1 else 0}  # a level that is shorter now does not wait for its old time
    for level in sorted(due, key=due.__getitem__):
        before = len(bench.delivered())
        if due[level]:
            bench.clock.advance(due[level] - 1 - (bench.clock.now_ms() - ManualClock().now_ms()))
            later.deliver_turn()
            assert len(bench.delivered()) == before
            bench.clock.advance(1)
        later.deliver_turn()
        assert len(bench.delivered()) == before + 1


async def test_a_store_that_accepts_nothing_is_told_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, turned_clock: LoopFactory
) -> None:
    def refuse(*_: object) -> PutResult:
        raise StorePoisoned("until restart")

    bench.put_aside(b"1")
    bench.clock.advance(1000)
    put = bench.store.put
    monkeypatch.setattr(bench.store, "put", refuse)
    bench.delivery.start()
    for _ in range(5):
        await turned_loop().turn(1)
    assert caplog.text.count("event=delivery_paused") == 1
    monkeypatch.setattr(bench.store, "put", put)
    await turned_loop().turn(1)
    assert bench.delivered() == [b"1"]
    await bench.delivery.stop()


async def test_delivery_goes_on_after_a_failure_of_its_own(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, turned_clock: LoopFactory
) -> None:
    bench.put_aside(b"1")
    bench.clock.advance(1000)
    monkeypatch.setattr(bench.store, "unit_at", lambda _: 1 / 0)
    bench.delivery.start()
    await turned_loop().turn(0)
    assert "event=delivery_failed" in caplog.text
    monkeypatch.undo()
    bench.clock.advance(round(FAILURE_PAUSE_SECONDS * 1000))
    await turned_loop().turn(1)
    assert bench.delivered() == [b"1"]
    await bench.delivery.stop()


@pytest.mark.parametrize(
    ("pause_ms", "delivered"),
    [
        (round(FAILURE_PAUSE_SECONDS * 1000) - 1, [b"2"]),
        (round(FAILURE_PAUSE_SECONDS * 1000), [b"2", b"1"]),
        (-3_600_000, [b"2", b"1"]),  # a clock that was set back does not make the pause an hour
    ],
)
def test_a_level_that_fails_rests_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, pause_ms: int, delivered: object
) -> None:
    bench.put_aside(b"1")
    bench.put_aside(b"2", level=2)
    failing = bench.store.entries(SCHEDULE_TOPIC, 0, 0, 1)[0][0]
    unit_at = bench.store.unit_at
    monkeypatch.setattr(bench.store, "unit_at", lambda place: 1 / 0 if place == failing else unit_at(place))
    bench.clock.advance(5000)
    for _ in range(3):
        assert not bench.delivery.deliver_turn()
    assert bench.delivered() == [b"2"]
    assert [line for line in caplog.messages if "delivery_failed" in line] == ["event=delivery_failed level=1 offset=0"]
    monkeypatch.undo()
    bench.clock.advance(pause_ms)
    bench.delivery.deliver_turn()
    assert bench.delivered() == delivered


def test_a_level_the_store_fails_is_told_when_the_others_have_had_their_turn(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.put_aside(b"1")
    bench.put_aside(b"2", level=2)
    failing = bench.store.entries(SCHEDULE_TOPIC, 0, 0, 1)[0][0]
    unit_at = bench.store.unit_at

    def unmapped(place: int) -> memoryview | None:
        if place == failing:
            raise StoreError("cannot be mapped")
        return unit_at(place)

    monkeypatch.setattr(bench.store, "unit_at", unmapped)
    bench.clock.advance(5000)
    with pytest.raises(StoreError):
        bench.delivery.deliver_turn()
    assert bench.delivered() == [b"2"]
    monkeypatch.undo()
    bench.delivery.deliver_turn()
    assert bench.delivered() == [b"2", b"1"], "it does not rest: the store may be all right again"


@pytest.mark.parametrize(
    "status", [PutStatus.SERVICE_NOT_AVAILABLE, PutStatus.OS_PAGECACHE_BUSY, PutStatus.CREATE_MAPEDFILE_FAILED]
)
def test_a_message_that_could_not_be_stored_is_tried_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, status: PutStatus
) -> None:
    for body in (b"1", b"2", b"3"):
        bench.put_aside(body)
    bench.clock.advance(1000)
    put, outcomes = bench.store.put, iter([True, False])

    def sometimes(record: PutRecord, at_once: bool) -> PutResult:
        return put(record, at_once) if next(outcomes, True) else PutResult(status)

    monkeypatch.setattr(bench.store, "put", sometimes)
    bench.delivery.deliver_due(1)
    assert (bench.delivered(), bench.delivery.offsets) == ([b"1"], {1: 1})
    bench.delivery.deliver_due(1)
    assert (bench.delivered(), bench.delivery.offsets) == ([b"1", b"2", b"3"], {1: 3})


@pytest.mark.parametrize(
    "properties",
    [
        {"REAL_TOPIC": ""},
        {"REAL_QID": ""},
        {"REAL_QID": "x"},
        {"REAL_QID": str(1 << 31)},
        {"REAL_QID": "9" * 5000},  # more digits than Python makes a number of
        {"REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC"},
    ],
)
def test_a_message_without_a_place_to_go_is_passed_over(
    bench: Bench, properties: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    bench.put_aside(b"lost", **properties)
    bench.put_aside(b"next")
    bench.clock.advance(1000)
    bench.delivery.deliver_due(1)
    assert bench.delivered() == [b"next"]
    assert "event=delayed_message_dropped" in caplog.text


TO_FURTHER_QUEUES = {"enableMultiDispatch": "true", "enableLmq": "true"}


def full_of(**properties: str) -> dict[str, str]:
    """Properties that leave no byte for one more, in a message as `Bench.put_aside` makes it."""
    known = {"DELAY": "1", "REAL_TOPIC": "Orders", "REAL_QID": "0"} | properties | {"x": ""}
    return properties | {"x": "x" * (PROPERTIES_SIZE_MAX - len(encode_properties(known).encode()))}


@pytest.mark.parametrize(
    ("properties", "of_store", "reason"),
    [
        ({"INNER_MULTI_DISPATCH": "a,,b"}, TO_FURTHER_QUEUES, "a topic named '' cannot be stored"),
        ({"INNER_MULTI_DISPATCH": "a/b"}, TO_FURTHER_QUEUES, "a topic named 'a/b' cannot be stored"),
        ({"REAL_TOPIC": "x" * 128}, {}, f"a topic named '{'x' * 128}' cannot be stored"),
        (full_of(INNER_MULTI_DISPATCH="a", UNIQ_KEY="K"), TO_FURTHER_QUEUES, "PROPERTIES_SIZE_EXCEEDED"),
    ],
)
def test_what_can_never_be_stored_is_told_once_and_holds_nothing_up(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    properties: dict[str, str],
    of_store: dict[str, str],
    reason: str,
) -> None:
    """It was accepted by a broker that did not look at it."""
    before = Bench(tmp_path)
    before.put_aside(b"1")
    before.put_aside(b"never again", **({"UNIQ_KEY": "K"} | properties))
    before.put_aside(b"2")
    before.put_aside(b"3", level=2)
    before.store.close()
    bench = Bench(tmp_path, **of_store)
    (_, (place, _, _), _) = bench.store.entries(SCHEDULE_TOPIC, 0, 0, 9)
    bench.clock.advance(5000)
    for _ in range(2):
        assert not bench.delivery.deliver_turn()
    assert bench.delivered() == [b"1", b"2", b"3"]
    assert bench.delivery.offsets == {1: 3, 2: 1}
    topic, stored_id = properties.get("REAL_TOPIC", "Orders"), offset_message_id(HOST, place)
    assert [line for line in caplog.messages if "delayed_message_dropped" in line] == [
        f"event=delayed_message_dropped topic={topic} level=1 offset=1 id=K stored_id={stored_id} reason={reason}"
    ]
    bench.store.close()


@pytest.mark.parametrize(
    ("properties", "of_store", "reason"),
    [
        (
            {"INNER_MULTI_DISPATCH": "%LMQ%b"},
            TO_FURTHER_QUEUES | {"maxLmqConsumeQueueNum": "1"},
            "LMQ_CONSUME_QUEUE_NUM_EXCEEDED",
        ),
    ],
)
def test_what_an_option_forbids_since_then_waits_until_it_is_put_back(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    properties: dict[str, str],
    of_store: dict[str, str],
    reason: str,
) -> None:
    """Other levels go on."""
    before = Bench(tmp_path)
    before.store.put(PutRecord("%LMQ%a", 0, b"light", b"", 1, HOST, HOST))
    before.put_aside(b"too long for now", **properties)
    before.put_aside(b"2")
    before.put_aside(b"3", level=2)
    before.store.close()
    bench = Bench(tmp_path, **of_store)
    bench.clock.advance(5000)
    for _ in range(3):
        bench.delivery.deliver_turn()
    assert bench.delivered() == [b"3"]
    waits = [line for line in caplog.messages if "event=delivery_waits" in line]
    assert waits == [f"event=delivery_waits level=1 offset=0 reason={reason}"]
    bench.store.close()
    after = Bench(tmp_path)
    after.clock.advance(5000)
    after.delivery.deliver_turn()
    assert {b"too long for now", b"2"} <= set(after.delivered())
    after.store.close()


def test_a_lower_limit_of_sizes_is_one_of_new_messages(tmp_path: Path) -> None:
    before = Bench(tmp_path)
    before.put_aside(b"longer than new ones may be")
    before.put_aside(b"2")
    before.store.close()
    bench = Bench(tmp_path, maxMessageSize="10")
    bench.clock.advance(5000)
    bench.delivery.deliver_turn()
    assert bench.delivered() == [b"longer than new ones may be", b"2"]
    bench.store.close()


def test_what_is_dropped_does_not_fill_the_disk_with_lines(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(DROPPED_LINES + 5):
        bench.put_aside(b"lost", REAL_QID="")
    bench.clock.advance(1000)
    while bench.delivery.deliver_turn():
        pass
    assert bench.delivery.offsets == {1: DROPPED_LINES + 5}
    assert caplog.text.count("event=delayed_message_dropped") == DROPPED_LINES


async def test_progress_is_saved_and_taken_up(bench: Bench) -> None:
    bench.delivery.save_soon()
    await bench.delivery.file.flush()
    assert not bench.delivery.file.path.exists()
    bench.put_aside(b"1")
    bench.clock.advance(1000)
    bench.delivery.deliver_due(1)
    bench.store._log_flusher.flush()
    bench.delivery.save_soon()
    await bench.delivery.file.flush()
    assert bench.delivery.file.path.read_text() == '{\n\t"offsetTable":{1:1\n\t}\n}'
    again = bench.new_delivery()
    again.load()
    bench.put_aside(b"2")
    bench.clock.advance(1000)
    again.deliver_due(1)
    assert bench.delivered() == [b"1", b"2"]


async def test_no_progress_is_saved_before_the_delivery_is_on_disk(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a crash could take the delivered message and leave the progress: nobody would deliver it again."""
    flush = bench.store._log.flush
    monkeypatch.setattr(bench.store._log, "flush", lambda: bench.store.flushed_offset)
    for body in (b"1", b"2"):
        bench.put_aside(body)
        bench.clock.advance(1000)
        bench.delivery.deliver_due(1)
        bench.delivery.save_soon()
        await bench.delivery.file.flush()
    assert bench.delivery.file.path.read_text() == '{\n\t"offsetTable":{}\n}'
    flush()
    bench.delivery.save_soon()
    await bench.delivery.file.flush()
    assert bench.delivery.file.path.read_text() == '{\n\t"offsetTable":{1:2\n\t}\n}'
    monkeypatch.undo()


async def test_saved_progress_beyond_the_queue_is_moved_into_it(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """A crash may have cost the last entries of a queue whose progress was saved."""
    bench.put_aside(b"1")
    bench.directory.mkdir(exist_ok=True)
    bench.delivery.file.path.write_text('{"offsetTable":{1:99,2:-4}}')
    bench.delivery.load()
    assert bench.delivery.offsets == {1: 1, 2: 0}
    assert [line for line in caplog.messages if "corrected" in line] == [
        "event=delay_offset_corrected level=1 from=99 to=1"
    ]


async def test_a_file_of_rocketmq_comes_out_byte_for_byte(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (GOLDEN / "configs/broker_delayOffset.json").read_text(encoding="utf-8")
    monkeypatch.setattr(bench.store, "max_offset", lambda _topic, _queue: 100)
    bench.directory.mkdir(exist_ok=True)
    bench.delivery.file.path.write_text(text, encoding="utf-8")
    bench.delivery.load()
    bench.delivery.file.mark()
    await bench.delivery.file.flush()
    assert bench.delivery.file.path.read_text(encoding="utf-8") == text
