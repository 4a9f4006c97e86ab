"""Options that several jobs share and pass to data sources."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from orbitmq.errors import ConfigurationError
from orbitmq.message.model import MessageQueue
from orbitmq.pipeline.datasets import Dataset, location
from orbitmq.runtime.options import Options, option
from orbitmq.spark.cluster_client import ClusterClient, Retries
from orbitmq.spark.cluster_options import ClusterOptions
from orbitmq.spark.stores.options import scan_options

TIMEOUT_MS = 10_000
RETRIES = Retries(2, 500)


@dataclass(frozen=True)
class ExpectedBrokers(Options):
    """Which brokers must be there."""

    expected_brokers: str = option(
        "expectBrokers",
        "",
        "Brokers, separated by commas, that must have a queue of the topics. A name server does not know a broker that "
        "is down, so its messages would be left out without a warning. Not for stores and lakes.",
    )


def expected(options: ExpectedBrokers) -> dict[str, str]:
    """The same as options of a data source."""
    return {"expectBrokers": options.expected_brokers} if options.expected_brokers else {}


@dataclass(frozen=True)
class LossOptions(Options):
    """Options for lost or damaged messages."""

    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        True,
        "Stop when brokers or stores no longer have messages that should be read. Otherwise log and skip them.",
    )
    on_corrupt_record: str = option(
        "onCorruptRecord",
        "fail",
        "What to do with a message that does not match its checksum or cannot be decoded: stop before it (fail), or "
        "skip it and log it (skip).",
        choices=("fail", "skip"),
    )
    verify_crc: bool = option("verifyCrc", True, "Check the CRC of each body that is read.")


def losses(options: LossOptions) -> dict[str, str]:
    """The same as options of a data source."""
    return {key: value for key, value in options.pairs().items() if key in LossOptions.table()}


def connection(options: ClusterOptions) -> dict[str, str]:
    """How the cluster is reached, as options of a data source."""
    return {key: value for key, value in options.pairs().items() if key in ClusterOptions.table() and value}


def cluster(options: ClusterOptions) -> ClusterClient:
    """A client of the cluster, for what a job asks it before its tasks do."""
    return ClusterClient(options.name_servers, TIMEOUT_MS, RETRIES, options.protection)


def require_topics(options: ClusterOptions, names: Iterable[str]) -> None:
    """SourceError when one of these topics does not exist: tasks would find out much later."""
    for error in cluster(options).look_up(names).unknown.values():
        raise error


def store(path: str, broker_name: str, *, needs_broker: bool = False) -> dict[str, str]:
    """The store directories and their brokers, as options of a data source. ConfigurationError when one is missing.
    With `needs_broker` the name of the directory does not replace the broker name."""
    if not path:
        raise ConfigurationError("option path is missing; input store needs the store directory")
    told = {"path": path, "brokerName": broker_name}
    if needs_broker and not (broker_name or scan_options(told).is_table):
        raise ConfigurationError(f"option brokerName is missing; set it to the broker that owns {path}")
    return {key: value for key, value in told.items() if value}


def store_datasets(path: str) -> list[Dataset]:
    """The store directories of the option, for `Lineage`."""
    found = scan_options({"path": path}).stores if path else {}
    return [location(str(directory.root)) for directory in found.values()]


def ranges(wanted: Mapping[MessageQueue, tuple[int, int]]) -> dict[str, str]:
    """A read of these queues alone, each from an offset up to before another."""
    queues: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    starts: dict[str, dict[str, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
    ends: dict[str, dict[str, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
    for queue, (start, end) in wanted.items():
        queues[queue.topic][queue.broker_name].append(queue.queue_id)
        starts[queue.topic][queue.broker_name][queue.queue_id] = start
        ends[queue.topic][queue.broker_name][queue.queue_id] = end
    texts = {"assign": queues, "startingOffsets": starts, "endingOffsets": ends}
    return {key: json.dumps(value) for key, value in texts.items()}


def time_ms(key: str, text: str) -> int:
    """An option that is milliseconds, or a time in ISO 8601; 0 for none. ConfigurationError names it."""
    if not text or text.isdecimal():
        return int(text or 0)
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ConfigurationError(f"option {key}: use a time like 2026-11-21T10:00:00, or milliseconds") from None


def times(begin_ms: int, end_ms: int) -> dict[str, str]:
    """Messages stored from `begin_ms` on and before `end_ms`, as options of a data source; 0 is no limit."""
    bounds = {"startingTimestamp": begin_ms, "endingTimestamp": end_ms}
    return {key: str(time) for key, time in bounds.items() if time}
