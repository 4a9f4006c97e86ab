"""The generated page of the metrics: what their tables declare. It must not state facts of its own."""

from __future__ import annotations

from collections.abc import Iterable

from orbitmq.metrics.model import Metric
from orbitmq.metrics.table_exporter import CLUSTER, OWN, RUNTIME
from orbitmq.metrics.table_native import BROKER, GATEWAY, NAMESRV, NODE_LABELS, PROCESS, PROXY

_HEAD = """\
# Metrics

Written by `make reference` from the tables in the code; [the guide](../metrics.md) explains how to serve and use them.

A name that begins with `rocketmq_` is that of Apache RocketMQ 5.3.3 or of the exporter for RocketMQ; those that begin
with `orbitmq_` are orbitmq's own.
"""
_NATIVE_HEAD = """
## Brokers

Served by a broker with `metricsExporterType=PROM`. The labels {labels} come before those of the table.
"""
_NAMESRV_HEAD = """
## Name servers

Served by a name server with `metricsExporterType=PROM`, with the same labels before the others; `cluster` is empty.
"""
_PROXY_HEAD = """
## Proxies

Served by `orbitmq proxy` with `metricsExporterType=PROM`, with the same labels before the others; `cluster` is empty.
"""
_GATEWAY_HEAD = """
## Gateways

Served by `orbitmq gateway` at `/metrics`, without further labels, with those of every process.
"""
_EXPORTER_HEAD = """
## The exporter

Served by `orbitmq exporter`. R with a number is the request code that it uses.
"""
_RUNTIME_HEAD = """
### Runtime tables of brokers

If a broker does not report a key, only its metric is left out.
"""
_OWN_HEAD = """
### Only in orbitmq's exporter
"""
_PROCESS_HEAD = """
## Every process

Served with the other metrics, without further labels.
"""


def metrics_page() -> str:
    """Every metric with its type, labels, unit, help and source."""
    labels = ", ".join(f"`{label}`" for label in NODE_LABELS)
    return "".join(
        (
            _HEAD,
            _NATIVE_HEAD.format(labels=labels),
            _rows(BROKER),
            _NAMESRV_HEAD,
            _rows(NAMESRV),
            _PROXY_HEAD,
            _rows(PROXY),
            _GATEWAY_HEAD,
            _rows(GATEWAY),
            _EXPORTER_HEAD,
            _rows(CLUSTER),
            _RUNTIME_HEAD,
            _rows(RUNTIME),
            _OWN_HEAD,
            _rows(OWN),
            _PROCESS_HEAD,
            _rows(PROCESS),
        )
    )


def _rows(table: Iterable[Metric]) -> str:
    lines = ["| metric | type | labels | unit | description | source |", "|---|---|---|---|---|---|"]
    for metric in table:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        cells = f"`{metric.name}`", str(metric.kind), labels, metric.unit, metric.text, metric.source
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n" + "\n".join(lines) + "\n"
