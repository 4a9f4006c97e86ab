"""The batch rules of a pull: which messages of a queue go into one response."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from orbitmq.store.commit_log import CommitLog
from orbitmq.store.extended_queue import ADDRESS_MAX, Extension
from orbitmq.store.options import StoreOptions
from orbitmq.store.positions import QueueOffset
from orbitmq.store.queue import ENTRY, ENTRY_SIZE, ConsumeQueue

if TYPE_CHECKING:
    from mypy_extensions import i64

SCAN_BYTES_MIN = 16_000  # 800 entries: how many one pull checks for a match, at least

Matcher = Callable[[int], bool]


class CloserLook(Protocol):
    """A filter that needs more than the tag hash. One read checks at most `reads_max` messages with it."""

    reads_max: int

    def may_take(self, extension: Extension) -> bool:
        """Whether a message with this queue extension may match. Not called for messages without one."""

    def takes(self, unit: memoryview) -> bool:
        """Whether a stored message matches."""


class Selection(NamedTuple):
    """The filters of a read: `matcher` checks the tag hash, `look` the message. None accepts every message."""

    matcher: Matcher | None = None
    look: CloserLook | None = None


EVERYTHING = Selection()


class GetStatus(Enum):
    """Names are RocketMQ's; they are sent as the remark of a pull response."""

    FOUND = auto()
    NO_MATCHED_MESSAGE = auto()
    MESSAGE_WAS_REMOVING = auto()
    OFFSET_FOUND_NULL = auto()
    OFFSET_OVERFLOW_BADLY = auto()
    OFFSET_OVERFLOW_ONE = auto()
    OFFSET_TOO_SMALL = auto()
    NO_MATCHED_LOGIC_QUEUE = auto()
    NO_MESSAGE_IN_QUEUE = auto()

    __hash__ = object.__hash__  # members are singletons, and Enum's own hash calls Python code on every lookup


class GetResult(msgspec.Struct):
    """`buffers` hold `count` units of the log, uncopied; units that are adjacent in the log share a buffer.

    `places` are those of the first buffers in the log, as far as these may have left memory.

    `next_offset` is where the next pull should begin. `is_behind` says that the lag is so large that the messages are
    probably no longer in memory.
    """

    status: GetStatus
    next_offset: QueueOffset
    min_offset: QueueOffset
    max_offset: QueueOffset
    buffers: list[memoryview]
    count: int = 0
    size: int = 0
    is_behind: bool = False
    places: Sequence[int] = ()


class BatchLimits:
    """Size limits of one pull, and how far behind the log's end a message counts as no longer in memory. In `bulk` only
    bytes are limited: few large responses instead of many of 32 messages.
    """

    def __init__(self, options: StoreOptions, *, bulk: bool = False) -> None:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self.memory_bytes = memory * options.access_message_in_memory_max_ratio // 100
        self.in_memory = (
            options.max_transfer_bytes_on_message_in_memory,
            options.max_transfer_count_on_message_in_memory,
        )
        self.on_disk = (options.max_transfer_bytes_on_message_in_disk, options.max_transfer_count_on_message_in_disk)
        if bulk:
            self.in_memory = self.on_disk = (options.max_transfer_bytes_on_message_in_memory, sys.maxsize)


