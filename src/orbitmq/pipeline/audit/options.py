"""The options of the job `audit`, its checks and the kinds of findings. Knows no Spark."""

from __future__ import annotations

from dataclasses import dataclass

from orbitmq.errors import ConfigurationError
from orbitmq.message.topics import TRACE_TOPIC
from orbitmq.pipeline.job import JobOptions
from orbitmq.pipeline.lake_options import LakeOptions
from orbitmq.pipeline.shared_options import ExpectedBrokers
from orbitmq.runtime.options import option
from orbitmq.spark.cluster_options import ClusterOptions, parts

BACKLOG, DUPLICATES, GAPS, DAMAGE, KEYS, LATENCY, HALF, DELAYED, IN_FLIGHT = CHECKS = (
    "backlog", "duplicates", "gaps", "damage", "keys", "latency", "half", "delayed", "in-flight",
)  # fmt: skip
OF_MESSAGES = frozenset((DUPLICATES, GAPS, DAMAGE, KEYS))  # checks that read every message of the range
OF_A_LAKE = frozenset((*OF_MESSAGES, LATENCY))  # a lake has neither group offsets nor pending messages
LOST, SKEW = "lost", "skew"
KINDS = (BACKLOG, LOST, DUPLICATES, GAPS, DAMAGE, KEYS, SKEW, LATENCY, HALF, DELAYED)  # of findings
ALL = "*"


@dataclass(frozen=True)
class AuditJob(LakeOptions, ExpectedBrokers, ClusterOptions, JobOptions):
    """Options of the job `audit`."""

    input: str = option(
        "input",
        "pull",
        "What to audit: a cluster over the network (pull), store directories of brokers, live or copied (store), or "
        "archived messages (lake).",
        choices=("pull", "store", "lake"),
    )
    path: str = option("path", "", "With input store: the store directory, or JSON broker -> directory.")
    topics: str = option(
        "topics",
        ALL,
        "Topics to audit, separated by commas, with `*` for any characters. `*` does not match topics of brokers and "
        "groups (retries, dead letters): name them in full.",
    )
    groups: str = option("groups", ALL, "Consumer groups whose backlog is reported, separated by commas. `*` is all.")
    checks: str = option("checks", ALL, f"Checks to run, separated by commas: {', '.join(CHECKS)}. `*` is all.")
    begin: str = option(
        "from",
        "",
        "Audit messages stored at or after this time: 2026-11-21T10:00 (local time) or milliseconds. A backlog that "
        "began earlier is reported in full.",
    )
    end: str = option("until", "", "Audit messages stored before this time.")
    out: str = option(
        "out",
        "",
        "Folder or URI for report.html, summary.json and the tables, a folder of Parquet files each. Required.",
    )
    trace_topic: str = option(
        "traceTopic", TRACE_TOPIC, "Topic of the message traces that latencies are computed from."
    )
    rows_max: int = option(
        "reportRows",
        50,
        "Rows of each table in the report and the summary. The Parquet tables have all rows.",
        minimum=1,
        maximum=1000,
    )
    backlog_messages: int = option(
        "backlogMessages",
        0,
        "A group that lags by more messages than this in a queue is a finding. 0 is never.",
        minimum=0,
    )
    backlog_age: int = option(
        "backlogAge",
        0,
        "A message that waits longer than this for a group is a finding. 0 is never.",
        unit="s",
        minimum=0,
    )
    latency_ms: int = option(
        "latencyMs",
        0,
        "A group whose 99th percentile of the time from send to done, for a topic, is longer than this is a finding. "
        "0 is never.",
        unit="ms",
        minimum=0,
    )
    half_age: int = option(
        "halfAge", 600, "A half message that is undecided for longer than this is overdue.", unit="s", minimum=0
    )
    delayed_late: int = option(
        "delayedLate",
        60,
        "A delayed message that is not delivered this long after its time is overdue.",
        unit="s",
        minimum=0,
    )
    hot_key_percent: int = option(
        "hotKeyPercent",
        10,
        "A key is hot when at least this percentage of the messages of its topic have it.",
        minimum=1,
        maximum=100,
    )
    hot_key_messages: int = option(
        "hotKeyMessages", 100, "A key is hot only when at least this many messages have it.", minimum=2
    )
    skew_percent: int = option(
        "skewPercent",
        200,
        "A topic is skewed when its fullest queue has at least this percentage of the mean of its queues.",
        minimum=101,
    )
    fail_on: str = option(
        "failOn",
        ",".join(kind for kind in KINDS if kind not in (KEYS, SKEW)),
        f"Findings that make the exit code 1, separated by commas: {', '.join(KINDS)}. Empty is none.",
    )

    @property
    def wanted(self) -> frozenset[str]:
        """The checks. ConfigurationError for one that does not exist, or that the input does not support."""
        there = OF_A_LAKE if self.input == "lake" else frozenset(CHECKS)
        if self.checks.strip() == ALL:
            return there
        named = _known("checks", self.checks, CHECKS)
        if missing := named - there:
            raise ConfigurationError(f"option checks: input lake does not support {', '.join(sorted(missing))}")
        return named

    @property
    def fatal(self) -> frozenset[str]:
        """The kinds of findings that fail the job. ConfigurationError for one that does not exist."""
        return _known("failOn", self.fail_on, KINDS)


def _known(key: str, text: str, names: tuple[str, ...]) -> frozenset[str]:
    named = frozenset(parts(text, ","))
    if unknown := sorted(named - set(names)):
        raise ConfigurationError(f"option {key}: unknown {', '.join(unknown)}; allowed are {', '.join(names)}")
    return named
