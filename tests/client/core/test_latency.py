"""What a broker's last answers say about the next."""

from __future__ import annotations

import pytest

from orbitmq.client.core.latency import HALF_LIFE_MS, PROFILES, BrokerLatencies, FaultTable, Profile, steps
from orbitmq.errors import ConfigurationError


@pytest.mark.parametrize(
    ("latency_ms", "failed", "left_out_ms"),
    [
        (49, False, 0),
        (549, False, 0),
        (550, False, 30_000),
        (1999, False, 60_000),
        (3000, False, 180_000),
        (1, True, 600_000),
        (60_000, True, 600_000),
    ],
)
def test_a_broker_is_left_out_as_long_as_rocketmq_leaves_it_out(
    latency_ms: int, failed: bool, left_out_ms: int
) -> None:
    table = FaultTable()
    table.note("a", latency_ms, 1000, failed=failed)
    assert table.is_available("a", 1000 + left_out_ms)
    assert left_out_ms == 0 or not table.is_available("a", 1000 + left_out_ms - 1)
    assert table.faults["a"].latency_ms == latency_ms
    assert table.is_available("b", 1000), "nothing is known of it"


def test_the_newest_answer_counts_alone() -> None:
    table = FaultTable()
    table.note("a", 1, 0, failed=True)
    table.note("a", 5, 1, failed=False)
    assert table.is_available("a", 1)


def test_of_brokers_left_out_the_better_half_takes_turns() -> None:
    table = FaultTable()
    assert table.least_bad({"a"}) is None
    for latency_ms, name in enumerate("dcba"):
        table.note(name, 600 + latency_ms, 0, failed=True)
    assert {table.least_bad(set("abcd")) for _ in range(8)} == {"d", "c"}
    assert {table.least_bad({"a"}) for _ in range(3)} == {"a"}


def test_averages_follow_the_answers_and_fade() -> None:
    latencies = BrokerLatencies()
    assert latencies.fastest({"a", "b"}, 0) == {"a", "b"}
    for _ in range(20):
        latencies.note("a", 100, 0, failed=False)
        latencies.note("b", 10, 0, failed=False)
    assert latencies.fastest({"a", "b"}, 0) == {"b"}
    assert latencies.fastest({"a", "b", "new"}, 0) == {"new"}, "a broker nobody has tried is tried"
    latencies.note("b", 1, 0, failed=True)
    assert latencies.of("b", 0) == pytest.approx(0.2 * 30_000 + 0.8 * 10)
    assert latencies.fastest({"a", "b"}, 0) == {"a"}
    assert latencies.of("b", HALF_LIFE_MS) == pytest.approx(latencies.of("b", 0) / 2)


def test_steps_are_whole_numbers_that_fit_together() -> None:
    assert steps("50 100,550") == (50, 100, 550)
    with pytest.raises(ConfigurationError, match="no list of milliseconds"):
        steps("50 fast")
    for slow, out in (((50,), (0, 1)), ((100, 50), (0, 1))):
        with pytest.raises(ConfigurationError, match="as many steps, rising"):
            FaultTable(Profile(slow, out))


@pytest.mark.parametrize(
    ("latency_ms", "failed", "left_out_ms"),
    [(549, False, 0), (550, False, 2_000), (1_800, False, 5_000), (15_000, False, 30_000), (1, True, 10_000)],
)
def test_the_later_profile_leaves_brokers_out_for_seconds(latency_ms: int, failed: bool, left_out_ms: int) -> None:
    table = FaultTable(PROFILES["v5"])
    table.note("a", latency_ms, 1000, failed=failed)
    assert table.is_available("a", 1000 + left_out_ms)
    assert left_out_ms == 0 or not table.is_available("a", 1000 + left_out_ms - 1)


def test_the_later_profile_never_shortens_and_probes_what_the_network_lost() -> None:
    table = FaultTable(PROFILES["v5"])
    table.note("a", 1, 0, failed=True, is_reachable=False)
    table.note("b", 1, 0, failed=True)
    assert not table.is_reachable("a")
    assert table.is_reachable("b")
    assert table.is_reachable("new")
    assert table.to_probe(5_000) == ["a"]
    assert table.to_probe(6_999) == []
    assert table.to_probe(7_000) == ["a"]
    table.probed("a")
    assert table.is_reachable("a")
    assert not table.is_available("a", 9_999)
    table.note("a", 1, 1, failed=False)
    assert not table.is_available("a", 9_999)


def test_the_older_profile_knows_nothing_of_reach() -> None:
    table = FaultTable()
    table.note("a", 1, 0, failed=True, is_reachable=False)
    assert table.is_reachable("a")
    assert table.to_probe(10_000) == []
