"""Whether an hour under an even load has cost a message, or grown anything. Pure: samples in, violations out.

Growth is that of a straight line through what was sampled after the warm-up, over the time it was: a file that comes
and goes, or a heap that breathes, is no growth, and a leak cannot hide in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import linear_regression

MIB = 1 << 20
TOLD_MAX = 10  # numbers of lost messages
FITTED_MIN = 3  # samples; of fewer there is no line


@dataclass(frozen=True)
class Usage:
    """What a process has. `memory` is its own in bytes: what is not mapped from files."""

    memory: int
    descriptors: int
    threads: int


@dataclass(frozen=True)
class Sample:
    """Of one moment, in seconds from the beginning of the even load. `disk` is what the store takes in bytes; the log
    begins with file `first` and ends with `last`, counted from 0.
    """

    at: float
    processes: Mapping[str, Usage]
    disk: int
    first: int
    last: int


@dataclass(frozen=True)
class Told:
    """What the clients said at the end. `rate` is what was to be sent a second, for `seconds`."""

    rate: float
    seconds: float
    acknowledged: int
    """While the load was even."""
    failed: Sequence[int]
    missing: Sequence[int]
    """Numbers of acknowledged messages that no listener got, all the time."""
    retried: int = 0
    delayed: int = 0


@dataclass(frozen=True)
class Bounds:
    """How much a line may rise from the first judged sample to the last: so much, and so much of where it begins."""

    memory: int = 8 * MIB
    memory_share: float = 0.10
    descriptors: float = 16
    threads: float = 2
    disk: int = 256 * MIB
    disk_share: float = 0.25
    warm_up_share: float = 0.20
    """Of the time, which is not judged: caches fill, and the first file is removed a minute after a start."""
    rate_share: float = 0.95
    """Of the messages that were to be sent, which have to be."""
    removes_files: bool = True
    """Whether the log has to have lost files; it was too short for that otherwise."""


@dataclass(frozen=True)
class Growth:
    """A fitted line: where it begins, by how much it rises, and by how much it may."""

    name: str
    begins: float
    rises: float
    allowed: float

    @property
    def is_broken(self) -> bool:
        return self.rises > self.allowed


@dataclass
class Judged:
    """What was found; well without violations."""

    growths: list[Growth] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)


def judge(samples: Sequence[Sample], told: Told, bounds: Bounds) -> Judged:
    after = samples[-1].at * bounds.warm_up_share if samples else 0.0
    steady = [one for one in samples if one.at >= after]
    judged = Judged(violations=list(_of_messages(told, bounds)))
    if len(steady) < FITTED_MIN:
        judged.violations.append(f"{len(steady)} samples after the warm-up: nothing can be said of growth")
        return judged
    judged.growths = list(_growths(steady, bounds))
    judged.violations += [_broken(one) for one in judged.growths if one.is_broken]
    judged.violations += _of_files(samples, bounds)
    return judged


def _of_messages(told: Told, bounds: Bounds) -> Iterator[str]:
    if told.missing:
        numbers = ", ".join(map(str, told.missing[:TOLD_MAX]))
        yield f"lost: {len(told.missing)} acknowledged messages came to no listener: {numbers}"
    if told.failed:
        yield f"failed: {len(told.failed)} sends got no receipt although nothing was done to the broker"
    if told.acknowledged < told.rate * told.seconds * bounds.rate_share:
        wanted = told.rate * told.seconds
        yield f"slow: {told.acknowledged:,} of {wanted:,.0f} messages were sent while the load was even"
    if not told.retried or not told.delayed:
        yield f"idle: {told.retried} messages were delivered again and {told.delayed} with a delay: not all was tried"


def _of_files(samples: Sequence[Sample], bounds: Bounds) -> Iterator[str]:
    if samples[-1].last == samples[0].last:
        yield "idle: no file of the log was filled"
    if bounds.removes_files and samples[-1].first == samples[0].first:
        yield "kept: no file of the log was removed"


def _growths(samples: Sequence[Sample], bounds: Bounds) -> Iterator[Growth]:
    for name in samples[0].processes:
        for what, allowed, share in (
            ("memory", bounds.memory, bounds.memory_share),
            ("descriptors", bounds.descriptors, 0.0),
            ("threads", bounds.threads, 0.0),
        ):
            yield _growth(f"{name} {what}", samples, _of_process(name, what), allowed, share)
    yield _growth("disk", samples, lambda one: one.disk, bounds.disk, bounds.disk_share)


def _of_process(name: str, what: str) -> Callable[[Sample], float]:
    return lambda one: float(getattr(one.processes[name], what))


def _growth(
    name: str, samples: Sequence[Sample], value: Callable[[Sample], float], allowed: float, share: float
) -> Growth:
    slope, base = linear_regression([one.at for one in samples], [value(one) for one in samples])
    begins = base + slope * samples[0].at
    return Growth(name, begins, slope * (samples[-1].at - samples[0].at), allowed + share * max(begins, 0.0))


def _broken(one: Growth) -> str:
    rises, begins, allowed = (shown(one, value) for value in (one.rises, one.begins, one.allowed))
    return f"grows: {one.name} by {rises} from {begins}, {allowed} allowed"


def shown(one: Growth, value: float) -> str:
    """A value of that line as people read it."""
    in_bytes = one.name == "disk" or one.name.endswith("memory")
    return f"{value / MIB:,.1f} MiB" if in_bytes else f"{value:,.1f}"
