"""What is planted in a store directory or a lake is found by the audit, exactly, and nothing else is."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from orbitmq.client.core.trace import ConsumeBegun, ConsumeEnded, Published, Record, encode_record
from orbitmq.errors import ConfigurationError
from orbitmq.lake.formats import DELTA, open_lake
from orbitmq.lake.message_files import LakeWriter
from orbitmq.lake.storage import StorageLocation
from orbitmq.message.properties import encode_properties
from orbitmq.message.topics import (
    HALF_TOPIC,
    OP_HALF_TOPIC,
    REVIVE_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRACE_TOPIC,
)
from orbitmq.message.unit import body_crc
from orbitmq.pipeline.audit import job
from orbitmq.pipeline.audit.options import AuditJob
from orbitmq.pipeline.job import JobContext, JobResult
from orbitmq.pipeline.progress import shown_on
from orbitmq.runtime.clock import ManualClock
from orbitmq.store.engine import MessageStore
from orbitmq.store.records import PutRecord
from tests.support.jobs import run_job
from tests.support.lakes import FIRST_MS, SCHEMA, rows
from tests.support.stores import HOST, open_store

NOW_MS = 1_700_000_000_000
LOG_FILE = 1 << 16
EVIL = "<script>alert(1)</script>\x1b[2J\u202e"


class Turned:
    """The audit's clock."""

    def now_ms(self) -> int:
        return NOW_MS


@pytest.fixture(scope="module", autouse=True)
def turned() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "SystemClock", Turned)
        yield


def audit(spark: SparkSession, out: Path, **options: object) -> tuple[JobResult, dict[str, Any]]:
    """What the job said, and the summary it wrote."""
    outcome = run_job(job.JOB, spark, out=out, **options)
    return outcome, json.loads((out / "summary.json").read_text())


def table(out: Path, name: str) -> list[dict[str, Any]]:
    """A table as it was written."""
    return [row for path in sorted((out / name).glob("*.parquet")) for row in pq.read_table(path).to_pylist()]


def chosen(rows: Sequence[dict[str, Any]], *names: str) -> set[tuple[Any, ...]]:
    return {tuple(row[name] for name in names) for row in rows}


# ------------------------------------------------------------------------------------------------------------- stores


