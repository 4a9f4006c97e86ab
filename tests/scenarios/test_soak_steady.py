"""An even load in its short form: nothing is lost, whatever was delayed or given back, and the judge has what it needs.

`make soak-steady` is the long one; that it sees a leak and a loss is shown in `tests/bench/test_soak_judge.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.soak.judge import MIB, Bounds
from bench.soak.steady import Settings, lines, run

# So short a time says nothing of growth or speed: those bounds are wide.
BOUNDS = Bounds(memory=512 * MIB, descriptors=500, threads=50, disk=4096 * MIB, rate_share=0.0, removes_files=False)
SETTINGS = Settings(4, peak_seconds=1, file_size=512 << 10, sample_s=0.25, delays="1s 1s 1s", bounds=BOUNDS)


def test_nothing_is_lost_under_an_even_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = run(tmp_path / "soak", SETTINGS)
    with capsys.disabled():
        print("\n" + "\n".join(lines(outcome)))
    assert outcome.judged.violations == []
    assert outcome.told.acknowledged > 0
    assert outcome.told.delayed > 0
    assert outcome.told.retried > 0
    assert {name for one in outcome.samples for name in one.processes} == {
        "broker",
        "name server",
        "sender",
        "consumer",
    }
    assert outcome.sends["count"] == outcome.told.acknowledged
    assert 0 < outcome.deliveries["count"] < outcome.told.acknowledged, "plain messages alone are timed"
    table = (tmp_path / "soak" / "samples.csv").read_text(encoding="utf-8").splitlines()
    assert len(table) == len(outcome.samples) + 1
