"""Opens a lake by the name of its format. Libraries of table formats are imported on use."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from orbitmq.errors import ConfigurationError, LakeError
from orbitmq.pipeline.lake.lakes import Lake
from orbitmq.pipeline.lake.layout import LOG_FOLDER, TABLE_FOLDER
from orbitmq.pipeline.lake.parquet_log import ParquetLake
from orbitmq.pipeline.lake.storage import StorageLocation

PARQUET, DELTA, ICEBERG = FORMATS = ("parquet", "delta", "iceberg")
MARKS = {PARQUET: LOG_FOLDER, DELTA: "_delta_log", ICEBERG: TABLE_FOLDER}  # folders that a lake's first batch makes
Now = Callable[[], int]


def open_lake(kind: str, place: StorageLocation, now_ms: Now, catalog: Mapping[str, str] | None = None) -> Lake:
    """The lake at `place`, one of FORMATS; `catalog` is for Iceberg. ConfigurationError for an unknown format, or one
    whose library is not installed. LakeError for an unsuitable place, or one with a lake of another format, whose
    files would all look like orphans.
    """
    if kind == PARQUET and not place.is_local:
        return ParquetLake(place, now_ms)  # raises the error
    found = formats_at(place)
    if found and kind in FORMATS and kind not in found:
        raise LakeError(f"{place.root} is a lake of format {found[0]}, not {kind}; use --lake-format {found[0]}")
    try:
        if kind == PARQUET:
            return ParquetLake(place, now_ms)
        if kind == DELTA:
            from orbitmq.pipeline.lake.delta import DeltaLake

            return DeltaLake(place, now_ms)
        if kind == ICEBERG:
            from orbitmq.pipeline.lake.iceberg import IcebergLake

            return IcebergLake(place, catalog)
    except ImportError as error:
        raise ConfigurationError(
            f"the format {kind} needs a library: pip install 'orbitmq[{kind}]' ({error})"
        ) from error
    raise ConfigurationError(f"unknown lake format {kind!r}; the formats are {', '.join(FORMATS)}")


def existing_lake(kind: str, place: StorageLocation, now_ms: Now, catalog: Mapping[str, str] | None = None) -> Lake:
    """The same for an existing lake. LakeError when nothing was archived there."""
    if not formats_at(place):
        raise LakeError(f"there is no lake at {place.root}; archive something there first")
    return open_lake(kind, place, now_ms, catalog)


def formats_at(place: StorageLocation) -> list[str]:
    """The formats with published files there, normally one."""
    return [kind for kind, folder in MARKS.items() if place.has_folder(folder)]
