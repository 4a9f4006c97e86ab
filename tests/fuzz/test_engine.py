"""The engine finds faults: each of those planted here, in a bounded number of inputs, with one seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz import engine, records
from fuzz.promise import Target
from tests.fuzz.planted import TARGETS

INPUTS = 2_000
SECONDS = 120  # so many take one; this is for a machine that has other work
FOUND = ("AssertionError", "IndexError", "MemoryError")  # by the planted ones, in their order

pytestmark = pytest.mark.skipif(
    not engine.is_there(), reason="the engine is put there by make develop, on Linux on x86-64 alone"
)


@pytest.mark.parametrize(("target", "error"), [*zip(TARGETS, FOUND, strict=True)], ids=FOUND)
def test_a_planted_fault_is_found(target: Target, error: str, tmp_path: Path) -> None:
    outcome = engine.run(target, tmp_path / "work", inputs=INPUTS, seconds=SECONDS, seed=1)
    assert [text for text in outcome.findings if text.startswith(error)], (outcome.work / "log").read_text()[-2000:]
    assert list(outcome.work.glob("finding-*.bin")), "the input is kept"


def test_what_keeps_its_promise_has_no_findings(tmp_path: Path) -> None:
    target = next(target for target in records.TARGETS if target.name == "batch")
    outcome = engine.run(target, tmp_path / "work", inputs=INPUTS, seconds=SECONDS, seed=1)
    assert not outcome.findings
    assert outcome.inputs == INPUTS
    assert outcome.kept
