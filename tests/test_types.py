"""What a type checker tells users of the library: the types of what they get, and their mistakes."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.markdown import programs

ROOT = Path(__file__).parents[1]


def test_a_type_checker_sees_what_users_do_right_and_wrong(tmp_path: Path) -> None:
    """tests/typing/use.py says of each value what its type is, and of each mistake which error it must be; the programs
    of the pages have none.
    """
    for page in (ROOT / "README.md", ROOT / "docs" / "client.md", ROOT / "docs" / "consuming.md"):
        for program in programs(page):
            (tmp_path / f"{page.stem.lower()}_{program.line}.py").write_text(program.source, encoding="utf-8")
    files = [ROOT / "tests" / "typing" / "use.py", *tmp_path.iterdir()]
    assert len(files) > 10
    command = [sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores", *map(str, files)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout


def test_the_wheel_says_that_it_is_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORBITMQ_BUILD", "interpreted")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert "orbitmq/py.typed" in zipfile.ZipFile(wheel).namelist()
