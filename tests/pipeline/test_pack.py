"""What a cluster is given: an archive and a program that go together, and an image with the packages they need."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from orbitmq.pipeline import command
from orbitmq.spark.session import WORKER_PACKAGES

ROOT = Path(__file__).parents[2]
IMAGE = (ROOT / "deploy" / "spark" / "Dockerfile").read_text()
# Runs the program as spark-submit does, with the archive in front; of the checkout nothing is found.
RUN = """
import runpy, sys
archive, program, site_packages, *arguments = sys.argv[1:]
sys.path[:0] = [archive]
sys.path.append(site_packages)
sys.argv = [program, *arguments]
runpy.run_path(program, run_name="__main__")
"""


def test_the_program_runs_from_the_archive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["pack", str(tmp_path / "build")]) == 0
    archive, program = re.findall(r"\S+/orbitmq\S+", capsys.readouterr().out)[:2]
    import pyspark

    site_packages = str(Path(pyspark.__file__).parents[1])
    arguments = [sys.executable, "-I", "-S", "-c", RUN, archive, program, site_packages, "archive", "--help"]
    found = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("usage: orbitmq pipeline archive")


def test_a_folder_that_cannot_be_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert command.main(["pack", str(tmp_path / "file" / "build")]) == 1
    assert capsys.readouterr().err.startswith("orbitmq pipeline pack: ")


def test_the_image_has_the_packages_of_the_project() -> None:
    wanted = re.findall(r'"([a-z0-9\[\]-]+[<>=.,0-9]+)"', IMAGE)
    project = (ROOT / "pyproject.toml").read_text()
    named = {
        requirement: re.escape(f'"{requirement}') + '["; ]' for requirement in wanted
    }  # with a platform or without
    assert [requirement for requirement, pattern in named.items() if not re.search(pattern, project)] == []
    assert {re.split(r"[<>=\[]", requirement)[0] for requirement in wanted} >= {*WORKER_PACKAGES} - {"pyspark"}
