"""The DAG that keeps a lake: Airflow runs it, and what it finds wrong fails it."""

from __future__ import annotations

import json
import runpy
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from deltalake import DeltaTable

from orbitmq.pipeline.command import parser
from orbitmq.pipeline.job import job_named
from orbitmq.testing import Cluster
from tests.orchestration.conftest import EXAMPLES, TOPIC, program, run, send

DAG = EXAMPLES / "airflow" / "orbitmq_lake.py"
ORBITMQ = Path(sys.executable).with_name("orbitmq")
LIMIT_S = 1800  # for three runs of three jobs, which take three minutes on a machine that does nothing else


class Recorded:
    """A class of Airflow that does nothing, and keeps what it was given."""

    made: list[dict[str, Any]]

    def __init__(self, *_: object, **given: object) -> None:
        self.made.append(given)

    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


def _module(monkeypatch: pytest.MonkeyPatch, name: str, **members: object) -> None:
    module = ModuleType(name)
    module.__dict__.update(members)
    monkeypatch.setitem(sys.modules, name, module)


def test_the_dag_runs_jobs_that_exist_with_flags_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    operators = type("Operators", (Recorded,), {"made": []})
    dags = type("Dags", (Recorded,), {"made": []})
    chained: list[tuple[object, ...]] = []
    _module(monkeypatch, "airflow.sdk", DAG=dags, chain=lambda *tasks: chained.append(tasks))
    _module(monkeypatch, "airflow.providers.standard.operators.bash", BashOperator=operators)
    runpy.run_path(str(DAG))
    assert [task["task_id"] for task in operators.made] == ["archive", "compact", "audit"]
    assert len(chained[0]) == 3
    for task in operators.made:
        run_as, program, pipeline, name, *flags = shlex.split(task["bash_command"])
        assert (run_as, program, pipeline, name) == ("exec", "$ORBITMQ", "pipeline", task["task_id"])
        given = vars(parser(job_named(name)).parse_args(flags))
        named = {value[1:] for value in given.values() if isinstance(value, str) and value.startswith("$")}
        assert named <= task["env"].keys()
        assert given["output"] == "json"


@pytest.fixture
def airflow(tmp_path: Path, cluster: Cluster) -> Callable[..., Any]:
    """Runs a command of Airflow with the DAG, a lake of its own and SQLite."""
    told = {
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAG.parent),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW_VAR_ORBITMQ_NAME_SERVER": cluster.namesrv_address,
        "AIRFLOW_VAR_ORBITMQ_LAKE": str(tmp_path / "lake"),
        "AIRFLOW_VAR_ORBITMQ_TOPICS": TOPIC,
        "AIRFLOW_VAR_ORBITMQ_PROGRAM": str(ORBITMQ),
    }
    command = program("airflow", "airflow")
    return lambda *arguments: run(command, *arguments, **told)


def _archived(lake: Path) -> list[tuple[int, int]]:
    """The queue and the offset of each message."""
    table = DeltaTable(str(lake)).to_pyarrow_table(columns=["queueId", "queueOffset"])
    return sorted(zip(*table.to_pydict().values(), strict=True))


@pytest.mark.timeout(LIMIT_S)
def test_airflow_keeps_the_lake_and_fails_for_what_the_audit_finds(
    airflow: Callable[..., Any], cluster: Cluster, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    migrated = airflow("db", "migrate")
    assert migrated.returncode == 0, migrated.stderr

    for count in (20, 30):
        send(cluster, range(count))
        done = airflow("dags", "test", "orbitmq_lake")
        assert done.returncode == 0, done.stdout + done.stderr
    places = _archived(lake)
    assert len(places) == len(set(places)) == 50
    assert (lake / "_audit" / "report.html").exists()

    shutil.rmtree(lake / "_checkpoint")  # without it an archive begins anew: every message is there twice
    failed = airflow("dags", "test", "orbitmq_lake")
    assert len(_archived(lake)) == 100
    assert failed.returncode != 0, failed.stdout
    summary = json.loads((lake / "_audit" / "summary.json").read_text(encoding="utf-8"))
    assert "duplicates" in {finding["kind"] for finding in summary["findings"]}
