"""What a long recovery says about itself."""

from __future__ import annotations

import pytest

from orbitmq.runtime.clock import ManualClock
from orbitmq.store.progress import LOOK_BYTES, REPORT_MS, Progress

MB = 1_000_000


def test_a_walk_tells_every_few_seconds_how_far_it_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    clock = ManualClock()
    progress = Progress(clock, 100 * MB, 1100 * MB, "walking")
    assert progress.next_look == 100 * MB + LOOK_BYTES
    clock.advance(REPORT_MS - 1)
    progress.look(200 * MB)
    assert caplog.messages == []
    clock.advance(1)
    progress.look(350 * MB)
    progress.look(360 * MB)
    assert caplog.messages == ["event=walking position=350000000 goal=1100000000 percent=25 ms=5000 mb_per_s=50"]
    assert progress.next_look == 360 * MB + LOOK_BYTES


def test_the_rate_is_that_of_what_is_read() -> None:
    clock = ManualClock()
    progress = Progress(clock, 0, 1100 * MB)
    progress.skip(600 * MB)
    clock.advance(10_000)
    assert progress.bytes(1000 * MB) == 400 * MB
    assert progress.rate(1000 * MB) == (10_000, 40)
