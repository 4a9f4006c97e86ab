"""Wrong signatures of one address are answered later and later, and nobody else's are."""

from __future__ import annotations

import pytest

from orbitmq.net import brake
from orbitmq.net.brake import FREE_TRIES, INTERVAL_S, LATE_S, SignatureBrake


@pytest.mark.parametrize("now", [0.0, 1e6])
def test_so_many_tries_are_free_and_further_ones_wait(now: float) -> None:
    tries = SignatureBrake()
    waits = [tries.wrong("10.0.0.1", now) for _ in range(FREE_TRIES + 4)]
    assert waits == [0.0] * FREE_TRIES + [INTERVAL_S, LATE_S, LATE_S, LATE_S]
    assert tries.wrong("10.0.0.2", now) == 0


def test_who_waits_may_try_again() -> None:
    tries = SignatureBrake()
    for _ in range(1000):
        tries.wrong("10.0.0.1", 0)
    assert tries.wrong("10.0.0.1", LATE_S + INTERVAL_S) == 0, "what was paid off is forgiven"
    assert [tries.wrong("10.0.0.1", 100) for _ in range(FREE_TRIES)] == [0] * FREE_TRIES


def test_one_try_a_second_never_waits() -> None:
    tries = SignatureBrake()
    assert {tries.wrong("10.0.0.1", second * INTERVAL_S) for second in range(500)} == {0.0}


def test_a_network_of_ipv6_is_one_address() -> None:
    tries = SignatureBrake()
    waits = [tries.wrong(f"2001:db8::{number:x}", 0) for number in range(FREE_TRIES + 1)]
    assert waits[-1] > 0
    assert tries.wrong("2001:db8:0:1::1", 0) == 0
    assert tries.wrong("fe80::1%eth0", 0) == 0
    assert tries.wrong("no:address", 0) == 0


def test_the_table_of_addresses_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brake, "ADDRESSES_MAX", 3)
    tries = SignatureBrake()
    for number in range(10):
        tries.wrong(f"10.0.0.{number}", 0)
    assert len(tries) == 3
