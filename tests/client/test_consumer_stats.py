"""A consumer tells how fast it is, in RocketMQ's windows."""

from __future__ import annotations

from orbitmq.client.consumer_stats import ConsumerStats
from orbitmq.runtime.clock import ManualClock
from orbitmq.runtime.rates import SAMPLE_SECONDS


def test_rates_are_of_the_last_minute_and_failures_of_the_last_hour() -> None:
    clock = ManualClock()
    figures = ConsumerStats(clock)

    def pass_by(seconds: int) -> None:
        for _ in range(seconds // SAMPLE_SECONDS):
            clock.advance(SAMPLE_SECONDS * 1000)
            figures.sample()

    assert figures.table() == {}
    figures.pulled("T", 32, 4)
    figures.pulled("T", 8, 8)
    figures.consumed("T", 4, 1, 30)
    figures.consumed("T", 1, 0, 10)
    figures.consumed("Else", 1, 1, 5)
    pass_by(50)
    status = figures.table()["T"]
    assert (status.pull_rt, status.consume_rt) == (6.0, 20.0)
    assert (status.pull_tps, status.consume_ok_tps, status.consume_failed_tps) == (40 / 60, 4 / 60, 1 / 60)
    assert status.consume_failed_msgs == 1
    assert list(figures.table()) == ["Else", "T"]
    pass_by(600)
    status = figures.table()["T"]
    assert (status.pull_tps, status.pull_rt, status.consume_ok_tps, status.consume_failed_tps) == (0, 0, 0, 0)
    assert status.consume_rt == 20.0, "of the last hour, for nothing was consumed in the last minute"
    assert status.consume_failed_msgs == 1
    pass_by(7200)
    assert figures.table()["T"].consume_failed_msgs == 0
