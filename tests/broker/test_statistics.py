"""Figures by topic, group and broker: what is counted where, how long it is kept, what of it costs time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from orbitmq.broker.statistics import FIGURES, Flows, Statistics
from orbitmq.runtime.clock import ManualClock

HOUR_MS = 3_600_000


class Running:
    """Statistics with a clock to turn and a store that counts."""

    def __init__(self) -> None:
        self.clock = ManualClock(1_700_000_000_000)
        self.store = SimpleNamespace(put_count=0, options=SimpleNamespace(enable_lmq=False))
        self.statistics = Statistics(cast("Any", self.store), "c", self.clock)

    def seconds(self, count: int) -> None:
        for _ in range(count):
            self.clock.advance(1000)
            self.statistics.tick()

    def sums(self, name: str, key: str) -> tuple[int, int, int] | None:
        found = self.statistics.find(name, key)
        return None if found is None else (found[0].sum, found[1].sum, found[2].sum)


@pytest.fixture
def running() -> Running:
    return Running()


def test_every_figure_under_its_key(running: Running) -> None:
    statistics = running.statistics
    statistics.put("T", 1, 100, 0)
    statistics.put("T", 4, 300, 0)
    statistics.got("T", "g", 3, 250, 0)
    statistics.sent_back("T", "g")
    found = {name: statistics.find(name, key) for name in FIGURES for key in ("T", "T@g", "c")}
    assert not any(statistics.find(name, "other") for name in FIGURES)
    keys = {name: {"TOPIC": "T", "BROKE": "c"}.get(name[:5], "T@g") for name in FIGURES}
    sums = {name: cast("Any", statistics.find(name, keys[name]))[0].sum for name in FIGURES}
    assert sums == {
        "TOPIC_PUT_NUMS": 5, "TOPIC_PUT_SIZE": 400, "GROUP_GET_NUMS": 3, "GROUP_GET_SIZE": 250, "SNDBCK_PUT_NUMS": 1,
        "BROKER_PUT_NUMS": 5, "BROKER_GET_NUMS": 3,
    }  # fmt: skip
    assert set(found) == set(FIGURES)


@pytest.mark.parametrize(("name", "key"), [("COMMERCIAL_SEND_TIMES", "T"), ("", ""), ("TOPIC_PUT_NUMS", "T@g")])
def test_what_was_never_counted_is_not_there(running: Running, name: str, key: str) -> None:
    running.statistics.put("T", 1, 100, 0)
    assert running.statistics.find(name, key) is None


def test_what_was_refused_or_found_nothing_is_a_failure_or_a_miss(running: Running) -> None:
    running.statistics.put("T", 1, 0, 0)
    running.statistics.got("T", "g", 0, 0, 0)
    assert running.sums("TOPIC_PUT_NUMS", "T") is None
    assert running.sums("GROUP_GET_NUMS", "T@g") is None
    assert (running.statistics.totals.put_failures, running.statistics.totals.missed_calls) == (1, 1)


def test_the_consume_rate_of_a_group_is_that_of_the_last_minute(running: Running) -> None:
    for _ in range(120):
        running.statistics.got("T", "g", 5, 50, 0)
        running.seconds(1)
    assert running.statistics.consume_tps("T", "g") == pytest.approx(5, rel=0.05)
    running.seconds(80)
    assert running.statistics.consume_tps("T", "g") == 0
    assert running.statistics.consume_tps("T", "other") == 0
    assert running.sums("GROUP_GET_NUMS", "T@g") == (0, 600, 600)
    assert running.sums("BROKER_GET_NUMS", "c") == (0, 600, 600)


def test_flows_that_stand_still_for_a_day_are_dropped_and_stay_in_the_total(running: Running) -> None:
    flows: Flows[str] = Flows(running.clock)
    for number in range(25):
        flows.make(f"T{number}").messages += 2
    busy = flows.table["T7"]
    for _ in range(26 * 360):
        running.clock.advance(10_000)
        busy.calls += 1
        for turn in range(10):
            flows.sample(turn, running.clock.now_ms())
    assert list(flows.table) == ["T7"]
    assert flows.messages == 50


def test_one_turn_samples_a_tenth_of_the_flows(running: Running) -> None:
    flows: Flows[str] = Flows(running.clock)
    names = [f"T{number}" for number in range(1000)]
    for name in names:
        flows.make(name).messages += 1
    seen = []
    running.clock.advance(70_000)
    for turn in range(10):
        before = [flows.table[name].of_messages((7, 1), running.clock.now_ms()).sum for name in names]
        for _ in range(7):
            flows.sample(turn, running.clock.now_ms())
        after = [flows.table[name].of_messages((7, 1), running.clock.now_ms()).sum for name in names]
        seen.append(sum(before) - sum(after))
    assert seen == [100] * 10


def test_names_beyond_the_limit_are_counted_together(running: Running) -> None:
    flows: Flows[str] = Flows(running.clock, limit=2)
    for number in range(10):
        flows.make(f"T{number}").messages += 1
    assert (len(flows.table), flows.messages) == (2, 10)


def test_what_is_deleted_takes_its_figures_along(running: Running) -> None:
    statistics = running.statistics
    for topic in ("T", "U"):
        statistics.put(topic, 1, 1, 0)
        for group in ("g", "h"):
            statistics.got(topic, group, 1, 1, 0)
            statistics.sent_back(topic, group)
    statistics.forget_topic("T")
    statistics.forget_group("g")
    assert list(statistics.puts.table) == ["U"]
    assert list(statistics.gets.table) == list(statistics.send_backs.table) == [("U", "h")]
    assert running.sums("BROKER_PUT_NUMS", "c") == (2, 2, 2)


def test_daily_totals_are_noted_at_midnight(running: Running) -> None:
    statistics, store = running.statistics, running.store
    for _ in range(3):
        store.put_count += 100
        running.clock.advance(24 * HOUR_MS)
        statistics.tick()
    assert (statistics.put_total.yesterday_morning, statistics.put_total.today_morning) == (200, 300)
    store.put_count += 50
    statistics.tick()
    assert (statistics.put_total.today_morning, statistics.put_total.now) == (300, 350)


def test_slow_puts_and_reads_are_told(running: Running) -> None:
    running.statistics.put("T", 1, 1, 0.0009)
    running.statistics.put("T", 1, 1, 0.025)
    running.statistics.got("T", "g", 1, 1, 0.3)
    running.store.put_count = 2
    running.seconds(60)
    table = running.statistics.put_times.table()
    assert table is not None
    assert (table["[<=0ms]"], table["[10~50ms]"]) == (1, 1)
    assert (running.statistics.put_times.longest_ms, running.statistics.get_times.longest_ms) == (25, 300)
