"""orbitmq and Apache RocketMQ 4.9.7 under the same Java load on this machine, in alternating rounds (`make bench`).

Both brokers run all the time, on loopback, with their default settings except for what a row says; during a measurement
only one of them works. Prints a table and writes it with all single measurements below var/bench; a run of all rows
writes bench.txt and bench.json below docs/performance as well. It needs an otherwise idle machine, and half an
hour; `--only client`, the rows of clients, takes five.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from bench import clients, floors, memory  # noqa: E402
from bench.report import error_notes, lag_notes, line, page, rows_of, table  # noqa: E402
from bench.systems import READS, SYSTEMS, Measurement, Side, both  # noqa: E402
from bench.works import BACKLOG, RARE_WARM_UP, ROLLING_FILE, SETTINGS, WORKS, Setting  # noqa: E402
from tests.support.orbit_process import form_started  # noqa: E402
from tests.support.process import ProcessFailed  # noqa: E402

PAGES = ROOT / "docs" / "performance"
TABLE_WIDTH = 170  # where the output is no terminal
WARM_SECONDS = 8
FILES_MESSAGES = 3 * ROLLING_FILE // 1024  # of 1 KiB and more: the first file is left however slow the machine is


def main() -> int:
    arguments = _arguments()
    console = Console(width=None if sys.stdout.isatty() else TABLE_WIDTH)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    chosen = arguments.only or [*WORKS, *clients.WORKS]
    report: dict[str, Any] = _head()
    if brokers := [name for name in WORKS if name in chosen]:
        with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
            report |= Run(arguments, brokers, progress).all()
        console.print(table(report))
    if of_clients := [name for name in clients.WORKS if name in chosen or "client" in chosen]:
        say = partial(console.print, markup=False, highlight=False)
        try:
            report["clients"] = found = clients.measure(
                of_clients, arguments.rounds_of_clients, arguments.directory, say
            )
            report["failures"] += found["failures"]
            console.print(clients.table(found))
            for note in clients.notes(found):
                console.print(f"- {note}", highlight=False)
        except ProcessFailed as error:  # the other rows are kept
            report["failures"].append(f"clients: {error}")
    for note in report["notes"]:
        console.print(f"- {note}", highlight=False)
    console.print(f"written to {_save(report)}", highlight=False)
    if not arguments.only and not report["failures"]:
        _publish(report)
    for failure in report["failures"]:
        console.print(f"failed: {failure}", markup=False, highlight=False)
    return 1 if report["failures"] else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each work on each system (3)")
    parser.add_argument("--seconds", type=int, default=8, help="length of one measurement (8)")
    parser.add_argument("--warm-up", type=int, default=4, help="seconds of load before each measurement (4)")
    parser.add_argument("--rounds-of-clients", type=int, default=1, help="measurements of each client's work (1)")
    rows = [*WORKS, *clients.WORKS, "client"]
    parser.add_argument("--only", nargs="+", choices=rows, help="these rows alone; `client` is all rows of clients")
    parser.add_argument("--directory", type=Path, help="where the stores go; they take up to 15 GB at a time")
    parser.add_argument(
        "--fresh-memory", action="store_true", help="measure with memory that was free, not with such as was in use"
    )
    return parser.parse_args()


class Run:
    """All chosen rows, one setting of the brokers after the other."""

    def __init__(self, arguments: argparse.Namespace, names: Sequence[str], progress: Progress) -> None:
        self._arguments = arguments
        self._progress = progress
        self._names = names
        self._settings = [key for key in SETTINGS if any(WORKS[name].setting == key for name in self._names)]
        steps = len(SYSTEMS) * (len(self._settings) + len(self._names) * arguments.rounds)
        self._task = progress.add_task("starting", total=steps)
        self._results: dict[str, dict[str, list[Measurement]]] = {}
        self._start_seconds: dict[str, float] = {}
        self._memory: dict[str, dict[str, int]] = {}
        self._fill_notes: list[str] = []

    def all(self) -> dict[str, Any]:
        """The report."""
        failures = []
        for key in self._settings:
            try:
                self._measure_all(key)
            except ProcessFailed as error:  # the minutes spent on the other rows were not in vain
                failures.append(f"{key}: {error}")
        return {
            "notes": [
                *_machine(),
                *_notes(self._arguments),
                *lag_notes(self._results),
                *error_notes(self._results),
                *self._fill_notes,
            ],
            "failures": failures,
            "floors": floors.measure(self._say),
            "start_seconds": self._start_seconds,
            "memory": self._memory,
            "rows": rows_of(self._results),
            "measurements": self._results,
        }

    def _measure_all(self, key: str) -> None:
        """The rows of one setting, and what the first one tells beside them."""
        with (
            both(SETTINGS[key], self._arguments.directory) as sides,
            tempfile.TemporaryDirectory(prefix="bench-", dir=self._arguments.directory) as used,
        ):
            self._prepare(SETTINGS[key], sides)
            if not self._arguments.fresh_memory:
                self._say("putting memory into use")
                memory.put_into_use(Path(used))
            for name in self._names:
                if WORKS[name].setting == key:
                    self._results[name] = self._measure(name, sides)
            for system, side in sides.items():
                earlier = self._start_seconds.get(system, side.start_seconds)
                self._start_seconds[system] = round(min(earlier, side.start_seconds), 2)
            if not self._memory:
                self._memory = {system: side.memory() for system, side in sides.items()}

    def _say(self, what: str) -> None:
        """What takes time now; a terminal shows it beside the bar, a file gets a line."""
        self._progress.update(self._task, description=what)
        if self._progress.disable:
            self._progress.console.print(what, highlight=False)

    def _prepare(self, setting: Setting, sides: dict[str, Side]) -> None:
        """Warm both, and give them what the setting wants them to hold."""
        for system, side in sides.items():
            if setting.backlog:
                self._say(f"sending {setting.backlog:,} messages to {system}")
                side.create(READS)
                self._fill(system, side, setting.backlog, READS)
            else:
                self._say(f"warming {system}")
                side.create("warm")
                side.load("sync", "--threads", 16, "--seconds", WARM_SECONDS, "--warm-up", 0, topic="warm")
            if setting.loses_files:
                self._fill(system, side, FILES_MESSAGES, "warm")
            self._progress.advance(self._task)
        if setting.loses_files:
            self._say("waiting until both have removed their first file")
            for side in sides.values():
                side.await_removal()

    def _fill(self, system: str, side: Side, count: int, topic: str) -> None:
        """Batches that fail are told: who asks for one of their messages later does not find it."""
        row = side.load("fill", "--threads", 4, "--count", count, topic=topic)
        if row["errors"]:
            self._fill_notes.append(f"{system}: {row['errors']} batches of the {count:,} messages it holds have failed")

    def _measure(self, name: str, sides: dict[str, Side]) -> dict[str, list[Measurement]]:
        """The rounds of one row; the two systems take turns."""
        rounds: dict[str, list[Measurement]] = {system: [] for system in sides}
        topic = READS if SETTINGS[WORKS[name].setting].backlog else name
        if topic != READS:
            for side in sides.values():
                side.create(topic)
        for round_number in range(self._arguments.rounds):
            for system, side in sides.items():
                self._say(f"{WORKS[name].title}, round {round_number + 1}, {system}")
                os.sync()  # what the other one left in the page cache is not written at this one's expense
                row = self._one(name, side, topic)
                rounds[system].append(row)
                self._progress.console.print(f"  {name} {system}: {line(name, row)}", highlight=False)
                self._progress.advance(self._task)
        return rounds

    def _one(self, name: str, side: Side, topic: str) -> Measurement:
        work = WORKS[name]
        window = ("--seconds", self._arguments.seconds, "--warm-up", max(self._arguments.warm_up, work.warm_up))
        row = side.load(*work.arguments, *window, topic=topic) if work.arguments else side.recover()
        return {**row, "memory": side.memory()}


def _head() -> dict[str, Any]:
    time_of_run = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"time": time_of_run, "notes": _machine(), "failures": []}


def _machine() -> list[str]:
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr.splitlines()[0]
    return [f"{os.cpu_count()} cores, {platform.platform()}, Python {platform.python_version()}, {java}"]


def _notes(arguments: argparse.Namespace) -> list[str]:
    return [
        f"orbitmq {form_started()}",
        f"the best of {arguments.rounds} rounds of {arguments.seconds} s, each after {arguments.warm_up} s of warming",
        f"where it is 1,000 a second, after {max(arguments.warm_up, RARE_WARM_UP)} s of it",
        "messages a second where nothing else is said; bodies of 1 KiB with KEYS, TAGS and UNIQ_KEY, all indexed",
        "flushed asynchronously where nothing else is said; the load generator shares the cores",
        (
            "memory was free before, and is of the kind that the machine's host takes back"
            if arguments.fresh_memory
            else "memory was in use before, as it is on a machine that has run for a while"
        ),
        "the floor is the CPU a message of a bare server on uvloop that answers with bytes that are ready",
        "CPU is user and system time of the broker process; start-up ends when the broker is registered",
        f"pulls, consumers and queries find {BACKLOG:,} messages; those are what a killed broker walks",
        "a killed broker finds no checkpoint, so that both look at their whole log; the process's start is in the time",
        f"files of the log that roll have {ROLLING_FILE >> 20} MiB, and go within a second or so",
        "start-up is the best of one start a setting",
        "memory is that of the first setting, after its rows; own memory leaves the mapped files out",
    ]


def _save(report: dict[str, Any]) -> Path:
    directory = ROOT / "var" / "bench"
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{report['time'].replace(':', '')}.json"
    path.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def _publish(report: dict[str, Any]) -> None:
    """The figures of the documentation, and the measurements they come from."""
    text = "\n".join([page(report), clients.page(report["clients"])])
    (PAGES / "bench.txt").write_text(text, encoding="utf-8")
    (PAGES / "bench.json").write_text(json.dumps(report, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
