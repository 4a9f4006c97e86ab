"""Verifies a store directory: log, queues and index, each by itself and against one another.

One scan of the log drives it. Each message must be intact and at the position it names, with the entry it claims in its
queue and its keys in the index; finally no entry may be left that belongs to no message. Nothing is written, and a
broker may run meanwhile: then the log is verified up to the last message in a queue at the start.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from orbitmq.errors import OrbitMQError, StoreError
from orbitmq.message.flags import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from orbitmq.message.java_hash import tags_code
from orbitmq.message.javajson import loads
from orbitmq.message.properties import NAME_END, TAGS, find_property
from orbitmq.message.topics import LMQ_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC, is_lmq, is_system_topic
from orbitmq.message.unit import Unit
from orbitmq.runtime.files import load_with_backup
from orbitmq.store.checkpoint import FIELDS
from orbitmq.store.dispatch import is_queued
from orbitmq.store.files import Files
from orbitmq.store.index.key_scan import keys_of
from orbitmq.store.multi_dispatch import MultiDispatch
from orbitmq.store.pieces import Pieces
from orbitmq.store.tools.findings import Report, State, counted
from orbitmq.store.tools.index_check import IndexCheck
from orbitmq.store.tools.log_scan import NO_LIMIT, Gap, LogScan
from orbitmq.store.tools.queue_check import QueueCheck

Progress = Callable[[int, int], object]  # bytes of the log done, and to do

_TAGS = (TAGS + NAME_END).encode()
PROGRESS_MESSAGES = 1000  # interval of progress reports


def no_progress(done: int, whole: int) -> None:
    """No progress is reported."""


def log_directories(root: Path, commit_logs: Sequence[Path]) -> Sequence[Path]:
    """Where the commit log lies: below `root` unless something else is given."""
    return commit_logs or [root / "commitlog"]


def state_of(fs: Files, root: Path, commit_logs: Sequence[Path]) -> State:
    """How the last broker left the directory. StoreError if there is no store."""
    has_no_message_yet = fs.size(root / "lock") >= 0 and not fs.is_directory(root / "consumequeue")
    for directory in (root, *log_directories(root, commit_logs)):
        if not fs.is_directory(directory) and not has_no_message_yet:
            raise StoreError(f"{directory}: there is no such directory, so this is no store")
    if fs.is_locked(root / "lock"):
        return State.LIVE
    return State.CRASHED if fs.size(root / "abort") >= 0 else State.STOPPED


def topic_table(root: Path) -> frozenset[str] | None:
    """The topics that the broker's table names, None without a table that can be read."""
    try:
        table = load_with_backup(root / "config" / "topics.json", loads)
    except OrbitMQError:
        return None
    topics = table.get("topicConfigTable") if isinstance(table, dict) else None
    return frozenset(topics) if isinstance(topics, dict) else None


def is_removed(topic: str, known: frozenset[str] | None) -> bool:
    """Whether a topic of the log was deleted; system topics and light queues are in no table."""
    return known is not None and topic not in known and not is_system_topic(topic) and not is_lmq(topic)


def verify(root: Path, commit_logs: Sequence[Path] = (), *, progress: Progress = no_progress) -> Report:
    """Verify everything. `commit_logs` are the directories of the log if it is not below `root`.

    StoreError if that is no store, OSError if it cannot be read.
    """
    fs = Files()
    report = Report(root, state_of(fs, root, commit_logs))
    _Verification(fs, root, log_directories(root, commit_logs), report).run(progress)
    report.findings.sort(key=lambda finding: (finding.level.value, finding.path, finding.position))
    return report


def load_queues(fs: Files, root: Path, report: Report) -> Iterator[tuple[tuple[str, int], QueueCheck]]:
    """The queues on disk by topic and number."""
    queues, extended = root / "consumequeue", root / "consumequeue_ext"
    for topic in fs.names(queues):
        for name in fs.names(queues / topic):
            if not name.isdecimal():
                report.remark(queues / topic / name, 0, "is no queue; brokers leave it alone")
                continue
            check = QueueCheck(fs, queues / topic / name, extended / topic / name, report)
            check.is_schedule = topic in (SCHEDULE_TOPIC, TIMER_TOPIC)
            yield (topic, int(name)), check


def dispatched_end(fs: Files, root: Path) -> int:
    """How far a running broker has entered its messages into queues."""
    return max((queue.place_end for _, queue in load_queues(fs, root, Report(root, State.LIVE))), default=-1)


