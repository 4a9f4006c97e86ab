"""Options of the metrics that a broker, a name server or a proxy serves itself. Keys are those of RocketMQ 5."""

from __future__ import annotations

from dataclasses import dataclass

from orbitmq.runtime.options import Options, option

DISABLED, PROMETHEUS = "DISABLE", "PROM"


@dataclass(frozen=True)
class MetricsOptions(Options):
    """Options of one process: name server and broker of `orbitmq up` share a page."""

    exporter_type: str = option(
        "metricsExporterType",
        DISABLED,
        "PROM serves metrics for Prometheus at /metrics, and /healthz, over plain HTTP and without a login.",
        choices=(DISABLED, PROMETHEUS),
    )
    port: int = option(
        "metricsPromExporterPort", 5557, "Port of /metrics; 0 takes any free one.", minimum=0, maximum=65_535
    )
    host: str = option(
        "metricsPromExporterHost",
        "127.0.0.1",
        "Address /metrics listens on. RocketMQ listens on every address; orbitmq does so only with 0.0.0.0.",
    )
    queue_series: int = option(
        "metricsQueueSeries",
        0,
        "Number of queues with the largest lag that have a series each in orbitmq_queue_lag_messages; 0 for none.",
        minimum=0,
        maximum=10_000,
    )

    @property
    def is_on(self) -> bool:
        return self.exporter_type == PROMETHEUS
