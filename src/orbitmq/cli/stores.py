"""The `store` commands: print the results of the store's tools; progress on standard error, if that is a terminal.

Must not know file formats.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from pathlib import Path

import orjson

from orbitmq.cli.exit_codes import EXIT_FAILED, EXIT_USAGE, fail, one_line_errors
from orbitmq.errors import ConfigurationError
from orbitmq.runtime.error_texts import translated
from orbitmq.runtime.languages import N_, gettext, ngettext
from orbitmq.runtime.printable import printable, printable_json
from orbitmq.store.tools.findings import Finding, Report, State, counted

EXIT_DAMAGED = EXIT_FAILED
EXIT_UNREADABLE = EXIT_USAGE
FINDINGS_SHOWN = 200  # the first ones; the JSON object has all

WHAT_STATES_MEAN = {
    State.STOPPED: "its broker has stopped cleanly",
    State.CRASHED: "its broker was killed; the next start recovers",
    State.LIVE: "a broker is running; read up to what it has entered into queues",
}

LEVELS = (N_("damage"), N_("remark"))
"""Those of findings, for the catalogue."""

Progress = Callable[[int, int], object]


def verify(directory: Path, commit_logs: Sequence[Path], *, as_json: bool) -> None:
    from orbitmq.store.tools.verify import verify as look

    with one_line_errors("store verify", EXIT_UNREADABLE):
        with _progress("verify") as progress:
            report = look(directory, commit_logs, progress=progress)
        if as_json:
            sys.stdout.write(printable_json(orjson.dumps(_as_object(report)).decode()) + "\n")
        else:
            sys.stdout.writelines(printable(line, lines=True) for line in _as_text(report))
    if not report.is_sound:
        raise SystemExit(EXIT_DAMAGED)


def dump(
    directory: Path,
    commit_logs: Sequence[Path],
    topic: str | None,
    queue_id: int | None,
    begin: str | None,
    end: str | None,
    key: str | None,
    limit: int | None,
    *,
    with_body: bool,
) -> None:
    from orbitmq.store.tools.dump import Wanted, row
    from orbitmq.store.tools.dump import dump as messages

    damaged: list[Path] = []

    def report(path: Path, position: int, text: str) -> None:
        damaged.append(path)
        print(printable(f"orbitmq store dump: {_placed(path, position, text)}"), file=sys.stderr)

    with one_line_errors("store dump", EXIT_UNREADABLE), _until_reader_closes():
        wanted = Wanted(topic, queue_id, _time_ms("--from", begin), _time_ms("--to", end), key)
        for unit in islice(messages(directory, wanted, report, commit_logs), limit):
            sys.stdout.write(printable_json(orjson.dumps(row(unit, with_body=with_body)).decode()) + "\n")
        sys.stdout.flush()
    if damaged:
        raise SystemExit(EXIT_DAMAGED)


def rebuild(directory: Path, commit_logs: Sequence[Path], config: Path | None) -> None:
    from orbitmq.broker.options import BrokerOptions
    from orbitmq.broker.schedule import entry_codes
    from orbitmq.cli import configuration
    from orbitmq.message.delay import parse_delay_levels
    from orbitmq.runtime.clock import SystemClock
    from orbitmq.store.options import StoreOptions
    from orbitmq.store.tools.rebuild import rebuild as make

    with one_line_errors("store rebuild", EXIT_UNREADABLE):
        pairs, _ = configuration.read(config, {}, BrokerOptions, StoreOptions)
        codes = entry_codes(parse_delay_levels(BrokerOptions.parse(pairs).message_delay_level))
        with _progress("rebuild") as progress:
            made = make(directory, StoreOptions.parse(pairs), codes, SystemClock(), commit_logs, progress=progress)
    line = gettext("{place}: {messages} in {queues} with {entries}, {keys} indexed").format(
        place=directory, messages=_messages(made.messages), queues=_queues(made.queues), entries=_entries(made.entries),
        keys=ngettext("{count} key", "{count} keys", made.index_entries).format(count=f"{made.index_entries:,}"),
    )  # fmt: skip
    print(printable(line))
    if made.stopped_by is not None:
        fail("store rebuild", f"the log ends at {made.log_end}, where it is damaged: {made.stopped_by}", EXIT_DAMAGED)


def _time_ms(flag: str, text: str | None) -> int | None:
    """Milliseconds, or a time in ISO 8601."""
    if text is None or text.isdecimal():
        return None if text is None else int(text)
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ConfigurationError(f"{flag} {text}: use a time like 2026-11-21T10:00:00 or milliseconds") from None


def _as_object(report: Report) -> dict[str, object]:
    values = {
        name: value
        for name, value in dataclasses.asdict(report).items()
        if name not in ("directory", "state", "findings")
    }
    findings = [{**dataclasses.asdict(finding), "level": finding.level.value} for finding in report.findings]
    return {
        "directory": str(report.directory),
        "state": report.state.value,
        "sound": report.is_sound,
        **values,
        "findings": findings,
    }


def _as_text(report: Report) -> Iterator[str]:
    verdict = gettext("{place}: sound; {state}") if report.is_sound else gettext("{place}: DAMAGED; {state}")
    yield verdict.format(place=report.directory, state=translated(WHAT_STATES_MEAN[report.state])) + "\n"
    yield gettext(
        "  log     {messages}, {begin} to {end}\n  queues  {queues} with {entries}\n  index   {files} with {keys}\n"
    ).format(
        messages=_messages(report.messages), begin=report.log_start, end=report.log_end, queues=_queues(report.queues),
        entries=_entries(report.entries), keys=_entries(report.index_entries),
        files=ngettext("{count} file", "{count} files", report.index_files).format(count=f"{report.index_files:,}"),
    )  # fmt: skip
    yield from (_line(finding) for finding in report.findings[:FINDINGS_SHOWN])
    hidden = len(report.findings) - FINDINGS_SHOWN
    if hidden > 0:
        yield translated(f"  and {counted(hidden, 'further finding')}; -o json prints all") + "\n"


def _line(finding: Finding) -> str:
    return f"  {gettext(finding.level.value):<7} {_placed(finding.path, finding.position, finding.text)}\n"


def _placed(path: object, position: int, text: str) -> str:
    return gettext("{path} at {position}: {text}").format(path=path, position=position, text=translated(text))


def _messages(number: int) -> str:
    return ngettext("{count} message", "{count} messages", number).format(count=f"{number:,}")


def _queues(number: int) -> str:
    return ngettext("{count} queue", "{count} queues", number).format(count=f"{number:,}")


def _entries(number: int) -> str:
    return ngettext("{count} entry", "{count} entries", number).format(count=f"{number:,}")


@contextmanager
def _progress(what: str) -> Iterator[Progress]:
    """A progress bar with the rate."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    columns = TextColumn(what), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, whole: bar.update(task, completed=done, total=whole)


@contextmanager
def _until_reader_closes() -> Iterator[None]:
    """`dump | head` is not a failure."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # or the interpreter reports an error when it flushes
