"""Writes a frame into topics and returns the counts. Knows no job."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame

from orbitmq.spark.source import TopicSource
from orbitmq.spark.versions import write_batch


@dataclass(frozen=True)
class SendCounts:
    """Messages that were stored, and those that were stored before."""

    messages: int = 0
    skipped: int = 0

    def __add__(self, other: SendCounts) -> SendCounts:
        return SendCounts(self.messages + other.messages, self.skipped + other.skipped)


def send(frame: DataFrame, sink: Mapping[str, str]) -> SendCounts:
    """Write the frame with these sink options. Returns when all messages are stored."""
    with tempfile.TemporaryDirectory(prefix="orbitmq-") as folder:
        report = Path(folder) / "report"
        write_batch(frame, TopicSource, {**sink, "reportPath": str(report)})
        told = json.loads(report.read_text(encoding="utf-8").splitlines()[-1])
    return SendCounts(told["messages"], told["skipped"])