def get(
    log: CommitLog, queue: ConsumeQueue, offset: int, max_count: int, selection: Selection, limits: BatchLimits,
    hot_from: int = 0,
) -> GetResult:  # fmt: skip
    """Returns messages of `queue` from `offset` on that match the selection. From `hot_from` on the log was written a
    moment ago.
    """
    low, high = queue.min_offset, queue.readable_offset
    if (outside := _outside(offset, low, high)) is not None:
        status, following = outside
        return GetResult(status, QueueOffset(following), low, high, [])
    view = queue.view(offset, queue.readable)
    if view is None:
        following = (offset // _entries_a_file(queue) + 1) * _entries_a_file(queue)
        return GetResult(GetStatus.OFFSET_FOUND_NULL, QueueOffset(following), low, high, [])
    return _scan(log, queue, view, offset, max_count, selection, limits, low, high, hot_from)


def _outside(offset: int, low: int, high: int) -> tuple[GetStatus, int] | None:
    """Status and next offset of a read that cannot find anything."""
    if high == 0:
        return GetStatus.NO_MESSAGE_IN_QUEUE, 0
    if offset < low:
        return GetStatus.OFFSET_TOO_SMALL, low
    if offset == high:
        return GetStatus.OFFSET_OVERFLOW_ONE, offset
    if offset > high:
        return GetStatus.OFFSET_OVERFLOW_BADLY, high
    return None


def _scan(
    log: CommitLog, queue: ConsumeQueue, view: memoryview, offset: int, max_count: int, selection: Selection,
    limits: BatchLimits, low: QueueOffset, high: QueueOffset, hot_from: int,
) -> GetResult:  # fmt: skip
    buffers: list[memoryview] = []
    matcher, look = selection
    is_filtered = matcher is not None or look is not None
    place: i64 = 0
    size: i64
    code: i64
    total: i64 = 0
    skip_below: i64 = 0
    consumed: i64 = 0
    looks: i64 = 0
    count: i64 = 0
    run_start: i64 = 0  # of the last buffer, once there is one
    run_end: i64 = -1
    run_limit: i64 = 0
    is_run = False
    status = GetStatus.NO_MATCHED_MESSAGE
    memory_start: i64 = log.end - limits.memory_bytes
    hot_start: i64 = hot_from
    places: list[int] = []
    for place, size, code in ENTRY.iter_unpack(view[: max(SCAN_BYTES_MIN, ENTRY_SIZE * max_count)]):
        if count:
            bytes_max, count_max = limits.in_memory if place >= memory_start else limits.on_disk
            if count >= max_count or count >= count_max or total + size > bytes_max:
                break
        consumed += 1
        if place < skip_below:
            continue
        if is_filtered and not _may_match(queue, matcher, look, code):
            continue
        if look is not None:
            if looks == look.reads_max:
                consumed -= 1
                break
            looks += 1
        if place == run_end and look is None:
            if not is_run:
                run_limit = min(log.readable, _file_end(log, run_start))
            if 0 < size <= run_limit - place:
                is_run = True
                run_end += size
                total += size
                count += 1
                continue
        unit = log.slice(place, size)
        if unit is None:
            if place < log.files.start:
                skip_below = _file_end(log, place)  # its file was removed, and the file's other messages with it
            status = status if count else GetStatus.MESSAGE_WAS_REMOVING
            continue
        if look is not None and not look.takes(unit):
            continue
        if is_run:
            buffers[-1] = _joined(log, run_start, run_end)
            is_run = False
        run_start, run_end = place, place + size
        buffers.append(unit)
        if place < hot_start:
            places.append(place)
        count += 1
        total += size
        status = GetStatus.FOUND
        skip_below = 0
    if is_run:
        buffers[-1] = _joined(log, run_start, run_end)
    following = QueueOffset(offset + consumed)
    return GetResult(status, following, low, high, buffers, count, total, place < memory_start, places)


def _may_match(queue: ConsumeQueue, matcher: Matcher | None, look: CloserLook | None, code: i64) -> bool:
    """Whether the queue entry with this code does not rule its message out."""
    if matcher is not None:
        tags_hash = code if code > ADDRESS_MAX else queue.resolve(code)
        if tags_hash is not None and not matcher(tags_hash):
            return False
    if look is None or code > ADDRESS_MAX:
        return True
    extension = queue.extension(code)
    return extension is None or look.may_take(extension)


def _file_end(log: CommitLog, offset: int) -> int:
    """End of the log file that holds this offset."""
    return log.files.start_of(offset) + log.files.file_size


def _joined(log: CommitLog, start: int, end: int) -> memoryview:
    """The units between two places of one file."""
    units = log.slice(start, end - start)
    assert units is not None, "the first unit was readable, and this thread has not yielded since"
    return units


def _entries_a_file(queue: ConsumeQueue) -> int:
    return queue.files.file_size // ENTRY_SIZE
