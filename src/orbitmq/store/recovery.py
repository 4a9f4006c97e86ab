"""What to believe after a start: where the log ends, and queues that agree with it.

One routine serves clean and unclean exits; they differ in where the walk over the log begins and in how much of the
queues is believed. The walk ends at the first unit that is not whole; what lies behind it is removed, from the log
and from the queues. Messages that no queue knows yet are entered on the way.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from orbitmq.errors import UnitError
from orbitmq.message.unit import decode_unit
from orbitmq.runtime.clock import Clock
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.coverage import prove
from orbitmq.store.dispatch import Dispatcher
from orbitmq.store.files import MappedFile
from orbitmq.store.positions import NO_OFFSET
from orbitmq.store.progress import Progress
from orbitmq.store.queue import ENTRY_SIZE, ConsumeQueue, is_full
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.time_search import store_time
from orbitmq.store.walk import Walk, WalkEnd

_log = logging.getLogger(__name__)

FILES_WALKED_WITHOUT_START = 3  # as RocketMQ; only for logs without queue entries


def recover(
    log: CommitLog,
    queues: ConsumeQueues,
    dispatcher: Dispatcher,
    checkpoint: Checkpoint,
    clock: Clock,
    *,
    clean: bool,
    check_crc: bool,
    is_copy: bool,
) -> None:
    """Recover loaded files; `is_copy` for a slave's. OSError if the disk fails or is full."""
    if not log.files.files:
        queues.destroy()
        return
    times: dict[Path, int] = {}
    was_remade = not clean
    searched = 0
    if clean:
        for queue in queues:
            queue.recover()
        furthest = queues.furthest()
        known = furthest.max_physical_offset if furthest is not None else NO_OFFSET
        start = _clean_start(log, queues)
    else:
        times = {file.path: file.modified_ms() for queue in queues for file in queue.files.files if is_full(file)}
        start, searched = prove(log, queues, _crash_start(log, checkpoint.safe_timestamp), clock)
        known = start
        for queue in queues:
            queue.truncate(start)
            queue.forget_below(log.files.start)
    progress = Progress(clock, start, log.files.end)
    end, ended = _walk(
        log, dispatcher, start, known, progress, check_crc=check_crc, check_text=not clean, is_copy=is_copy
    )
    clean = clean and ended is not WalkEnd.DAMAGED and end >= log.files.end - log.files.file_size
    log.begin_at(end, flushed=end if clean else start, clean=clean)
    for queue in queues:
        queue.truncate(end)
        queue.forget_below(log.min_offset if log.files.files else end)
        queue.readable = queue.end
        if was_remade:
            _set_times(log, queue, times)
    _log.info(
        "event=recovered clean=%s walked_from=%d log_start=%d log_end=%d searched=%d walked=%d ms=%d mb_per_s=%d",
        clean, start, log.min_offset, end, searched, progress.bytes(end), *progress.rate(end),
    )  # fmt: skip


def _walk(
    log: CommitLog,
    dispatcher: Dispatcher,
    start: int,
    dispatch_from: int,
    progress: Progress,
    *,
    check_crc: bool,
    check_text: bool,
    is_copy: bool,
) -> tuple[int, WalkEnd | None]:
    """Dispatch every message from `dispatch_from` on; returns the end of the last intact unit, and what follows."""
    files = log.files
    position = start % files.file_size
    for file_start in range(files.start_of(start), files.end, files.file_size):
        file = files.find(file_start)
        assert file is not None, "files follow one another without gaps"
        walk = Walk(file.filled, file_start, position, check_crc=check_crc, check_text=check_text, is_copy=is_copy)
        for unit in walk:
            if unit.physical_offset >= dispatch_from:
                dispatcher.dispatch(unit)
            log.last_store_timestamp = unit.store_timestamp
            if unit.physical_offset >= progress.next_look:
                progress.look(unit.physical_offset)
        if walk.ended is not WalkEnd.BLANK:
            if walk.ended is WalkEnd.DAMAGED:
                _log.warning("event=log_damaged file=%s position=%d", file.path, walk.position)
            return file_start + walk.position, walk.ended
        position = 0
    return files.end, WalkEnd.BLANK


def _set_times(log: CommitLog, queue: ConsumeQueue, times: Mapping[Path, int]) -> None:
    """A search by time uses modification times: give rebuilt files those of the originals, or similar ones."""
    for number, file in enumerate(queue.files.files, 1):
        last = min(queue.files.start + number * queue.files.file_size, queue.end) // ENTRY_SIZE - 1
        entry = queue.entry(last)
        stored_ms = store_time(log, entry[0]) if entry is not None else -1
        if stored_ms > 0:
            file.set_modified_ms(times.get(file.path, stored_ms))


def _clean_start(log: CommitLog, queues: ConsumeQueues) -> int:
    """After a clean exit every message is in its queue: the last one any queue knows is the place to look from.

    Without queues all of them are built anew. When the log does not have the message, it has lost its end after all,
    and its last files are walked.
    """
    furthest = queues.furthest()
    entry = furthest.last_entry() if furthest is not None else None
    if entry is None:
        return log.files.start
    file = log.files.find(entry[0])
    if file is not None:
        walk = Walk(file.view, log.files.start_of(entry[0]), entry[0] % log.files.file_size)
        if next(iter(walk), None) is not None:
            return entry[0]
    return max(log.files.start, log.files.end - FILES_WALKED_WITHOUT_START * log.files.file_size)


def _crash_start(log: CommitLog, safe_timestamp: int) -> int:
    """The last file that begins with a message stored before the checkpoint; the first file if there is none."""
    for index in reversed(range(len(log.files.files))):
        if 0 < _first_timestamp(log.files.files[index]) <= safe_timestamp:
            return log.files.start + index * log.files.file_size
    return log.files.start


def _first_timestamp(file: MappedFile) -> int:
    """Store time of the first message of a file, 0 without one."""
    try:
        return decode_unit(file.filled, with_body=False).store_timestamp
    except UnitError:
        return 0
