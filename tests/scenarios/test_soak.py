"""The fault campaign in its short form: some faults at a time in a cluster of two pairs, and every promise kept.

`make soak` is the long one; what is promised stands in `bench.soak.checker`, and that it is seen when a promise is
broken in `tests/bench/test_soak_checker.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.soak.campaign import Settings, run
from bench.soak.history import SEND_OK, Copied, Fault, Progress, Sent, of_kind
from bench.soak.report import lines

SETTINGS = Settings(seed=19_737, faults=9, seconds=12, hold_max=1.0, pause_max=0.3)  # each kind of node is killed
FAULTS_MIN = 4  # of a machine that is so busy that the time is over first


def test_promises_are_kept_under_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = run(tmp_path / "soak", SETTINGS)
    with capsys.disabled():
        print("\n" + "\n".join(lines(outcome)))
    assert outcome.verdict.violations == []
    assert len(of_kind(outcome.events, Fault)) >= FAULTS_MIN
    confirmed = {one.broker for one in of_kind(outcome.events, Sent) if one.status == SEND_OK}
    assert confirmed == {"sync", "async"}, "there was something to promise"
    assert of_kind(outcome.events, Copied)
    assert of_kind(outcome.events, Progress)
