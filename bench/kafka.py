"""A broker of Apache Kafka on this machine and Spark's own source for it, the peer of reading topics. Knows nothing of
what is measured."""

from __future__ import annotations

import functools
import subprocess
import tempfile
import uuid
from pathlib import Path

from tests.support.process import ChildProcess, Daemon, ProcessFailed, accepts, free_port, write_properties

ROOT = Path(__file__).parents[1]
VERSION = "4.1.1"
_POM = Path(__file__).parent / "kafka" / "pom.xml"
_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath"
# What Spark has not got already, of all that its source for Kafka names.
SOURCE_JARS = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")
JVM = ("-Xmx512m", "-Xms512m", "-XX:+UseG1GC")


@functools.cache
def class_path(profile: str) -> tuple[str, ...]:
    """The jars of a profile of the POM, resolved by Maven once. ProcessFailed with what it said when it cannot."""
    kept = ROOT / "var" / "bench" / f"kafka-{VERSION}-{profile}-classpath.txt"
    if not kept.exists() or not Path(kept.read_text().split(":")[0]).exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        own = f"-P{profile}", f"-Dkafka.version={VERSION}", f"-Dmdep.outputFile={kept}", "-DincludeScope=runtime"
        command = ["mvn", "-q", "-B", "-f", str(_POM), _GOAL, *own]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ProcessFailed(f"Maven does not find Kafka: {done.stdout[-500:]}")
    return tuple(kept.read_text().strip().split(":"))


def source_jars() -> list[str]:
    """The jars a session needs for `format("kafka")`."""
    return [jar for jar in class_path("source") if Path(jar).name.startswith(SOURCE_JARS)]


class KafkaBroker(Daemon):
    """One broker that is its own controller, with a topic of `partitions` partitions for whoever writes first."""

    def __init__(self, home: Path, partitions: int) -> None:
        super().__init__(free_port(), home)
        self._controller_port = free_port()
        self._partitions = partitions

    def _java(self, main: str, *arguments: str) -> list[str]:
        return ["java", *JVM, "-cp", ":".join(class_path("broker")), main, *arguments]

    def _launch(self) -> ChildProcess:
        file = write_properties(self.home / "kafka.properties", self._properties())
        identity = "--cluster-id", uuid.uuid4().hex[:22]
        format_ = self._java("kafka.tools.StorageTool", "format", "-c", str(file), *identity)
        done = subprocess.run(format_, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ProcessFailed(f"Kafka does not format its directory: {done.stdout}{done.stderr}")
        return ChildProcess(self._java("kafka.Kafka", str(file)), output=self.home / "kafka.out", cwd=self.home)

    def _properties(self) -> dict[str, object]:
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": tempfile.mkdtemp(dir=self.home),
            "num.partitions": self._partitions,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
        }

    def _is_ready(self, _process: ChildProcess) -> bool:
        return accepts(self.port)
