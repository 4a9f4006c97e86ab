"""Rebuilds the queues and the key index of a stopped store from its log.

New files are written next to the old ones and replace them in one step each when they are on disk; an interruption
before that keeps the old ones. The log is read up to the first message that is not intact, as far as a start reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Protocol, TypeVar

from orbitmq.errors import StoreDamaged, StoreError
from orbitmq.message.topics import is_lmq
from orbitmq.runtime.clock import Clock
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.dispatch import EntryCode
from orbitmq.store.files import Files
from orbitmq.store.index.file import HEADER, IndexShape
from orbitmq.store.index.key_index import NAME_DIGITS, file_name
from orbitmq.store.index.shape import shape_of
from orbitmq.store.multi_dispatch import MultiDispatch
from orbitmq.store.options import StoreOptions
from orbitmq.store.pieces import Pieces
from orbitmq.store.queue import ENTRY_SIZE
from orbitmq.store.tools.log_scan import ZEROS
from orbitmq.store.tools.portions import (
    STAGING,
    Plan,
    Portion,
    bundled,
    ignore,
    index_works,
    look_through,
    make_index_file,
    make_queues,
    queue_works,
)
from orbitmq.store.tools.verify import Progress, is_removed, log_directories, no_progress, state_of, topic_table

BUNDLE_ENTRIES = 2_000_000  # queues of so many entries are one piece of work, of some seconds

A = TypeVar("A")
B = TypeVar("B")


class Workers(Protocol):
    """Runs a function for each argument, in other processes perhaps, and gives the results in order."""

    def __call__(self, function: Callable[[A], B], arguments: Sequence[A]) -> Iterable[B]: ...


def one_by_one(function: Callable[[A], B], arguments: Sequence[A]) -> Iterable[B]:
    """The workers of this process."""
    return map(function, arguments)


@dataclass
class Rebuilt:
    """The result. `log_end` is how far the log was read; `stopped_by` is the damage there, None if there is none."""

    messages: int = 0
    queues: int = 0
    entries: int = 0
    index_entries: int = 0
    log_end: int = 0
    stopped_by: str | None = None


def rebuild(
    root: Path,
    options: StoreOptions,
    entry_codes: Mapping[str, EntryCode],
    clock: Clock,
    commit_logs: Sequence[Path] = (),
    *,
    progress: Progress = no_progress,
    files: Files | None = None,
    workers: Workers | None = None,
) -> Rebuilt:
    """Rebuild queues and index. `options` has what the directory does not show: the sizes of files of which none is
    left. `entry_codes` are those of the broker's store. `workers` share the work among processes that see the directory
    under the same name.

    StoreLocked while a broker uses the directory, StoreError if it is no store or the disk refuses.
    """
    fs = files or Files()
    state_of(fs, root, commit_logs)
    lock = fs.lock(root / "lock")
    try:
        fs.remove_tree(root / STAGING)
        return _Rebuild(fs, root, options, entry_codes, clock, log_directories(root, commit_logs)).run(
            workers, progress
        )
    except OSError as error:
        raise StoreError(f"{root}: cannot be rebuilt: {error}") from error
    finally:
        with suppress(OSError):
            fs.remove_tree(root / STAGING)
        lock.release()


class _Rebuild:
    def __init__(
        self,
        fs: Files,
        root: Path,
        options: StoreOptions,
        entry_codes: Mapping[str, EntryCode],
        clock: Clock,
        commit_logs: Sequence[Path],
    ) -> None:
        self._fs = fs
        self._root = root
        self._log = Pieces(fs, commit_logs, _refuse)
        self._clock = clock
        self._old_queues = root / "consumequeue"
        shape = self._index_shape() or IndexShape(options.max_hash_slot_num, options.max_index_num)
        self._plan = Plan(
            root,
            tuple(commit_logs),
            self._queue_file_size() or options.consume_queue_file_size,
            shape if options.message_index_enable else None,
            entry_codes,
            self._multi_dispatch(options),
        )

    # -------------------------------------------------------------------------------------------------- old settings

    def _old_queue_directories(self) -> Iterator[Path]:
        for topic in self._fs.names(self._old_queues):
            for name in self._fs.names(self._old_queues / topic):
                yield self._old_queues / topic / name

    def _queue_file_size(self) -> int:
        """0 if no file is left."""
        sizes = (Pieces(self._fs, [path], ignore).file_size for path in self._old_queue_directories())
        return next((size for size in sizes if size and size % ENTRY_SIZE == 0), 0)

    def _index_shape(self) -> IndexShape | None:
        for name in self._fs.names(self._root / "index"):
            path = self._root / "index" / name
            size = self._fs.size(path)
            if name.isdecimal() and size > HEADER.size:
                file = self._fs.open(path, size, writable=False)
                shape = shape_of(file.view, path) if file.filled else None
                file.close()
                if shape is not None:
                    return shape
        return None

    def _multi_dispatch(self, options: StoreOptions) -> MultiDispatch:
        """Light queues on disk show that it is on."""
        light = [path for path in self._old_queue_directories() if is_lmq(path.parent.name)]
        return MultiDispatch(
            is_enabled=options.enable_multi_dispatch or bool(light),
            with_light_queues=options.enable_lmq or all(path.name == "0" for path in light),
        )

    # --------------------------------------------------------------------------------------------------------- the work

    def run(self, workers: Workers | None, progress: Progress) -> Rebuilt:
        rebuilt = Rebuilt(log_end=self._log.start)
        portions = list(self._portions(workers, rebuilt, progress))
        run = workers or one_by_one
        self._make_queues(run, portions, rebuilt)
        self._make_index(run, portions, rebuilt)
        self._take_place()
        progress(self._log.size, self._log.size)
        return rebuilt

    def _portions(self, workers: Workers | None, rebuilt: Rebuilt, progress: Progress) -> Iterator[Portion]:
        """Results of the log files' scans, up to the first damage; zeros are damage if the log continues."""
        log, zeros = self._log, False
        tell = None if workers else lambda offset: progress(offset - log.start, log.size)
        look = partial(look_through, self._plan, self._fs, tell=tell)
        for done, portion in enumerate((workers or one_by_one)(look, log.starts), 1):
            if zeros and portion.has_content:
                rebuilt.stopped_by = ZEROS
                return
            zeros = zeros or portion.zeros_from >= 0
            rebuilt.messages += portion.messages
            rebuilt.log_end = max(rebuilt.log_end, portion.end)
            progress(done * log.file_size, log.size)
            yield portion
            if portion.gap is not None:
                rebuilt.stopped_by = portion.gap.text
                return

    def _make_queues(self, run: Workers, portions: Sequence[Portion], rebuilt: Rebuilt) -> None:
        made = self._root / STAGING / "consumequeue"
        self._fs.make_directory(made)
        known = topic_table(self._root)
        own = frozenset(topic for portion in portions for topic in portion.own_topics)
        removed = {topic for topic in own if is_removed(topic, known) and not self._has_queues(topic)}
        works = queue_works(portions, removed.__contains__)
        rebuilt.queues = len(works)
        rebuilt.entries = sum(run(partial(make_queues, self._plan, self._fs), bundled(works, BUNDLE_ENTRIES)))
        for topic in self._fs.names(made):
            self._fs.sync_directory(made / topic)
        self._fs.sync_directory(made)

    def _has_queues(self, topic: str) -> bool:
        return bool(self._fs.names(self._old_queues / topic))

    def _make_index(self, run: Workers, portions: Sequence[Portion], rebuilt: Rebuilt) -> None:
        if self._plan.index_shape is None:
            return
        made = self._root / STAGING / "index"
        self._fs.make_directory(made)
        spans = (portion.keys for portion in portions if portion.keys is not None)
        works = index_works(spans, self._plan.index_shape, names_from(self._clock.now_ms()))
        rebuilt.index_entries = sum(run(partial(make_index_file, self._plan, self._fs), works))
        self._fs.sync_directory(made)

    def _take_place(self) -> None:
        """Everything is on disk: let it take its place, queues, then index."""
        Checkpoint(self._fs, self._root / "checkpoint").load()  # writes an empty one if there is none
        self._fs.swap(self._root / STAGING / "consumequeue", self._root / "consumequeue")
        if self._plan.index_shape is not None:
            self._fs.swap(self._root / STAGING / "index", self._root / "index")


def names_from(now_ms: int) -> Callable[[], str]:
    """Names of index files made one after the other from a time on."""
    numbers = count(int(file_name(now_ms)))
    return lambda: f"{next(numbers):0{NAME_DIGITS}d}"


def _refuse(path: Path, position: int, text: str) -> None:  # noqa: ARG001
    raise StoreDamaged(f"{path}: {text}; nothing is rebuilt from a log that no broker takes")
