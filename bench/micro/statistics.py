"""What the broker's figures cost: microseconds a request, and milliseconds of the event loop each second.

    python bench/micro/statistics.py [--topics N] [--requests N]

Figures are processor time of the calling thread. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from orbitmq.broker.statistics import Statistics
from orbitmq.runtime.clock import ManualClock

PASSES = 5
GROUP = "a-group-of-consumers"


def microseconds(work: Callable[[], None], count: int) -> float:
    """The best of some passes, a call."""
    best = float("inf")
    for _ in range(PASSES):
        own = time.thread_time()
        work()
        best = min(best, time.thread_time() - own)
    return best / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--requests", type=int, default=200_000)
    arguments = parser.parse_args()
    clock = ManualClock()
    statistics = Statistics(
        cast("Any", SimpleNamespace(put_count=0, options=SimpleNamespace(enable_lmq=False))), "c", clock
    )
    topics = [f"SomeTopicOfOrders{number}" for number in range(arguments.topics)]
    asked = [topics[number * 7919 % len(topics)] for number in range(arguments.requests)]
    timer = time.perf_counter

    def nothing() -> None:
        for _ in asked:
            pass

    def sends() -> None:
        for topic in asked:
            begun = timer()
            statistics.put(topic, 1, 1200, timer() - begun)

    def pulls() -> None:
        for topic in asked:
            begun = timer()
            statistics.got(topic, GROUP, 32, 40_000, timer() - begun)

    def ticks() -> None:
        for _ in range(100):
            clock.advance(1000)
            statistics.tick()

    loop = microseconds(nothing, len(asked))
    print(f"{len(topics)} topics, each with one group")
    print(f"a send, its two looks at the timer included   {microseconds(sends, len(asked)) - loop:6.3f} us")
    print(f"a pull that finds messages, likewise          {microseconds(pulls, len(asked)) - loop:6.3f} us")
    print(f"the second's work beside them                 {microseconds(ticks, 100) / 1000:6.3f} ms")


if __name__ == "__main__":
    main()
