"""A standalone Spark cluster on this machine: a master, two workers of a core each, and a Python for their tasks that
has the packages orbitmq names and no orbitmq. Knows the command line of Spark alone.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import pyspark

from tests.support.process import ChildProcess, ProcessFailed, accepts, free_port
from tests.support.spark_jvm import quick

SPARK = Path(pyspark.__file__).parent
SITE_PACKAGES = SPARK.parent
WORKERS = 2
START_S = 90  # each daemon is a JVM; alone they take two seconds
MASTER_URL = re.compile(r"spark://127\.0\.0\.1:\d+")
# Everything listens on loopback, on ports the system chooses; web pages belong to nobody.
ENVIRONMENT = {
    "SPARK_HOME": str(SPARK),
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_DAEMON_MEMORY": "128m",
    "SPARK_DAEMON_JAVA_OPTS": quick(),
    "PYTHONPATH": "",
    "PYTHONDONTWRITEBYTECODE": "1",
}
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": quick(),
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": quick(),
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # tasks wait for both executors
    "spark.cores.max": str(WORKERS),
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


class SparkCluster:
    """Up inside `with`. `home` has logs and the working directories of the executors."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.url = ""
        self._daemons: list[ChildProcess] = []

    def __enter__(self) -> Self:
        try:
            master = self._start("master", "org.apache.spark.deploy.master.Master")
            self.url = master.wait_for(lambda: _url(master), START_S, "a master")
            for number in range(WORKERS):
                size = "--cores", "1", "--memory", "1g", "--work-dir", str(self.home / f"work-{number}")
                self._start(f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *size, self.url)
            for worker in self._daemons[1:]:
                worker.wait_for(lambda one=worker: _has(one, "registered with master"), START_S, "a worker")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for daemon in reversed(self._daemons):
            daemon.stop()

    def _start(self, name: str, kind: str, *arguments: str) -> ChildProcess:
        where = "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"
        daemon = ChildProcess(
            [str(SPARK / "bin" / "spark-class"), kind, *where, *arguments],
            output=self.home / f"{name}.out",
            environment=ENVIRONMENT,
            cwd=self.home,
        )
        self._daemons.append(daemon)
        return daemon

    def submit(self, *arguments: str, environment: Mapping[str, str], cwd: Path, timeout_s: float = 300) -> str:
        """What a program prints that spark-submit runs in client mode. ProcessFailed when it does not end well."""
        command = [str(SPARK / "bin" / "spark-submit"), "--master", self.url, *settings(), *arguments]
        child = ChildProcess(command, output=cwd / "submitted.out", environment=ENVIRONMENT | environment, cwd=cwd)
        with child:
            if child.wait(timeout_s):
                raise child.failed("ended badly")
        return child.output()


class ConnectServer:
    """A server of Spark Connect that runs its tasks itself, with `python`. Up inside `with`. Its Python processes look
    into `archive` if it is there when they start."""

    def __init__(self, home: Path, python: Path, archive: Path) -> None:
        self._home = home
        self._python = python
        self._archive = archive
        self._port = free_port()
        self.url = f"sc://127.0.0.1:{self._port}"
        self._process: ChildProcess | None = None

    def __enter__(self) -> Self:
        own = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(self._port)}
        kind = "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"
        submit = str(SPARK / "bin" / "spark-submit"), *kind, "--master", f"local[{WORKERS}]"
        python = {"PYSPARK_PYTHON": str(self._python), "PYTHONPATH": str(self._archive)}
        self._process = ChildProcess(
            [*submit, *settings(own), "spark-internal"],
            output=self._home / "connect.out",
            environment=ENVIRONMENT | python | {"SPARK_DAEMON_MEMORY": "700m", "SPARK_CONNECT_MODE": "0"},
            cwd=self._home,
        )
        try:
            self._process.wait_for(lambda: accepts(self._port), START_S, "a Connect server")
        except BaseException:
            self._process.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            self._process.stop()


def settings(more: Mapping[str, str] = {}) -> list[str]:
    """Small executors, for spark-submit."""
    return [part for key, value in {**SETTINGS, **more}.items() for part in ("--conf", f"{key}={value}")]


def _url(master: ChildProcess) -> str:
    found = MASTER_URL.search(master.errors())
    return found[0] if found and "New state: ALIVE" in master.errors() else ""


def _has(child: ChildProcess, text: str) -> bool:
    return text in child.errors()


def bare_python(folder: Path, packages: Sequence[str]) -> Path:
    """A virtual environment with links to these distributions of this one, and nothing else; its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", folder], check=True)
    target = next((folder / "lib").glob("python3.*")) / "site-packages"
    for package in packages:
        names = {Path(file).parts[0] for file in importlib.metadata.files(package) or ()}
        for name in names - {".."}:
            if not (target / name).exists():
                (target / name).symlink_to(SITE_PACKAGES / name)
    python = folder / "bin" / "python"
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    found = subprocess.run([python, "-c", "import orbitmq"], env=clean, capture_output=True, text=True, check=False)
    if "No module named 'orbitmq'" not in found.stderr:
        raise ProcessFailed(f"{python} was to have no orbitmq: {found.stdout}{found.stderr}")
    return python
