"""Rates out of growing counters: windows, snapshots and the table of durations."""

from __future__ import annotations

import pytest

from orbitmq.runtime.rates import DAY, HOUR, MINUTE, Durations, Flow, Rate, Snapshots

START = 1_700_000_000_000
PAUSE_MS = 10_000


def counted(flow: Flow, messages: int, size: int) -> None:
    flow.messages += messages
    flow.bytes += size
    flow.calls += 1


def test_what_was_counted_is_seen_at_once_and_no_high_rate() -> None:
    flow = Flow(START)
    counted(flow, 10, 1000)
    counted(flow, 20, 500)
    assert flow.of_messages(MINUTE, START) == Rate(30, 3.0, 15.0)
    assert flow.of_bytes(DAY, START) == Rate(1500, 150.0, 750.0)


@pytest.mark.parametrize(("window", "pauses"), [(MINUTE, 7), (HOUR, 7 * 60), (DAY, 25 * 360)])
def test_a_window_forgets_what_is_older(window: tuple[int, int], pauses: int) -> None:
    flow, now_ms = Flow(START), START
    counted(flow, 100, 100)
    for left in range(pauses, 0, -1):
        assert flow.of_messages(window, now_ms).sum == 100, left
        now_ms += PAUSE_MS
        flow.sample(now_ms)
    assert flow.of_messages(window, now_ms) == Rate()


def test_a_steady_flow_has_its_rate_in_every_window() -> None:
    flow, now_ms = Flow(START), START
    for _ in range(30 * 360):
        now_ms += PAUSE_MS
        counted(flow, 50, 5000)
        flow.sample(now_ms)
    for window in (MINUTE, HOUR, DAY):
        assert flow.of_messages(window, now_ms).tps == pytest.approx(5)
        assert flow.of_bytes(window, now_ms).tps == pytest.approx(500)
        assert flow.of_bytes(window, now_ms).average == pytest.approx(5000)
    assert not flow.is_idle


def test_a_flow_is_idle_after_a_day_without_a_message() -> None:
    flow, now_ms = Flow(START), START
    counted(flow, 1, 1)
    ages = 0
    while not flow.is_idle:
        now_ms += PAUSE_MS
        flow.sample(now_ms)
        ages += 1
    assert 24 * 360 < ages <= 26 * 360
    counted(flow, 1, 1)
    assert not flow.is_idle


def test_mean_rates_need_their_time() -> None:
    value = 0
    snapshots = Snapshots(lambda: (value,))
    for second in range(700):
        snapshots.take(START + second * 1000)
        known = [rate is not None for rate in snapshots.rates(0)]
        assert known == [second >= 10, second >= 60, second >= 600]
        value += 3
    assert snapshots.rates(0) == (3.0, 3.0, 3.0)
    for second in range(700, 710):
        snapshots.take(START + second * 1000)
    ten, sixty, _ = snapshots.rates(0)
    assert (ten, sixty) == (pytest.approx(0.3), pytest.approx(51 * 3 / 60))


def test_durations_stand_in_the_table_of_the_last_minute() -> None:
    durations = Durations()
    assert durations.table() is None
    for milliseconds in (1, 9, 10, 49, 50, 4999, 10_000, 70_000):
        durations.took(milliseconds)
    durations.finish_minute(100)
    table = durations.table()
    assert table is not None
    assert {name: count for name, count in table.items() if count} == {
        "[<=0ms]": 92, "[0~10ms]": 2, "[10~50ms]": 2, "[50~100ms]": 1, "[4~5s]": 1, "[10s~]": 2,
    }  # fmt: skip
    assert durations.longest_ms == 70_000
    durations.finish_minute(160)
    assert durations.table() == {name: 60 if name == "[<=0ms]" else 0 for name in table}
    assert durations.longest_ms == 70_000


@pytest.mark.parametrize(
    ("slow", "total", "expected"),
    [((), 0, 0.0), ((), 1000, 0.0), ((5,), 1000, 0.0), ((5,) * 11, 1000, 5.0), ((5,) * 9 + (7, 8), 1000, 5.0)],
)
def test_percentile_is_what_the_part_did_not_exceed(slow: tuple[int, ...], total: int, expected: float) -> None:
    durations = Durations()
    for milliseconds in slow:
        durations.took(milliseconds)
    durations.finish_minute(total)
    assert durations.percentile(0.99) == expected
    if slow:
        assert durations.percentile(1.0) == max(slow)
