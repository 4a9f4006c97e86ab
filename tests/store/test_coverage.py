"""Files of queues that were on disk before a crash and are damaged or gone: it is noticed, and made good from the log.

Each store is flushed as a whole, so that its checkpoint speaks for all but the last messages, and then killed.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbitmq.message.delay import DEFAULT_DELAY_LEVELS, delivery_timestamp, parse_delay_levels
from orbitmq.message.flags import TRANSACTION_PREPARED
from orbitmq.message.topics import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC
from orbitmq.runtime.clock import ManualClock
from orbitmq.store import progress
from orbitmq.store.engine import MessageStore
from orbitmq.store.queue import ENTRY, ENTRY_SIZE
from tests.support.contents import contents
from tests.support.disk import FaultyDisk
from tests.support.stores import abandon, bodies, open_store, record, units

QUEUES = [("T", 0), ("T", 1), ("Other", 0), (SCHEDULE_TOPIC, 2), (HALF_TOPIC, 0), (OP_HALF_TOPIC, 0)]
LAST = ("Last", 0)  # gets every third message, so that other queues end before the checkpoint does
COUNT = 240
LIGHT = {"enable_multi_dispatch": True, "enable_lmq": True}
DELAY_MS = parse_delay_levels("1s 5s 10s")


def properties(topic: str) -> bytes:
    return b"TAGS\x01A" + b"\x02DELAY\x013" * (topic == SCHEDULE_TOPIC)


def fill(store: MessageStore, clock: ManualClock, count: int = COUNT) -> None:
    """Eight messages a file of the log, 40 or 80 in each queue, a second apart."""
    for number in range(count):
        topic, queue_id = LAST if number % 3 == 2 else QUEUES[number // 3 * 2 % 6 + number % 3]
        store.put(record(b"%04d" % number + bytes(380), topic, queue_id, properties(topic)))
        clock.advance(1000)


def killed(root: Path, fill_: Callable[[MessageStore, ManualClock], None] = fill, **options: Any) -> ManualClock:
    """A store of which everything is flushed."""
    clock, disk = ManualClock(), FaultyDisk()
    store = open_store(root, clock, disk, **options)
    fill_(store, clock)
    store._log_flusher.flush()
    store._queue_flusher.flush()
    abandon(store)
    disk.kill()
    return clock


def snapshot(root: Path, clock: ManualClock, **options: Any) -> Any:
    """What a start finds: each message of each queue, and its entry."""
    store = open_store(root, clock, **options)
    messages = contents(store)
    found = messages, {queue: store.entries(*queue, 0, COUNT) for queue in messages}
    store.close()
    return found


class Whole:
    """A killed store in which nothing is missing; tests damage copies."""

    def __init__(self, directory: Path, fill_: Callable[[MessageStore, ManualClock], None], **options: Any) -> None:
        self._root = directory / "store"
        self._options = options
        self._clock = killed(self._root, fill_, **options)
        self.snapshot = self.after(directory / "whole", lambda _root: None)

    def copy(self, root: Path, damage: Callable[[Path], object]) -> ManualClock:
        shutil.copytree(self._root, root)
        damage(root)
        return self._clock

    def after(self, root: Path, damage: Callable[[Path], object]) -> Any:
        """What a start finds after the damage."""
        return snapshot(root, self.copy(root, damage), **self._options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return Whole(tmp_path_factory.mktemp("whole"), fill)


@pytest.fixture(scope="module")
def whole_light(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return Whole(tmp_path_factory.mktemp("light"), light_fill, **LIGHT)


def queue_files(root: Path, queue: tuple[str, int]) -> list[Path]:
    return sorted((root / "consumequeue" / queue[0] / str(queue[1])).iterdir())


def zero(path: Path, position: int = 0, size: int | None = None) -> None:
    data = bytearray(path.read_bytes())
    end = len(data) if size is None else position + size
    data[position:end] = bytes(end - position)
    path.write_bytes(data)


def swap_entries(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[ENTRY_SIZE : 2 * ENTRY_SIZE] + data[:ENTRY_SIZE] + data[2 * ENTRY_SIZE :])


DAMAGES: dict[str, Callable[[list[Path]], object]] = {
    "the first file is gone": lambda files: files[0].unlink(),
    "one in the middle is gone": lambda files: files[1].unlink(),
    "the last one is gone": lambda files: files[-1].unlink(),
    "all but the first are gone": lambda files: [path.unlink() for path in files[1:]],
    "the first is zero": lambda files: zero(files[0]),
    "one in the middle is zero": lambda files: zero(files[1]),
    "the last one is zero": lambda files: zero(files[-1]),
    "an entry in the middle is zero": lambda files: zero(files[1], 3 * ENTRY_SIZE, ENTRY_SIZE),
    "the last entries of a file are zero": lambda files: zero(files[1], 7 * ENTRY_SIZE),
    "two entries are exchanged": lambda files: swap_entries(files[1]),
    "an entry points behind the log": lambda files: files[1].write_bytes(
        ENTRY.pack(1 << 40, 100, 0) + files[1].read_bytes()[ENTRY_SIZE:]
    ),
}


@pytest.mark.parametrize("queue", [("T", 1), (SCHEDULE_TOPIC, 2)], ids=str)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_queue_is_made_whole(tmp_path: Path, whole: Whole, damage: str, queue: tuple[str, int]) -> None:
    assert whole.after(tmp_path / "store", lambda root: DAMAGES[damage](queue_files(root, queue))) == whole.snapshot


@pytest.mark.parametrize("topic", [SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC])
def test_a_topic_of_the_system_is_made_anew_from_nothing(tmp_path: Path, whole: Whole, topic: str) -> None:
    """Delayed messages with the times when they are due: with the hash of their tag they would go out at once."""
    assert whole.after(tmp_path / "store", lambda root: shutil.rmtree(root / "consumequeue" / topic)) == whole.snapshot


def test_delayed_messages_keep_their_time_when_queues_are_made_anew(tmp_path: Path) -> None:
    clock, disk = ManualClock(), FaultyDisk()
    store = open_store(tmp_path, clock, disk)
    due = []
    for _ in range(25):
        stored = store.put(record(b"later", SCHEDULE_TOPIC, 2, properties(SCHEDULE_TOPIC)))
        due.append(delivery_timestamp(parse_delay_levels(DEFAULT_DELAY_LEVELS), 3, stored.store_timestamp))
        clock.advance(700)
    abandon(store)
    disk.kill()
    shutil.rmtree(tmp_path / "consumequeue")
    store = open_store(tmp_path, clock)
    assert [code for _, _, code in store.entries(SCHEDULE_TOPIC, 2, 0, 99)] == due
    store.close()


@pytest.mark.parametrize("remade", [None, 0, 1])
def test_a_removed_topic_stays_removed(tmp_path: Path, remade: int | None) -> None:
    """Also when it was made anew since, and some of its queues have no message yet."""
    clock, disk = ManualClock(), FaultyDisk()
    store = open_store(tmp_path, clock, disk)
    fill(store, clock)
    list(store.remove_topic("T"))
    if remade is not None:
        store.put(record(b"new", "T", remade))
    for _ in range(3):  # the removal is older than what a start walks over
        store.put(record(bytes(3900), *LAST))
        clock.advance(4000)
    store._log_flusher.flush()
    store._queue_flusher.flush()
    abandon(store)
    disk.kill()
    store = open_store(tmp_path, clock)
    assert [store.max_offset("T", queue_id) for queue_id in (0, 1)] == [int(remade == 0), int(remade == 1)]
    assert store.max_offset(*LAST) == 83
    store.close()


@pytest.mark.parametrize("lost", [0, 1])
def test_a_queue_that_is_gone_with_its_directory_is_made_anew(tmp_path: Path, whole: Whole, lost: int) -> None:
    """The other queue of its topic tells that the topic was not removed, even of messages before its own first one."""
    found = whole.after(tmp_path / "store", lambda root: shutil.rmtree(root / "consumequeue" / "T" / str(lost)))
    assert found == whole.snapshot


def test_messages_keep_their_offsets_when_only_entries_of_removed_ones_are_left(tmp_path: Path) -> None:
    """Of the files of a queue the last one was lost; what the log has lost of its messages nothing can bring back."""

    def early_and_late(store: MessageStore, clock: ManualClock) -> None:
        for number in range(60):
            store.put(record(bytes(380), *(("T", 0) if number < 15 or number >= 50 else LAST)))
            clock.advance(1000)

    clock = killed(tmp_path, early_and_late)
    for path in sorted((tmp_path / "commitlog").iterdir())[:4]:
        path.unlink()
    for path in queue_files(tmp_path, ("T", 0))[1:]:
        path.unlink()
    store = open_store(tmp_path, clock)
    assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (15, 25)
    assert [unit.queue_offset for unit in units(store)] == list(range(15, 25))
    store.close()


def given_away(store: MessageStore, clock: ManualClock) -> None:
    """A RocketMQ has lost an entry, and its number went to the next message."""
    for number in range(30):
        store.put(record(b"%04d" % number + bytes(1000)))
        if number == 5:
            store._queues.table["T", 0].cut(5)
        clock.advance(1000)


def test_a_message_whose_number_is_given_away_moves_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = killed(tmp_path, given_away)
    store = open_store(tmp_path, clock)
    assert [body[:4] for body in bodies(store)] == [b"%04d" % number for number in range(30) if number != 5]
    walked_from, end, _, _ = figures(caplog)
    assert end - walked_from <= 2 * 4096
    store.close()


def test_of_two_messages_with_one_number_none_is_lost_when_the_queue_is_made_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = killed(tmp_path, given_away)
    shutil.rmtree(tmp_path / "consumequeue")
    store = open_store(tmp_path, clock)
    assert [body[:4] for body in bodies(store)] == [b"%04d" % number for number in range(30)]
    assert caplog.text.count("event=queue_offset_skipped") == 1
    store.close()


def test_a_topic_made_anew_just_before_a_crash_begins_at_its_first_message(tmp_path: Path) -> None:
    """The messages of its earlier life are still in the part of the log that is walked."""
    clock, disk = ManualClock(), FaultyDisk()
    store = open_store(tmp_path, clock, disk)
    for _ in range(25):
        store.put(record(b"old"))
    list(store.remove_topic("T"))
    for number in range(3):
        store.put(record(b"new%d" % number))
    abandon(store)
    disk.kill()
    store = open_store(tmp_path, clock)
    assert bodies(store) == [b"new0", b"new1", b"new2"]
    assert store.put(record()).queue_offset == 3
    store.close()


def light_fill(store: MessageStore, clock: ManualClock) -> None:
    for number in range(90):
        properties_ = b"INNER_MULTI_DISPATCH\x01%LMQ%one,%LMQ%two"
        store.put(record(b"%04d" % number + bytes(300), properties=properties_))
        clock.advance(1000)


@pytest.mark.parametrize(
    "damage", ["one in the middle is gone", "one in the middle is zero", "two entries are exchanged"]
)
def test_light_queues_are_made_whole_where_files_show_it(tmp_path: Path, whole_light: Whole, damage: str) -> None:
    light = ("%LMQ%one", 0)
    assert len(whole_light.snapshot[1][light]) == 90
    found = whole_light.after(tmp_path / "store", lambda root: DAMAGES[damage](queue_files(root, light)))
    assert found == whole_light.snapshot


@pytest.mark.parametrize("damage", DAMAGES)
def test_entries_of_light_queues_do_not_hide_what_the_queue_itself_lacks(
    tmp_path: Path, whole_light: Whole, damage: str
) -> None:
    found = whole_light.after(tmp_path / "store", lambda root: DAMAGES[damage](queue_files(root, ("T", 0))))
    assert found == whole_light.snapshot


# ------------------------------------------------------------------------------------------------ what is read for it


RECOVERED = re.compile(r"event=recovered clean=False walked_from=(\d+) .* log_end=(\d+) searched=(\d+) walked=(\d+) ")


def figures(caplog: pytest.LogCaptureFixture) -> tuple[int, int, int, int]:
    """From where the log was walked, its end, bytes read before, bytes walked."""
    walked_from, end, searched, walked = RECOVERED.findall(caplog.text)[-1]
    return int(walked_from), int(end), int(searched), int(walked)


@pytest.fixture(autouse=True)
def _verbose(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")


@pytest.mark.parametrize("count", [120, 480])
def test_a_start_reads_what_the_checkpoint_does_not_prove(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    """The last file of the log, however long the log is."""
    clock = killed(tmp_path, lambda store, clock: fill(store, clock, count))
    open_store(tmp_path, clock).close()
    walked_from, end, searched, walked = figures(caplog)
    assert (searched, walked, end - walked_from) == (0, end - walked_from, walked)
    assert walked <= 2 * 4096 < end


def test_files_of_the_log_that_the_queues_prove_are_not_read(tmp_path: Path, whole: Whole) -> None:
    """But for the head that tells when they began, and the record that closes them."""

    def empty(root: Path) -> None:
        for path in sorted((root / "commitlog").iterdir())[:-3]:
            data = path.read_bytes()
            last = data.rindex((-875286124).to_bytes(4, "big", signed=True)) - 4
            path.write_bytes(data[:91] + bytes(last - 91) + data[last:])

    root = tmp_path / "store"
    store = open_store(root, whole.copy(root, empty))
    assert {queue: store.entries(*queue, 0, COUNT) for queue in whole.snapshot[1]} == whole.snapshot[1]
    store.close()


def test_of_files_with_messages_that_no_queue_has_only_these_are_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sizes = []

    def mixed(store: MessageStore, clock: ManualClock) -> None:
        for number in range(COUNT):
            is_prepared = number % 20 == 7
            stored = store.put(record(bytes(380), sys_flag=TRANSACTION_PREPARED if is_prepared else 0))
            sizes.extend([stored.end_offset - stored.physical_offset] * is_prepared)
            clock.advance(1000)

    clock = killed(tmp_path, mixed)
    open_store(tmp_path, clock).close()
    walked_from, end, searched, _ = figures(caplog)
    assert searched == sum(sizes)
    assert end - walked_from <= 2 * 4096


def test_what_is_missing_in_the_middle_is_walked_from_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = killed(tmp_path)
    data = queue_files(tmp_path, LAST)[4].read_bytes()
    place = ENTRY.unpack_from(data)[0]
    zero(queue_files(tmp_path, LAST)[4])
    open_store(tmp_path, clock).close()
    walked_from, end, _, walked = figures(caplog)
    assert place - 2 * 4096 < walked_from <= place
    assert walked == end - walked_from
    assert "event=queues_torn" in caplog.text


def test_a_long_proof_reports_how_far_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the queues as of the log; here each look at the clock takes two seconds."""

    def removed(store: MessageStore, clock: ManualClock) -> None:
        fill(store, clock)
        list(store.remove_topic("T"))

    class Ticking(ManualClock):
        def now_ms(self) -> int:
            self.advance(2000)
            return super().now_ms()

    killed(tmp_path, removed)
    monkeypatch.setattr(progress, "LOOK_BYTES", 1)
    open_store(tmp_path, Ticking()).close()
    for event in ("queues_checking", "log_checking", "recovering"):
        assert re.search(rf"event={event} position=\d+ goal=\d+ percent=\d+ ms=\d+ mb_per_s=\d+", caplog.text), event
