"""The options of `format("orbitmq-lake")`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from orbitmq.errors import ConfigurationError, LakeError, SourceError
from orbitmq.lake.formats import existing_lake, formats_at
from orbitmq.lake.lakes import Lake, Snapshot
from orbitmq.lake.storage import StorageLocation
from orbitmq.runtime.clock import SystemClock
from orbitmq.runtime.options import option
from orbitmq.spark.bodies.options import RAW, BodyOptions
from orbitmq.spark.cluster_options import bad_option, missing_option, parse_declared, parts
from orbitmq.spark.topic_names import TopicNames, topic_names

HISTORY = "a lake has no brokers; use orbitmq.spark.history for a lake and its topic together"
FOREIGN_OPTIONS = {
    "nameserver": HISTORY,
    "subscribe": "use topics",
    "topic": "use topics",
    "lake": "use path",
    "lakeformat": "the lake tells its format",
    "startingoffsets": "use startingTimestamp, or a condition on queueOffset",
    "endingoffsets": "use endingTimestamp, or a condition on queueOffset",
}
SPLIT_SIZE_MIN = 1 << 20


@dataclass(frozen=True)
class LakeReadOptions(BodyOptions):
    """Options of reads of a lake."""

    path: str = option("path", "", "Folder or URI of the lake. The argument of `load` means the same. Required.")
    catalog: str = option(
        "lakeCatalog", "", "Properties of an Iceberg catalog, as JSON. Empty is a catalog next to the messages."
    )
    topics: str = option(
        "topics",
        "",
        "Topics to read, separated by commas, with `*` for any characters. Empty reads all. `*` does not match "
        "topics of brokers and groups (retries, dead letters): name them in full.",
    )
    columns: str = option("columns", "", "Columns to read, separated by commas. Fewer columns are read faster.")
    include_properties: str = option(
        "includeProperties",
        "map",
        "The column `properties`: a map, or no such column (none).",
        choices=("map", "none"),
    )
    begin_ms: int = option(
        "startingTimestamp",
        -1,
        "Messages stored at or after this time. Files of days before it are not opened.",
        unit="ms since 1970",
        minimum=-1,
    )
    end_ms: int = option(
        "endingTimestamp",
        -1,
        "Messages stored before this time. Files of days after it are not opened.",
        unit="ms since 1970",
        minimum=-1,
    )
    version: str = option(
        "versionAsOf",
        "",
        "Version of the table to read: a number of Delta, a snapshot of Iceberg or a file of its metadata. Empty is "
        "the newest. A version stays readable for 7 days after another one replaced it, or for as long as "
        "`compact --keep-versions` says.",
    )
    time_ms: int = option(
        "timestampAsOf",
        -1,
        "The same, as the version that was the newest at this time.",
        unit="ms since 1970",
        minimum=-1,
    )
    split_size: int = option(
        "splitBytes",
        128 << 20,
        "Bytes of Parquet files for one task. Larger files are divided by row groups.",
        unit="bytes",
        minimum=SPLIT_SIZE_MIN,
    )

    @property
    def place(self) -> StorageLocation:
        return StorageLocation(self.path)

    @property
    def column_names(self) -> tuple[str, ...]:
        return parts(self.columns, ",")

    @property
    def topic_names(self) -> TopicNames:
        return topic_names(self.topics)

    def lake(self) -> Lake:
        """The lake. SourceError ORBITMQ_LAKE_UNREADABLE where there is none."""
        try:
            catalog = json.loads(self.catalog) if self.catalog else None
        except ValueError as error:
            raise bad_option(f"option lakeCatalog is not JSON: {error}") from error
        with Unreadable():
            place = self.place
            kinds = formats_at(place)
            return existing_lake(kinds[0] if kinds else "", place, SystemClock().now_ms, catalog)

    def snapshot(self) -> Snapshot:
        """The version to read. SourceError ORBITMQ_LAKE_UNREADABLE when it does not exist."""
        lake = self.lake()
        with Unreadable():
            return lake.snapshot(lake.version_at(self.time_ms) if self.time_ms >= 0 else self.version)


class Unreadable:
    """Errors of a lake, or of one `file` of it, as those of a data source, whose texts begin with a name."""

    def __init__(self, file: str = "") -> None:
        self._file = file

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if self._file and FileNotFoundError in (type(error), type(getattr(error, "__cause__", None))):
            text = f"{self._file} is gone: the lake does not keep versions with it any more; load the lake again"
            raise unreadable(text) from error
        if isinstance(error, (LakeError, ConfigurationError)):
            raise unreadable(str(error)) from error
        if self._file and isinstance(error, (pa.ArrowException, OSError)):
            raise unreadable(f"{self._file}: {error}") from error


def unreadable(text: str) -> SourceError:
    """The error for a lake, a version or a file of it that cannot be read."""
    return SourceError("ORBITMQ_LAKE_UNREADABLE", text)


def lake_options(given: Mapping[str, str]) -> LakeReadOptions:
    """Parse the options of a read. Names are not case-sensitive. SourceError names the invalid option."""
    options = parse_declared(LakeReadOptions, given, FOREIGN_OPTIONS)
    if not options.path:
        raise missing_option("no lake; pass its folder or URI to load()", given)
    if options.version and options.time_ms >= 0:
        raise bad_option("options versionAsOf and timestampAsOf exclude each other; use one of them")
    return options


def require_body_schema(options: LakeReadOptions) -> None:
    """SourceError when the fields of bodies are unknown."""
    if options.body_format != RAW and not options.body_schema:
        text = "option bodySchema is missing; a lake infers none, because messages of another day would have another"
        raise bad_option(text)
