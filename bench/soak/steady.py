"""An even load on one broker for as long as it is told (`make soak-steady`): half of what it can take, a push consumer,
retries and delays, and a log in small files that are filled, outlive their time, and are removed.

What is sampled meanwhile stays in samples.csv below the campaign's directory; `judge` says what it means. Must not know
how a verdict is reached.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.soak.judge import Bounds, Judged, Sample, Told, Usage, judge, shown
from bench.soak.steady_load import GROUP, TOPIC
from tests.support.orbit_process import ORBITMQ, OrbitBroker, OrbitNameServer
from tests.support.process import ChildProcess

ROOT = Path(__file__).parents[2]
QUEUES = 8
BLOCK_BYTES = 512  # of st_blocks, whatever the file system's are
AGED_S = 2 * 3600  # by which a file that was kept long enough is made older: retention counts in hours
READY_S = 90
PATIENCE_S = 300  # for what the clients still have to do when the time is over
TIMES = ("p50_ms", "p99_ms", "p999_ms", "max_ms")


@dataclass(frozen=True)
class Settings:
    """`seconds` is all of the time, `peak_seconds` of it go to the search for the peak."""

    seconds: float
    peak_seconds: float = 60
    share: float = 0.5
    """Of the peak, which is sent then."""
    file_size: int = 64 << 20
    """Of the log, in bytes."""
    kept_s: float = 120
    """How long a full file of the log stays: longer than any delay or retry takes."""
    sample_s: float = 5
    delays: str = "2s 3s 5s 10s 30s"
    """Of the levels; the first is that of delayed messages, the third that of a first retry."""
    bounds: Bounds = field(default_factory=Bounds)


@dataclass(frozen=True)
class Outcome:
    """What there is to report. `sends` and `deliveries` are times as `admin.latencies` reads them."""

    settings: Settings
    peak: float
    told: Told
    samples: list[Sample]
    judged: Judged
    sends: Mapping[str, Any]
    deliveries: Mapping[str, Any]
    again: int
    """Deliveries of a message that had come before."""


def run(home: Path, settings: Settings, say: Callable[[str], None] = lambda _: None) -> Outcome:
    """ProcessFailed when the broker or a client ends by itself; what is violated stands in the outcome."""
    home.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        names = stack.enter_context(OrbitNameServer())
        broker = stack.enter_context(OrbitBroker(names.address, home=_made(home / "broker"), **_config(settings)))
        _create_topic(names.address)
        consumer = stack.enter_context(_client(home, "consume", names.address, settings))
        Heard(consumer).until("started")
        sender = stack.enter_context(_client(home, "send", names.address, settings))
        assert broker.process is not None
        assert names.process is not None
        processes = {"broker": broker.process, "name server": names.process, "sender": sender, "consumer": consumer}
        sent, came = Heard(sender), Heard(consumer)
        begun = sent.until("peak", settings.peak_seconds)
        say(f"peak {begun['peak']:,.0f} messages/s; sending {begun['rate']:,.0f}/s")
        watch = Watch(broker.store_dir, processes, settings, home / "samples.csv")
        ended = watch.until_ended(sent, came, say)
        consumer.tell(json.dumps({"total": ended["total"], "failed": ended["failed"]}))
        last = came.until("ended")
        told = Told(
            begun["rate"],
            _even_seconds(settings),
            ended["acknowledged"],
            ended["failed"],
            last["missing"],
            last["retried"],
            last["delayed"],
        )
    judged = judge(watch.samples, told, settings.bounds)
    return Outcome(
        settings, begun["peak"], told, watch.samples, judged, ended["times"] or {}, last["times"] or {}, last["again"]
    )


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True)
    return directory


def _even_seconds(settings: Settings) -> float:
    return max(1.0, settings.seconds - settings.peak_seconds)


def _config(settings: Settings) -> dict[str, object]:
    return {
        "mappedFileSizeCommitLog": settings.file_size,
        "mappedFileSizeConsumeQueue": 20 * 50_000,
        "maxHashSlotNum": 50_000,
        "maxIndexNum": 200_000,
        "fileReservedTime": 1,
        "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
        "cleanResourceInterval": 1000,
        "messageDelayLevel": settings.delays,
    }


def _create_topic(namesrv: str) -> None:
    words = (ORBITMQ, "topic", "create", TOPIC, "--queues", QUEUES, "--yes", "-n", namesrv)
    subprocess.run(list(map(str, words)), check=True, capture_output=True)


def _client(home: Path, part: str, namesrv: str, settings: Settings) -> ChildProcess:
    pairs = {"peak-seconds": settings.peak_seconds, "seconds": _even_seconds(settings), "share": settings.share}
    options = [f"--{name}={value}" for name, value in pairs.items()]
    command = [sys.executable, "-m", "bench.soak.steady_load", part, "--namesrv", namesrv, *options]
    return ChildProcess(command, output=home / f"{part}.jsonl", cwd=ROOT, listens=True)


class Heard:
    """What a client prints, an object a line."""

    def __init__(self, process: ChildProcess) -> None:
        self._process = process
        self._read_to = 0
        self.newest: dict[str, Any] = {}

    def more(self) -> Iterator[dict[str, Any]]:
        with self._process.output_path.open("rb") as file:
            file.seek(self._read_to)
            whole, end, _unfinished = file.read().rpartition(b"\n")
        self._read_to += len(whole) + len(end)
        for line in whole.splitlines():
            self.newest = json.loads(line)
            yield self.newest

    def until(self, name: str, seconds: float = 0.0) -> dict[str, Any]:
        """The first object that has this field."""
        found: list[dict[str, Any]] = []

        def look() -> bool:
            found.extend(one for one in self.more() if name in one)
            return bool(found)

        self._process.wait_for(look, seconds + PATIENCE_S, f"the client to say {name}")
        return found[0]

    def check(self) -> None:
        """ProcessFailed when it has ended by itself."""
        if self._process.exit_code is not None:
            raise self._process.failed(f"ended by itself with {self._process.exit_code}")


class Watch:
    """Looks at the processes and at the disk again and again, and has full files of the log grow old."""

    def __init__(self, store: Path, processes: Mapping[str, ChildProcess], settings: Settings, table: Path) -> None:
        self._log = store / "commitlog"
        self._store, self._processes, self._settings, self._table = store, processes, settings, table
        self.samples: list[Sample] = []

    def until_ended(self, sent: Heard, came: Heard, say: Callable[[str], None]) -> dict[str, Any]:
        """Sample until the sender says that it has ended; its last line."""
        began, told_at = time.monotonic(), 0.0
        while True:
            ended = [one for one in sent.more() if "ended" in one]
            seen = [one["seen"] for one in came.more() if "seen" in one]
            at = time.monotonic() - began
            self._add(self._sample(at))
            self._age()
            if ended:
                return ended[0]
            if at - told_at >= 60:
                told_at = at
                say(self._line(self.samples[-1], sent.newest, seen))
            if at > _even_seconds(self._settings) + PATIENCE_S:
                raise TimeoutError(f"the sender has not ended {PATIENCE_S} s after its time")
            for one in (sent, came):
                one.check()
            time.sleep(self._settings.sample_s)

    def _sample(self, at: float) -> Sample:
        files = sorted(int(path.name) for path in self._log.iterdir())
        size = self._settings.file_size
        first, last = (files[0] // size, files[-1] // size) if files else (0, 0)
        return Sample(
            at, {name: usage(one.pid) for name, one in self._processes.items()}, disk(self._store), first, last
        )

    def _age(self) -> None:
        """A file that nobody has written to for so long is as old as one that retention takes."""
        now = time.time()
        for path in sorted(self._log.iterdir())[:-2]:  # the last is written to, or the one before it
            with contextlib.suppress(FileNotFoundError):  # the broker takes those that are old
                if now - path.stat().st_mtime > self._settings.kept_s:
                    os.utime(path, (now - AGED_S, now - AGED_S))

    def _add(self, one: Sample) -> None:
        is_first = not self.samples
        self.samples.append(one)
        with self._table.open("a", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            if is_first:
                heads = [f"{name} {what}" for name in one.processes for what in ("memory", "descriptors", "threads")]
                writer.writerow(["seconds", *heads, "disk", "first file", "last file"])
            usages = [value for own in one.processes.values() for value in (own.memory, own.descriptors, own.threads)]
            writer.writerow([f"{one.at:.1f}", *usages, one.disk, one.first, one.last])

    @staticmethod
    def _line(one: Sample, newest: Mapping[str, Any], seen: list[int]) -> str:
        broker = one.processes["broker"]
        return (
            f"{one.at / 60:.0f} min: {newest.get('acknowledged', 0):,} sent, {seen[-1] if seen else 0:,} came, "
            f"broker {broker.memory >> 20} MiB, {broker.descriptors} descriptors, {broker.threads} threads, "
            f"disk {one.disk >> 20} MiB, files {one.first} to {one.last}"
        )


def usage(pid: int) -> Usage:
    """Of a process, as Linux tells it."""
    place = Path(f"/proc/{pid}")
    told = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines())
    return Usage(int(told["RssAnon"].split()[0]) << 10, len([*(place / "fd").iterdir()]), int(told["Threads"]))


def disk(root: Path) -> int:
    """Bytes that a store takes; a file may go meanwhile."""
    total = 0
    for place, _, names in os.walk(root):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += Path(place, name).stat().st_blocks * BLOCK_BYTES
    return total


def lines(outcome: Outcome) -> Iterator[str]:
    """What is printed: figures, and the verdict."""
    told, settings, samples = outcome.told, outcome.settings, outcome.samples
    yield (
        f"{told.seconds:,.0f} s at {settings.share:.0%} of a peak of {outcome.peak:,.0f} messages/s: "
        f"{told.acknowledged:,} sent, {told.delayed:,} of them delayed, {told.retried:,} delivered again, "
        f"{outcome.again:,} twice; group {GROUP}"
    )
    filled, removed = samples[-1].last - samples[0].last, samples[-1].first - samples[0].first
    yield f"files of the log: {filled} filled, {removed} removed"
    yield ""
    yield "| ms | " + " | ".join(name.removesuffix("_ms") for name in TIMES) + " |"
    yield "|---|" + "--:|" * len(TIMES)
    for title, times in (("send", outcome.sends), ("send to listener", outcome.deliveries)):
        yield f"| {title} | " + " | ".join(f"{times.get(_camel(name), 0):,.2f}" for name in TIMES) + " |"
    yield ""
    yield "| after the warm-up | begins | rises | allowed |"
    yield "|---|--:|--:|--:|"
    for one in outcome.judged.growths:
        cells = (shown(one, value) for value in (one.begins, one.rises, one.allowed))
        yield f"| {one.name} | " + " | ".join(cells) + " |"
    yield ""
    yield f"violations: {len(outcome.judged.violations)}"
    yield from outcome.judged.violations


def _camel(name: str) -> str:
    """As the field of a Latency is encoded."""
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)
