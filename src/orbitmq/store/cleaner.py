"""Executes the decisions of `retention`: measures disks, removes the oldest files of the log, and trims the queues.

A worker measures and disposes of files; the streams themselves are changed by the thread that appends, to which
`deliver` passes the job, so that no reader meets a file that is being removed. Files are removed one at a time, and the
disk is measured again before the next, so no more is lost than a full disk requires.
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
from orbitmq.store.options import StoreOptions
from orbitmq.store.positions import NO_OFFSET
from orbitmq.store.queue import ConsumeQueue
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.retention import (
    DISK_NEARLY_FULL,
    Decision,
    DiskUse,
    FindUnread,
    Rules,
    Unread,
    decide,
    nothing_unread,
)

_log = logging.getLogger(__name__)

FILES_A_ROUND: Final = 10  # as RocketMQ
ROUNDS_ASKED: Final = 20  # how many rounds one request for a clean-up lasts; as RocketMQ
FIRST_ROUND_MS: Final = 60_000  # after a start, as RocketMQ: time to see that the wrong hours or ratios are set
QUEUES_A_TURN: Final = 50  # trimmed in one go on the appending thread: a millisecond or two
NEXT_TURN_MS: Final = 1

Deliver = Callable[[Callable[[], object]], object]
KeepsFrom = Callable[[], int]
ClearBelow = Callable[[int], bool]


def keeps_nothing() -> int:
    """Every file may be removed when it has expired."""
    return sys.maxsize


def nothing_waits(_end: int) -> bool:
    """No message waits for its time."""
    return True


class Cleaner:
    """`is_full` says that the disks have no room for messages; it is false again as soon as they have. `use` is the
    ratio in use at the last measurement.

    `settled` returns the offset of the log below which a crash would not need it, because all of it is in the queues,
    on disk; `settle` requests that this is brought up to date. From the offset that `keeps_from` returns the log is
    retained longer: only a nearly full disk overrides that.

    `find_unread` finds what even a nearly full disk does not remove: files that have not expired and hold messages that
    a group has not read. `held_for` is the first of these messages, None while no file is kept for that reason.

    `clear_below` returns whether no message waits for its time below an offset; otherwise it has such messages moved to
    the end of the log, and the file waits for that, however full the disk is.
    """

    def __init__(
        self,
        fs: Files,
        log: CommitLog,
        queues: ConsumeQueues,
        options: StoreOptions,
        clock: Clock,
        deliver: Deliver,
        *,
        settled: Callable[[], int],
        settle: Callable[[], None],
        keeps_from: KeepsFrom = keeps_nothing,
        find_unread: FindUnread = nothing_unread,
        clear_below: ClearBelow = nothing_waits,
    ) -> None:
        self.is_full = False
        self.held_for: Unread | None = None
        self.use = DiskUse(-1, -1, -1)
        self._fs = fs
        self._log = log
        self._queues = queues
        self._root = options.root
        self._options = options
        self._round_ms = options.clean_resource_interval_ms
        self._file_pause_ms = options.delete_commit_log_files_interval_ms
        self._queue_pause_ms = options.delete_consume_queue_files_interval_ms
        self._clock = clock
        self._deliver = deliver
        self._settled = settled
        self._settle = settle
        self._keeps_from = keeps_from
        self._find_unread = find_unread
        self._clear_below = clear_below
        self._unread: Unread | None = None  # as of this round: groups progress, so it errs on the safe side
        self._has_looked = False  # for it, in this round
        self._kept_path: Path | None = None  # that was logged as kept
        self._held_path: Path | None = None  # that was logged as held
        retry_ms, patience_ms = options.redelete_hanged_file_interval_ms, options.destroy_mapped_file_interval_ms
        self._disposal = Disposal(fs, clock, retry_ms, patience_ms)
        self._is_away = False  # a job lies with the appending thread
        self._left = 0  # files that may still go in this round
        self._rounds_asked = 0
        self._first_round_ms = self._next_round_ms = clock.now_ms() + FIRST_ROUND_MS
        self._next_file_ms = self._next_queue_ms = 0
        self._trimmed_to = NO_OFFSET
        self._to_trim: deque[ConsumeQueue] = deque()
        self._failure: str | None = None  # that was logged, until it is over

    @property
    def _rules(self) -> Rules:
        """An operator may change them at any time."""
        return Rules.of(self._options)

    def look(self) -> DiskUse:
        """How full the disks are now. Of several directories of the log the emptiest counts: it takes the next file."""
        ratios = {directory: self._fs.used_ratio(directory) for directory in self._log.files.directories}
        queues, index = self._root / "consumequeue", self._root / "index"
        self.use = use = DiskUse(min(ratios.values()), self._fs.used_ratio(queues), self._fs.used_ratio(index))
        self._log.crowded = self._crowded(ratios)
        is_full = self._rules.refuses(use)
        if is_full != self.is_full:
            self.is_full = is_full
            _log.log(
                logging.ERROR if is_full else logging.INFO, "event=disk_%s %s", "full" if is_full else "has_room", use
            )
        return use

    def dispose(self, file: MappedFile) -> None:
        """Dispose of a file of another stream, its name included, which no reader can open any more. Thread-safe."""
        self._disposal.add([file], named=True)

    def ask(self) -> None:
        """Request that expired files are removed now, regardless of the hour."""
        self._rounds_asked = ROUNDS_ASKED
        self._next_round_ms = 0

    def look_now(self) -> None:
        """The disk was found full: begin a round with the next step, but not in the first minute after a start."""
        self._next_round_ms = min(self._next_round_ms, self._first_round_ms)

    def step(self) -> int:
        """A worker's turn; the milliseconds until the next. Disk errors are logged and tried again."""
        try:
            self._dispose()
            self._remove_files(self.look())
            self._trim_queues()
            self._dispose()
            self._failure = None
        except OSError as error:
            if self._failure != str(error):
                self._failure = str(error)
                _log.error("event=cleaning_failed error=%s", error)
        return self._pause_ms()

    def close(self) -> None:
        """After the worker has ended: dispose of all removed files."""
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
        now_ms = self._clock.now_ms()
        due = [self._next_round_ms]
        if self._left:
            due.append(self._next_file_ms)
        if self._to_trim:
            due.append(self._next_queue_ms)
        return min(max(NEXT_TURN_MS, min(due) - now_ms), self._round_ms)

    # ------------------------------------------------------------------------------------------------ the commit log

    def _remove_files(self, use: DiskUse) -> None:
        now_ms = self._clock.now_ms()
        if now_ms >= self._next_round_ms:
            self._next_round_ms = now_ms + self._round_ms
            self._left = FILES_A_ROUND
            self._has_looked = False
            self._rounds_asked = max(0, self._rounds_asked - 1)
        if not self._left or now_ms < self._next_file_ms or self._is_away or not self._disposal.is_done:
            return
        start, files = self._log.files.stream
        hour = time.localtime(now_ms // 1000).tm_hour
        decision = decide(
            self._rules, now_ms, hour, use, [file.modified_ms() for file in files], asked=self._rounds_asked > 0
        )
        end = start + self._log.files.file_size
        unread = self._unread_below(end) if decision.is_forced else None
        self.held_for = None if self._rules.force_unread else unread
        if not decision.count or self._is_held(files[0]) or self._is_kept(files[0], start, decision):
            self._left = 0
            return
        if not self._clear_below(end):
            self._next_file_ms = now_ms + self._file_pause_ms
            return
        if min(self._log.flushed, self._settled()) <= end:
            # Whether the file has data that a crash needs: the beginning of the log, or entries not on disk yet.
            self._settle()
            self._next_file_ms = now_ms + self._file_pause_ms
            return
        self._left -= 1
        self._next_file_ms = now_ms + self._file_pause_ms
        _log.info("event=log_file_removed path=%s reason=%s %s", files[0].path, decision.reason, use)
        if unread is not None:
            _log.error("event=unread_log_file_removed path=%s unread=%r", files[0].path, unread.text)
        self._send_away(self._remove_first)

    def _unread_below(self, end: int) -> Unread | None:
        """The first message that a group has not read, if it lies below `end`."""
        if not self._has_looked:
            self._has_looked, self._unread = True, self._find_unread()
        return self._unread if self._unread is not None and self._unread.place < end else None

    def _is_held(self, file: MappedFile) -> bool:
        """Whether the first file stays, however full the disk is."""
        if self.held_for is not None and self._held_path != file.path:
            self._held_path = file.path
            text = "event=unread_log_file_kept path=%s unread=%r remedy=more_disk_or_cleanUnreadFileForciblyEnable %s"
            _log.error(text, file.path, self.held_for.text, self.use)
        return self.held_for is not None

    def _is_kept(self, file: MappedFile, start: int, decision: Decision) -> bool:
        """Whether the first file is still retained for a reader, and the disk can wait."""
        wanted_from = self._keeps_from()
        if wanted_from >= start + self._log.files.file_size:
            return False
        is_kept = decision.reason != DISK_NEARLY_FULL
        if not is_kept or self._kept_path != file.path:
            self._kept_path = file.path
            event = "event=log_file_kept" if is_kept else "event=wanted_log_file_removed"
            _log.warning("%s path=%s wanted_from=%d %s", event, file.path, wanted_from, self.use)
        return is_kept

    def _remove_first(self) -> None:
        self._disposal.add([self._log.files.remove_first()], named=True)

    def _send_away(self, job: Callable[[], None]) -> None:
        """Run the job on the appending thread. One at a time, so that what it is based on stays true."""
        self._is_away = True

        def do() -> None:
            try:
                job()
            finally:
                self._is_away = False

        self._deliver(do)

    # --------------------------------------------------------------------------------------------------- the queues

    def _trim_queues(self) -> None:
        """Let the queues begin where the log begins, some queues a turn."""
        if self._is_away:
            return
        if not self._to_trim and self._log.min_offset > self._trimmed_to:
            self._trimmed_to = self._log.min_offset
            self._to_trim.extend(self._queues)
        now_ms = self._clock.now_ms()
        if self._to_trim and now_ms >= self._next_queue_ms:
            self._next_queue_ms = now_ms + NEXT_TURN_MS
            self._send_away(self._trim_some)

    def _trim_some(self) -> None:
        for _ in range(min(QUEUES_A_TURN, len(self._to_trim))):
            queue = self._to_trim.popleft()
            if self._queues.table.get((queue.topic, queue.queue_id)) is not queue:
                continue
            removed = queue.remove_below(self._log.min_offset)
            for file in removed:  # here and now: a topic that is made anew uses the same names
                self._fs.remove(file.path)
            if removed:
                self._disposal.add(removed, named=False)
                self._next_queue_ms = self._clock.now_ms() + self._queue_pause_ms
                return
