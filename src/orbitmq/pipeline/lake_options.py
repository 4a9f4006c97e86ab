"""Options of jobs and data sources that read or write a lake."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from orbitmq.errors import ConfigurationError
from orbitmq.lake.formats import DELTA, FORMATS, existing_lake, open_lake
from orbitmq.lake.lakes import Lake
from orbitmq.lake.storage import StorageLocation
from orbitmq.runtime.clock import SystemClock
from orbitmq.runtime.options import Options, option

ARCHIVE_GROUP = "ORBITMQ_ARCHIVE"


@dataclass(frozen=True)
class LakeOptions(Options):
    """A lake, and the group that its progress is committed for."""

    lake: str = option("lake", "", "Folder or URI of the lake. Required.")
    lake_format: str = option(
        "lakeFormat",
        DELTA,
        "Table format of the lake. It cannot be changed later.",
        choices=FORMATS,
    )
    catalog: str = option(
        "lakeCatalog", "", "Properties of an Iceberg catalog, as JSON. Empty is a catalog next to the messages."
    )
    group: str = option(
        "archiveGroup", ARCHIVE_GROUP, "Consumer group whose offsets report the progress of the archive to the brokers."
    )

    def open(self) -> Lake:
        """The lake, which the first batch creates. LakeError for an unsuitable place, ConfigurationError for an
        option.
        """
        return open_lake(*self._opening())

    def open_existing(self) -> Lake:
        """The same; LakeError where nothing was archived."""
        return existing_lake(*self._opening())

    def reading(self) -> dict[str, str]:
        """The lake as options of `orbitmq-lake`."""
        return {"path": self.lake, **({"lakeCatalog": self.catalog} if self.catalog else {})}

    def _opening(self) -> tuple[str, StorageLocation, Callable[[], int], Mapping[str, str] | None]:
        if not self.lake:
            raise ConfigurationError("option lake is missing; set it to the folder or URI of the lake")
        try:
            catalog = json.loads(self.catalog) if self.catalog else None
        except ValueError as error:
            raise ConfigurationError(f"option lakeCatalog is not JSON: {error}") from error
        return self.lake_format, StorageLocation(self.lake), SystemClock().now_ms, catalog
