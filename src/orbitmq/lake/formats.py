"""Opens a lake by the name of its format. Libraries of formats are imported on use: each takes most of a second."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from orbitmq.errors import ConfigurationError, LakeError
from orbitmq.lake.lakes import Lake
from orbitmq.lake.layout import TABLE_FOLDER
from orbitmq.lake.storage import StorageLocation

DELTA, ICEBERG = FORMATS = ("delta", "iceberg")
MARKS = {DELTA: "_delta_log", ICEBERG: TABLE_FOLDER}  # folders that a lake's first batch makes
Now = Callable[[], int]


def open_lake(kind: str, place: StorageLocation, now_ms: Now, catalog: Mapping[str, str] | None = None) -> Lake:
    """The lake at `place`, one of FORMATS; `catalog` is for Iceberg. ConfigurationError for an unknown format.
    LakeError for an unsuitable place, or one with a lake of another format, whose files would all seem to be old.
    """
    if kind not in FORMATS:
        raise ConfigurationError(f"unknown lake format {kind!r}; the formats are {', '.join(FORMATS)}")
    found = formats_at(place)
    if found and kind not in found:
        raise LakeError(f"{place.root} is a lake of format {found[0]}, not {kind}; use --lake-format {found[0]}")
    if kind == DELTA:
        from orbitmq.lake.delta import DeltaLake

        return DeltaLake(place, now_ms)
    from orbitmq.lake.iceberg import IcebergLake

    return IcebergLake(place, catalog)


def existing_lake(kind: str, place: StorageLocation, now_ms: Now, catalog: Mapping[str, str] | None = None) -> Lake:
    """The same for an existing lake. LakeError when nothing was archived there."""
    if not formats_at(place):
        raise LakeError(f"there is no lake at {place.root}; archive something there first")
    return open_lake(kind, place, now_ms, catalog)


def formats_at(place: StorageLocation) -> list[str]:
    """The formats with published files there, normally one."""
    return [kind for kind, folder in MARKS.items() if place.has_folder(folder)]
