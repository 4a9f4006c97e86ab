"""The job `audit`: runs the checks, and writes tables, a summary and a report with findings."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from orbitmq.errors import ConfigurationError, OrbitMQError
from orbitmq.lake.storage import StorageLocation
from orbitmq.pipeline.audit import messages
from orbitmq.pipeline.audit.backlog import backlog
from orbitmq.pipeline.audit.facts import within
from orbitmq.pipeline.audit.in_flight import in_flight_messages
from orbitmq.pipeline.audit.inputs import AuditInput, input_of
from orbitmq.pipeline.audit.options import (
    BACKLOG,
    DAMAGE,
    DELAYED,
    DUPLICATES,
    GAPS,
    HALF,
    IN_FLIGHT,
    KEYS,
    LATENCY,
    OF_MESSAGES,
    AuditJob,
)
from orbitmq.pipeline.audit.overdue import delayed_messages, half_messages
from orbitmq.pipeline.audit.report import ReportHead, page
from orbitmq.pipeline.audit.results import AuditFinding, Section, plain
from orbitmq.pipeline.audit.tables import Tables
from orbitmq.pipeline.audit.traces import latency
from orbitmq.pipeline.command import ERROR_OF_OURS
from orbitmq.pipeline.datasets import Lineage, location, topics
from orbitmq.pipeline.job import Job, JobContext, JobResult
from orbitmq.pipeline.shared_options import store_datasets, time_ms
from orbitmq.pipeline.task_progress import tasks_shown
from orbitmq.runtime.clock import SystemClock
from orbitmq.spark.topic_names import topic_names

REPORT, SUMMARY = "report.html", "summary.json"
VERSION = 1  # of the summary
FAILED_MAX = 20  # findings printed at the end; the report has all
TITLES = {
    BACKLOG: "Backlog", DUPLICATES: "Duplicates", GAPS: "Gaps", DAMAGE: "Damage", KEYS: "Hot keys",
    LATENCY: "Latency", HALF: "Half messages", DELAYED: "Delayed messages",
    IN_FLIGHT: "Messages in flight",
}  # fmt: skip


def run(context: JobContext[AuditJob]) -> JobResult:
    """Run the checks and write the results."""
    options = context.options
    wanted, fatal = options.wanted, options.fatal
    times = [time_ms(key, text) for key, text in (("from", options.begin), ("until", options.end))]
    if options.expected_brokers and options.input != "pull":
        raise ConfigurationError(f"option expectBrokers needs input pull; input {options.input} contacts no broker")
    spark, now_ms = context.spark(), SystemClock().now_ms()
    source = input_of(spark, options)
    if options.dry_run:
        rows = source.plan()
        return JobResult({"messages to read": sum(int(row.get("messages", 0)) for row in rows)}, rows)
    if not options.out:
        raise ConfigurationError("option out is missing; set it to a folder or URI for the report and the tables")
    place = StorageLocation(options.out)
    sections = Audit(context, spark, source, Tables(place, options.rows_max), now_ms, times[0], times[1]).look(wanted)
    head = ReportHead(
        now_ms,
        options.input,
        {"pull": options.name_server, "store": options.path, "lake": options.lake}[options.input],
        sorted(wanted),
        sorted(fatal),
    )
    _write(place, SUMMARY, json.dumps(summary(head, sections), indent=1))
    _write(place, REPORT, page(head, sections))
    return _outcome(sections, fatal, place)


def lineage(options: AuditJob) -> Lineage:
    """Topics that the options name in full, stores or the lake; and the folder of the report."""
    inputs = {
        "pull": lambda: topics(options.name_servers, topic_names(options.topics).names),
        "store": lambda: store_datasets(options.path),
        "lake": lambda: [location(options.lake)] if options.lake else [],
    }[options.input]()
    return Lineage(inputs, [location(options.out)] if options.out else ())


@dataclass(frozen=True)
class Audit:
    """A running audit. Times are milliseconds since the epoch, 0 for none."""

    context: JobContext[AuditJob]
    spark: SparkSession
    source: AuditInput
    tables: Tables
    now_ms: int
    begin_ms: int
    end_ms: int

    def look(self, wanted: frozenset[str]) -> list[Section]:
        """Every section, in the order of the report."""
        sections: list[Section] = []
        if of_messages := [name for name in TITLES if name in wanted & {BACKLOG, *OF_MESSAGES}]:
            sections += self._messages_tried(wanted, of_messages)
        others = [(name, check) for name, check in self._others().items() if name in wanted]
        with self.context.progress("audit", "checks") as advance:
            for done, (name, check) in enumerate(others, 1):
                sections.append(_tried(name, check))
                advance(done, len(others))
        return sections

    def _messages_tried(self, wanted: frozenset[str], names: Sequence[str]) -> list[Section]:
        """The sections of message checks. If messages cannot be read, each section says why."""
        try:
            return self._messages(wanted)
        except (OrbitMQError, PySparkException) as error:
            reason = _reason(error)
        return [Section(name, TITLES[name], "", missing=reason) for name in names]

    def _messages(self, wanted: frozenset[str]) -> list[Section]:
        """The sections that need messages, which are read once."""
        options, tables, material = self.context.options, self.tables, self.source.material()
        whole = material.facts.persist()
        try:
            with tasks_shown(self.context, "read"):
                whole.count()
            lows = self.source.lows()
            seen = within(whole, self.begin_ms, self.end_ms)
            checks: dict[str, Callable[[], Section]] = {
                BACKLOG: lambda: backlog(whole, self.source.standings(), material.bounds, options, tables, self.now_ms),
                DUPLICATES: lambda: messages.duplicates(seen, tables),
                GAPS: lambda: messages.gaps(whole, material.read, lows, tables),
                DAMAGE: lambda: messages.damage(seen, tables),
                KEYS: lambda: messages.keys(seen, traffic.of_topics, options, tables),
            }
            chosen = [(name, check) for name, check in checks.items() if name in wanted]
            with self.context.progress("messages", "checks") as advance:
                traffic = messages.traffic(seen, material.bounds, options, tables)
                sections = [traffic.section] if wanted & OF_MESSAGES else []
                for done, (name, check) in enumerate(chosen, 1):
                    sections.append(_tried(name, check))
                    advance(done, len(chosen))
            return sections
        finally:
            whole.unpersist()

    def _others(self) -> dict[str, Callable[[], Section]]:
        options, tables, source = self.context.options, self.tables, self.source
        return {
            LATENCY: lambda: latency(source.traces(), options, tables),
            HALF: lambda: half_messages(*source.half(), options, tables, self.now_ms),
            DELAYED: lambda: delayed_messages(source.delayed(), options, tables, self.now_ms),
            IN_FLIGHT: lambda: in_flight_messages(source.in_flight(), tables),
        }


def _tried(name: str, check: Callable[[], Section]) -> Section:
    """The section, or one that says why it is missing: a broker may reject some requests."""
    try:
        return check()
    except (OrbitMQError, PySparkException) as error:
        return Section(name, TITLES[name], "", missing=_reason(error))


def _reason(error: OrbitMQError | PySparkException) -> str:
    """The reason of a missing section. An error of Spark without one of ours inside is a bug, and raised again."""
    if isinstance(error, OrbitMQError):
        return str(error)
    if found := ERROR_OF_OURS.findall(str(error)):  # of planning or a task
        return str(found[-1])
    raise error


# -------------------------------------------------------------------------------------------------------------- results


def summary(head: ReportHead, sections: Sequence[Section]) -> dict[str, object]:
    """The results as JSON, with the first rows of each table."""
    return {
        "version": VERSION,
        "at": datetime.fromtimestamp(head.now_ms / 1000, UTC).isoformat(timespec="milliseconds"),
        "input": head.input,
        "checks": list(head.checks),
        "findings": [
            {"kind": finding.kind, "count": finding.count, "text": finding.text, "fatal": finding.kind in head.fatal}
            for finding in _findings(sections)
        ],
        "figures": {section.name: dict(section.figures) for section in sections},
        "missing": {section.name: section.missing for section in sections if section.missing},
        "tables": {
            table.name: {"rows": table.total, "first": [dict(row) for row in table.rows]}
            for section in sections
            for table in section.tables
        },
    }


def _findings(sections: Sequence[Section]) -> list[AuditFinding]:
    return [finding for section in sections for finding in section.findings]


def _outcome(sections: Sequence[Section], fatal: frozenset[str], place: StorageLocation) -> JobResult:
    rows: list[dict[str, int | str]] = [
        {
            "check": section.name,
            "findings": len(section.findings),
            "what": section.missing or ", ".join(f"{value:,} {name}" for name, value in section.figures.items()),
        }
        for section in sections
    ]
    failed = [plain(finding.text) for finding in _findings(sections) if finding.kind in fatal]
    if len(failed) > FAILED_MAX:
        failed = [*failed[:FAILED_MAX], f"and {len(failed) - FAILED_MAX} more findings; see the report"]
    failed += [f"{section.name}: {section.missing}" for section in sections if section.missing]
    figures = {name: value for section in sections for name, value in section.figures.items()}
    return JobResult({**figures, "findings": len(_findings(sections)), "report": place.uri(REPORT)}, rows, failed)


def _write(place: StorageLocation, name: str, text: str) -> None:
    with place.open(name) as sink:
        sink.write(text.encode())


JOB = Job(
    "audit",
    "It reports the lag of groups in messages, bytes and seconds, latencies by message traces, duplicate, missing and\n"
    "damaged messages, hot keys and skewed queues, overdue half and delayed messages, and messages in flight. Each\n"
    "message is read once, and nothing is changed. It writes report.html, a single file, summary.json, and the tables\n"
    "as Parquet. Findings of the kinds in --fail-on make the exit code 1.",
    AuditJob,
    run,
    (
        "--name-server 127.0.0.1:9876 --out ./audit",
        "--name-server 127.0.0.1:9876 --checks backlog,half,delayed --backlog-age 3600 --out ./audit -o json",
        "--input store --path /data/store --from 2026-11-20 --out /data/audits/2026-11-21",
        "--input lake --lake ./lake --topics 'orders,pay-*' --out ./audit",
    ),
    "nothing was changed; the next run starts from the beginning",
    lineage,
)
