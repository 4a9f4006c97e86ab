"""What the comparison of producers makes of what they told."""

from __future__ import annotations

from bench.frozen import KINDS, Round, figures, table
from tests.support.steady import Sent

KIND = KINDS[0]


def sent(begin: int, ms: float, *, error: str | None = None) -> Sent:
    return Sent(0, begin, round(ms * 1000), ["a"], None if error else "a", error)


def test_a_send_counts_for_the_phase_it_began_in_unless_the_freeze_caught_it() -> None:
    rows = [sent(0, 1), sent(999, 3000, error="late"), sent(1500, 1), sent(4999, 3000), sent(5000, 1)]
    one = Round("java-a", dict.fromkeys(KINDS, rows), {"before": 0, "frozen": 1000, "killed": 5000})
    assert [[row.begin for row in one.of(KIND, phase)] for phase in one.starts] == [[0], [999, 1500, 4999], [5000]]
    printed = list(table([one]))
    assert len(printed) == 2 + len(one.starts) * len(KINDS)
    assert printed[2 + len(KINDS)] == f"| java-a | frozen | {KIND} | 3 | 1 (33.3%) | 3,000.0 | 3,000.0 | 3,000.0 |"


def test_quantiles_are_measured_values() -> None:
    hundred = [sent(0, ms) for ms in range(1, 101)]
    assert figures(hundred) == ["100", "0 (0.0%)", "50.0", "99.0", "100.0"]
    assert figures([]) == ["0", "", "", "", ""]
