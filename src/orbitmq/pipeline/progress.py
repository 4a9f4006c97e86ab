"""How far a job is: a bar on a terminal, a line every some seconds elsewhere. Knows no job."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TextIO

from orbitmq.pipeline.job import Advance

LINE_SECONDS = 10.0  # in a log: often enough to see that it goes on

Show = Callable[[str, str], AbstractContextManager[Advance]]


def shown_on(stream: TextIO) -> Show:
    """What shows progress on this stream."""
    return _bar if stream.isatty() else lambda what, unit: _lines(what, unit, stream)


@contextmanager
def _bar(what: str, unit: str) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn(unit), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield advance


@contextmanager
def _lines(
    what: str, unit: str, stream: TextIO = sys.stderr, clock: Callable[[], float] = time.monotonic
) -> Iterator[Advance]:
    last = clock()

    def advance(done: int, total: int) -> None:
        nonlocal last
        if clock() - last >= LINE_SECONDS:
            last = clock()
            print(f"{what}: {done:,} of {total:,} {unit}", file=stream, flush=True)

    yield advance
