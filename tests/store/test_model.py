"""The store against a list: puts, reads, flushes, removals, restarts, kills and power cuts in any order.

The promise: after a crash the store holds a beginning of what was stored, and everything that was promised is in it.
tests/simulation cuts the power in the middle of calls as well; here every step is followed by a look at everything.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from orbitmq.message.flags import TRANSACTION_PREPARED
from orbitmq.message.unit import decode_unit
from orbitmq.runtime.clock import ManualClock
from orbitmq.store.options import ASYNC_FLUSH, SYNC_FLUSH
from orbitmq.store.pull_batch import GetResult, GetStatus
from orbitmq.store.records import PutResult, PutStatus
from tests.support.batches import BatchItem, put_batch
from tests.support.crashes import SimulatedStore
from tests.support.power import PowerDisk
from tests.support.stores import CODES, record, small_options, units_of

QUEUES = [("T", 0), ("T", 1), ("Other", 0)]
MEMORY = Path("/dev/shm")
FILE_SIZE = 4096
STEPS = 2000


@dataclass
class Stored:
    """`queue_offset` -1: in no queue."""

    queue: tuple[str, int]
    queue_offset: int
    body: bytes
    start: int
    end: int


class StoreModel(RuleBasedStateMachine):
    """`stored` is the log. Messages up to `promised` must survive a crash, those up to `shown` can be read."""

    steps = 0

    @initialize(seed=st.integers(0, 1 << 30), flush=st.sampled_from([SYNC_FLUSH, ASYNC_FLUSH]))
    def begin(self, seed: int, flush: str) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="model-", dir=MEMORY if MEMORY.is_dir() else None))
        self.disk = PowerDisk(self.directory, Random(seed))
        self.watching = self.disk.watching()
        self.watching.__enter__()
        self.clock = ManualClock()
        self.clock.advance(1 << 40)  # files have real times: all of them are old
        self.options = small_options(self.directory / "store", flush_disk_type=flush, file_reserved_time_hours=0)
        self.stored: list[Stored] = []
        self.promised = self.removed_below = self.number = 0
        self.open()

    def open(self) -> None:
        self.store = SimulatedStore(self.options, clock=self.clock, entry_codes=CODES, files=self.disk)
        self.store.open()
        self.shown = self.end

    @property
    def end(self) -> int:
        return self.stored[-1].end if self.stored else 0

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
        if hasattr(self, "watching"):  # also where no store came to be: other tests have the real functions again
            self.watching.__exit__(None, None, None)
            shutil.rmtree(self.directory)

    # ------------------------------------------------------------------------------------------------------- writing

    def body(self, size: int) -> bytes:
        self.number += 1
        return (b"%06d" % self.number).ljust(6 + size, b"x")

    def keep(self, result: PutResult, queue: tuple[str, int], *stored: bytes, is_queued: bool = True) -> None:
        assert result.status is PutStatus.PUT_OK
        places = [*(result.places or (result.physical_offset,)), result.end_offset]
        for number, body in enumerate(stored):
            offset = result.queue_offset + number if is_queued else -1
            self.stored.append(Stored(queue, offset, body, places[number], places[number + 1]))
        if not self.options.flushes_each:
            self.shown = self.end

    @rule(queue=st.sampled_from(QUEUES), size=st.integers(0, 1500), step_ms=st.integers(0, 2000))
    def put(self, queue: tuple[str, int], size: int, step_ms: int) -> None:
        self.clock.advance(step_ms)
        body = self.body(size)
        self.keep(self.store.put(record(body, *queue, b"TAGS\x01A")), queue, body)

    @rule(queue=st.sampled_from(QUEUES), sizes=st.lists(st.integers(0, 400), min_size=1, max_size=6))
    def put_batch(self, queue: tuple[str, int], sizes: list[int]) -> None:
        items = [BatchItem(0, self.body(size), b"KEYS\x01k") for size in sizes]
        result = put_batch(self.store, record(b"", *queue, b"WAIT\x01true"), items)
        self.keep(result, queue, *(item.body for item in items))

    @rule(queue=st.sampled_from(QUEUES))
    def put_prepared(self, queue: tuple[str, int]) -> None:
        body = self.body(10)
        result = self.store.put(record(body, *queue, sys_flag=TRANSACTION_PREPARED))
        self.keep(result, queue, body, is_queued=False)

    @rule(queue=st.sampled_from(QUEUES))
    def roll(self, queue: tuple[str, int]) -> None:
        """Messages until the log goes on in another file."""
        before = self.store.commit_log_max_offset // FILE_SIZE
        while self.store.commit_log_max_offset // FILE_SIZE == before:
            self.put(queue, 1000, 100)

    @rule()
    def flush_log(self) -> None:
        self.store._log_flusher.flush()
        self.promised = self.shown = self.end

    @rule()
    def flush_queues_and_checkpoint(self) -> None:
        self.store._queue_flusher.flush()

    @rule()
    def write_back(self) -> None:
        self.disk.write_back()

    @rule(times=st.integers(1, 4))
    def remove_files(self, times: int) -> None:
        self.store.remove_expired_files()
        for _ in range(times):
            self.clock.advance(1000)
            self.store.still["clean"].run_once()
        self.removed_below = max(self.removed_below, self.store.commit_log_min_offset)
        assert self.removed_below % FILE_SIZE == 0
        assert self.removed_below <= max(0, self.store.flushed_offset - 1)

    # --------------------------------------------------------------------------------------------- ends and beginnings

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.promised = self.end
        self.open()

    @rule()
    def kill(self) -> None:
        self.disk.kill()
        self.open()

    @rule()
    def lose_power(self) -> None:
        self.disk.lose_power()
        self.open()
        end = self.store.commit_log_max_offset
        kept = [message for message in self.stored if message.end <= end]
        assert not [message for message in self.stored[len(kept) :] if message.end <= self.promised], (
            "promised, and gone"
        )
        self.stored = kept
        self.promised = self.shown = self.end

    # -------------------------------------------------------------------------------------------------------- reading

    def there(self, queue: tuple[str, int]) -> list[Stored]:
        """What a reader of the queue can have."""
        start = self.store.commit_log_min_offset
        return [
            message
            for message in self.stored
            if message.queue == queue and message.queue_offset >= 0 and start <= message.start < self.shown
        ]

    def read(self, queue: tuple[str, int]) -> list[tuple[int, bytes]]:
        """The whole queue, as a consumer reads it."""
        found: list[tuple[int, bytes]] = []
        offset = int(self.store.min_offset(*queue))
        while offset < self.store.max_offset(*queue):
            result = self.store.get(*queue, offset, 32)
            assert result.status in (GetStatus.FOUND, GetStatus.MESSAGE_WAS_REMOVING)
            found += [(unit.queue_offset, unit.body) for unit in map(decode_unit, units_of(result))]
            offset = result.next_offset
        return found

    @rule(queue=st.sampled_from(QUEUES), number=st.integers(-2, 40), count=st.integers(1, 40))
    def get(self, queue: tuple[str, int], number: int, count: int) -> None:
        first, stop = self.store.min_offset(*queue), self.store.max_offset(*queue)
        offset = first + number
        result = self.store.get(*queue, offset, count)
        assert (result.min_offset, result.max_offset) == (first, stop)
        if stop == 0:
            self.expect(result, GetStatus.NO_MESSAGE_IN_QUEUE, 0)
        elif offset < first:
            self.expect(result, GetStatus.OFFSET_TOO_SMALL, first)
        elif offset == stop:
            self.expect(result, GetStatus.OFFSET_OVERFLOW_ONE, offset)
        elif offset > stop:
            self.expect(result, GetStatus.OFFSET_OVERFLOW_BADLY, stop)
        else:
            found = {unit.queue_offset: unit.body for unit in map(decode_unit, units_of(result))}
            there = {message.queue_offset: message.body for message in self.there(queue)}
            scanned = range(offset, result.next_offset)
            assert len(found) <= count
            assert len(scanned) > 0
            assert found == {number: there[number] for number in scanned if number in there}
            assert result.status is (GetStatus.FOUND if found else GetStatus.MESSAGE_WAS_REMOVING)

    @staticmethod
    def expect(result: GetResult, status: GetStatus, next_offset: int) -> None:
        assert (result.status, result.next_offset, result.buffers) == (status, next_offset, [])

    @rule(number=st.integers(0, 200))
    def unit_at(self, number: int) -> None:
        start = self.store.commit_log_min_offset
        readable = [message for message in self.stored if start <= message.start < self.shown]
        if readable:
            message = readable[number % len(readable)]
            unit = self.store.unit_at(message.start)
            assert unit is not None
            assert decode_unit(unit).body == message.body

    @invariant()
    def queues_hold_what_was_stored(self) -> None:
        if not hasattr(self, "store"):
            return
        type(self).steps += 1
        for queue in QUEUES:
            expected = self.there(queue)
            first = self.store.min_offset(*queue)
            # A file that was removed may come back with a crash, but what led into it does not.
            assert all(m.start < self.removed_below for m in expected if m.queue_offset < first)
            expected = [message for message in expected if message.queue_offset >= first]
            assert self.read(queue) == [(message.queue_offset, message.body) for message in expected]
            if expected:
                assert self.store.max_offset(*queue) == expected[-1].queue_offset + 1
        assert self.store.commit_log_max_offset >= self.end


def test_any_history_leaves_what_the_list_says(capsys: pytest.CaptureFixture[str]) -> None:
    # No shrinking: making a failure smaller takes minutes; it is printed as found.
    phases = (Phase.explicit, Phase.reuse, Phase.generate)
    chosen = settings(max_examples=150, stateful_step_count=50, deadline=None, phases=phases)
    StoreModel.steps = 0
    run_state_machine_as_test(StoreModel, settings=chosen)
    with capsys.disabled():
        print(f"\n{StoreModel.steps} steps")
    assert StoreModel.steps >= STEPS
