"""Rates out of counters that only grow: samples at fixed pauses, and what lies between the first and the last one.

Pure: the time comes in with each sample. Windows, pauses and formulas are RocketMQ's.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

SAMPLE_SECONDS = 10
# How many samples a window keeps, and every how many-th sample it takes.
MINUTE, HOUR, DAY = (7, 1), (7, 60), (25, 360)
WINDOWS = (MINUTE, HOUR, DAY)
_FIELDS = 4  # of a sample: time in ms, messages, bytes, calls
SNAPSHOTS_MAX = 601  # ten minutes and one, once a second
RATE_SECONDS = (10, 60, 600)


@dataclass(frozen=True, slots=True)
class Rate:
    """One window: the sum, per second, and per call."""

    sum: int = 0
    tps: float = 0.0
    average: float = 0.0


class Flow:
    """Messages of one kind: the owner adds to the three counters, `sample` records them.

    Samples of a window are in one array, four numbers each, so that ten thousand flows fit into some megabytes.
    RocketMQ's rates end with the last sample, which may be an hour old; these end at the call.
    """

    __slots__ = ("_count", "_windows", "bytes", "calls", "messages")

    def __init__(self, now_ms: int) -> None:
        self.messages = 0
        self.bytes = 0
        self.calls = 0
        self._count = 0
        # As in RocketMQ a window begins one pause before the first message: a single message is no high rate.
        base = (now_ms - SAMPLE_SECONDS * 1000, 0, 0, 0)
        self._windows = tuple(array("q", base) for _ in WINDOWS)

    def sample(self, now_ms: int) -> None:
        """Call this every SAMPLE_SECONDS."""
        self._count += 1
        for samples, (kept, every) in zip(self._windows, WINDOWS, strict=True):
            if self._count % every == 0:
                samples.extend((now_ms, self.messages, self.bytes, self.calls))
                if len(samples) > kept * _FIELDS:
                    del samples[:_FIELDS]

    @property
    def is_idle(self) -> bool:
        """Whether nothing was counted for a day."""
        samples = self._windows[WINDOWS.index(DAY)]
        return len(samples) == DAY[0] * _FIELDS and samples[3] == self.calls

    def of_messages(self, window: tuple[int, int], now_ms: int) -> Rate:
        return self._rate(window, now_ms, self.messages, 1)

    def of_bytes(self, window: tuple[int, int], now_ms: int) -> Rate:
        return self._rate(window, now_ms, self.bytes, 2)

    def _rate(self, window: tuple[int, int], now_ms: int, value: int, field: int) -> Rate:
        first = self._windows[WINDOWS.index(window)][:_FIELDS]
        total, calls, elapsed_ms = value - first[field], self.calls - first[3], now_ms - first[0]
        return Rate(total, total * 1000 / elapsed_ms if elapsed_ms > 0 else 0.0, total / calls if calls > 0 else 0.0)


class Snapshots:
    """The values of some counters once a second, for their mean rates over the last 10, 60 and 600 seconds."""

    def __init__(self, read: Callable[[], tuple[int, ...]]) -> None:
        self._read = read
        self._taken: deque[tuple[int, tuple[int, ...]]] = deque(maxlen=SNAPSHOTS_MAX)

    def take(self, now_ms: int) -> None:
        self._taken.append((now_ms, self._read()))

    def rates(self, counter: int) -> tuple[float | None, ...]:
        """Per second over 10, 60 and 600 seconds; None for windows that are not complete yet."""
        return tuple(self._mean(counter, seconds) for seconds in RATE_SECONDS)

    def _mean(self, counter: int, seconds: int) -> float | None:
        if len(self._taken) <= seconds:
            return None
        end_ms, now = self._taken[-1]
        start_ms, then = self._taken[-1 - seconds]
        return (now[counter] - then[counter]) * 1000 / (end_ms - start_ms) if end_ms > start_ms else 0.0


class Durations:
    """How long something took, in steps of RocketMQ's table, over the last finished minute.

    Only what took a millisecond or longer is recorded one by one; the total number is counted elsewhere.
    """

    BOUNDS_MS = (0, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
    NAMES = (
        "[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]", "[1~2s]",
        "[2~3s]", "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]",
    )  # fmt: skip
    MS_MAX = 10_000  # longer ones count as this long: bounds the table

    def __init__(self) -> None:
        self.longest_ms = 0
        self._slow: dict[int, int] = {}
        self._total = 0
        self._finished: tuple[dict[int, int], int] | None = None

    def took(self, milliseconds: int) -> None:
        """Add one that took a millisecond or longer."""
        self.longest_ms = max(self.longest_ms, milliseconds)
        bounded = min(milliseconds, self.MS_MAX)
        self._slow[bounded] = self._slow.get(bounded, 0) + 1

    def finish_minute(self, total: int) -> None:
        """`total`: how many there have been altogether since the beginning."""
        self._finished = (self._slow, total - self._total)
        self._slow, self._total = {}, total

    def table(self) -> dict[str, int] | None:
        """Step -> how many; None before the first minute is over."""
        if self._finished is None:
            return None
        slow, total = self._finished
        counts = [0] * len(self.NAMES)
        for milliseconds, count in slow.items():
            counts[sum(milliseconds >= bound for bound in self.BOUNDS_MS)] += count
        # The first step includes values below a millisecond.
        counts[0] = max(0, total - sum(slow.values()))
        return dict(zip(self.NAMES, counts, strict=True))

    def percentile(self, part: float) -> float:
        """Milliseconds that `part` of them (0 to 1) did not exceed, 0 when there were none."""
        slow, total = self._finished or ({}, 0)
        beyond = total * (1 - part)
        for milliseconds in sorted(slow, reverse=True):
            beyond -= slow[milliseconds]
            if beyond < 0:
                return float(milliseconds)
        return 0.0
