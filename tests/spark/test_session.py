"""What a session needs around the data source: a Python that has the packages, and an archive executors import from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from orbitmq.errors import SourceError
from orbitmq.spark.session import TABLES_MAX, WORKER_PACKAGES, _check_tables, check_worker_python, pack

# Runs without site-packages but for the packages a worker must have, so that nothing of the checkout is found.
IMPORT_FROM_ARCHIVE = """
import importlib.util, sys
archive, site_packages, *allowed = sys.argv[1:]
class OnlyAllowed:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in blocked:
            raise ModuleNotFoundError(f"a worker has no {top}")
blocked = {"javaproperties", "lz4", "orjson", "rich", "typer", "uvloop", "zstandard"} - set(allowed)
sys.meta_path.insert(0, OnlyAllowed())
sys.path[:0] = [archive]
sys.path.append(site_packages)
import orbitmq.spark.source
assert not [name for name in sys.modules if name.startswith("orbitmq.client")], "reads load no client"
import orbitmq.spark.sink
assert orbitmq.__file__.startswith(archive), orbitmq.__file__
print(orbitmq.spark.source.TopicSource.name())
"""


def test_the_shipped_archive_needs_no_more_than_the_named_packages(tmp_path: Path) -> None:
    import pyspark

    archive = pack(tmp_path / "orbitmq.zip")
    site_packages = Path(pyspark.__file__).parents[1]
    command = [sys.executable, "-I", "-S", "-c", IMPORT_FROM_ARCHIVE, archive, site_packages, *WORKER_PACKAGES]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.stdout == "orbitmq\n", found.stderr


def test_a_worker_python_without_the_packages_is_named_with_the_remedy(tmp_path: Path) -> None:
    bare = tmp_path / "python-without-packages"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    with pytest.raises(SourceError) as caught:
        check_worker_python(str(bare))
    text = str(caught.value)
    assert text.startswith("ORBITMQ_WORKER_PYTHON: the Python of Spark's workers")
    assert "No module named 'pyspark'" in text
    assert f"PYSPARK_PYTHON={sys.executable}" in text


def test_a_worker_python_that_is_missing_is_named_with_the_remedy() -> None:
    with pytest.raises(SourceError, match=r"^ORBITMQ_WORKER_PYTHON: .*PYSPARK_PYTHON="):
        check_worker_python("./environment/bin/python")


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exit 0", "is not a Python interpreter"),
        ("echo 3.1", f"has version 3.1, but the driver has 3.{sys.version_info[1]}"),
    ],
)
def test_a_program_that_is_no_fitting_python_is_named_with_the_remedy(tmp_path: Path, script: str, reason: str) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    with pytest.raises(SourceError, match=rf"^ORBITMQ_WORKER_PYTHON: .*, {program}, {reason}; .*PYSPARK_PYTHON="):
        check_worker_python(str(program))


def test_the_python_of_the_driver_will_do() -> None:
    check_worker_python(sys.executable)


def test_topics_that_would_be_one_view_are_refused_and_so_are_too_many() -> None:
    _check_tables(["orders", "orders2", "Payments"], ".*")
    with pytest.raises(SourceError, match="the topics Orders, orders would be one view orders of Spark"):
        _check_tables(["Orders", "orders", "payments"], ".*")
    with pytest.raises(SourceError, match=f"{TABLES_MAX + 1} topics match"):
        _check_tables([f"topic{number}" for number in range(TABLES_MAX + 1)], ".*")
