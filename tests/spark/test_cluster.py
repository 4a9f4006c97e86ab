"""Spark whose Python has no orbitmq, a standalone cluster of two workers and a Connect server: orbitmq is carried there
in the ways the pages name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from orbitmq.client.sync import Producer
from orbitmq.message.model import Message
from orbitmq.spark.session import WORKER_PACKAGES
from tests.spark.connect_program import LIMIT
from tests.support.orbit_process import ORBITMQ, OrbitUp
from tests.support.spark_cluster import ConnectServer, SparkCluster, bare_python
from tests.support.spark_jvm import quick

pytestmark = pytest.mark.long
COUNT = 2000
PROGRAM = Path(__file__).with_name("cluster_program.py")
CLIENT = Path(__file__).with_name("connect_program.py")
CLIENT_PACKAGES = Path(sys.prefix) / "connect"
BODIES = sorted(f"order {number}" for number in range(COUNT))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def name_server() -> Iterator[str]:
    """Of a broker with `COUNT` messages in topic `orders`, and two empty topics."""
    with OrbitUp() as running:
        with Producer("cluster-senders", running.namesrv_address) as producer:
            producer.create_topic("copies")
            producer.create_topic("connected")
            for start in range(0, COUNT, 100):
                producer.send_batch([Message("orders", f"order {start + number}".encode()) for number in range(100)])
        yield running.namesrv_address


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with what tasks and the jobs of a lake need besides orbitmq."""
    folder = tmp_path_factory.mktemp("python") / "environment"
    bare_python(folder, (*WORKER_PACKAGES, "py4j", "deltalake", "arro3-core", "typing-extensions"))
    return folder


def test_a_program_ships_orbitmq_to_every_executor(
    cluster: SparkCluster, name_server: str, environment: Path, tmp_path: Path
) -> None:
    pythons = {"PYSPARK_PYTHON": str(environment / "bin" / "python"), "PYSPARK_DRIVER_PYTHON": sys.executable}
    arguments = str(PROGRAM), name_server, "orders", "copies", str(tmp_path / "checkpoint")
    speculation = "--conf", "spark.speculation=true"
    printed = cluster.submit(*speculation, *arguments, environment=pythons, cwd=tmp_path)
    found = json.loads(printed.splitlines()[-1])
    executors = {Path(folder).parents[1] for folder, _ in found["places"]}
    assert executors == {cluster.home / "work-0", cluster.home / "work-1"}
    assert all(".zip/orbitmq" in origin for _, origin in found["places"])
    assert found["batch"] == BODIES
    assert found["stream"] == BODIES
    assert found["batches"] == 3
    text = "ORBITMQ_BAD_OPTION: option deliveryGuarantee: with spark.speculation=true two attempts of a task"
    assert [text in refused for refused in found["refused"]] == [True, True]


def test_a_job_runs_from_what_pack_writes_and_a_packed_environment(
    cluster: SparkCluster, name_server: str, environment: Path, tmp_path: Path
) -> None:
    packed = subprocess.run([ORBITMQ, "pipeline", "pack", tmp_path], capture_output=True, text=True, check=True)
    assert packed.stdout.startswith(f"spark-submit --py-files {tmp_path}/orbitmq.zip {tmp_path}/orbitmq_pipeline.py")
    with tarfile.open(
        tmp_path / "environment.tar.gz", "w:gz", compresslevel=0
    ) as archive:  # packing 200 MB would cost more than the job
        archive.add(environment, ".")
    (tmp_path / "environment").symlink_to(environment)  # the driver unpacks it where it is started
    files = "--py-files", str(tmp_path / "orbitmq.zip"), "--archives", f"{tmp_path}/environment.tar.gz#environment"
    job = str(tmp_path / "orbitmq_pipeline.py"), "archive", "--name-server", name_server, "--topics", "orders"
    pythons = {"PYSPARK_PYTHON": "./environment/bin/python", "PYSPARK_DRIVER_PYTHON": str(_driver_of_yarn(tmp_path))}
    lake = tmp_path / "lake"
    told = *files, *_temporary_folder_of_yarn(tmp_path), *job
    printed = cluster.submit(*told, "--lake", str(lake), "--json", environment=pythons, cwd=tmp_path)
    outcome = json.loads(printed.splitlines()[-1])
    assert outcome["counts"]["messages"] == COUNT
    assert outcome["failed"] == []
    archived = [body for file in lake.rglob("*.parquet") for body in pq.read_table(file)["body"].to_pylist()]
    assert sorted(body.decode() for body in archived) == BODIES


def _driver_of_yarn(folder: Path) -> Path:
    """A Python without what the scripts of spark-submit put into the environment: in YARN's cluster mode they run on
    another machine than the driver."""
    program = folder / "driver"
    program.write_text('#!/bin/sh\nexec env -u SPARK_ENV_LOADED ./environment/bin/python "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return program


def _temporary_folder_of_yarn(folder: Path) -> Iterator[str]:
    """Settings with a folder for temporary files whose path is as long as in a container of YARN: longer than that of a
    socket may be."""
    long = folder / "usercache" / "application_1795895037950_0001" / "container_1795895037950_0001_01_000001" / "tmp"
    long.mkdir(parents=True)
    for process in ("driver", "executor"):
        yield from ("--conf", f"spark.{process}.extraJavaOptions={quick()} -Djava.io.tmpdir={long}")


def test_a_client_of_spark_connect_brings_orbitmq_to_the_server(
    name_server: str, environment: Path, tmp_path: Path
) -> None:
    if not CLIENT_PACKAGES.exists():
        pytest.skip("a client of Spark Connect needs the packages of requirements/connect.lock: make develop")
    archive = tmp_path / "orbitmq.zip"
    with ConnectServer(tmp_path, environment / "bin" / "python", archive) as server:
        command = [sys.executable, str(CLIENT), server.url, name_server, "orders", "connected", str(archive)]
        own = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CLIENT_PACKAGES), *sys.path])}
        found = subprocess.run(command, capture_output=True, text=True, check=False, env=own)
        assert found.returncode == 0, found.stderr
    expected = {"source": COUNT, "target": COUNT, "behind": COUNT - LIMIT, "codes": [2, 2]}
    assert json.loads(found.stdout.splitlines()[-1]) == expected
    for job in ("compact", "rebuild"):
        assert f"orbitmq pipeline {job}: this process selects Spark Connect, and jobs do not run there" in found.stderr
