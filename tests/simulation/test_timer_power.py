"""Timer messages through power cuts and kills at any moment, in the middle of a delivery, a flush, a move or a start.

What is promised: a message that was acknowledged with SYNC_FLUSH comes, not before its time, and no reader sees it
twice; one that was recalled in time, with an acknowledgement, does not come. Log files expire at once here, so messages
are moved again and again. Each history has six lives.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from unittest import mock

import pytest

from orbitmq.broker.schedule import entry_codes
from orbitmq.broker.timers import delivery as delivery_module
from orbitmq.broker.timers.delivery import TimerDelivery
from orbitmq.broker.timers.progress import DoneSince
from orbitmq.message.timers import RECALL_TAG, recall_key
from orbitmq.message.topics import TIMER_TOPIC
from orbitmq.message.unit import decode_unit
from orbitmq.runtime.clock import ManualClock
from orbitmq.store.options import SYNC_FLUSH
from orbitmq.store.queue_room import RoomAwaited
from orbitmq.store.records import PutRecord, PutResult, PutStatus
from orbitmq.wire.bodies import TimerProgress
from tests.support.crashes import SimulatedStore, counts_of
from tests.support.power import PowerDisk, PowerLost
from tests.support.stores import record, small_options

LIVES = 6
STEPS_A_LIFE = 80
CALLS_A_LIFE = 60
TOPIC = "T"


class TimerHistory:
    """One store, its power and its timers. `counts` holds how often each event happened."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.random, self.counts = Random(seed), Counter[str]()
        (directory / "disk").mkdir()
        self._disk = PowerDisk(directory / "disk", self.random)
        self._config = directory / "config"  # each write of it is on disk, or is not
        self._options = small_options(
            directory / "disk" / "store", flush_disk_type=SYNC_FLUSH, file_reserved_time_hours=0
        )
        self._clock = ManualClock()
        self._clock.advance(1 << 40)
        self._due: dict[bytes, int] = {}
        self._promised: set[bytes] = set()
        self._recalled: set[bytes] = set()
        self._seen: Counter[bytes] = Counter()
        self._read_to = 0
        self._move_to = 0
        self._works: list[tuple[int, Callable[[], object]]] = [
            (20, self._send), (4, self._recall), (16, self._deliver), (30, self._run_worker), (6, self._save),
            (8, self._read), (4, self._disk.write_back), (6, self._clean), (6, self._fill), (3, self._set_clock),
        ]  # fmt: skip

    def run(self, lives: int) -> None:
        with self._disk.watching():
            self._open()
            for _ in range(lives):
                self._live()
                if self.random.random() < 0.3:
                    self._disk.kill()
                    self.counts["kills"] += 1
                else:
                    self._disk.lose_power()
                    self.counts["power cuts"] += 1
                self._open()
            self._disk.calls_left = None
            self._clock.advance(10_000_000)
            self._finish()
            self.store.close()
        missing = {body[:6] for body in self._promised - self._seen.keys() - self._recalled}
        assert not missing, f"{len(missing)} of {len(self._promised)} acknowledged messages never came: {missing}"
        doubled = {body[:6] for body, count in self._seen.items() if count > 1}
        assert not doubled, f"seen twice: {doubled}"
        assert not self._recalled & self._seen.keys(), "recalled, and came"

    def _live(self) -> None:
        self._disk.calls_left = self.random.choice((self.random.randint(0, CALLS_A_LIFE), None))
        weights, works = zip(*self._works, strict=True)
        try:
            for work in self.random.choices(works, weights, k=self.random.randint(1, STEPS_A_LIFE)):
                self._clock.advance(self.random.randint(0, 300))
                work()
        except PowerLost:
            self.counts["in the middle of a call"] += 1

    def _open(self) -> None:
        self.store = SimulatedStore(
            self._options, clock=self._clock, files=self._disk, entry_codes=entry_codes((1000,)),
            clear_below=self._clear_below,
        )  # fmt: skip
        self.store.open()
        self._move_to = 0
        self._read_to = min(self._read_to, self.store.max_offset(TOPIC, 0))
        self.delivery = TimerDelivery(self.store, self._config, self._clock)
        self.delivery.load()
        asyncio.run(self.delivery.restore())

    def _clear_below(self, end: int) -> bool:
        if not self.delivery.waits_below(end):
            return True
        self._move_to = max(self._move_to, end)
        return False

    def _put(self, message: PutRecord) -> PutResult:
        while True:
            try:
                result = self.store.put(message, True)
            except RoomAwaited as awaited:
                self._make_room(awaited)
                continue
            assert result.status is PutStatus.PUT_OK
            return result

    def _make_room(self, awaited: RoomAwaited) -> None:
        self.store.when_room(awaited, lambda _: None)
        self.store.still["room"].run_once()

    def _send(self) -> None:
        body = b"%06d" % len(self._due) + self.random.randbytes(self.random.randint(0, 400))
        due_ms = self._clock.now_ms() + self.random.choice((1, 50, 50, 1000, 20_000))
        self._due[body] = due_ms
        properties = (
            f"UNIQ_KEY\x01{body[:6].decode()}\x02TIMER_OUT_MS\x01{due_ms - 1}\x02REAL_TOPIC\x01{TOPIC}\x02REAL_QID\x010"
        )
        result = self._put(record(body, TIMER_TOPIC, 0, properties.encode()))
        self.counts["sent"] += 1
        self.store.when_flushed(result.end_offset, lambda done: done and self._promised.add(body))

    def _recall(self) -> None:
        waiting = [body for body in self._promised - self._recalled if self._due[body] > self._clock.now_ms()]
        if not waiting or self.delivery._due_ms >= self._clock.now_ms():  # with the clock set back it may be too late
            return
        body = self.random.choice(sorted(waiting))
        if body in self._seen:
            return
        unique_id = body[:6].decode()
        properties = (
            f"TAGS\x01{RECALL_TAG}\x02UNIQ_KEY\x01{unique_id}\x02TIMER_DEL_UNIQKEY\x01{recall_key(TOPIC, unique_id)}"
            f"\x02TIMER_OUT_MS\x01{self._due[body] - 1}\x02REAL_TOPIC\x01{TOPIC}\x02REAL_QID\x010"
        )
        self._put(record(b"0", TIMER_TOPIC, 0, properties.encode()))
        self._flush()
        self.delivery.deliver_turn()  # it is known before its time comes
        self.counts["recalled"] += 1
        self._recalled.add(body)

    def _set_clock(self) -> None:
        self._clock.advance(-self.random.randint(0, 2000))

    def _fill(self) -> None:
        self._put(record(b"f" * 1500, "Other", 0))

    def _deliver(self) -> None:
        if not self.delivery._is_awaiting:
            self.delivery.deliver_turn()
        self._run_worker("room")

    def _run_worker(self, name: str = "") -> None:
        self.store.still[name or self.random.choice(("flush-log", "flush-log", "flush-queues", "room"))].run_once()

    def _flush(self) -> None:
        while self.store.flushed_offset < self.store.commit_log_max_offset:
            self._run_worker("flush-log")

    def _save(self) -> None:
        async def saved() -> None:
            self.delivery.file.mark()
            await self.delivery.file.flush()

        asyncio.run(saved())

    def _clean(self) -> None:
        self._clock.advance(70_000)
        self.store.remove_expired_files()
        before = self.store.commit_log_min_offset
        for _ in range(4):
            self._flush()
            self._read()  # what a reader has not seen goes, too, with files that expire at once
            self.store.still["flush-queues"].run_once()
            self.store.still["clean"].run_once()
            self._clock.advance(200)
            if self._move_to:
                self._deliver()
                asyncio.run(self._moved())
        self.counts["files removed"] += (self.store.commit_log_min_offset - before) // 4096

    async def _moved(self) -> None:
        moving = asyncio.ensure_future(self.delivery.move_below(self._move_to))
        while not moving.done():
            self._run_worker("room")
            await asyncio.sleep(0)
        self.counts["moved"] += moving.result()
        self._move_to = 0

    def _read(self) -> None:
        """A reader sees what is on disk, once each."""
        begin = max(self._read_to, self.store.min_offset(TOPIC, 0))
        for place, _size, _code in self.store.entries(TOPIC, 0, begin, 10_000):
            unit = decode_unit(self.store.unit_at(place))  # type: ignore[arg-type]
            assert unit.store_timestamp >= self._due[unit.body], "it came before its time"
            self._seen[unit.body] += 1
            begin += 1
        self._read_to = begin

    def _finish(self) -> None:
        """All that waits comes now."""
        for _ in range(300):
            self._deliver()
            for name in ("room", "flush-log", "flush-queues"):
                self._run_worker(name)
            if not len(self.delivery.pending):
                break
        self._flush()
        self._read()


