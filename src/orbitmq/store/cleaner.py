"""Executes what `retention` decides: measures disks, removes the oldest files of the log, and trims the queues.

A worker measures and disposes. The log and the queues are changed by the thread that appends, by way of `deliver`, so
that no reader meets a file that is being removed. One file goes at a time and the disk is measured again before the
next, so no more is lost than a full disk demands.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from orbitmq.runtime.clock import Clock
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.disposal import Disposal
from orbitmq.store.files import Files, MappedFile
from orbitmq.store.flush_scheduler import FlushScheduler
from orbitmq.store.options import StoreOptions
from orbitmq.store.positions import NO_OFFSET
from orbitmq.store.queue import ConsumeQueue
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.retention import DISK_NEARLY_FULL, Decision, DiskUse, FindUnread, Rules, Unread, decide
from orbitmq.store.worker import Deliver

_log = logging.getLogger(__name__)

FILES_A_ROUND: Final = 10  # as RocketMQ
ROUNDS_REQUESTED: Final = 20  # how many rounds one request for a clean-up lasts; as RocketMQ
FIRST_ROUND_MS: Final = 60_000  # after a start, as RocketMQ: time to see that the wrong hours or ratios are set
QUEUES_A_TURN: Final = 50  # trimmed in one go on the appending thread: a millisecond or two
NEXT_TURN_MS: Final = 1

KeepsFrom = Callable[[], int]


def keeps_nothing() -> int:
    """Every file may be removed when it has expired."""
    return sys.maxsize


class Holds:
    """Why a file of the log may stay although retention wants to remove it.

    From the offset `keeps_from` returns, the log is kept unless the disk is nearly full. `find_unread` finds what even
    that does not remove: messages that have not expired and that a group has not read. `held_for` is the first of
    them while its file is held.
    """

    def __init__(self, keeps_from: KeepsFrom, find_unread: FindUnread) -> None:
        self.held_for: Unread | None = None
        self._keeps_from = keeps_from
        self._find_unread = find_unread
        self._unread: Unread | None = None  # as of this round: groups read on, so it may hold too much
        self._has_looked = False  # for it, in this round
        self._logged: dict[str, Path] = {}  # event -> the last file it was logged for

    def begin_round(self) -> None:
        self._has_looked = False

    def unread_below(self, end: int) -> Unread | None:
        """The first message that a group has not read, if it lies below `end`."""
        if not self._has_looked:
            self._has_looked, self._unread = True, self._find_unread()
        return self._unread if self._unread is not None and self._unread.place < end else None

    def is_held(self, file: MappedFile, use: DiskUse) -> bool:
        """Whether the first file stays, however full the disk is."""
        if self.held_for is not None and self._is_new("held", file):
            text = "event=unread_log_file_kept path=%s unread=%r remedy=more_disk_or_cleanUnreadFileForciblyEnable %s"
            _log.error(text, file.path, self.held_for.text, use)
        return self.held_for is not None

    def is_kept(self, file: MappedFile, end: int, decision: Decision, use: DiskUse) -> bool:
        """Whether the first file, which ends at `end`, is still wanted, and the disk can wait."""
        wanted_from = self._keeps_from()
        if wanted_from >= end:
            return False
        is_kept = decision.reason != DISK_NEARLY_FULL
        if self._is_new("kept", file) or not is_kept:
            event = "event=log_file_kept" if is_kept else "event=wanted_log_file_removed"
            _log.warning("%s path=%s wanted_from=%d %s", event, file.path, wanted_from, use)
        return is_kept

    def _is_new(self, event: str, file: MappedFile) -> bool:
        previous, self._logged[event] = self._logged.get(event), file.path
        return previous != file.path


class QueueTrimmer:
    """Removes the entries of messages that the log has lost, from some queues per turn. `next_ms` is the next turn."""

    def __init__(
        self, door: Files, log: CommitLog, queues: ConsumeQueues, disposal: Disposal, clock: Clock, pause_ms: int
    ) -> None:
        self.next_ms = 0
        self._door = door
        self._log = log
        self._queues = queues
        self._disposal = disposal
        self._clock = clock
        self._pause_ms = pause_ms
        self._trimmed_to = NO_OFFSET
        self._remaining: deque[ConsumeQueue] = deque()

    @property
    def is_done(self) -> bool:
        return not self._remaining

    def begin_turn(self) -> bool:
        """Whether queues are to be trimmed now; starts over with all of them when the log has lost messages."""
        if not self._remaining and self._log.min_offset > self._trimmed_to:
            self._trimmed_to = self._log.min_offset
            self._remaining.extend(self._queues)
        now_ms = self._clock.now_ms()
        is_due = bool(self._remaining) and now_ms >= self.next_ms
        if is_due:
            self.next_ms = now_ms + NEXT_TURN_MS
        return is_due

    def trim(self) -> None:
        """One turn, on the thread that appends."""
        for _ in range(min(QUEUES_A_TURN, len(self._remaining))):
            queue = self._remaining.popleft()
            if self._queues.table.get((queue.topic, queue.queue_id)) is not queue:
                continue
            removed = queue.remove_below(self._log.min_offset)
            for file in removed:  # now: a topic that is created again uses the same names
                self._door.remove(file.path)
            if removed:
                self._disposal.add(*removed, named=False)
                self.next_ms = self._clock.now_ms() + self._pause_ms
                return


class Cleaner:
    """`is_full` says that the disks have no room for messages; it is false again as soon as they have. `use` is the
    last measurement.
    """

    def __init__(
        self,
        door: Files,
        log: CommitLog,
        queues: ConsumeQueues,
        disposal: Disposal,
        flushes: FlushScheduler,
        options: StoreOptions,
        clock: Clock,
        deliver: Deliver,
        *,
        keeps_from: KeepsFrom,
        find_unread: FindUnread,
    ) -> None:
        self.is_full = False
        self.use = DiskUse(-1, -1, -1)
        self.holds = Holds(keeps_from, find_unread)
        self._door = door
        self._log = log
        self._disposal = disposal
        self._flushes = flushes
        self._options = options
        self._clock = clock
        self._deliver = deliver
        pause_ms = options.delete_consume_queue_files_interval_ms
        self._trimmer = QueueTrimmer(door, log, queues, disposal, clock, pause_ms)
        self._is_away = False  # the appending thread has a job to do
        self._left = 0  # files that may still be removed in this round
        self._rounds_requested = 0
        self._first_round_ms = self._next_round_ms = clock.now_ms() + FIRST_ROUND_MS
        self._next_file_ms = 0
        self._failure: str | None = None  # that was logged, until it is over

    @property
    def _rules(self) -> Rules:
        """An operator may change them at any time."""
        return Rules.of(self._options)

    def look(self) -> DiskUse:
        """Measure the disks. Of several directories of the log the emptiest counts: it takes the next file."""
        ratios = {directory: self._door.used_ratio(directory) for directory in self._log.files.directories}
        queues, index = self._options.root / "consumequeue", self._options.root / "index"
        self.use = use = DiskUse(min(ratios.values()), self._door.used_ratio(queues), self._door.used_ratio(index))
        self._log.crowded = self._crowded(ratios)
        is_full = self._rules.refuses(use)
        if is_full != self.is_full:
            self.is_full = is_full
            _log.log(
                logging.ERROR if is_full else logging.INFO, "event=disk_%s %s", "full" if is_full else "has_room", use
            )
        return use

    def request(self) -> None:
        """Remove expired files with the next step, whatever the hour."""
        self._rounds_requested = ROUNDS_REQUESTED
        self._next_round_ms = 0

    def look_now(self) -> None:
        """The disk was found full: begin a round with the next step, but not in the first minute after a start."""
        self._next_round_ms = min(self._next_round_ms, self._first_round_ms)

    def step(self) -> int:
        """A worker's turn; the milliseconds until the next. Disk errors are logged and the work is retried."""
        try:
            self._dispose()
            self._remove_files(self.look())
            if not self._is_away and self._trimmer.begin_turn():
                self._hand_over(self._trimmer.trim)
            self._dispose()
            self._failure = None
        except OSError as error:
            if self._failure != str(error):
                self._failure = str(error)
                _log.error("event=cleaning_failed error=%s", error)
        return self._pause_ms()

    def close(self) -> None:
        """After the worker has ended: no removed file stays on disk."""
        try:
            self._disposal.close()
        except OSError as error:
            _log.error("event=cleaning_failed error=%s", error)

    def _crowded(self, ratios: Mapping[Path, float]) -> frozenset[Path]:
        """Directories of the log that should get no more files."""
        limit = self._rules.forcible_ratio
        return frozenset(path for path, ratio in ratios.items() if ratio > limit and len(ratios) > 1)

    def _dispose(self) -> None:
        if not self._disposal.is_done:
            self._disposal.work()

    def _pause_ms(self) -> int:
        due = [self._next_round_ms]
        if self._left:
            due.append(self._next_file_ms)
        if not self._trimmer.is_done:
            due.append(self._trimmer.next_ms)
        pause_ms = max(NEXT_TURN_MS, min(due) - self._clock.now_ms())
        return min(pause_ms, self._options.clean_resource_interval_ms)

    def _remove_files(self, use: DiskUse) -> None:
        now_ms, holds = self._clock.now_ms(), self.holds
        if now_ms >= self._next_round_ms:
            self._next_round_ms = now_ms + self._options.clean_resource_interval_ms
            self._left = FILES_A_ROUND
            self._rounds_requested = max(0, self._rounds_requested - 1)
            holds.begin_round()
        if not self._left or now_ms < self._next_file_ms or self._is_away or not self._disposal.is_done:
            return
        start, files = self._log.files.stream
        hour = time.localtime(now_ms // 1000).tm_hour
        modified_ms = [file.modified_ms() for file in files]
        decision = decide(self._rules, now_ms, hour, use, modified_ms, requested=self._rounds_requested > 0)
        end = start + self._log.files.file_size
        unread = holds.unread_below(end) if decision.is_forced else None
        holds.held_for = None if self._rules.force_unread else unread
        if not decision.count or holds.is_held(files[0], use) or holds.is_kept(files[0], end, decision, use):
            self._left = 0
            return
        self._next_file_ms = now_ms + self._options.delete_commit_log_files_interval_ms
        if min(self._log.flushed, self._flushes.queue_flusher.settled) <= end:
            # Recovery would still need the file: as the last flushed one, or for entries that are not on disk yet.
            self._flushes.flush_all_soon()
            return
        self._left -= 1
        _log.info("event=log_file_removed path=%s reason=%s %s", files[0].path, decision.reason, use)
        if unread is not None:
            _log.error("event=unread_log_file_removed path=%s unread=%r", files[0].path, unread.text)
        self._hand_over(lambda: self._disposal.add(self._log.files.remove_first()))

    def _hand_over(self, job: Callable[[], object]) -> None:
        """Have the appending thread do the job. One at a time, so that what it is based on stays true."""
        self._is_away = True

        def do() -> None:
            try:
                job()
            finally:
                self._is_away = False

        self._deliver(do)
