"""A message that comes twice, or whose send failed, does not stand for one that is lost."""

from __future__ import annotations

import pytest

from orbitmq.admin import in_flight
from orbitmq.admin.in_flight import InFlight


def test_each_counts_once_whichever_end_tells_first() -> None:
    way = InFlight()
    first, second = way.begin(), way.begin()
    assert way.stored(first, 1.0) is None
    assert way.arrived(first, 1.5) == 1.0
    assert way.arrived(first, 9.0) is None, "it came again"
    assert way.arrived(second, 2.5) is None, "it is not acknowledged yet"
    assert way.arrived(second, 9.0) is None
    assert way.stored(second, 2.0) == 2.5, "when it came first"
    assert way.arrived(second, 9.0) is None
    assert (way.is_empty, way.missing(0.0)) == (True, 0)


def test_what_failed_and_came_hides_none_that_is_lost() -> None:
    way = InFlight()
    lost, failed, late, early = (way.begin() for _ in range(4))
    way.stored(early, 0.5)
    way.stored(lost, 1.0)
    way.failed(failed)
    assert way.arrived(failed, 2.0) is None
    way.arrived(late, 2.0)
    way.failed(late)
    assert way.arrived(late, 3.0) is None
    assert (way.is_empty, way.missing(1.0), way.missing(0.0)) == (False, 1, 2)


def test_what_is_kept_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_flight, "IN_FLIGHT_MAX", 2)
    way = InFlight()
    way.stored(way.begin(), 1.0)
    assert not way.is_full
    number = way.begin()
    assert way.is_full
    way.failed(number)
    assert not way.is_full
