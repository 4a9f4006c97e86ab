"""A clock for tests moves only when told; the machine's clock tells the time of day."""

from __future__ import annotations

import time

from orbitmq.runtime.clock import ManualClock, SystemClock


def test_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(1_000)
    assert [clock.now_ms(), clock.now_ms()] == [1_000, 1_000]
    clock.advance(250)
    assert clock.now_ms() == 1_250


def test_system_clock_counts_milliseconds_since_the_epoch() -> None:
    before = time.time()
    now_ms = SystemClock().now_ms()
    assert int(before * 1000) <= now_ms <= int(time.time() * 1000) + 1
