"""The server that does nothing answers what it is asked."""

from __future__ import annotations

import pytest

from bench import floors


@pytest.mark.parametrize("name", floors.FLOORS)
def test_each_floor_can_be_measured(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(floors, "FLOORS", {name: floors.FLOORS[name]})
    monkeypatch.setattr(floors, "WARM_UP", 0.05)
    monkeypatch.setattr(floors, "SECONDS", 0.2)
    told: list[str] = []
    assert 0 < floors.measure(told.append)[name] < 1000
    assert told[0].startswith(f"  {name}: ")