class Plant:
    """A store that is filled while its clock is turned. `sizes` and `times` are those of every message, by place."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = ManualClock(NOW_MS - 4_000_000)
        sizes = {"mapped_file_size_commit_log": LOG_FILE, "mapped_file_size_consume_queue": 20_000}
        self.store: MessageStore = open_store(root, self.clock, **sizes)
        self.sizes: dict[tuple[str, int, int], int] = {}
        self.times: dict[tuple[str, int, int], int] = {}
        self.places: dict[tuple[str, int, int], int] = {}
        self.count = 0

    def put(self, topic: str, queue: int, body: bytes = b"body", **properties: str) -> int:
        """The queue offset; ids and keys are unlike in every message that does not say otherwise."""
        self.count += 1
        told = {"UNIQ_KEY": f"id{self.count}", "KEYS": f"k{self.count}", **properties}
        text = encode_properties(told).encode()
        result = self.store.put(PutRecord(topic, queue, body, text, self.clock.now_ms() - 5, HOST, HOST))
        at = topic, queue, int(result.queue_offset)
        self.sizes[at], self.times[at] = result.size, self.clock.now_ms()
        self.places[at] = int(result.physical_offset)
        return at[2]

    def until(self, seconds_ago: int) -> None:
        self.clock.advance(NOW_MS - 1000 * seconds_ago - self.clock.now_ms())

    def config(self, name: str, value: object) -> None:
        path = self.root / "config" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(value))

    def behind(self, topic: str, queue: int, offset: int) -> tuple[int, int, int]:
        """Messages, bytes and seconds from an offset on."""
        own = [at for at in self.sizes if at[:2] == (topic, queue) and at[2] >= offset]
        oldest = min((self.times[at] for at in own), default=NOW_MS)
        return len(own), sum(self.sizes[at] for at in own), (NOW_MS - oldest) // 1000


def traced(number: int, wait_ms: int, work_ms: int) -> str:
    """A message that is sent, and a call that takes it."""
    sent, message, call = NOW_MS - 500_000, f"m{number}", f"r{number}"
    records: list[Record] = [
        Published(sent, "R", "shop", "orders", message, "T", None, "127.0.0.1:10911", 9, number % 7, 0, "o"),
        ConsumeBegun(sent + wait_ms, "R", "billing", call, message, 0, None),
        ConsumeEnded(call, message, work_ms, True, None, 0, sent + wait_ms + work_ms, "billing"),
    ]
    return "".join(map(encode_record, records))


def plant_timers(plant: Plant) -> None:
    """Delivered, late, recalled, moved, overdue; and one that waits for its time."""

    def timer(name: str, seconds_ago: int, **more: str) -> int:
        due_ms = NOW_MS - 1000 * seconds_ago
        told = {"REAL_TOPIC": "orders", "REAL_QID": "1", "TIMER_OUT_MS": str(due_ms - 1), "UNIQ_KEY": name, **more}
        return plant.places[TIMER_TOPIC, 0, plant.put(TIMER_TOPIC, 0, b"timer", **told)]

    timer("t-moved", 500)
    moved = timer("t-delivered", 3000)
    late = timer("t-late", 2500)
    timer("t-recalled", 700)
    timer("t-recalled", 700, TIMER_DEL_UNIQKEY="orders+t-recalled", TAGS="_RECALL_TAG_")
    timer("t-moved", 500, TIMER_ROLL_TIMES="1")
    timer("t-future", -900, TIMER_DELIVER_MS=str(NOW_MS + 900_000))
    known = timer("t-after", 2800)
    progress = {"known": known, "doneDueMs": NOW_MS - 2_000_000, "late": [late], "moved": moved}
    plant.config("timerProgress.json", progress)


def plant_records(plant: Plant) -> None:
    """Acknowledged, hidden for longer, of a deleted topic, written twice; and what is in flight."""

    def record(tag: str, body: dict[str, object]) -> None:
        plant.put(f"{REVIVE_PREFIX}c", 0, json.dumps(body).encode(), TAGS=tag)

    def checkpoint(start: int, topic: str = "orders", **more: object) -> dict[str, object]:
        own = {"t": topic, "c": "poppers", "q": 0, "so": start, "pt": 1000 + start, "bn": "broker-a"}
        return {**own, "it": 60_000, "n": 3, "d": [0, 1, 3], **more}

    def ack(start: int, *offsets: int) -> dict[str, object]:
        return {**checkpoint(start), "ao": offsets[0], "aol": list(offsets)}

    record("orbitmq-mark", {"first": 0})
    record("ck", checkpoint(0, "deleted"))
    record("orbitmq-forget", {"t": "deleted"})
    record("ck", checkpoint(10))
    record("ack", {**ack(10, 10), "aol": []})
    record("ck", checkpoint(10, bm=1, rp="1"))
    record("ck", checkpoint(11, d=[0], pt=5000, it=90_000, ps=10, pp=1010))
    record("ck", checkpoint(20))
    record("bAck", ack(20, 20, 21, 23))
    record("ck", checkpoint(0, "deleted", d=[7]))


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory) -> Plant:
    plant = Plant(tmp_path_factory.mktemp("audited") / "broker-a")
    for _ in range(20):
        plant.put("old", 0, bytes(5000))  # the first ones go with their file of the log
    for number in range(3):
        plant.put(SCHEDULE_TOPIC, 2, b"late", DELAY="3", REAL_TOPIC="orders", REAL_QID="1", UNIQ_KEY=f"d{number}")
    plant.put(SCHEDULE_TOPIC, 17, b"patient", DELAY="18", REAL_TOPIC="orders", REAL_QID="1")
    half = {"REAL_TOPIC": "orders", "REAL_QID": "0", "PGROUP": "shop", "TRAN_MSG": "true"}
    for name in ("settled", "committed", "open", "asked"):
        plant.put(HALF_TOPIC, 0, b"half", UNIQ_KEY=name, **half)
    plant.put(HALF_TOPIC, 0, b"half", UNIQ_KEY="committed", TRANSACTION_CHECK_TIMES="1", **half)
    plant.put(HALF_TOPIC, 0, b"half", UNIQ_KEY="asked", TRANSACTION_CHECK_TIMES="2", **half)
    plant.put(OP_HALF_TOPIC, 0, b"1,17", TAGS="d")

    plant_timers(plant)
    plant_records(plant)
    plant.until(1000)
    for number in range(30):
        plant.put("orders", 0, KEYS=f"hot k{number}" if number < 20 else f"k{number}")
        plant.clock.advance(1000)
    for _ in range(2):
        plant.put("orders", 1, UNIQ_KEY="id-twice-more")
        plant.put("orders", 1, ORBIT_IK="effect", KEYS=EVIL)
    plant.put("orders", 1, b"to be damaged")
    plant.put("orders", 1, UNIQ_KEY="id-twice-more")
    plant.until(100)
    plant.put(HALF_TOPIC, 0, b"half", UNIQ_KEY="young", **half)
    for start in range(1, 101, 20):
        body = "".join(traced(number, number, 10) for number in range(start, start + 20))
        plant.put(TRACE_TOPIC, 0, body.encode())
    failed = ConsumeBegun(NOW_MS - 499_999, "R", "billing", "f1", "m1", 0, None)
    ended = ConsumeEnded("f1", "m1", 3, False, None, 4, NOW_MS - 499_000, "billing")
    plant.put(TRACE_TOPIC, 0, (encode_record(failed) + encode_record(ended)).encode())
    plant.put(TRACE_TOPIC, 0, b"Pub\x01not a number\x02")
    plant.store.close()

    (plant.root / "commitlog" / f"{0:020d}").unlink()
    for path in sorted((plant.root / "commitlog").iterdir()):
        path.write_bytes(path.read_bytes().replace(b"to be damaged", b"to be Damaged"))
    transactions = {f"{HALF_TOPIC}@CID_RMQ_SYS_TRANS": {"0": 1}, f"{OP_HALF_TOPIC}@CID_RMQ_SYS_TRANS": {"0": 0}}
    standings = {"orders@billing": {"0": 25, "1": 6}, "orders@reports": {"0": 0, "1": 2}, "old@reader": {"0": 2}}
    plant.config("consumerOffset.json", {"offsetTable": standings | transactions})
    plant.config("delayOffset.json", {"offsetTable": {"3": 1}})
    return plant


@pytest.fixture(scope="module")
def audited(spark: SparkSession, plant: Plant) -> tuple[JobResult, dict[str, Any], Path]:
    out = plant.root.parent / "out"
    return *audit(spark, out, input="store", path=plant.root, latencyMs=100, hotKeyMessages=20), out


def test_backlogs_are_told_in_messages_bytes_and_seconds(
    plant: Plant, audited: tuple[JobResult, dict[str, Any], Path]
) -> None:
    low = next(at[2] for at, place in plant.places.items() if at[0] == "old" and place >= LOG_FILE)
    found = {
        (row["group"], row["topic"], row["queueId"]): (row["messages"], row["bytes"], row["seconds"], row["lost"])
        for row in table(audited[2], "backlog")
    }
    messages, size, seconds = plant.behind("orders", 1, 2)
    damaged = plant.sizes["orders", 1, 4]  # nobody knows how much of it is a message
    assert found == {
        ("billing", "orders", 0): (*plant.behind("orders", 0, 25), 0),
        ("billing", "orders", 1): (0, 0, 0, 0),
        ("reports", "orders", 0): (*plant.behind("orders", 0, 0), 0),
        ("reports", "orders", 1): (messages, size - damaged, seconds, 0),
        ("reader", "old", 0): (*plant.behind("old", 0, low), low - 2),
    }
    groups = chosen(table(audited[2], "groups"), "group", "topic", "messages", "lost")
    assert groups == {("billing", "orders", 5, 0), ("reports", "orders", 34, 0), ("reader", "old", 20 - low, low - 2)}


def test_what_is_double_missing_and_damaged_is_named(
    plant: Plant, audited: tuple[JobResult, dict[str, Any], Path]
) -> None:
    duplicates = chosen(
        table(audited[2], "duplicates"), "kind", "topic", "value", "messages", "firstPlace", "lastPlace"
    )
    assert duplicates == {
        ("message id", "orders", "id-twice-more", 3, "broker-a/1/0", "broker-a/1/5"),
        ("idempotency key", "orders", "effect", 2, "broker-a/1/1", "broker-a/1/3"),
        ("keys", "orders", EVIL, 2, "broker-a/1/1", "broker-a/1/3"),
    }
    assert table(audited[2], "gaps") == [
        {"topic": "orders", "brokerName": "broker-a", "queueId": 1, "firstMissing": 4, "lastMissing": 4, "messages": 1}
    ]
    (damaged,) = table(audited[2], "damage")
    assert str(plant.places["orders", 1, 4]) in damaged["reason"]
    assert "CRC" in damaged["reason"]


def test_crowded_keys_and_queues_are_told(audited: tuple[JobResult, dict[str, Any], Path]) -> None:
    rows = {(row["topic"], row["key"]): row for row in table(audited[2], "hot_keys")}
    assert (rows["orders", "hot"]["messages"], rows["orders", "hot"]["hot"]) == (20, True)
    assert rows["orders", "hot"]["percent"] == pytest.approx(100 * 20 / 35)
    assert [key for key, row in rows.items() if row["hot"]] == [("orders", "hot")]
    queues = chosen(table(audited[2], "queues"), "topic", "queueId", "messages", "firstOffset", "nextOffset")
    assert {("orders", 0, 30, 0, 30), ("orders", 1, 5, 0, 6)} < queues
    (topic,) = [row for row in table(audited[2], "topics") if row["topic"] == "orders"]
    assert topic["skewPercent"] == pytest.approx(100 * 2 * 30 / 35)
    assert [topic[name] for name in ("storeP50", "storeP95", "storeP99", "storeMax")] == [5, 5, 5, 5]


def test_half_and_delayed_messages_are_overdue_when_their_time_has_passed(
    audited: tuple[JobResult, dict[str, Any], Path],
) -> None:
    half = chosen(table(audited[2], "half"), "msgId", "group", "topic", "queueOffset", "seconds", "checks")
    assert half == {("open", "shop", "orders", 2, 4000, 0), ("asked", "shop", "orders", 5, 4000, 2)}
    delayed = chosen(table(audited[2], "delayed"), "msgId", "level", "queueOffset", "topic", "toQueue", "seconds")
    assert delayed == {
        ("d1", 3, 1, "orders", "1", 3990),
        ("d2", 3, 2, "orders", "1", 3990),
        ("t-late", None, 2, "orders", "1", 2500),
        ("t-after", None, 7, "orders", "1", 2800),
        ("t-moved", None, 5, "orders", "1", 500),
    }
    figures = audited[1]["figures"]
    assert figures["half"] == {"undecided": 3, "overdue half messages": 2}
    assert figures["delayed"] == {"waiting": 7, "overdue delayed messages": 5}


def test_messages_in_flight_are_told(audited: tuple[JobResult, dict[str, Any], Path]) -> None:
    names = "group", "topic", "brokerName", "queueId", "queueOffset", "delivered", "due"
    assert chosen(table(audited[2], "in_flight"), *names) == {
        ("poppers", "orders", "broker-a", 0, 13, 1010, 61_010),
        ("poppers", "orders", "broker-a", 0, 11, 5000, 95_000),
        ("poppers", "deleted", "broker-a", 0, 7, 1000, 61_000),
    }
    assert audited[1]["figures"]["in-flight"] == {"in flight": 3}


def test_latencies_are_those_of_the_traces(audited: tuple[JobResult, dict[str, Any], Path]) -> None:
    (row,) = table(audited[2], "deliveries")
    names = "waitP50", "waitP95", "waitP99", "workP50", "doneP50", "doneP95", "doneP99", "doneMax"
    assert [row[name] for name in names] == [50, 95, 99, 10, 60, 105, 109, 110]
    assert (row["topic"], row["group"], row["messages"], row["done"], row["failures"]) == (
        "orders", "billing", 100, 100, 1,
    )  # fmt: skip
    (sends,) = table(audited[2], "sends")
    assert (sends["group"], sends["messages"], sends["costMax"]) == ("shop", 100, 6)
    assert audited[1]["figures"]["latency"] == {
        "sends traced": 100, "deliveries traced": 101, "unreadable traces": 1,
    }  # fmt: skip


def test_findings_fail_the_job_and_stand_in_summary_and_report(
    plant: Plant, audited: tuple[JobResult, dict[str, Any], Path]
) -> None:
    outcome, summary, out = audited
    kinds = [finding["kind"] for finding in summary["findings"]]
    assert sorted(kinds) == [
        "damage", "delayed", "duplicates", "duplicates", "gaps", "half", "keys", "latency", "lost",
    ]  # fmt: skip
    assert {finding["kind"] for finding in summary["findings"] if not finding["fatal"]} == {"keys"}
    assert len(outcome.failed) == 8
    page = (out / "report.html").read_text()
    for finding in summary["findings"]:
        assert finding["text"] in page
    assert "&lt;script&gt;alert(1)" in page
    for hostile in ("<script", "\x1b", "\u202e", "http://", "https://", "url("):
        assert hostile not in page


# --------------------------------------------------------------------------------------------------------------- lake


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("lake")
    held = open_lake(DELTA, StorageLocation(str(root)), ManualClock(NOW_MS).now_ms)
    planted = rows("pays", [*range(10), *range(13, 20)]) + rows("pays", range(5, 9), queue=1) + rows("other", [0, 2])
    planted += rows("pays", [20], stored_ms=FIRST_MS + 60_000)
    planted[3]["msgId"] = planted[4]["msgId"]
    for row in planted:
        row |= {"keys": "one", "sysFlag": 0, "bodyCrc": body_crc(row["body"])}  # type: ignore[arg-type]
    planted[5]["bodyCrc"] = 7
    more = [("keys", pa.string()), ("sysFlag", pa.int32()), ("bodyCrc", pa.int32())]
    writer = LakeWriter(held.place, "test")
    writer.add(pa.RecordBatch.from_pylist(planted, pa.schema([*SCHEMA, *(pa.field(*each) for each in more)])))
    held.commit("query", 0, writer.finish())
    return root


def test_a_lake_is_looked_through(spark: SparkSession, lake: Path, tmp_path: Path) -> None:
    options = {"input": "lake", "lake": lake, "topics": "pa*", "until": FIRST_MS + 60_000, "hotKeyMessages": 22}
    outcome, summary = audit(spark, tmp_path, **options)
    assert outcome.counts["messages"] == 21
    assert summary["checks"] == ["damage", "duplicates", "gaps", "keys", "latency"]
    gaps = chosen(table(tmp_path, "gaps"), "topic", "queueId", "firstMissing", "lastMissing")
    assert gaps == {("pays", 0, 10, 12)}
    duplicates = [row for row in table(tmp_path, "duplicates") if row["kind"] != "keys"]
    assert chosen(duplicates, "value", "messages") == {("pays-broker-a-0-4", 2)}
    assert chosen(table(tmp_path, "damage"), "topic", "queueId", "queueOffset") == {("pays", 0, 5)}
    assert [finding["kind"] for finding in summary["findings"]] == ["duplicates", "gaps", "damage"]
    assert len(outcome.failed) == 3

    planned = run_job(job.JOB, spark, input="lake", lake=lake, dryRun="true")
    assert planned.counts == {"messages to read": 24}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"checks": "backlog,doubles"}, "option checks: unknown doubles; allowed are backlog, "),
        ({"checks": "half", "input": "lake"}, "option checks: input lake does not support half"),
        ({"failOn": "gaps,heat"}, "option failOn: unknown heat"),
        ({"from": "yesterday"}, "option from: use a time"),
        ({"expectBrokers": "broker-a", "input": "lake"}, "option expectBrokers needs input pull"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, str], text: str) -> None:
    context: JobContext[AuditJob] = JobContext(AuditJob.parse(options), _no_spark, shown_on(sys.stderr))
    with pytest.raises(ConfigurationError, match=text):
        job.run(context)


def _no_spark() -> SparkSession:
    raise AssertionError("options are refused before Spark is started")
