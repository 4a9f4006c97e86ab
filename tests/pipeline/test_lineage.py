"""OpenLineage events of the jobs, received over HTTP: what was read and written, how a run ended, and that nobody's
receiver can fail a job."""

from __future__ import annotations

import json
import os
import sys
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import pytest
from pyspark.sql import SparkSession

from orbitmq.client import Message
from orbitmq.client.sync import Producer
from orbitmq.errors import SourceError
from orbitmq.pipeline import command
from orbitmq.pipeline.datasets import Dataset, Lineage, location, topics
from orbitmq.pipeline.job import JOBS, Job, JobContext, JobEntry, JobOptions, JobResult, job_named
from orbitmq.runtime.options import option
from orbitmq.testing import Cluster
from tests.support.process import free_port

NAMES = "10.0.0.1:9876;10.0.0.2:9876"
ORDERS = Dataset("rocketmq://10.0.0.1:9876", "orders")
LAKE = Dataset("s3://bucket", "lake")
ENDS = ("COMPLETE", "FAIL", "ABORT")


class Receiver(ThreadingHTTPServer):
    """Takes events, as Marquez does, and looks whether they are as the specification of OpenLineage wants them: the
    package has no schema with it. Up inside `with`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.events: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.status = 201
        self.wrong: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def states(self) -> list[str]:
        return [event["eventType"] for event in self.events]

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()
        assert self.wrong == []
        states: dict[str, list[str]] = {}
        for event in self.events:
            states.setdefault(event["run"]["runId"], []).append(event["eventType"])
        assert all(run in (["START", end] for end in ENDS) for run in states.values()), states


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        assert self.path == "/api/v1/lineage"
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.events.append(json.loads(body))
        try:
            check(self.server.events[-1])
        except (AssertionError, KeyError, ValueError) as error:
            self.server.wrong.append(f"{error!r}: {body!r}")
        self.server.keys.append(self.headers["Authorization"])
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


def check(event: dict[str, Any]) -> None:
    """What the specification says of a RunEvent, its datasets and the facets of all of them."""
    assert event["eventType"] in ("START", *ENDS)
    assert datetime.fromisoformat(event["eventTime"]).tzinfo is not None
    assert uuid.UUID(event["run"]["runId"])
    for uri in (event["producer"], event["schemaURL"]):
        assert urlsplit(uri).scheme == "https"
    for named in (event["job"], *event["inputs"], *event["outputs"]):
        assert all(isinstance(named[key], str) and named[key] for key in ("namespace", "name"))
    for holder in (event["run"], event["job"], *event["inputs"], *event["outputs"]):
        for kind in ("facets", "inputFacets", "outputFacets"):
            for facet in (holder.get(kind) or {}).values():
                assert urlsplit(facet["_producer"]).scheme == urlsplit(facet["_schemaURL"]).scheme == "https"


@dataclass(frozen=True)
class SampleOptions(JobOptions):
    ending: str = option("ending", "", "How it ends.")


def run(context: JobContext[SampleOptions]) -> JobResult:
    ending = context.options.ending
    if ending == "error":
        raise RuntimeError("Py4JJavaError\n at x\norbitmq.errors.SourceError: ORBITMQ_DATA_LOSS: 3 are gone\n at y")
    if ending == "interrupted":
        raise KeyboardInterrupt
    moved = Lineage([Dataset(*ORDERS_NAME, rows=7)], [Dataset("s3://bucket", "lake", 7, 512, 1)])
    return JobResult(
        {"messages": 7}, failed=["one is gone", "so is another"] if ending == "partly" else [], lineage=moved
    )


def planned(options: SampleOptions) -> Lineage:
    if options.ending == "unplanned":
        raise SourceError("ORBITMQ_BAD_OPTION", "nobody knows what it reads")
    return Lineage([ORDERS], [LAKE])


ORDERS_NAME = ORDERS.namespace, ORDERS.name
JOB: Job[SampleOptions] = Job("sample", "What it does.", SampleOptions, run, again="it goes on", lineage=planned)


@pytest.fixture(autouse=True)
def sample(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(JOBS, "sample", JobEntry(__name__, "A sample."))
    for name in [name for name in os.environ if name.startswith("OPENLINEAGE")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))  # no file of the package
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as running:
        yield running


def names(datasets: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["namespace"], one["name"]) for one in datasets]


def counts(dataset: dict[str, Any]) -> dict[str, int]:
    """The statistics of an input or an output."""
    (facet,) = {**dataset.get("inputFacets", {}), **dataset.get("outputFacets", {})}.values()
    return {key: value for key, value in facet.items() if not key.startswith("_")}


def test_a_run_is_reported_from_start_to_end(receiver: Receiver, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["sample", "--openlineage", receiver.url]) == 0
    start, end = receiver.events
    assert receiver.states == ["START", "COMPLETE"]
    for event in (start, end):
        assert event["job"]["namespace"] == "orbitmq"
        assert event["job"]["name"] == "sample"
        assert event["job"]["facets"]["jobType"]["jobType"] == "SAMPLE"
        assert names(event["inputs"]) == [(ORDERS.namespace, ORDERS.name)]
        assert names(event["outputs"]) == [(LAKE.namespace, LAKE.name)]
    assert start["run"]["runId"] == end["run"]["runId"]
    assert start["eventTime"] <= end["eventTime"]
    assert not start["inputs"][0].get("inputFacets")
    assert counts(end["inputs"][0]) == {"rowCount": 7}
    assert counts(end["outputs"][0]) == {"rowCount": 7, "size": 512, "fileCount": 1}
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("ending", "code", "state", "message"),
    [
        ("error", 1, "FAIL", "ORBITMQ_DATA_LOSS: 3 are gone"),
        ("partly", 1, "FAIL", "one is gone; so is another"),
        ("interrupted", 130, "ABORT", None),
    ],
)
def test_a_run_that_fails_is_reported_as_such(
    receiver: Receiver, ending: str, code: int, state: str, message: str | None
) -> None:
    assert command.main(["sample", "--openlineage", receiver.url, "--ending", ending]) == code
    assert receiver.states == ["START", state]
    told = receiver.events[1]["run"].get("facets", {}).get("errorMessage", {})
    assert told.get("message") == message
    assert names(receiver.events[1]["outputs"]) == [(LAKE.namespace, LAKE.name)]


def test_what_options_do_not_name_is_left_to_the_end(receiver: Receiver) -> None:
    assert command.main(["sample", "--openlineage", receiver.url, "--ending", "unplanned"]) == 0
    assert receiver.events[0]["inputs"] == []
    assert names(receiver.events[1]["inputs"]) == [(ORDERS.namespace, ORDERS.name)]


def test_no_events_unless_they_are_wanted(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    assert command.main(["sample"]) == 0
    assert command.main(["sample", "--openlineage", receiver.url, "--dry-run"]) == 0
    monkeypatch.setenv("OPENLINEAGE_URL", receiver.url)
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    assert command.main(["sample"]) == 0
    assert receiver.events == []


def test_the_environment_of_the_package_is_respected(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", receiver.url)
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "sesame")
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "shop")
    assert command.main(["sample", "--openlineage-job", "orders-to-lake"]) == 0
    monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{free_port()}")
    assert command.main(["sample", "--openlineage", receiver.url]) == 0
    jobs = [(event["job"]["namespace"], event["job"]["name"]) for event in receiver.events]
    assert jobs == [("shop", "orders-to-lake")] * 2 + [("shop", "sample")] * 2
    assert receiver.keys == ["Bearer sesame"] * 4


def test_a_file_of_the_package_is_respected(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lineage.yml"
    path.write_text(f"transport:\n  type: http\n  url: {receiver.url}\n")
    monkeypatch.setenv("OPENLINEAGE_CONFIG", str(path))
    assert command.main(["sample"]) == 0
    assert receiver.states == ["START", "COMPLETE"]


def test_a_receiver_that_refuses_or_is_down_fails_no_job_and_is_told_once(
    receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    receiver.status = 400
    for url in (receiver.url, f"http://127.0.0.1:{free_port()}"):
        assert command.main(["sample", "--openlineage", url]) == 0
        out, err = capsys.readouterr()
        assert "messages  7" in out
        told = "orbitmq pipeline sample: OpenLineage does not take the events of this run, which goes on without: "
        assert err.startswith(told)
        assert err.count("\n") == 1
    assert receiver.states == ["START", "COMPLETE"], "it is tried again at the end"


def test_the_package_is_needed_for_the_option_alone(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "openlineage"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "openlineage", None)
    assert command.main(["sample"]) == 0
    assert command.main(["sample", "--openlineage", receiver.url]) == 2
    text = "needs the package openlineage-python: pip install 'orbitmq[openlineage]'\n"
    assert capsys.readouterr().err == f"orbitmq pipeline sample: option openlineage {text}"
    monkeypatch.setenv("OPENLINEAGE_URL", receiver.url)  # perhaps for other programs
    assert command.main(["sample"]) == 0
    assert capsys.readouterr().err == f"orbitmq pipeline sample: no lineage is reported, because OpenLineage {text}"


def test_a_value_that_is_no_url_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["sample", "--openlineage", "marquez"]) == 2
    assert capsys.readouterr().err.startswith("orbitmq pipeline sample: option openlineage: ")


# ------------------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("root", "namespace", "name"),
    [
        ("/data/lake/", "file", "/data/lake"),
        ("lake", "file", "{here}/lake"),
        ("file:///data/lake", "file", "/data/lake"),
        ("s3://bucket/warm/lake/", "s3://bucket", "warm/lake"),
        ("s3://key:secret@bucket/lake?endpoint_override=localhost:9000", "s3://bucket", "lake"),
        (
            "abfss://container@account.dfs.core.windows.net/lake",
            "abfss://container@account.dfs.core.windows.net",
            "lake",
        ),
        ("hdfs://namenode:8020/data/lake", "hdfs://namenode:8020", "/data/lake"),
        ("gs://bucket", "gs://bucket", "/"),
    ],
)
def test_places_have_the_names_of_openlineage(root: str, namespace: str, name: str, tmp_path: Path) -> None:
    assert location(root) == Dataset(namespace, name.replace("{here}", str(tmp_path)))


def test_topics_are_named_like_those_of_kafka() -> None:
    assert topics(("n:1", "m:2"), ["b", "a", "b"], 9) == [
        Dataset("rocketmq://n:1", "a"),
        Dataset("rocketmq://n:1", "b"),
    ]
    assert topics(("n:1",), ["a"], 9) == [Dataset("rocketmq://n:1", "a", 9)]


STORE = Dataset("file", "/data/store")
OTHER = "rocketmq://other:9876"


@pytest.mark.parametrize(
    ("name", "given", "inputs", "outputs"),
    [
        ("archive", {"topics": "orders,pay-*", "lake": "s3://bucket/lake"}, [ORDERS], [LAKE]),
        ("archive", {"input": "store", "path": "/data/store", "lake": "s3://bucket/lake"}, [STORE], [LAKE]),
        (
            "archive",
            {"input": "store", "path": '{"a": "/data/a", "b": "/data/b"}', "lake": "s3://bucket/lake"},
            [Dataset("file", "/data/a"), Dataset("file", "/data/b")],
            [LAKE],
        ),
        ("audit", {"topics": "orders", "out": "s3://bucket/audit"}, [ORDERS], [Dataset("s3://bucket", "audit")]),
        ("audit", {"input": "lake", "lake": "s3://bucket/lake"}, [LAKE], []),
        ("compact", {"lake": "s3://bucket/lake"}, [LAKE], [LAKE]),
        ("dlq", {"group": "g"}, [Dataset(ORDERS.namespace, "%DLQ%g")], []),
        (
            "dlq",
            {"group": "g", "ledger": "l"},
            [Dataset(ORDERS.namespace, "%DLQ%g")],
            [Dataset(ORDERS.namespace, "%RETRY%g")],
        ),
        ("dlq", {"group": "g", "ledger": "l", "to": "orders"}, [Dataset(ORDERS.namespace, "%DLQ%g")], [ORDERS]),
        ("replay", {"topics": "orders", "lake": "s3://bucket/lake"}, [LAKE], [ORDERS]),
        ("replay", {"topics": "x", "to": "orders", "input": "store", "path": "/data/store"}, [STORE], [ORDERS]),
        ("migrate", {"topics": "orders", "toNameServer": "other:9876"}, [ORDERS], [Dataset(OTHER, "orders")]),
        ("rebuild", {"path": "/data/store"}, [STORE], [STORE]),
    ],
)
def test_every_job_names_what_it_reads_and_writes(
    name: str, given: dict[str, str], inputs: list[Dataset], outputs: list[Dataset]
) -> None:
    job = job_named(name)
    known = {"nameServer": NAMES} if "nameServer" in job.options.table() else {}
    found = job.lineage(job.options.parse(known | given))
    assert ([*found.inputs], [*found.outputs]) == (inputs, outputs)


@pytest.mark.parametrize("name", sorted({*JOBS} - {"sample"}))
def test_options_that_are_missing_are_the_jobs_own_matter(name: str) -> None:
    job = job_named(name)
    assert not any(data.rows for data in job.lineage(job.options.parse({})).inputs)


# -------------------------------------------------------------------------------------------------------------- live


def test_messages_are_followed_through_the_lake_and_back(
    spark: SparkSession, receiver: Receiver, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Archive and replay: what the one writes is what the other reads, under the same name, with its count."""
    path = tmp_path / "lake"

    def job(name: str, *flags: object) -> None:
        common = "--openlineage", receiver.url, "--name-server", server, "--lake", path
        assert command.main([name, *map(str, (*common, *flags))]) == 0, capsys.readouterr().err

    with Cluster(tmp_path / "cluster") as cluster:
        server = cluster.namesrv_address
        cluster.create_topic("Orders", queues=2)
        cluster.create_topic("Again", queues=1)
        with Producer("senders", server) as producer:
            for number in range(30):
                producer.send(Message("Orders", b"%d" % number))
        job("archive", "--topics", "Ord*")
        job("replay", "--topics", "Orders", "--to", "Again", "--tasks", 1)
    assert receiver.states == ["START", "COMPLETE"] * 2
    archive, replay = receiver.events[1::2]
    namespace, lake = f"rocketmq://{server}", ("file", str(path))
    assert names(archive["inputs"]) == [(namespace, "Orders")]
    assert counts(archive["inputs"][0]) == {"rowCount": 30}
    assert names(archive["outputs"]) == names(replay["inputs"]) == [lake]
    written = counts(archive["outputs"][0])
    assert (written["rowCount"], written["fileCount"] > 0, written["size"] > 0) == (30, True, True)
    assert names(replay["outputs"]) == [(namespace, "Again")]
    assert counts(replay["outputs"][0]) == {"rowCount": 30}
