"""Options of a job that are passed on to data sources."""

from __future__ import annotations

from orbitmq.spark.connecting import ConnectionOptions


def connection(options: ConnectionOptions) -> dict[str, str]:
    """How the cluster is reached, as options of a data source."""
    return {key: value for key, value in options.pairs().items() if key in ConnectionOptions.table() and value}
