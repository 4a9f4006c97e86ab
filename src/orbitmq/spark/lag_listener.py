"""Follows the lag of all streams of a session on the driver: a line in the log for each batch and topic, and metrics.

What it shows is what the streams report of themselves in the progress of their queries (`stream_lag`); it makes no
request of its own.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, cast

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from orbitmq.runtime.printable import printable
from orbitmq.spark.stream_lag import LagReport, TopicLag, summed
from orbitmq.spark.versions import ADMITS, lacking

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector

    from orbitmq.spark.lag_server import LagServer

LOG = logging.getLogger(__name__)

QUERIES_MAX = 100  # of one session; the one that was silent for longest is dropped


@dataclass(frozen=True)
class QueryLag:
    """The lag of a running query in its `topics`. `query` is its name, or its id if it has none."""

    query: str
    sources: Sequence[str]
    """Topics and name servers of each of its sources, for people."""
    looked_at_ms: int
    """When the sources looked at the ends of their queues, in milliseconds since 1970; the earliest of them."""
    topics: Sequence[TopicLag]


class LagListener(StreamingQueryListener):
    """What `listen` returns. It is also a collector for a registry of `prometheus_client`. SourceError
    ORBITMQ_BAD_OPTION if the port cannot be used."""

    def __init__(self, spark: SparkSession, port: int | None, host: str) -> None:
        self._lock = threading.Lock()
        self._queries: OrderedDict[str, QueryLag] = OrderedDict()
        self._session: SparkSession | None = None
        self._server: LagServer | None = None
        if port is not None:
            try:
                from orbitmq.spark.lag_server import LagServer
            except ImportError as error:
                raise ImportError("metrics need the Prometheus client: pip install prometheus-client") from error
            self._server = LagServer(cast("Collector", self), host, port)
        try:
            spark.streams.addListener(self)
            self._session = spark
        except BaseException:
            self.stop()
            raise
        LOG.info("event=lag_listening url=%s", self.url or "-")

    @property
    def url(self) -> str | None:
        """The address of the metrics; None without a port."""
        return None if self._server is None else self._server.url

    def queries(self) -> list[QueryLag]:
        """The running queries that read topics and have finished a batch since `listen`."""
        with self._lock:
            return list(self._queries.values())

    def stop(self) -> None:
        """Stop listening and close the port. Call it before the session ends; further calls do nothing."""
        if self._session is not None:
            try:
                self._session.streams.removeListener(self)
            except (
                Exception
            ) as error:  # of py4j or gRPC, whichever the session used: it is gone, and the listener with it
                LOG.debug("event=lag_listener_lost error=%r", error)
            self._session = None
        if self._server is not None:
            self._server.stop()
            self._server = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    # ----------------------------------------------------------------------------------------------- called by Spark

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's names
        """Nothing is known of the query yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Take the lag that the sources of a query report, and log it."""
        progress = json.loads(event.progress.json)
        found = [LagReport.of_json(source.get("latestOffset")) for source in progress["sources"]]
        reports = [report for report in found if report is not None]
        if not reports:
            return
        name = progress.get("name") or progress["id"]
        lag = QueryLag(name, [one.source for one in reports], min(one.looked_at_ms for one in reports), summed(reports))
        with self._lock:
            self._queries[progress["id"]] = lag
            self._queries.move_to_end(progress["id"])
            if len(self._queries) > QUERIES_MAX:
                self._queries.popitem(last=False)
        for topic in lag.topics:
            LOG.info("%s", _line(name, progress["batchId"], topic))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Forget the query."""
        with self._lock:
            self._queries.pop(str(event.id), None)

    # ------------------------------------------------------------------------------------------ called by Prometheus

    def describe(self) -> list[Metric]:
        """Nothing that a registry would have to collect when the listener is registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The metrics of the running queries."""
        from prometheus_client.core import GaugeMetricFamily

        labels = ("query", "topic", "stat")
        messages = GaugeMetricFamily(
            "orbitmq_spark_behind_messages", "Messages of a queue that the last batch of a stream left.", labels=labels
        )
        seconds = GaugeMetricFamily(
            "orbitmq_spark_behind_seconds", "Age of the next message of a queue, 0 without one.", labels=labels
        )
        looked = GaugeMetricFamily(
            "orbitmq_spark_last_look_timestamp_seconds",
            "When a stream last looked at the ends of its queues, in seconds since 1970.",
            labels=("query",),
        )
        for query in self.queries():
            looked.add_metric((query.query,), query.looked_at_ms / 1000)
            for topic in query.topics:
                for family, spread in ((messages, topic.messages), (seconds, topic.seconds)):
                    for stat, value in spread._asdict().items() if spread else ():
                        family.add_metric((query.query, topic.topic, stat), value)
        yield from (messages, seconds, looked)


def listen(spark: SparkSession, port: int | None = None, host: str = "127.0.0.1") -> LagListener:
    """Log how far the streams of a session are behind, and serve it for Prometheus if `port` is given; 0 takes any free
    port, which the listener's `url` has.

        with orbitmq.spark.listen(spark, port=9404):
            query.awaitTermination()

    For each batch and topic there is a line at level INFO of the logger `orbitmq.spark.lag_listener`. `/metrics` has no
    login: with another `host` than that of this machine everybody who reaches the port can read it. Works for queries
    of every kind that read topics, in sessions of Spark Connect, too, in the process of the client.

    The lag is what the last batch left unread, by the ends of the queues when the batch was planned: a stream without
    limits has none. SourceError ORBITMQ_BAD_OPTION if the port cannot be used; ORBITMQ_SPARK_VERSION before Spark 4.2,
    which asks no stream for its lag.
    """
    if not ADMITS:
        raise lacking("the lag of streams on the driver", "4.2", "set commitOffsets, and look at the lag of the group")
    return LagListener(spark, port, host)


def _line(query: str, batch: int, lag: TopicLag) -> str:
    """One topic of one query, as minimum/mean/maximum of its queues."""
    messages = "/".join(f"{value:.15g}" for value in lag.messages)
    seconds = "/".join(f"{value:.15g}" for value in lag.seconds) if lag.seconds else "unknown"
    return (
        f"event=stream_lag query={printable(query)} batch={batch} topic={lag.topic} queues={lag.queues} "
        f"behind_messages={messages} behind_seconds={seconds}"
    )
