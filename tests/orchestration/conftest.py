"""Airflow and dbt, which have environments of their own and take minutes: `make test-orchestration` installs and runs
them. Without it their files are checked by what they say.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from orbitmq.client import Message
from orbitmq.client.sync import Producer
from orbitmq.testing import Cluster

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
TOPIC = "orders"
WANTED = "ORBITMQ_ORCHESTRATION"


def program(environment: str, name: str) -> Path:
    """A program of `.venv/airflow` or `.venv/dbt`; the test is skipped where they are not asked for."""
    if not os.environ.get(WANTED):
        pytest.skip(f"takes minutes, and an environment with {environment}: make test-orchestration")
    folder = Path(os.environ[WANTED]) / environment / "bin"
    return folder / name


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


def send(cluster: Cluster, ids: Iterable[int]) -> None:
    """Orders of Köln, 9.90 € each."""
    with Producer("orchestration", cluster.namesrv_address) as producer:
        bodies = [json.dumps({"id": one, "city": "Köln", "total": "9.90"}).encode() for one in ids]
        producer.send_batch([Message(TOPIC, body) for body in bodies])


def run(*command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """What a program prints, and how it ends; nothing leads it to the packages of the tests."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "AIRFLOW", "DBT"))}
    return subprocess.run(
        list(map(str, command)), env=own | environment, capture_output=True, text=True, check=False, timeout=600
    )


def orbitmq(*arguments: object) -> None:
    done = subprocess.run([sys.executable, "-m", "orbitmq", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
