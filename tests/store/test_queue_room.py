"""Room in queues is made by a worker; what waits for it keeps its order, and is told when there will be none."""

from __future__ import annotations

import errno
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orbitmq.runtime.clock import ManualClock
from orbitmq.store.files import Files, MappedFile
from orbitmq.store.queue import CLAIMED_LEAST, ENTRY_SIZE, FILLER_SIZE, ConsumeQueue
from orbitmq.store.queue_room import CALLED_A_TURN, QueueRoom, RoomAwaited
from orbitmq.store.queues import ConsumeQueues

PATIENCE_MS = 1000
FILE_ENTRIES = 8000  # more than two steps of claims


class Bench:
    """A room whose worker and whose loop are stepped by hand. `told` has what callbacks were called with."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock()
        self.delivered: deque[Callable[[], object]] = deque()
        self.told: list[tuple[str, OSError | None]] = []
        self.wakes = 0
        self.room = QueueRoom(self.delivered.append, self.clock, PATIENCE_MS, self._wake)
        self.queues = ConsumeQueues(Files(), directory, FILE_ENTRIES * ENTRY_SIZE)

    def _wake(self) -> None:
        self.wakes += 1

    def wait(self, queue: ConsumeQueue, name: str) -> None:
        self.room.wait(RoomAwaited([queue], 1), lambda error: self.told.append((name, error)))

    def turn(self) -> None:
        """One turn of the loop."""
        for _ in range(len(self.delivered)):
            self.delivered.popleft()()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.queues.close()


def test_a_new_queue_has_no_room_before_the_worker_has_made_it(bench: Bench) -> None:
    queue = bench.queues.create("T", 0)
    assert not bench.room.take(queue, 1)
    bench.wait(queue, "a")
    assert (bench.wakes, bench.told, bench.queues.has_directory("T")) == (1, [], False)
    bench.room.step()
    assert bench.told == [], "it is told on the loop"
    bench.turn()
    assert bench.told == [("a", None)]
    assert bench.room.take(queue, 1)
    assert queue.has_room(1)


def test_who_comes_later_waits_behind_those_that_wait_however_many_they_are(bench: Bench) -> None:
    queue = bench.queues.create("T", 0)
    names = [str(number) for number in range(CALLED_A_TURN + 10)]
    for name in names[:-1]:
        bench.wait(queue, name)
    bench.room.step()
    bench.turn()
    assert len(bench.told) == CALLED_A_TURN, "others have their turn"
    assert not bench.room.take(queue, 1), "there is room, but not for who comes now"
    assert not queue.has_room(1)
    bench.wait(queue, names[-1])
    while bench.delivered:
        bench.turn()
    assert bench.told == [(name, None) for name in names]
    assert bench.room.take(queue, 1)


def test_a_disk_that_is_full_is_told_to_all_that_wait(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    queue, full = bench.queues.create("T", 0), OSError(errno.ENOSPC, "full")

    def refuse(*_: object) -> None:
        raise full

    monkeypatch.setattr(MappedFile, "reserve", refuse)
    for name in "ab":
        bench.wait(queue, name)
    bench.room.step()
    bench.turn()
    assert bench.told == [("a", full), ("b", full)]
    assert not bench.room.take(queue, 1)
    monkeypatch.undo()
    bench.wait(queue, "c")
    bench.room.step()
    bench.turn()
    assert bench.told[2:] == [("c", None)], "the disk has room again"


def test_nobody_waits_for_a_silent_disk_for_longer_than_patience(bench: Bench) -> None:
    queue = bench.queues.create("T", 0)
    bench.wait(queue, "a")
    bench.clock.advance(PATIENCE_MS - 1)
    bench.wait(queue, "b")
    bench.room.expire()
    assert bench.told == []
    bench.clock.advance(1)
    bench.room.expire()
    assert [(name, type(error)) for name, error in bench.told] == [("a", TimeoutError)]
    bench.room.step()
    bench.turn()
    assert bench.told[1:] == [("b", None)]
    assert bench.wakes == 1, "the worker is asked once"


def test_a_queue_in_use_gets_its_next_blocks_before_it_needs_them_and_its_next_file_when_it_needs_it(
    bench: Bench,
) -> None:
    queue, waits = bench.queues.create("T", 0), []
    for number in range(3 * FILE_ENTRIES):
        if not queue.has_room(1):
            if not bench.room.take(queue, 1):
                waits.append(number)
                bench.room.ask(queue, entries=1)
                bench.room.step()
                bench.turn()
                assert bench.room.take(queue, 1)
            if queue.wants_room:
                bench.room.ask(queue)
                bench.room.step()
                bench.turn()
        queue.put(number, 100 * number, 100, 0)
        assert not queue._ahead
    assert waits == [0, FILE_ENTRIES, 2 * FILE_ENTRIES]
    assert queue.max_offset == 3 * FILE_ENTRIES
    assert len(queue.files.files) == 3


def test_a_file_made_for_a_message_that_gave_up_is_not_used_after_a_truncation(bench: Bench) -> None:
    queue = bench.queues.create("T", 0)
    for number in range(2 * FILE_ENTRIES):
        queue.put(number, 100 * number, 100, 0)
    queue.claim(1)
    queue.truncate(100 * (FILE_ENTRIES - 1))
    for number in range(FILE_ENTRIES - 1, 2 * FILE_ENTRIES + 1):
        queue.put(number, 100 * number, 100, 0)
    entries = [entry[0] for entry in queue.entries(0)]
    assert entries == [100 * number for number in range(2 * FILE_ENTRIES + 1)]


def test_a_queue_that_is_hardly_used_claims_one_step(bench: Bench) -> None:
    queue = bench.queues.create("T", 0)
    queue.put(0, 0, 100, 0)
    assert not queue.wants_room
    assert queue.limit == CLAIMED_LEAST // ENTRY_SIZE * ENTRY_SIZE


def test_nothing_is_made_for_a_queue_that_is_removed(bench: Bench) -> None:
    queue = bench.queues.create("T", 0)
    bench.wait(queue, "a")
    bench.queues.remove(queue)
    bench.room.step()
    bench.turn()
    assert bench.told == [("a", None)], "it finds the queue that took its place, or makes one"
    assert not bench.queues.has_directory("T")


def test_room_is_not_waited_for_while_the_worker_is_at_the_queue(bench: Bench) -> None:
    queue = bench.queues.create("T", 0)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with queue._claims:
            held.set()
            done.wait(60)

    worker = threading.Thread(target=hold)
    worker.start()
    held.wait(60)
    assert not bench.room.take(queue, 1)
    done.set()
    worker.join()


def test_who_is_called_and_finds_no_room_after_all_waits_on_before_all_others(bench: Bench) -> None:
    queue = bench.queues.create("T", 0)
    lacking = [RoomAwaited([queue], 1)]

    def put(error: OSError | None) -> None:
        bench.told.append(("a", error))
        if lacking:
            bench.room.wait(lacking.pop(), put)

    bench.room.wait(RoomAwaited([queue], 1), put)
    bench.wait(queue, "b")
    bench.room.step()
    bench.turn()
    assert bench.told == [("a", None)]
    assert not bench.room.take(queue, 1), "there is room, but not for who comes now"
    bench.room.step()
    while bench.delivered:
        bench.turn()
    assert bench.told == [("a", None), ("a", None), ("b", None)]


@pytest.mark.parametrize("offset", [0, 1, FILE_ENTRIES - 1, FILE_ENTRIES, 3 * FILE_ENTRIES + 5000])
def test_a_queue_that_begins_in_the_middle_gets_its_file_and_its_fillers_by_the_worker(
    bench: Bench, offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, waits = bench.queues.create("T", 0), []
    queue.begin_at(offset)
    try:
        bench.room.need([queue], 1)
    except RoomAwaited as awaited:
        waits.append(awaited)
        bench.room.wait(awaited, lambda error: bench.told.append(("a", error)))
    bench.room.step()
    assert (queue.min_offset, queue.max_offset, queue.readable_offset) == (0, 0, 0), "readers see nothing of it yet"
    bench.turn()
    assert (len(waits), bench.told) == (1, [("a", None)])
    monkeypatch.setattr(ConsumeQueue, "claim", None)
    bench.room.need([queue], 1)
    queue.put(offset, 100, 10, 7)
    start = offset // FILE_ENTRIES * FILE_ENTRIES
    assert [queue.entry(number) for number in range(start, offset)] == [(0, FILLER_SIZE, 0)] * (offset - start)
    assert queue.entry(offset) == (100, 10, 7)
    assert queue.entry(offset + 1) is None
    assert (queue.min_offset, queue.max_offset) == (offset, offset + 1)


def test_a_queue_that_is_to_begin_elsewhere_forgets_what_was_made_for_it(bench: Bench) -> None:
    queue = bench.queues.create("T", 0)
    queue.begin_at(3 * FILE_ENTRIES)
    queue.claim(1)
    queue.put(5, 100, 10, 7)
    assert [file.path.name for file in queue.files.files] == ["0" * 20]
    assert (queue.entry(4), queue.entry(5)) == ((0, FILLER_SIZE, 0), (100, 10, 7))
    assert len(list(queue.files.directories[0].iterdir())) == 1
