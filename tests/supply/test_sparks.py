"""Each cell of the matrix of Spark's versions has tests, and what is said of a run is what its report has."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from supply import sparks

REPORT = """<testsuites><testsuite name="pytest" errors="1" failures="2" skipped="2" tests="9">
<testcase name="a"/><testcase name="b"><failure message="wrong">trace</failure></testcase>
<testcase name="c"><skipped type="pytest.skip" message="Spark 3.5 has none">where</skipped></testcase>
<testcase name="d"><skipped type="pytest.skip" message="Spark 3.5 has none">where</skipped></testcase>
</testsuite></testsuites>"""


def test_the_page_has_the_matrix_and_each_row_has_tests() -> None:
    page = (sparks.ROOT / "docs" / "spark-versions.md").read_text(encoding="utf-8")
    assert sparks.matrix() in page
    assert [test for test in sparks.tests() if not (sparks.ROOT / test).is_file()] == []
    assert all(row.tests for row in sparks.MATRIX)


def test_the_versions_are_those_that_pyproject_allows_and_that_are_locked() -> None:
    project = tomllib.loads((sparks.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (needed,) = [one for one in project["optional-dependencies"]["spark"] if one.startswith("pyspark")]
    assert needed == f"pyspark>={sparks.OTHERS[-1]},<4.{int(sparks.NEWEST[2:]) + 1}"
    for version in sparks.OTHERS:
        assert re.search(rf"^pyspark=={re.escape(version)}\.\d+ ", sparks.lock(version).read_text(), re.MULTILINE)


def test_a_run_is_summed_up_with_the_reasons_for_what_was_skipped(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    assert sparks.summary("3.5", report) == [
        "Spark 3.5: 4 passed, 3 failed, 2 skipped", "    2 skipped: Spark 3.5 has none"
    ]  # fmt: skip
