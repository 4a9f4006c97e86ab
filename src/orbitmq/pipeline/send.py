"""Selects rows of a frame, writes them into topics and returns the counts. Knows no job."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from orbitmq.errors import ConfigurationError
from orbitmq.spark.source import TopicSource
from orbitmq.spark.versions import write_batch

BODY_MAX = 16 << 20  # of what a broker has accepted once, the target decides; no broker takes a larger frame


@dataclass(frozen=True)
class SendCounts:
    """Messages that were stored, and those that were stored before."""

    messages: int = 0
    skipped: int = 0

    def __add__(self, other: SendCounts) -> SendCounts:
        return SendCounts(self.messages + other.messages, self.skipped + other.skipped)


def where(frame: DataFrame, condition: str) -> DataFrame:
    """The rows for which the option `where` holds; all without one. ConfigurationError when Spark cannot read it."""
    try:
        return frame.where(condition) if condition else frame
    except AnalysisException as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigurationError(f"option where: {reason}") from error


def send(frame: DataFrame, sink: Mapping[str, str]) -> SendCounts:
    """Write the frame with these sink options. Returns when all messages are stored."""
    with tempfile.TemporaryDirectory(prefix="orbitmq-") as folder:
        report = Path(folder) / "report"
        write_batch(frame, TopicSource, {"maxMessageSize": str(BODY_MAX), **sink, "reportPath": str(report)})
        told = json.loads(report.read_text(encoding="utf-8").splitlines()[-1])
    return SendCounts(told["messages"], told["skipped"])
