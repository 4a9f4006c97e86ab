"""Serves the metrics of one collector for Prometheus, from a thread of the driver. Knows no Spark.

It is loaded on use: workers, which import `orbitmq.spark`, too, need no server.
"""

from __future__ import annotations

import logging
import threading
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.registry import Collector

from orbitmq.spark.cluster_options import bad_option

LOG = logging.getLogger(__name__)

REQUEST_SECONDS = 10.0  # of silence, after which a connection is closed; the next scraper waits for it


class _Handler(WSGIRequestHandler):
    timeout = REQUEST_SECONDS

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        LOG.debug("event=lag_scraped text=%s", format % args)


class LagServer:
    """A running server. It serves one connection at a time: a scraper makes no more. SourceError ORBITMQ_BAD_OPTION if
    it cannot listen there."""

    def __init__(self, collector: Collector, host: str, port: int) -> None:
        registry = CollectorRegistry()
        registry.register(collector)
        try:
            self._server: WSGIServer = make_server(host, port, make_wsgi_app(registry), handler_class=_Handler)
        except (OSError, OverflowError) as error:
            raise bad_option(f"port {port}: cannot listen on {host}:{port}: {error}") from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="orbitmq-spark-lag", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}/metrics"

    def stop(self) -> None:
        """Close the port."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
