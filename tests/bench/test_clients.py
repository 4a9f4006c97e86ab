"""What the bench of clients makes of its measurements."""

from __future__ import annotations

from bench import peers
from bench.clients import KAFKA, OUR_CLIENT, PROXY, page
from bench.systems import OURS, RIVAL, Measurement


def measured(rate: float) -> list[Measurement]:
    return [{"rate": rate, "cpuMicros": 10.0, "p50Micros": 1000.0, "p99Micros": 2000.0, "errors": 0}]


def test_rows_at_kafka_name_another_system_and_have_no_ratio() -> None:
    ours = {OUR_CLIENT: {RIVAL: measured(200), OURS: measured(300)}}
    others = {peers.GRPC.name: {PROXY: measured(100)}, peers.AIOKAFKA.name: {KAFKA: measured(100)}}
    text = page({"rows": {"client-sync": {**ours, **others}}, "problems": {}})
    cells = {
        row.split(" | ")[1]: row.strip("| ").split(" | ")[1:] for row in text.splitlines() if row.startswith("|  |")
    }
    assert cells[peers.GRPC.name] == [PROXY, "100", "2.00", "10.0", "1.00", "1.00 / 2.00", "0"]
    assert cells[peers.AIOKAFKA.name] == [KAFKA, "100", "", "10.0", "", "1.00 / 2.00", "0"]
    assert "another system" in KAFKA
