"""What every load program of a Python client has in common: its arguments, its messages and its measurement.

The programs run below environments of their own, so this knows nothing but the standard library.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable
from typing import Any

BODY = b"x" * 1024  # no zero byte: a client of C takes one for the end
TAG = "TagA"
READ_WARM_UP = 0.1  # share of the messages read before the measurement begins
LOOK_S = 0.005


def arguments(works: Iterable[str]) -> argparse.Namespace:
    """Of a load program; `--namesrv` is the proxy's address for a client that needs one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("work", choices=list(works))
    parser.add_argument("--namesrv", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--warm-up", type=float, required=True)
    parser.add_argument("--senders", type=int, default=1)
    parser.add_argument("--in-flight", type=int, default=256)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--count", type=int, default=0, help="messages that can be read")
    return parser.parse_args()


def key(number: int) -> str:
    return f"order-{number}"


class Meter:
    """Counts messages and the times of calls from `begin` on, with the processor time of this process."""

    def __init__(self) -> None:
        self.total = 0
        self.errors = 0
        self.calls: list[float] = []
        self._seen = 0
        self._began = self._began_cpu = 0.0

    def done(self, messages: int, began: float) -> None:
        """A call that began at this `perf_counter` is over. Threads call it one at a time or with one message."""
        self.total += messages
        self.calls.append(time.perf_counter() - began)

    def begin(self) -> None:
        self.calls = []
        self._seen = self.total
        self._began, self._began_cpu = time.perf_counter(), time.process_time()

    def row(self, *, times: bool = True) -> dict[str, Any]:
        """The figures since `begin`; without `times` where a call does not wait for the broker."""
        seconds, cpu = time.perf_counter() - self._began, time.process_time() - self._began_cpu
        messages, calls = self.total - self._seen, sorted(self.calls)
        return {
            "messages": messages,
            "rate": messages / seconds,
            "cpuMicros": cpu * 1e6 / messages if messages else None,
            "p50Micros": _percentile(calls, 0.50) if times else None,
            "p99Micros": _percentile(calls, 0.99) if times else None,
            "errors": self.errors,
        }


def _percentile(calls: list[float], share: float) -> float | None:
    return calls[int((len(calls) - 1) * share)] * 1e6 if calls else None


def measure_sends(
    meter: Meter, told: argparse.Namespace, pause: Callable[[float], None] = time.sleep
) -> dict[str, Any]:
    """One window while others send."""
    pause(told.warm_up)
    meter.begin()
    pause(told.seconds)
    return meter.row(times=told.work != "oneway")


def measure_reads(meter: Meter, told: argparse.Namespace) -> dict[str, Any]:
    """While others read: from a share of the messages on until nothing is left, or the time is over."""
    deadline = time.perf_counter() + 10 * told.seconds
    while meter.total < told.count * READ_WARM_UP and time.perf_counter() < deadline:
        time.sleep(LOOK_S)
    meter.begin()
    ends = time.perf_counter() + told.seconds
    while meter.total < told.count and time.perf_counter() < ends:
        time.sleep(LOOK_S)
    return meter.row(times=False)


def report(row: dict[str, Any], meter: Meter) -> None:
    """Print the row, with all that was sent or read in the life of the program."""
    print(json.dumps({**row, "total": meter.total}), flush=True)
