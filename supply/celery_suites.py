"""Runs the suites of kombu and Celery themselves on a live orbitmq (`make test-celery`). Both are in the source
distributions of the versions that are installed; Celery's keeps results in a Redis, which this starts and stops.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import os
import socket
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from orbitmq.testing import Cluster

REGISTER = "import orbitmq.integrations.celery\n"
# kombu's classes of tests, as its other transports use them.
KOMBU = """
import kombu
import pytest
import orbitmq.integrations.celery
from .common import (
    BaseEventLoop, BaseExchangeTypes, BaseFailover, BaseMessage, BasePriority, BaseTimeToLive, BasicFunctionality
)

@pytest.fixture
def connection():
    return kombu.Connection("orbitmq://{address}", transport_options={{"priority_steps": [0, 3, 6, 9]}})

@pytest.fixture
def invalid_connection():
    return kombu.Connection("orbitmq://localhost:1")

@pytest.fixture
def failover_connection():
    return kombu.Connection("orbitmq://localhost:1;orbitmq://{address}", connect_timeout=10)

class test_Basic(BasicFunctionality): pass
class test_Exchanges(BaseExchangeTypes): pass
class test_TimeToLive(BaseTimeToLive): pass
class test_Priority(BasePriority): pass
class test_Messages(BaseMessage): pass
class test_EventLoop(BaseEventLoop): pass
class test_Failover(BaseFailover): pass
"""
# What needs another server or package: Azure's storage, and tests of memory that take a quarter of an hour.
FILES_LEFT_OUT = (
    "test_backend.py",
    "test_mem_leak_in_exception_handling.py",
    "test_backend_leak_in_fixture_teardown.py",
)
TESTS_LEFT_OUT = (
    "test_inspect.py::test_Inspect::test_scheduled",  # lists what a worker holds back; here a broker does
    "test_tasks.py::test_task_replacement::test_replaced_task_nesting_level_0",  # it races the worker
    "test_worker.py::test_django_fixup_direct_worker",  # needs Django, and no broker
    # It publishes a Signal of Python as a property, which no JSON has; with Redis Celery expects that it fails.
    "test_canvas.py::test_chain::test_chord_header_id_duplicated_on_rabbitmq_msg_duplication",
    # These fail with Redis as their broker as well (--redis).
    "test_canvas.py::test_chord::test_disabling_flag_allow_error_cb_on_chord_header",
    "test_redis_backend.py::test_pubsub_subscribe_churn_while_draining",
    "test_redis_backend.py::test_pubsub_reentrant_cancel_from_finalizer",
    "test_tasks.py::test_tasks::test_revoked_by_headers_complex_canvas",
    "test_tasks.py::test_trace_log_arguments",
    "test_worker.py::test_pidbox_reset_after_repeated_control_errors",  # after those of test_tasks.py
)
LEFT_OUT = (
    *(f"--ignore=t/integration/{name}" for name in FILES_LEFT_OUT),
    *(f"--deselect=t/integration/{name}" for name in TESTS_LEFT_OUT),
)

FIXTURES = ("-p", "celery.contrib.pytest")  # of Celery's own tests, which pytest-celery loads otherwise


def unpacked(package: str, place: Path) -> Path:
    """The source distribution of the installed version of a package."""
    version = importlib.metadata.version(package)
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    subprocess.run([*download, "--dest", place, f"{package}=={version}"], check=True)
    with tarfile.open(place / f"{package}-{version}.tar.gz") as archive:
        archive.extractall(place, filter="data")
    return place / f"{package}-{version}"


def client_of_redis(place: Path) -> Path:
    """A directory with the client that kombu names: only these suites need it."""
    needed = [one for one in importlib.metadata.requires("kombu") or [] if "extra" in one and one.startswith("redis")]
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", place / "packages"]
    subprocess.run([*install, needed[0].partition(";")[0]], check=True)
    return place / "packages"


@contextlib.contextmanager
def redis() -> Iterator[str]:
    """The address of one that keeps nothing."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = ["redis-server", "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def run(home: Path, tests: list[str], packages: Sequence[Path] = (), **environment: str) -> int:
    """Run tests of a distribution, with further packages; pytest's exit code."""
    (home / "sitecustomize.py").write_text(REGISTER)
    path = os.pathsep.join([str(home), *filter(None, [os.environ.get("PYTHONPATH")]), *map(str, packages)])
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # tests start `celery`
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:orbitmq", "-p", "no:cacheprovider", "--timeout", "120"]
    settings = ["-o", "python_classes=test_*", "-o", "addopts="]
    return subprocess.run(
        [*command, *settings, *tests],
        cwd=home,
        env={**os.environ, "PATH": programs, "PYTHONPATH": path, **environment},
        check=False,
    ).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tests", nargs="*", help="of Celery, such as t/integration/test_tasks.py (all)")
    parser.add_argument("--redis", action="store_true", help="Celery's with Redis as its broker, to compare")
    arguments = parser.parse_args()
    chosen = arguments.tests
    with tempfile.TemporaryDirectory(prefix="suites-") as name:
        place = Path(name)
        kombu, celery = unpacked("kombu", place), unpacked("celery", place)
        failed = 0
        if not arguments.redis:
            with Cluster() as cluster:
                text = KOMBU.format(address=cluster.namesrv_address)
                (kombu / "t" / "integration" / "test_orbitmq.py").write_text(text)
                failed = run(kombu, ["t/integration/test_orbitmq.py"])
        with Cluster() as cluster, redis() as results:
            host, _, port = results.partition(":")
            failed += run(
                celery,
                [*FIXTURES, *(chosen or ["t/integration", *LEFT_OUT])],
                packages=[client_of_redis(place)],
                TEST_BROKER=f"redis://{results}/1" if arguments.redis else f"orbitmq://{cluster.namesrv_address}",
                TEST_BACKEND=f"redis://{results}/0",
                REDIS_HOST=host,
                REDIS_PORT=port,
            )
    return int(failed != 0)


if __name__ == "__main__":
    sys.exit(main())
