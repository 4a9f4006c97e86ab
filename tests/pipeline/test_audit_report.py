"""The page of the audit: what it says, and that nothing in it can steer a browser or a terminal."""

from __future__ import annotations

import re

import pytest
from pyspark.errors import PySparkException

from orbitmq.errors import SourceError
from orbitmq.lake.storage import StorageLocation
from orbitmq.pipeline.audit.job import _outcome, _tried, summary
from orbitmq.pipeline.audit.report import ReportHead, page, shown
from orbitmq.pipeline.audit.results import (
    AuditFinding,
    ChartBar,
    Field,
    LatencyStrip,
    ReportChart,
    Section,
    Table,
    counted,
    plain,
)

NOW_MS = 1_700_000_000_000
HEAD = ReportHead(NOW_MS, "pull", "127.0.0.1:9876", ["gaps", "half"], ["gaps"])
EVIL = "</title><img src=x onerror=alert(1)>\x1b]0;x\x07\u202e'\"&"


def section(**more: object) -> Section:
    return Section("gaps", "Gaps", "what it says", {"gaps": 1234, "bytes": 3 << 20}, **more)  # type: ignore[arg-type]


def test_every_kind_of_value_is_written_for_people() -> None:
    values = {
        ("count", 1234567): "1,234,567", ("bytes", 1023): "1,023 B", ("bytes", 1536): "1.5 KiB",
        ("bytes", 5 << 40): "5.0 TiB", ("bytes", 5 << 50): "5,120.0 TiB", ("ms", 1500): "1,500 ms",
        ("seconds", 59): "59 s", ("seconds", 3599): "59 min 59 s", ("seconds", 90_000): "25 h 0 min",
        ("seconds", 200_000): "2 d 7 h", ("time", NOW_MS): "2023-11-14 22:13:20", ("percent", 12.34): "12.3 %",
        ("flag", True): "yes", ("flag", False): "", ("text", "a"): "a", ("text", None): "–",
    }  # fmt: skip
    for (kind, value), text in values.items():
        assert shown(value, kind) == text
    assert shown(1 << 62, "time") == f"{1 << 62} ms", "a producer may claim any time"
    assert (counted(1, "gap"), counted(1000, "gap")) == ("1 gap", "1,000 gaps")


def test_what_comes_out_of_messages_steers_nothing() -> None:
    table = Table("t", "ours", (Field("key", "Key"),), [{"key": EVIL}], 1)
    charts = [
        ReportChart("ours", "bars", "count", [ChartBar(EVIL, 1, EVIL)]),
        ReportChart("ours", "strips", "ms", [LatencyStrip(EVIL, 1, 2, 3)]),
    ]
    hostile = section(findings=[AuditFinding("gaps", 1, EVIL)], tables=[table], charts=charts)
    text = page(ReportHead(NOW_MS, "pull", EVIL, [], ["gaps"]), [hostile, Section("half", "Half", "", missing=EVIL)])
    assert not re.search(r"<(script|img|link|iframe|object|base)", text)
    assert not any(letter in text for letter in "\x1b\x07\u202e")
    assert "default-src 'none'" in text
    assert text.count("onerror") == text.count("&lt;img src=x onerror=alert(1)&gt;") > 5
    assert len(plain("x" * 1000)) == 201
    assert "\x1b" not in "".join(_outcome([hostile], frozenset({"gaps"}), StorageLocation("/out")).failed)


def test_charts_are_drawn_to_scale() -> None:
    columns = ReportChart(
        "over time", "columns", "count", [ChartBar(str(NOW_MS + at), value) for at, value in ((0, 50), (1, 100))]
    )
    bars = ReportChart("bars", "bars", "count", [ChartBar("a", 200), ChartBar("b", 50)])
    strips = ReportChart("strips", "strips", "ms", [LatencyStrip("g", 1, 10, 1000)])
    text = page(HEAD, [section(charts=[columns, bars, strips])])
    assert re.findall(r'height="([\d.]+)"/></g>', text) == ["50.0", "100.0"]
    assert re.findall(r'<rect width="([\d.]+)%"', text) == ["100.0", "25.0"]
    assert re.findall(r'<circle cx="([\d.]+)%"', text) == ["0.0", "25.0", "75.0"]


def test_a_table_says_how_much_of_it_is_shown() -> None:
    table = Table("gaps", "Offsets", (Field("at", "At", "count"),), [{"at": 1}], 5000)
    assert "1 of 5,000; all in gaps/" in page(HEAD, [section(tables=[table])])


def test_nothing_found_is_said() -> None:
    assert "No findings." in page(HEAD, [section()])


def test_a_check_that_is_refused_is_named_and_fails_the_job() -> None:
    def refused() -> Section:
        raise SourceError("ORBITMQ_NO_PERMISSION", "delay offsets of broker-a: admins only")

    def in_a_task() -> Section:
        raise PySparkException("Job aborted\norbitmq.errors.SourceError: ORBITMQ_NO_PERMISSION: the half topic\n at x")

    found = [_tried("delayed", refused), _tried("half", in_a_task), section(findings=[AuditFinding("keys", 3, "hot")])]
    outcome = _outcome(found, frozenset({"gaps"}), StorageLocation("/out"))
    assert outcome.failed == [
        "delayed: ORBITMQ_NO_PERMISSION: delay offsets of broker-a: admins only",
        "half: ORBITMQ_NO_PERMISSION: the half topic",
    ]
    assert summary(HEAD, found)["missing"] == {
        "delayed": "ORBITMQ_NO_PERMISSION: delay offsets of broker-a: admins only",
        "half": "ORBITMQ_NO_PERMISSION: the half topic",
    }
    assert "not checked: Delayed messages" in page(HEAD, found)

    def broken() -> Section:
        raise PySparkException("a bug")

    with pytest.raises(PySparkException, match="a bug"):
        _tried("half", broken)
