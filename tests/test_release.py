"""What a release is made of works where there is nothing else: the source archive makes the wheel, and the wheel, in an
environment with its dependencies alone, runs a cluster, sends, reads and tells what is there. No JVM, no test library.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZipFile

import pytest

import orbitmq
from tests.support.process import wait_until

ROOT = Path(__file__).parents[1]
VERSION = orbitmq.__version__
SOURCES = ("pyspark_orbitmq.py", "pyspark_orbitmq_lake.py", "pyspark_orbitmq_store.py")
"""Where Spark looks for a data source by its name."""
_LOCKED = re.compile(r"^([a-z0-9][a-z0-9._-]*)==", re.MULTILINE)
_WHERE = re.compile(r"127\.0\.0\.1:\d+")


def run(*words: object, **environment: str) -> str:
    told = subprocess.run(
        list(map(str, words)),
        cwd="/",
        env=_clean(environment),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert told.returncode == 0, f"{words}: {told.stdout}{told.stderr}"
    return told.stdout


def _clean(environment: dict[str, str]) -> dict[str, str]:
    """Nothing leads back to the sources, or to another cluster."""
    left = {"PYTHONPATH", "NAMESRV_ADDR", "ORBITMQ_CONTEXT", "VIRTUAL_ENV"}
    return {**{name: value for name, value in os.environ.items() if name not in left}, **environment}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made from the source archive, as it is made by whoever has only that."""
    place = tmp_path_factory.mktemp("release")
    build = (sys.executable, "-m", "hatchling", "build")
    subprocess.run([*build, "-t", "sdist", "-d", place], cwd=ROOT, check=True, capture_output=True)
    with tarfile.open(place / f"orbitmq-{VERSION}.tar.gz") as archive:
        archive.extractall(place, filter="data")
    subprocess.run(
        [*build, "-t", "wheel", "-d", place],
        cwd=place / f"orbitmq-{VERSION}",
        env={**os.environ, "ORBITMQ_BUILD": "interpreted"},
        check=True,
        capture_output=True,
    )
    return place / f"orbitmq-{VERSION}-py3-none-any.whl"


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel and what it depends on, in the versions that are locked. Those are
    linked from the environment of the tests: to fetch them again would prove nothing more.
    """
    place = tmp_path_factory.mktemp("clean")
    venv.create(place, with_pip=False, symlinks=True)
    (packages,) = place.glob("lib/python*/site-packages")
    for name in _LOCKED.findall((ROOT / "requirements" / "runtime.lock").read_text()):
        found = distribution(name)
        for top in {file.parts[0] for file in found.files or () if ".." not in file.parts}:
            if not (packages / top).exists():
                (packages / top).symlink_to(str(found.locate_file(top)))
    pip = (sys.executable, "-m", "pip", "--python", place / "bin" / "python", "--disable-pip-version-check")
    run(*pip, "install", "--no-deps", "--no-index", "--quiet", wheel)
    assert "No broken requirements" in run(*pip, "check")
    return place / "bin"


@contextmanager
def up(programs: Path, home: Path) -> Iterator[str]:
    """`orbitmq up` from the wheel; the address of its name server."""
    output = home / "up.out"
    words = [programs / "orbitmq", "up", "--data-dir", home, "--namesrv-port", "0", "--broker-port", "0"]
    with (
        output.open("w") as file,
        subprocess.Popen(
            list(map(str, words)), cwd="/", env=_clean({"HOME": str(home)}), stdout=file, stderr=subprocess.STDOUT
        ) as process,
    ):
        try:
            wait_until(lambda: _WHERE.search(output.read_text()) or process.poll() is not None, 60, "the cluster")
            found = _WHERE.search(output.read_text())
            assert found is not None, output.read_text()
            yield found[0]
        finally:
            process.terminate()
            process.wait(60)


def test_the_wheel_holds_what_it_needs_and_nothing_of_the_tests(wheel: Path) -> None:
    names = ZipFile(wheel).namelist()
    files = [path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    files = [path.with_suffix(".mo") if path.suffix == ".po" else path for path in files]  # compiled texts
    mine = {str(path.relative_to(ROOT / "src")) for path in files}
    mine |= {"orbitmq/interpreted.txt"}
    assert mine <= set(names)
    assert "orbitmq/py.typed" in names
    assert {Path(name).name for name in names if "licenses" in name} == {"LICENSE", "NOTICE"}
    tops = {Path(name).parts[0] for name in names}
    assert tops == {"orbitmq", *SOURCES, f"orbitmq-{VERSION}.dist-info"}


def test_the_wheel_alone_runs_a_cluster_and_its_commands(environment: Path, tmp_path: Path) -> None:
    orbit = environment / "orbitmq"
    assert run(orbit, "--version").startswith(f"orbitmq {VERSION} (interpreted: ORBITMQ_BUILD=interpreted; ")
    where = run(environment / "python", "-c", "import orbitmq; print(orbitmq.__file__)")
    assert str(environment.parent) in where, "not the sources"
    with up(environment, tmp_path) as address:
        home = {"HOME": str(tmp_path), "NAMESRV_ADDR": address}
        run(orbit, "topic", "create", "Orders", "--yes", **home)
        run(orbit, "msg", "send", "Orders", "hello", "--key", "order-1", **home)
        told = run(orbit, "msg", "tail", "Orders", "--from", "begin", "--until", "end", "-f", "%k %v\\n", **home)
        assert told == "order-1 hello\n"
        assert "Orders" in run(orbit, "topic", "list", "-o", "name", **home).splitlines()
        assert "all is well" in run(orbit, "cluster", "overview", **home)
