"""The live view fits the terminal: it leaves columns out and cuts none that is shown."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from orbitmq.admin.cluster import ClusterBroker, Overview
from orbitmq.admin.cluster_view import ClusterView
from orbitmq.admin.results import Result
from orbitmq.admin.verdict import Severity
from orbitmq.cli.live_view import screen

ADDRESS = "192.168.100.10:10911"


def shown(width: int) -> list[str]:
    brokers = [
        ClusterBroker(
            "DefaultCluster", f"broker-{letter}", 0, "master", ADDRESS, version="V4_9_7", answers=True,
            in_per_s=12_345.6, out_per_s=3.0, disk_ratio=0.18, oldest_message_at_ms=0,
        )
        for letter in "ab"
    ]  # fmt: skip
    verdict = Overview("DefaultCluster", "all is well", Severity.WELL, 2, 0, [], [], 2.0, 3.0, 4, 5, 0.18, [], [])
    console = Console(file=io.StringIO(), width=width)
    console.print(screen(Result([ClusterView([verdict], brokers, [], 0)]), 0.0, lines=40, width=width))
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize(
    ("width", "headings"),
    [
        (60, "BROKER ROLE PRODUCED/s CONSUMED/s DISK"),
        (80, "BROKER ROLE ADDRESS PRODUCED/s CONSUMED/s DISK"),
        (100, "CLUSTER BROKER ROLE ADDRESS PRODUCED/s CONSUMED/s SEND QUEUE DISK"),
    ],
)
def test_columns_are_left_out_and_not_cut(width: int, headings: str) -> None:
    lines = shown(width)
    assert max(map(len, lines)) <= width
    at = next(number for number, line in enumerate(lines) if "ROLE" in line)
    assert " ".join(lines[at].split()) == headings
    assert "broker-a  master" in lines[at + 1]
    assert "12,345.6" in lines[at + 1]
    assert not any("…" in line for line in lines)
