"""Options of jobs and data sources that read or write a lake."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from orbitmq.errors import ConfigurationError
from orbitmq.pipeline.lake.bodies import MODES, ON_BAD, RAW, SUSPEND, Bodies
from orbitmq.pipeline.lake.formats import DELTA, FORMATS, existing_lake, open_lake
from orbitmq.pipeline.lake.lakes import Lake
from orbitmq.pipeline.lake.storage import StorageLocation
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

    def _opening(self) -> tuple[str, StorageLocation, Callable[[], int], Mapping[str, str] | None]:
        if not self.lake:
            raise ConfigurationError("option lake is missing; set it to the folder or URI of the lake")
        try:
            catalog = json.loads(self.catalog) if self.catalog else None
        except ValueError as error:
            raise ConfigurationError(f"option lakeCatalog is not JSON: {error}") from error
        return self.lake_format, StorageLocation(self.lake), SystemClock().now_ms, catalog


@dataclass(frozen=True)
class BodyOptions(Options):
    """Options for bodies as columns of the lake."""

    body_mode: str = option(
        "bodyMode",
        RAW,
        "Type of the bodies: bytes (raw), or json or avro, which are also parsed into a column `value`, with what "
        "does not fit in `_rescued`. A lake keeps what it began with: raw, or columns.",
        choices=MODES,
    )
    body_schema: str = option(
        "bodySchema",
        "",
        "With bodyMode json and avro: the schema of the bodies, an Avro record as JSON, or a file with it.",
    )
    on_bad_body: str = option(
        "onBadBody",
        SUSPEND,
        "What to do with a body that does not fit the schema: stop the archive before it (suspend), leave the "
        "message out (skip), or archive it with what fits (log). The last two log how many.",
        choices=ON_BAD,
    )

    def bodies(self) -> Bodies:
        """The parser of bodies. ConfigurationError for an invalid schema."""
        if self.body_mode == RAW:
            return Bodies(RAW, "", SUSPEND)
        if not self.body_schema:
            raise ConfigurationError(f"option bodySchema is missing; bodyMode {self.body_mode} needs it")
        text = self.body_schema
        if not text.lstrip().startswith("{"):
            try:
                text = Path(text).read_text(encoding="utf-8")
            except (OSError, ValueError) as error:
                raise ConfigurationError(f"option bodySchema: {error}") from error
        return Bodies(self.body_mode, text, self.on_bad_body)