def live(place: Path, seed: int) -> Counter[str]:
    history = TimerHistory(place, seed)
    history.run(LIVES)
    return history.counts


def test_no_power_cut_takes_a_timer_message_or_brings_it_twice(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seeds = range(60)
    counts = counts_of(directory, seeds, live)
    with capsys.disabled():
        print(f"\ntimers: {dict(counts)}")
    for event in ("power cuts", "kills", "in the middle of a call", "files removed", "moved", "recalled"):
        assert counts[event] >= len(seeds) / 2, f"{event}: a history that never gets there proves little"


class Forgetful(DoneSince):
    """Does not look what was done after the progress was saved."""

    def __init__(self, _units: object, moved: int) -> None:
        super().__init__((), moved)


def _done_too_early(self: TimerProgress, _place: int, due_ms: int) -> bool:
    return due_ms <= self.done_due_ms


BROKEN = {
    "a start that does not read the log": mock.patch.object(delivery_module, "DoneSince", Forgetful),
    "a progress that knows times only": mock.patch.object(TimerProgress, "is_done", _done_too_early),
    "files that go with what waits in them": mock.patch.object(TimerHistory, "_clear_below", return_value=True),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_promise_is_found(directory: Path, fault: str) -> None:
    with BROKEN[fault], pytest.raises(AssertionError):
        counts_of(directory, range(60), live)
