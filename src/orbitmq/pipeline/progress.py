"""Shows progress: a bar on a terminal, otherwise a line every ten seconds. Knows no job."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import TYPE_CHECKING, TextIO

from orbitmq.pipeline.job import Advance

if TYPE_CHECKING:
    from rich.console import Console

LINE_SECONDS = 10.0  # in a log: often enough to show progress

Show = Callable[[str, str], AbstractContextManager[Advance]]


def shown_on(stream: TextIO) -> Show:
    """What shows progress on this stream."""
    return _bar if stream.isatty() else lambda what, unit: _lines(what, unit, stream)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show a temporary message on a terminal while the body runs."""
    if not sys.stderr.isatty():
        yield
        return
    with _terminal().status(what):
        yield


@cache
def _terminal() -> Console:
    """One for all bars: bars of one console stand below each other, those of several overwrite each other."""
    from rich.console import Console

    return Console(stderr=True)


@contextmanager
def _bar(what: str, unit: str) -> Iterator[Advance]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn(what), BarColumn(), TextColumn("{task.fields[reached]}"), TimeRemainingColumn()
    with Progress(*columns, console=_terminal(), transient=True) as bar:
        task = bar.add_task(what, total=None, reached=unit)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, reached=f"{done:,} of {total:,} {unit}")

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
