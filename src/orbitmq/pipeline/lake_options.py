"""Where a lake is and what it is: the options of everything that writes or reads one."""

from __future__ import annotations

import json
from dataclasses import dataclass

from orbitmq.errors import ConfigurationError
from orbitmq.pipeline.lake.lakes import Lake
from orbitmq.pipeline.lake.opening import FORMATS, PARQUET, open_lake
from orbitmq.pipeline.lake.places import Place
from orbitmq.runtime.clock import SystemClock
from orbitmq.runtime.options import Options, option

ARCHIVE_GROUP = "ORBITMQ_ARCHIVE"


@dataclass(frozen=True)
class LakeOptions(Options):
    """A lake, and the group whose offsets stand for it."""

    lake: str = option("lake", "", "Folder or URI of the lake. Required.")
    lake_format: str = option(
        "lakeFormat",
        PARQUET,
        "What publishes the files: plain Parquet with a log of its own, or a table format.",
        choices=FORMATS,
    )
    catalog: str = option(
        "lakeCatalog", "", "Properties of an Iceberg catalog, JSON; empty is one beside the messages."
    )
    group: str = option(
        "archiveGroup", ARCHIVE_GROUP, "Consumer group whose offsets tell brokers how far the archive is."
    )

    def open(self) -> Lake:
        """The lake. LakeError for a place that does not suit, ConfigurationError for an option."""
        if not self.lake:
            raise ConfigurationError("option lake is missing; give the folder or URI of the lake")
        try:
            catalog = json.loads(self.catalog) if self.catalog else None
        except ValueError as error:
            raise ConfigurationError(f"option lakeCatalog is no JSON: {error}") from error
        return open_lake(self.lake_format, Place(self.lake), SystemClock().now_ms, catalog)
