"""Reads, streams, writes and the archive with an account and over TLS, at brokers that ask for both: RocketMQ 4.9.7 and
orbitmq, the same test for both."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from orbitmq.client import Message
from orbitmq.client.settings import ClientSettings
from orbitmq.client.sync import LitePullConsumer, Producer
from orbitmq.pipeline import archive
from orbitmq.pipeline.audit import job as audit
from orbitmq.pipeline.job import JobResult
from orbitmq.pipeline.session import DATA_SOURCES
from orbitmq.wire.signature import Credentials
from tests.spark.conftest import SYSTEMS, System
from tests.support.access import ADMIN, APPLICATION, PLAIN_ACL, STRANGER, write_acl
from tests.support.certificates import Authority
from tests.support.java_rocketmq import ROCKETMQ_4, SMALL_JVM, JavaBroker, JavaNameServer, JavaSystem
from tests.support.jobs import run_job
from tests.support.orbit_process import OrbitUp
from tests.support.streams import finished

COUNT = 60
TOPIC, OUT, GROUP, OTHER = "jobs", "questions", "workers", "orders"  # what APPLICATION may use, and what not
ACCOUNTS = PLAIN_ACL.replace("  - workers=SUB", "  - TOOLS_CONSUMER=SUB\n  - workers=SUB")  # jobs and writes read as it


class Protected:
    """A system, and how APPLICATION reaches it."""

    def __init__(self, system: System, authority: Authority) -> None:
        self.system = system
        self.ca = str(authority.path)

    def options(self, account: Credentials | None = APPLICATION, **more: str) -> dict[str, str]:
        """Of a data source."""
        found = {"nameServer": self.system.namesrv_address, "useTLS": "true", "tls.client.trustCertPath": self.ca}
        keys = {"accessKey": account.access_key, "secretKey": account.secret_key} if account else {}
        return found | keys | more

    def settings(self, account: Credentials = APPLICATION) -> ClientSettings:
        """Of a client."""
        keys = {"access_key": account.access_key, "secret_key": account.secret_key}
        return {**keys, "tls": True, "tls_ca_file": self.ca}  # type: ignore[return-value]

    def send(self, topic: str, numbers: range, account: Credentials = APPLICATION) -> None:
        with Producer("senders", self.system.namesrv_address, **self.settings(account)) as producer:
            for number in numbers:
                producer.send(Message(topic, b"%d" % number))


def protected_java(keys: dict[str, object]) -> JavaSystem:
    """A Java process takes keys of TLS from its system properties."""
    jvm = (*SMALL_JVM, *(f"-D{key}={value}" for key, value in keys.items()))
    system = JavaSystem(ROCKETMQ_4)
    system.nameserver = JavaNameServer(ROCKETMQ_4, jvm=jvm)
    system.broker = JavaBroker(system.nameserver.address, ROCKETMQ_4, jvm=jvm, aclEnable="true")
    system.namesrv_address, system.address = system.nameserver.address, system.broker.address
    write_acl(system.broker.home, ACCOUNTS)
    return system


def protected_orbitmq(keys: dict[str, object]) -> OrbitUp:
    system = OrbitUp(**keys, aclEnable="true")  # type: ignore[arg-type]
    system._config["rocketmqHome"] = system.home
    write_acl(system.home, ACCOUNTS)
    return system


@pytest.fixture(scope="module", params=SYSTEMS)
def protected(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Protected]:
    authority = Authority(tmp_path_factory.mktemp("tls"))
    pair = authority.issue("server")
    keys: dict[str, object] = {
        "tls.server.mode": "permissive",
        "tls.test.mode.enable": "false",
        "tls.server.certPath": pair.certificate,
        "tls.server.keyPath": pair.key,
    }
    with (protected_java if request.param == "java" else protected_orbitmq)(keys) as system:
        made = Protected(system, authority)
        made.send(TOPIC, range(COUNT))
        made.send(OUT, range(1))  # a write creates no topic
        made.send(OTHER, range(1), ADMIN)
        yield made


def numbers(spark: SparkSession, protected: Protected, topic: str) -> list[int]:
    frame = spark.read.format("orbitmq").options(**protected.options(groupId=GROUP)).load(topic)
    return sorted(int(row.body) for row in frame.collect())


def test_an_account_reads_streams_and_writes_encrypted(
    spark: SparkSession, protected: Protected, tmp_path: Path
) -> None:
    assert numbers(spark, protected, TOPIC) == list(range(COUNT))
    options = protected.options(groupId=GROUP, commitOffsets="true", startingOffsets="earliest")
    frame = spark.readStream.format("orbitmq").options(**options).load(TOPIC).select("body")
    writer = frame.where("body != '0'").writeStream.format("orbitmq").option("checkpointLocation", str(tmp_path))
    sink = protected.options(topic=OUT, deliveryGuarantee="effectively-once")
    spark.createDataFrame([], "x INT")  # makes it this thread's session; a write looks for its sink there
    finished(writer.options(**sink).trigger(availableNow=True).start)
    assert numbers(spark, protected, OUT) == list(range(COUNT))
    with LitePullConsumer(
        GROUP, protected.system.namesrv_address, auto_commit=False, **protected.settings()
    ) as consumer:
        queues = consumer.fetch_queues(TOPIC)
        consumer.assign(queues)
        assert sum(consumer.committed(queue) or 0 for queue in queues) == COUNT


def test_an_account_archives_encrypted(spark: SparkSession, protected: Protected, tmp_path: Path) -> None:
    for kind in DATA_SOURCES:
        spark.dataSource.register(kind)
    told = {key.replace(".", "__"): value for key, value in protected.options().items()}
    outcome = run_job(archive.JOB, spark, **told, topics=TOPIC, lake=tmp_path, archiveGroup="workers-in-order")
    assert outcome.counts["messages"] == COUNT
    assert APPLICATION.secret_key not in json.dumps([*map(str, tmp_path.rglob("*"))])


def test_an_account_audits_what_it_may_see(spark: SparkSession, protected: Protected, tmp_path: Path) -> None:
    """RocketMQ tells every account where all groups stand, orbitmq administrators alone."""

    def missing(topics: str, checks: str) -> tuple[JobResult, dict[str, str]]:
        told = {key.replace(".", "__"): value for key, value in protected.options().items()}
        outcome = run_job(audit.JOB, spark, **told, topics=topics, checks=checks, out=tmp_path)
        return outcome, json.loads((tmp_path / "summary.json").read_text())["missing"]

    outcome, refused = missing(TOPIC, "backlog,damage")
    assert (outcome.counts["messages"], outcome.counts["damaged"]) == (COUNT, 0)
    assert refused.keys() == ({"backlog"} if isinstance(protected.system, OrbitUp) else set())
    assert len(outcome.failed) == len(refused)
    assert all("AclException" in reason for reason in refused.values())

    outcome, refused = missing(f"{TOPIC},{OTHER}", "gaps,keys")
    assert refused.keys() == {"gaps", "keys"}
    assert re.match(r"ORBITMQ_NO_PERMISSION: .*AclException", refused["gaps"])


@pytest.mark.parametrize(
    ("account", "topic"), [(APPLICATION, OTHER), (STRANGER, TOPIC), (None, TOPIC)], ids=["other", "stranger", "nobody"]
)
def test_who_may_not_is_told(
    spark: SparkSession, protected: Protected, account: Credentials | None, topic: str
) -> None:
    with pytest.raises(PySparkException, match=r"ORBITMQ_NO_PERMISSION: .*AclException") as caught:
        spark.read.format("orbitmq").options(**protected.options(account, groupId=GROUP)).load(topic).collect()
    assert account is None or account.secret_key not in str(caught.value)


def test_a_certificate_nobody_vouches_for_is_refused(spark: SparkSession, protected: Protected) -> None:
    options = {**protected.options(), "tls.client.trustCertPath": "", "fetchOffset.numRetries": "0"}
    with pytest.raises(PySparkException, match="ORBITMQ_NAMESERVER_UNAVAILABLE"):
        spark.read.format("orbitmq").options(**options).load(TOPIC).collect()
