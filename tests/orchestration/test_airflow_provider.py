"""The provider in Airflow itself: its discovery, tasks, and triggers whose triggerer is killed."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from orbitmq.client import Message
from orbitmq.client.sync import Producer, PullConsumer, SimpleConsumer
from orbitmq.testing import Cluster
from tests.orchestration.conftest import EXAMPLES, program, run
from tests.support.process import ChildProcess, wait_until

OWN = Path(__file__).with_name("airflow_provider")
RUN_S = 240  # for a run of watchers, which takes half a minute on a machine that does nothing else
WAVES, EACH = 4, 15

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokerName="broker-a") as running:
        yield running


class Airflow:
    """An installation with SQLite."""

    def __init__(self, home: Path) -> None:
        self.notes = home / "notes"
        self.notes.mkdir()
        self.database = home / "airflow" / "airflow.db"
        self.environment = {
            "AIRFLOW_HOME": str(home / "airflow"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
            "AIRFLOW__SCHEDULER__TRIGGERER_JOB_HEARTBEAT_SEC": "1",
            "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "1",
            "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "5",
            "ORBITMQ_NOTES": str(self.notes),
        }

    def command(self, *arguments: object, dags: Path = OWN) -> str:
        """What a command of Airflow prints; it has to succeed."""
        done = self.tried(*arguments, dags=dags)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def tried(self, *arguments: object, dags: Path = OWN) -> Any:
        return run(program("airflow", "airflow"), *arguments, **self.environment, AIRFLOW__CORE__DAGS_FOLDER=str(dags))

    def check(self, name: str, *arguments: object, **environment: str) -> Any:
        """The result of a function of checks.py."""
        own = {"_AIRFLOW_PROCESS_CONTEXT": "server", **self.environment, **environment}  # that has the database
        done = run(program("airflow", "python"), OWN / "checks.py", name, *arguments, **own)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def noted(self, name: str) -> list[str]:
        return (self.notes / name).read_text().split("\n")[:-1]

    def rows(self, query: str) -> list[Any]:
        """Of the database."""
        with closing(sqlite3.connect(self.database, timeout=30)) as database:
            return database.execute(query).fetchall()

    def events(self, asset: str) -> Counter[str]:
        """The bodies in the events of an asset."""
        rows = self.rows(
            "SELECT asset.name, asset_event.extra FROM asset_event JOIN asset ON asset.id = asset_event.asset_id"
        )
        return Counter(json.loads(extra)["payload"]["body"] for name, extra in rows if name == asset)

    def triggerer(self, number: int) -> ChildProcess:
        own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "AIRFLOW"))}
        return ChildProcess(
            [str(program("airflow", "airflow")), "triggerer", "--skip-serve-logs"],
            output=self.notes / f"triggerer-{number}",
            environment={**own, **self.environment, "AIRFLOW__CORE__DAGS_FOLDER": str(OWN), "PYTHONPATH": str(OWN)},
        )


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory, cluster: Cluster) -> Airflow:
    program("airflow", "airflow")
    made = Airflow(tmp_path_factory.mktemp("provider"))
    made.command("db", "migrate")
    host, port = cluster.namesrv_address.split(":")
    where = "--conn-type", "rocketmq", "--conn-host", host, "--conn-port", port
    made.command("connections", "add", "rocketmq_default", *where)
    return made


def send(cluster: Cluster, topic: str, *bodies: str, tags: str | None = None) -> None:
    with Producer("senders", cluster.namesrv_address) as producer:
        for body in bodies:
            producer.send(Message(topic, body.encode(), tags=tags))


def test_airflow_finds_the_provider_and_its_parts(airflow: Airflow) -> None:
    found = airflow.check("provider")
    assert found["is_listed"]
    assert found["hook"] == ["orbitmq.integrations.airflow.hooks.RocketMQHook", "Apache RocketMQ", True]
    assert found["relabeled"]["host"] == "Name servers"
    assert found["trigger"] == "orbitmq.integrations.airflow.triggers.AwaitMessageTrigger"
    assert found["arguments"]["rocketmq_conn_id"] == "rocketmq_default"
    assert found["again"]


def test_a_connection_is_tested(airflow: Airflow, cluster: Cluster) -> None:
    assert airflow.check("connection", "rocketmq_default") == [True, "brokers: broker-a"]
    works, text = airflow.check("connection", "nowhere", AIRFLOW_CONN_NOWHERE="rocketmq://127.0.0.1:1")
    assert not works
    assert "127.0.0.1:1" in text


def test_the_example_sends_awaits_and_consumes(airflow: Airflow, cluster: Cluster) -> None:
    printed = airflow.command("dags", "test", "rocketmq_orders", dags=EXAMPLES / "airflow")
    assert [number for number in (1, 2, 3) if f"billed O-{number}" in printed] == [1, 2, 3]
    with PullConsumer("example-airflow-billing", cluster.namesrv_address) as consumer:
        lags = [
            consumer.max_offset(one) - consumer.fetch_offset(one)
            for one in consumer.fetch_queues("ExampleAirflowOrders")
        ]
    assert set(lags) == {0}


def test_a_task_that_fails_goes_on_with_the_message_that_failed(airflow: Airflow, cluster: Cluster) -> None:
    with Producer("senders", cluster.namesrv_address) as producer:
        producer.create_topic("Failing", queues=1)
        for body, tags in (("a", "wanted"), ("left out", "other"), ("bad", "wanted"), ("c", "wanted"), ("d", "other")):
            producer.send(Message("Failing", body.encode(), tags=tags))
    assert airflow.tried("dags", "test", "consume").returncode != 0
    assert airflow.noted("one") == ["a", "bad"]
    airflow.command("dags", "test", "consume")
    assert airflow.noted("one") == ["a", "bad", "bad", "c"]
    airflow.command("dags", "test", "consume")
    assert airflow.noted("one") == ["a", "bad", "bad", "c"]
    with PullConsumer("failing", cluster.namesrv_address) as consumer:
        (queue,) = consumer.fetch_queues("Failing")
        assert consumer.fetch_offset(queue) == 5, "behind what the expression leaves out"


def test_a_task_consumes_batches_up_to_its_limit(airflow: Airflow, cluster: Cluster) -> None:
    with Producer("senders", cluster.namesrv_address) as producer:
        producer.create_topic("Batches", queues=1)
    send(cluster, "Batches", *"abcdefg")
    airflow.command("dags", "test", "batches")
    assert airflow.noted("batches") == ["a b", "c d", "e"]
    airflow.command("dags", "test", "batches")
    assert airflow.noted("batches") == ["a b", "c d", "e", "f g"]


def test_a_sensor_returns_a_message_and_acknowledges_no_other(airflow: Airflow, cluster: Cluster) -> None:
    airflow.command("dags", "test", "await")
    with PullConsumer("results", cluster.namesrv_address) as consumer:
        (result,) = consumer.read_all("Results")
    awaited = json.loads(result.body)
    assert (awaited["keys"], awaited["properties"]["color"]) == (["await-key"], "red")
    with SimpleConsumer("awaiting", cluster.namesrv_address) as consumer:
        consumer.subscribe("Awaited")
        left = consumer.receive(10, timeout=10)
        assert consumer.receive(10, timeout=2) == []
    assert sorted([awaited["body"], *(message.body.decode() for message in left)]) == ["await", "second"]


def test_a_trigger_of_a_task_that_is_cancelled_keeps_no_message(airflow: Airflow, cluster: Cluster) -> None:
    result = airflow.check("cancelled", cluster.namesrv_address)
    assert result == [True, "kept", 0, ["message_id", "receipt", "topic"]]


def watch(airflow: Airflow) -> None:
    for _ in range(2):  # an asset has its watchers when a DAG that starts by it is known
        airflow.command("dags", "reserialize")


def test_messages_start_a_dag_and_one_that_fails_comes_again(airflow: Airflow, cluster: Cluster) -> None:
    send(cluster, "Picked", "good", "skipped", "bad")
    watch(airflow)
    with airflow.triggerer(WAVES) as triggerer:
        triggerer.wait_for(lambda: len(airflow.events("picked")) == 2, RUN_S, "events of both")
    assert airflow.events("picked") == {"picked good": 1, "picked bad": 1}
    assert airflow.rows("SELECT DISTINCT target_dag_id FROM asset_dag_run_queue") == [("watch",)]
    assert "secret" not in str(airflow.rows("SELECT classpath, kwargs FROM trigger"))


def test_no_message_for_a_watcher_is_lost_though_its_triggerer_is_killed(
    airflow: Airflow, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = [f"{wave}-{number}" for wave in range(WAVES) for number in range(EACH)]
    send(cluster, "Watched", *wanted[:EACH])
    watch(airflow)
    triggerer = airflow.triggerer(0)
    try:
        for wave in range(1, WAVES):
            count = wave * EACH - EACH // 2
            triggerer.wait_for(lambda most=count: len(airflow.events("watched")) >= most, RUN_S, f"{count} events")
            send(cluster, "Watched", *wanted[wave * EACH : (wave + 1) * EACH])
            os.killpg(triggerer.pid, signal.SIGKILL)
            triggerer.wait(30)
            triggerer = airflow.triggerer(wave)
        triggerer.wait_for(lambda: len(airflow.events("watched")) == len(wanted), RUN_S, "every event")
        with SimpleConsumer("watching", cluster.namesrv_address) as consumer:
            consumer.subscribe("Watched")
            wait_until(lambda: not consumer.receive(10, invisible=0.001, timeout=6), RUN_S, "acknowledgements")
    finally:
        triggerer.stop()
    events = airflow.events("watched")
    assert sorted(events) == sorted(wanted)
    with capsys.disabled():
        print(f"\n{WAVES - 1} kills, {len(wanted)} messages: {events.total() - len(wanted)} more events than messages")
