"""Tests that share something costly stay in one process, or each process would start all of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_tests_of_one_file_run_in_one_process() -> None:
    """The names xdist gives its processes stand before each test, the group behind it."""
    command = [sys.executable, "-m", "pytest", "-v", "-n", "2", "--dist", "loadgroup", "tests/message/test_topics.py"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    lines = re.findall(r"^\[(gw\d)\].*@(\S+)", ran.stdout, re.MULTILINE)
    assert len(lines) > 10
    assert len(set(lines)) == 1
