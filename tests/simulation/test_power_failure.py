"""Power cuts at any moment, in the middle of a flush, a removal or a recovery: no promise is broken by them.

What is promised: with SYNC_FLUSH every message that was acknowledged or seen by a reader, otherwise what was flushed.
After a start queues and index hold all of the log, even if some of their files were damaged meanwhile. No consumer has
come further than its queue goes.
Each history has six lives; the stores and the disks that break a promise on purpose show that a broken one is found.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from orbitmq.broker import schedule
from orbitmq.runtime.clock import Clock
from orbitmq.store import recovery
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.coverage import Coverage, Proof
from orbitmq.store.flusher import QueueFlusher
from orbitmq.store.index import recovery as index_recovery
from orbitmq.store.index.recovery import IndexRecovery
from orbitmq.store.options import ASYNC_FLUSH, SYNC_FLUSH
from orbitmq.store.queues import ConsumeQueues
from tests.support.crashes import History, SimulatedStore, counts_of
from tests.support.power import PowerDisk, PowerFile

LIVES = 6
HISTORIES_TO_BE_CAUGHT = 150


def live(place: Path, seed: int, **kind: Any) -> Counter[str]:
    history = History(place, seed, **kind)
    history.run(LIVES)
    return history.counts


KINDS: dict[str, tuple[range, dict[str, Any]]] = {
    "sync": (range(80), {"flush": SYNC_FLUSH}),
    "async": (range(40), {"flush": ASYNC_FLUSH}),
    "pool": (range(30), {"flush": ASYNC_FLUSH, "transient_store_pool_enable": True}),
    "extended": (
        range(30),
        {"flush": SYNC_FLUSH, "enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": 4096},
    ),
    "light": (range(25), {"flush": SYNC_FLUSH, "damages": True, "enable_multi_dispatch": True, "enable_lmq": True}),
    "damaged": (range(40), {"flush": SYNC_FLUSH, "damages": True, "max_index_num": 30}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_power_cut_takes_what_was_promised(directory: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    seeds, options = KINDS[kind]
    counts = counts_of(directory, seeds, partial(live, **options))
    with capsys.disabled():
        print(f"\n{kind}: {dict(counts)}")
    assert counts["crashes"] + counts["kills"] == LIVES * len(seeds)
    assert 0 < counts["kills"] < LIVES * len(seeds) / 5, "a kill takes less than a power cut, so most ends are cuts"
    often = ("crashes in the middle of a call", "crashes during recovery", "log files removed", "lost, not promised")
    for event in often:
        assert counts[event] >= len(seeds) / 2, "a history that never gets there proves little"
    if options["flush"] == SYNC_FLUSH:
        assert counts["acknowledged"] > 10 * len(seeds)


def test_a_log_in_two_directories_survives_as_well(directory: Path) -> None:
    """Each has an order of its own in which its names reach the disk."""
    for seed in range(20):
        place = directory / str(seed)
        place.mkdir()
        History(place, seed, store_path_commit_log=f"{place}/store/a,{place}/store/b").run(LIVES)


# ---------------------------------------------------------------------------------------------------- broken on purpose


class LyingFile(PowerFile):
    def sync(self) -> None:
        """Says that everything is on disk."""


class ForgetfulFile(PowerFile):
    def __init__(self, path: Path, size: int, *, create: bool, disk: PowerDisk) -> None:
        super().__init__(path, size, create=create, disk=disk)
        self.name_synced = True  # so the name in the directory never is


class LyingDisk(PowerDisk):
    file = LyingFile


class ForgetfulDisk(PowerDisk):
    file = ForgetfulFile


class CheckpointFirst(SimulatedStore):
    """Writes the checkpoint before the queues it speaks of are on disk, and believes it."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._queue_flusher.flush = self._flush_too_late  # type: ignore[method-assign]

    def open(self) -> None:
        with mock.patch.object(recovery, "prove", _believe):
            super().open()

    def _flush_too_late(self) -> None:
        self._checkpoint.queue_timestamp = self._dispatcher.store_timestamp
        self._checkpoint.save()
        QueueFlusher.flush(self._queue_flusher)


def _believe(log: CommitLog, queues: ConsumeQueues, settled: int, _clock: Clock) -> Proof:
    """A recovery that takes the word of the checkpoint; the log would tell it of most of what is missing."""
    coverage = Coverage(log)
    for queue in queues:
        queue.cut(coverage.end_of(queue, settled))
    return Proof(settled, 0)


class Hasty(SimulatedStore):
    """Lets readers see messages before they are on disk."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._log.shows_at_once = self._arrivals._at_once = True


class Eager(SimulatedStore):
    """Answers those who wait before the flush instead of after it."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        flush = self._log.flush

        def flush_late() -> Any:
            self._on_flush(self._log.end)
            return flush()

        self._log.flush = flush_late  # type: ignore[method-assign]


class Trusting(SimulatedStore):
    """Takes the word of the checkpoint for the queues."""

    def open(self) -> None:
        with mock.patch.object(recovery, "prove", _believe):
            super().open()


class IndexTrusting(SimulatedStore):
    """Takes the word of the checkpoint for the index."""

    def open(self) -> None:
        with (
            mock.patch.object(index_recovery, "looks_whole", return_value=True),
            mock.patch.object(IndexRecovery, "_matches", return_value=True),
            mock.patch.object(IndexRecovery, "_follows", return_value=True),
        ):
            super().open()


class HashesOnly(SimulatedStore):
    """Makes the entries of delayed messages anew with the hash of their tag, as RocketMQ does."""

    def open(self) -> None:
        with mock.patch.object(schedule, "delay_level", return_value=0):
            super().open()


BROKEN: dict[str, dict[str, Any]] = {
    "a sync that does nothing": {"disk": LyingDisk},
    "a sync without the directory": {"disk": ForgetfulDisk},
    "the checkpoint before the queues": {"store": CheckpointFirst},
    "readers before the flush": {"store": Hasty},
    "answers before the flush": {"store": Eager},
    "a recovery without checks of the body": {"check_crc_on_recover": False},
    "a recovery that trusts the queues": {"store": Trusting, "damages": True},
    "a recovery that trusts the index": {"store": IndexTrusting, "damages": True, "max_index_num": 30},
    "delayed messages without their time": {"store": HashesOnly},
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_promise_is_found(directory: Path, capsys: pytest.CaptureFixture[str], fault: str) -> None:
    for seed in range(HISTORIES_TO_BE_CAUGHT):
        try:
            counts_of(directory, range(seed, seed + 1), partial(live, **BROKEN[fault]))
        except AssertionError as error:
            with capsys.disabled():
                print(f"\n{fault}: found by history {seed}: {error}")
            return
    pytest.fail(f"{fault} went unnoticed for {HISTORIES_TO_BE_CAUGHT * LIVES} crashes")