class _Verification:
    def __init__(self, fs: Files, root: Path, commit_logs: Sequence[Path], report: Report) -> None:
        self._fs = fs
        self._root = root
        self._report = report
        # First, so that everything listed afterwards refers to it.
        self._limit = dispatched_end(fs, root) if report.is_live else NO_LIMIT
        self._log = Pieces(fs, commit_logs, report.damage, is_live=report.is_live)
        self._queues = dict(load_queues(fs, root, report))
        self._known_end = max((queue.place_end for queue in self._queues.values()), default=-1)
        light = [queue_id for topic, queue_id in self._queues if is_lmq(topic)]
        self._multi_dispatch = MultiDispatch(is_enabled=True, with_light_queues=not any(light))
        self._has_light_queues = bool(light)
        self._index = IndexCheck(fs, root / "index", self._log.start, report)
        self._absent: dict[tuple[str, int], tuple[int, int]] = {}  # queue -> messages, place of the first
        self._gaps: list[tuple[Gap, int]] = []  # with how many messages there were before

    def run(self, progress: Progress) -> None:
        report = self._report
        report.queues = len(self._queues)
        report.entries = sum(queue.end - queue.first for queue in self._queues.values())
        self._check_checkpoint()
        scan = LogScan(self._fs, self._log, limit=self._limit, known_places=self._known_places)
        for found in scan:
            if isinstance(found, Gap):
                self._gaps.append((found, report.messages))
                continue
            report.messages += 1
            self._look_at(found)
            if report.messages % PROGRESS_MESSAGES == 0:
                progress(found.physical_offset - self._log.start, self._log.size)
        progress(self._log.size, self._log.size)
        report.log_start, report.log_end = self._log.start, scan.end
        self._conclude(scan.end)

    def _known_places(self, start: int, end: int) -> Iterable[int]:
        return heapq.merge(*(queue.places(start, end) for queue in self._queues.values()))

    def _check_checkpoint(self) -> None:
        path = self._root / "checkpoint"
        size = self._fs.size(path)
        if self._log.starts and size < FIELDS.size:
            what = "is missing" if size < 0 else f"has {size} bytes"
            self._report.damage(path, 0, f"{what}: after a crash a start reads the whole log")

    # ----------------------------------------------------------------------------------------------- message by message

    def _look_at(self, unit: Unit) -> None:
        properties = unit.properties.encode()
        if is_queued(unit.sys_flag):
            self._report.queued += 1
            tail = "" if unit.physical_offset < self._known_end else "cut" if self._gaps else "unfinished"
            code = tags_code(find_property(properties, _TAGS))
            self._meet(unit, (unit.topic, unit.queue_id), unit.queue_offset, code, tail)
            for topic, queue_id, queue_offset in self._multi_dispatch.entries(unit.topic, unit.queue_id, properties):
                if (topic, queue_id) in self._queues or (self._has_light_queues and topic.startswith(LMQ_PREFIX)):
                    self._meet(unit, (topic, queue_id), queue_offset, code, tail)
        keys = keys_of(properties)
        if keys and unit.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
            self._index.meet(unit.physical_offset, unit.topic.encode(), keys)

    def _meet(self, unit: Unit, queue: tuple[str, int], queue_offset: int, code: int, tail: str) -> None:
        check = self._queues.get(queue)
        if check is not None:
            check.meet(unit, queue_offset, code, tail)
        else:
            count, first = self._absent.get(queue, (0, unit.physical_offset))
            self._absent[queue] = count + 1, first

    # ------------------------------------------------------------------------------------------------------- afterwards

    def _conclude(self, log_end: int) -> None:
        for gap, before in self._gaps:
            start = self._log.start_of(gap.start)
            behind = counted(self._report.messages - before, "whole message")
            text = f"{gap.text}: {counted(gap.end - gap.start, 'byte')}, {behind} behind"
            self._report.damage(self._log.path(start), gap.start - start, text)
        for queue, check in self._queues.items():
            check.conclude(self._log, log_end, self._limit, self._multi_dispatch, queue)
        known = topic_table(self._root)
        for (topic, queue_id), (count, first) in self._absent.items():
            path = self._root / "consumequeue" / topic / str(queue_id)
            messages = f"{counted(count, 'message')}, the first at {first} of the log"
            if is_removed(topic, known):
                self._report.remark(path, 0, f"the topic was removed; {messages}, remain in the log")
            else:
                self._report.damage(path, 0, f"the queue is missing; {messages}, cannot be read")
        self._index.conclude(log_end)
