"""How many threads and nodes a listener needs, from measurements. Pure.

A message costs T1 of computation and T2 of waiting for others (database, network). One core is kept busy by (T1 + T2) /
T1 threads; more only get in each other's way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

THREADS_MAX = 1000  # the maximum of a consumer


def threads_for(cores: float, compute_s: float, wait_s: float) -> int:
    """C * (T1 + T2) / T1, rounded up, within 1 and 1000. Only waiting and no computation takes as many as there may be.

    Pure Python of CPython computes on one core at a time, however many there are: C is 1 then.
    """
    if compute_s < 0 or wait_s < 0 or cores <= 0:
        raise ValueError(f"cores {cores} must be above 0, compute_s {compute_s} and wait_s {wait_s} not below")
    if compute_s == 0:
        return THREADS_MAX if wait_s else 1
    return max(1, min(THREADS_MAX, math.ceil(cores * (compute_s + wait_s) / compute_s - 1e-9)))


def nodes_for(peak_per_s: float, node_per_s: float) -> int:
    """Peak traffic / throughput of one node, rounded up, at least 1."""
    if peak_per_s < 0 or node_per_s <= 0:
        raise ValueError(f"peak_per_s {peak_per_s} must not be below 0, node_per_s {node_per_s} must be above")
    return max(1, math.ceil(peak_per_s / node_per_s - 1e-9))


@dataclass(frozen=True, slots=True)
class Times:
    """How long a listener took, over all calls so far. Seconds."""

    messages: int = 0
    """Messages passed to the listener."""
    compute_s: float = 0.0
    """CPU time of the threads that ran it."""
    wait_s: float = 0.0
    """The rest of the duration of its calls."""

    def add(self, messages: int, compute_s: float, elapsed_s: float) -> Times:
        """A copy that includes one more call."""
        waited_s = max(0.0, elapsed_s - compute_s)  # two clocks never agree to the last microsecond
        return Times(self.messages + messages, self.compute_s + compute_s, self.wait_s + waited_s)

    @property
    def compute_ms(self) -> float:
        """T1: milliseconds of computation per message, 0 before the first."""
        return 1000 * self.compute_s / self.messages if self.messages else 0.0

    @property
    def wait_ms(self) -> float:
        """T2: milliseconds of waiting per message, 0 before the first."""
        return 1000 * self.wait_s / self.messages if self.messages else 0.0

    def threads(self, cores: float = 1.0) -> int:
        """The recommended threads for one node, 1 before the first message."""
        return threads_for(cores, self.compute_s, self.wait_s)

    def throughput(self, threads: int, cores: float = 1.0) -> float:
        """The highest throughput of so many threads, in messages per second; 0 before the first message."""
        total = self.compute_s + self.wait_s
        if not self.messages or not total:
            return 0.0
        limits = [threads * self.messages / total]
        if self.compute_s:
            limits.append(cores * self.messages / self.compute_s)
        return min(limits)

    def nodes(self, peak_per_s: float, threads: int, cores: float = 1.0) -> int:
        """The recommended nodes for a peak throughput, each with so many threads. ValueError without messages."""
        return nodes_for(peak_per_s, self.throughput(threads, cores))
