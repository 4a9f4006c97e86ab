"""What the bench makes of its measurements."""

from __future__ import annotations

from io import StringIO
from typing import Any

from rich.console import Console

from bench import runs
from bench.report import best, lag_notes, line, page, rows_of, table
from bench.systems import OURS, RIVAL
from bench.works import SETTINGS, WORKS


def measured(rate: float, **figures: float | None) -> dict[str, Any]:
    times = {"p50Micros": 1000.0, "p99Micros": 2000.0, "p999Micros": 4000.0}
    return {"rate": rate, "cpuMicros": 10.0, "errors": 0, **times, **figures}


def reported(rows: dict[str, dict[str, list[dict[str, Any]]]]) -> dict[str, Any]:
    return {
        "time": "2026-11-22T01:02:03Z",
        "notes": ["two cores", "the best of 3 rounds"],
        "rows": rows_of(rows),
        "floors": {"sync": 3.14},
        "start_seconds": {RIVAL: 2.0, OURS: 0.5},
        "memory": {RIVAL: {"own": 1000, "resident": 2000}, OURS: {"own": 50, "resident": 500}},
    }


def printed(rows: dict[str, dict[str, list[dict[str, Any]]]]) -> str:
    report = reported(rows)
    console = Console(width=220, file=StringIO())
    with console.capture() as captured:
        console.print(table(report))
    return captured.get()


def test_a_figure_is_the_best_of_its_rounds() -> None:
    rounds = [measured(10, errors=0), measured(30, errors=3, cpuMicros=12.0), measured(11, errors=0)]
    assert best(rounds) == {**measured(30), "errors": 3}


def test_what_was_not_measured_in_each_round_has_no_best() -> None:
    assert best([measured(10), measured(10, p99Micros=None)])["p99Micros"] is None
    assert best([{"rate": 10, "cpuMicros": 1, "errors": 0}])["p999Micros"] is None


def cells_of(name: str, rival: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    text = printed({name: {RIVAL: [rival], OURS: [ours]}})
    row = next(row for row in text.splitlines() if WORKS[name].title in row)
    return [cell.strip() for cell in row.strip("│").split("│")][1:]


def test_ratios_are_ours_to_the_rivals_and_bars_stand_beside_them() -> None:
    cells = cells_of("sync16", measured(1000), measured(1499, cpuMicros=4.0))
    assert cells == ["1,000", "1,499", "1.50 ≥1.6 !", "10.0", "4.0", "0.40 ≤0.40", "3.1", *["1.00 / 2.00 / 4.00"] * 2]
    cells = cells_of("latency", measured(1000), measured(1000, cpuMicros=4.0, p50Micros=500.0))
    assert cells[2:] == [
        "1.00", "10.0", "4.0", "0.40 ≤0.33 !", "", "1.00 / 2.00 / 4.00",
        "0.50 / 2.00 / 4.00 (0.50 ≤0.50) (1.00 ≤0.50 !)",
    ]  # fmt: skip
    assert "0.25 ≤0.20 !" in next(row for row in printed({}).splitlines() if "start-up" in row)


def test_a_row_without_times_or_processor_time_leaves_its_cells_empty() -> None:
    one = {"rate": 100.0, "cpuMicros": None, "errors": 0}
    text = printed({"recovery": {RIVAL: [one], OURS: [one]}})
    row = next(row for row in text.splitlines() if WORKS["recovery"].title in row)
    assert [cell.strip() for cell in row.strip("│").split("│")][4:] == [""] * 6
    assert line("recovery", one) == "100 MiB of log/s, 0 errors"


def test_the_page_has_the_same_table_and_the_facts_of_the_run() -> None:
    told = page(reported({"sync16": {RIVAL: [measured(1000)], OURS: [measured(1499, cpuMicros=5.0)]}})).splitlines()
    assert told[0].startswith("Run of 2026-11-22: ")
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in told if row.startswith("|")]
    assert {len(row) for row in rows} == {10}
    assert rows[0][1] == f"a second, {RIVAL}"
    assert rows[2][:5] == ["sync send, 16 threads", "1,000", "1,499", "1.50 ≥1.6 !", "10.0"]
    assert [row[0] for row in rows[3:]] == ["start-up, s", "own memory, MiB", "resident memory, MiB"]
    assert told[-2:] == ["- two cores", "- the best of 3 rounds"]


def test_runs_stand_side_by_side_with_the_medians_of_all_their_rounds() -> None:
    def run(time: str, *ours: float) -> dict[str, Any]:
        rounds = {"sync16": {RIVAL: [measured(1000)], OURS: [measured(rate, cpuMicros=4.0) for rate in ours]}}
        return reported(rounds) | {"time": time, "measurements": rounds}

    told = runs.page([run("2026-11-22T01:02:03Z", 1400, 1300), run("2026-11-23T01:02:03Z", 1700, 1650)]).splitlines()
    assert told[0].startswith("Runs of 2026-11-22 01:02:03, 2026-11-23 01:02:03: ")
    assert told[4:] == [
        "| sync send, 16 threads | a second | 1.40 ! | 1.70 | 1.52 ≥1.6 ! |",
        "| sync send, 16 threads | CPU | 0.40 | 0.40 | 0.40 ≤0.40 |",
    ]


def test_a_row_that_one_of_the_runs_has_not_measured_is_left_out_of_them() -> None:
    rounds = {"sync16": {RIVAL: [measured(1000)], OURS: [measured(2000, cpuMicros=None)]}}
    told = runs.page([reported(rounds) | {"measurements": rounds}])
    assert "a second" in told
    assert "CPU" not in told


def test_each_row_has_a_setting_and_each_setting_a_row() -> None:
    assert {work.setting for work in WORKS.values()} == set(SETTINGS)


def test_how_far_slaves_were_behind_is_a_note_where_there_were_some() -> None:
    rounds = [{"lagMedianKiB": 1.0, "lagMaxKiB": 5.0}, {"lagMedianKiB": 3.0, "lagMaxKiB": 4.0}]
    without = [{"lagMedianKiB": None, "lagMaxKiB": None}]
    found = lag_notes({"replicated64": {"one": rounds, "other": without}, "sync64": {"one": [{"rate": 1.0}]}})
    assert found == [
        "SYNC_MASTER send, 64 threads: the slave was behind by (median / most KiB): one 2 / 5; other unknown"
    ]
