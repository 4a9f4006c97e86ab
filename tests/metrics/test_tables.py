"""The tables: each metric stands there once, well formed, and under the labels that RocketMQ gives it."""

from __future__ import annotations

import re

import pytest

from orbitmq.metrics.model import Metric, MetricType
from orbitmq.metrics.runtime_metrics import READ
from orbitmq.metrics.table_exporter import EXPORTER, RUNTIME
from orbitmq.metrics.table_native import BROKER, GATEWAY, NAMESRV, PROCESS, PROXY

NATIVE = (*BROKER, *NAMESRV, *PROXY, *GATEWAY, *PROCESS)
EVERY = [*NATIVE, *EXPORTER]

# What a broker of RocketMQ 5.3.3 gave Prometheus (metricsExporterType=PROM) after messages, delayed ones, transactions
# and consumers, without cluster, node_type and node_id.
FIVE = {
    "rocketmq_messages_in_total": "is_system message_type topic",
    "rocketmq_throughput_in_total": "is_system message_type topic",
    "rocketmq_messages_out_total": "consumer_group is_system topic",
    "rocketmq_throughput_out_total": "consumer_group is_system topic",
    "rocketmq_commit_messages_total": "topic",
    "rocketmq_rollback_messages_total": "topic",
    "rocketmq_half_messages": "topic",
    "rocketmq_processor_watermark": "processor",
    "rocketmq_broker_permission": "",
    "rocketmq_topic_number": "",
    "rocketmq_consumer_group_number": "",
    "rocketmq_producer_connections": "language protocol_type version",
    "rocketmq_consumer_connections": "consume_mode consumer_group is_system language protocol_type version",
    "rocketmq_consumer_lag_messages": "consumer_group is_retry is_system topic",
    "rocketmq_consumer_lag_latency_milliseconds": "consumer_group is_retry is_system topic",
    "rocketmq_storage_size_bytes": "storage_medium storage_type",
    "rocketmq_storage_flush_behind_bytes": "storage_medium storage_type",
    "rocketmq_storage_dispatch_behind_bytes": "storage_medium storage_type",
    "rocketmq_storage_message_reserve_time_milliseconds": "storage_medium storage_type",
    "rocketmq_message_size": "is_system message_type topic",
    "rocketmq_finish_message_latency_milliseconds": "topic",
}
OVER_ALL_TOPICS = {
    "rocketmq_half_messages", "rocketmq_message_size", "rocketmq_finish_message_latency_milliseconds",
}  # fmt: skip
"""docs/metrics.md says so."""


@pytest.mark.parametrize("table", [NATIVE, EXPORTER, RUNTIME], ids=["native", "exporter", "runtime"])
def test_a_metric_stands_once_in_a_table(table: tuple[Metric, ...]) -> None:
    assert len({metric.name for metric in table}) == len(table)


@pytest.mark.parametrize("metric", EVERY, ids=lambda metric: metric.name)
def test_a_metric_is_well_formed(metric: Metric) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]+", metric.name)
    assert metric.rocketmq == metric.name.startswith("rocketmq_")
    assert (metric.kind is MetricType.COUNTER) <= metric.name.endswith("_total")
    assert metric.text.endswith(".")
    assert metric.source


def test_names_and_labels_are_those_of_rocketmq_five() -> None:
    own = {metric.name: set(metric.labels) for metric in BROKER}
    assert FIVE.keys() <= own.keys()
    for name, labels in FIVE.items():
        assert own[name] == (set() if name in OVER_ALL_TOPICS else set(labels.split()))


def test_every_figure_of_the_runtime_table_is_read() -> None:
    assert set(READ) == {metric.name for metric in RUNTIME}
