"""Tests with each version of Spark that orbitmq supports (`make test-spark-versions`), and the matrix of their page.

The environment of the tests has the newest one. Each other version is a directory of its own that goes before it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from supply.locks import ROOT, path

NEWEST = "4.3"
OTHERS = ("4.2", "4.1", "4.0", "3.5")
YES, NO = "yes", "no"
LACKING = "tests/spark/test_versions.py"  # what a version lacks is refused by name
REASON_CHARS = 120


@dataclass(frozen=True)
class Row:
    """What is supported, in which version, and the tests that prove it. A cell that is no is proven by LACKING."""

    what: str
    tests: tuple[str, ...]
    of_4_1: str = YES
    of_4_0: str = YES
    of_3_5: str = YES

    @property
    def cells(self) -> dict[str, str]:
        return dict(zip((NEWEST, *OTHERS), (YES, YES, self.of_4_1, self.of_4_0, self.of_3_5), strict=True))


ENDS = "[yes](#spark-40-and-41)"
JOBS = ("replay", "dlq", "migrate", "rebuild", "audit")
MATRIX = (
    Row("read topics", ("tests/spark/test_source.py", "tests/spark/test_live_filters.py"), of_3_5="`read_topics`"),
    Row("bodies as columns, read and written", ("tests/spark/test_live_bodies.py",)),
    Row("conditions of a query narrow the read (`filterPushdown`)", ("tests/spark/test_live_filters.py",),
        of_4_0=NO, of_3_5=NO),
    Row("SQL: `create_view`, `tables`", ("tests/spark/test_source.py",)),
    Row("SQL: `CREATE TEMPORARY VIEW`, `INSERT`", ("tests/spark/test_source.py", "tests/spark/test_sink.py"),
        of_3_5=NO),
    Row("read store directories", ("tests/spark/stores/test_source.py",), of_3_5="`read_store`"),
    Row("lakes, and the history of a topic", ("tests/pipeline/test_history.py",), of_3_5="`history`"),
    Row("write topics", ("tests/spark/test_sink.py",), of_3_5="`write_topics`"),
    Row("streams of topics", ("tests/spark/test_live_stream.py",), ENDS, ENDS, NO),
    Row("lag of streams on the driver (`listen`)", ("tests/spark/test_live_stream.py",), NO, NO, NO),
    Row("streams of store directories", ("tests/spark/stores/test_stream.py",), ENDS, ENDS, NO),
    Row("streams into topics", ("tests/spark/test_live_bodies.py",), of_3_5=NO),
    Row("the job `archive`", ("tests/pipeline/test_archive.py",), of_3_5=NO),
    Row("the job `compact`", ("tests/pipeline/test_archive.py",)),
    *(Row(f"the job `{job}`", (f"tests/pipeline/test_{job}.py",)) for job in JOBS),
)  # fmt: skip


def matrix() -> str:
    """The table of the documentation."""
    lines = [["Spark", NEWEST, *OTHERS], ["---"] * (2 + len(OTHERS))]
    lines += [[row.what, *row.cells.values()] for row in MATRIX]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def tests() -> list[str]:
    """The files of all rows, each once. A test that a version cannot pass skips itself there, and says why."""
    return [*dict.fromkeys([test for row in MATRIX for test in row.tests]), LACKING]


def lock(version: str) -> Path:
    return path(f"spark-{version}")


def installed(version: str) -> Path:
    """The directory with this version, which is filled first unless it was filled from this lock."""
    place = ROOT / ".venv" / f"spark-{version}"
    mark = place / ".installed"
    if not mark.exists() or mark.read_text(encoding="utf-8") != lock(version).read_text(encoding="utf-8"):
        print(f"installing Spark {version}", flush=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        how = ["--require-hashes", "--no-deps", "--upgrade", "--target", place, "-r", lock(version)]
        subprocess.run([*pip, *how], check=True)
        mark.write_text(lock(version).read_text(encoding="utf-8"), encoding="utf-8")
    return place


def run(version: str, words: list[str]) -> tuple[int, list[str]]:
    """Run the tests with this version: the exit code of pytest, and what to say of it."""
    place = installed(version)
    paths = [str(place), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    print(f"Spark {version}", flush=True)
    with tempfile.TemporaryDirectory(prefix="orbitmq-spark-") as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *(words or tests())]
        code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
        return code, summary(version, report) if report.exists() else [f"Spark {version}: the tests did not start"]


def summary(version: str, report: Path) -> list[str]:
    """The counts of a report that pytest wrote, and why tests were skipped."""
    suite = next(ET.parse(report).iter("testsuite"))
    skipped = Counter((found.get("message") or "")[:REASON_CHARS] for found in suite.iter("skipped"))
    failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    passed = int(suite.get("tests", 0)) - failed - skipped.total()
    counts = f"Spark {version}: {passed} passed, {failed} failed, {skipped.total()} skipped"
    return [counts, *(f"    {count} skipped: {reason}" for reason, count in skipped.items())]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", choices=OTHERS, action="append", help="this version alone; may be repeated")
    arguments, words = parser.parse_known_args()
    found = [run(version, words) for version in arguments.version or OTHERS]
    print(*(line for _, lines in found for line in lines), sep="\n")
    return max(code for code, _ in found)


if __name__ == "__main__":
    sys.exit(main())
