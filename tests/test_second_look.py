"""The promises of tests.support.second_look: few are looked at again, by their names, and what fails twice fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import second_look

SOUND, BROKEN = "def test_it() -> None:\n    pass\n", "def test_it() -> None:\n    raise ValueError\n"


@pytest.mark.parametrize(("text", "count", "code"), [(SOUND, 1, 0), (BROKEN, 1, 1), (SOUND, 6, 1), (SOUND, 0, 1)])
def test_a_second_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], text: str, count: int, code: int
) -> None:
    names = [f"test_{number}.py::test_it@system-java" for number in range(count)]
    for number in range(count):
        (tmp_path / f"test_{number}.py").write_text(text)
    (tmp_path / "lastfailed").write_text(json.dumps(dict.fromkeys(names, True)))
    monkeypatch.setattr(second_look, "LAST_FAILED", tmp_path / "lastfailed")
    monkeypatch.setattr(second_look, "ROOT", tmp_path)
    assert second_look.main() == code
    assert ("UNSTEADY test_0.py::test_it" in capfd.readouterr().out) is (code == 0)
