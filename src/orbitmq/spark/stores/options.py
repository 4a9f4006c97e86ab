"""The options of `format("orbitmq-store")`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orbitmq.runtime.options import option
from orbitmq.spark.bodies.options import RAW
from orbitmq.spark.cluster_options import bad_option, missing_option, parse_declared, parts
from orbitmq.spark.row_options import RowOptions
from orbitmq.spark.topic_names import TopicNames, topic_names
from orbitmq.store.reader import StoreDirectory

FOREIGN_OPTIONS = {
    "nameserver": "a store directory is read from the disk; use format orbitmq to read a cluster",
    "subscribe": "use topics",
    "topic": "use topics",
    "startingoffsets": "use startingPhysicalOffset",
    "endingoffsets": "use endingPhysicalOffset",
    "store": "use path",
}
EARLIEST = "earliest"
LATEST = "latest"
SPLIT_SIZE_MIN = 1 << 10


@dataclass(frozen=True)
class ScanOptions(RowOptions):
    """Options of reads of store directories."""

    path: str = option(
        "path",
        "",
        "The store directory, or JSON broker -> directory. The argument of `load` means the same. Every executor "
        "must see the files under that path. Required.",
    )
    broker_name: str = option(
        "brokerName", "", "Value of the column brokerName for a single directory. Empty is the name of the directory."
    )
    commit_log: str = option(
        "storePathCommitLog",
        "",
        "Directories of the commit log, separated by commas, when it is not in the store directory; or JSON broker "
        "-> directories.",
    )
    scan: str = option(
        "scan",
        "commitlog",
        "What to read: the messages of the commit log, the entries of the consume queues, or those of the key index.",
        choices=("commitlog", "consumequeue", "index"),
    )
    topics: str = option(
        "topics",
        "",
        "Topics to read, separated by commas, with `*` for any characters. Empty reads all. `*` does not match "
        "topics of brokers and groups (retries, dead letters): name them in full.",
    )
    topics_by: str = option(
        "topicsBy",
        "auto",
        "How messages of chosen topics are found: by scanning the log, by the entries of their queues, or by "
        "whichever is less work (auto), which for streams is always the log. Messages that are in no queue are found "
        "in the log only.",
        choices=("auto", "log", "queues"),
    )
    start: str = option(
        "startingPhysicalOffset",
        EARLIEST,
        "Where in the log to start: earliest, latest, a physical offset, or JSON broker -> one of these. A message "
        "belongs to the range that contains its first byte.",
    )
    end: str = option(
        "endingPhysicalOffset",
        LATEST,
        "Batches: where to end, exclusive: latest, a physical offset, or JSON broker -> one of these.",
    )
    safe_end: str = option(
        "safeEnd",
        "auto",
        "What latest means: the end of the last message that is in a queue (dispatched), or of the last whole "
        "message (magic). auto is dispatched while a broker of this machine uses the directory, else magic.",
        choices=("auto", "dispatched", "magic"),
    )
    split_size: int = option(
        "splitBytes",
        256 << 20,
        "Bytes of the log, or of queues, for one task. Tasks of a quarter of the default cost 1.4 times the CPU.",
        unit="bytes",
        minimum=SPLIT_SIZE_MIN,
    )
    resolve_system_topics: bool = option(
        "resolveSystemTopics",
        False,
        "Show delayed, timer and half messages under their real topic and queue.",
    )
    rows_max: int = option(
        "maxRowsPerTrigger",
        0,
        "Streams: maximum messages of a batch, of all brokers together. 0 is no limit.",
        minimum=0,
    )
    bytes_max: int = option(
        "maxBytesPerTrigger",
        0,
        "Streams: maximum bytes of the log in a batch, of all brokers together. 0 is no limit.",
        unit="bytes",
        minimum=0,
    )

    @property
    def topic_names(self) -> TopicNames:
        brokers = self.stores if self.is_table or self.broker_name else ()
        return topic_names(self.topics, frozenset(brokers))

    @property
    def is_table(self) -> bool:
        """Whether `path` names directories by broker."""
        return self.path.lstrip().startswith("{")

    @property
    def stores(self) -> dict[str, StoreDirectory]:
        """The directories by broker name, sorted."""
        if not self.is_table:
            root = Path(self.path).expanduser()
            return {self.broker_name or root.resolve().name: StoreDirectory(root, _directories(self.commit_log))}
        paths = _by_broker("path", self.path)
        logs = _by_broker("storePathCommitLog", self.commit_log) if self.commit_log else {}
        if unknown := logs.keys() - paths.keys():
            raise bad_option(f"option storePathCommitLog names {', '.join(sorted(unknown))}, which path does not name")
        return {
            name: StoreDirectory(Path(str(path)).expanduser(), _directories(str(logs.get(name, ""))))
            for name, path in sorted(paths.items())
        }

    def bound(self, key: str, text: str, broker: str) -> int | str:
        """The value of `startingPhysicalOffset` or `endingPhysicalOffset`: a number, earliest or latest."""
        value: Any = text
        if text.lstrip().startswith("{"):
            value = _by_broker(key, text).get(broker, EARLIEST if key == "startingPhysicalOffset" else LATEST)
        if value in (EARLIEST, LATEST) and not (value == EARLIEST and key == "endingPhysicalOffset"):
            return str(value)
        if str(value).isdecimal():
            return int(value)
        raise bad_option(f"option {key}: {value!r} is not a physical offset")


def _by_broker(key: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise bad_option(f"option {key} is not JSON: {error}") from error
    if not isinstance(value, dict) or not value:
        raise bad_option(f"option {key}: use a JSON object with a value for each broker")
    return value


def _directories(text: str) -> tuple[Path, ...]:
    return tuple(Path(part).expanduser() for part in parts(text, ","))


def scan_options(given: Mapping[str, str]) -> ScanOptions:
    """Parse the options of a read. Names are not case-sensitive. SourceError names the invalid option."""
    aliased = {("maxRowsPerTrigger" if key.lower() == "maxoffsetspertrigger" else key): given[key] for key in given}
    options = parse_declared(ScanOptions, aliased, FOREIGN_OPTIONS)
    if not options.path:
        raise missing_option("no store directory; pass it to load()", given)
    if options.body_format != RAW and options.scan != "commitlog":
        raise bad_option(f"option bodyFormat: scan={options.scan} reads no bodies")
    options.check_bodies()
    if options.broker_name and options.is_table:
        raise bad_option("option brokerName is for a single directory; option path names the brokers")
    for key, text in (("startingPhysicalOffset", options.start), ("endingPhysicalOffset", options.end)):
        for broker in options.stores:
            options.bound(key, text, broker)
    return options
