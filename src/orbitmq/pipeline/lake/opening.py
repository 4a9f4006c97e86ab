"""Which lake it is, by the name of its format. The libraries of table formats are imported only for theirs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from orbitmq.errors import ConfigurationError
from orbitmq.pipeline.lake.lakes import Lake
from orbitmq.pipeline.lake.parquet_log import ParquetLake
from orbitmq.pipeline.lake.places import Place

PARQUET, DELTA, ICEBERG = FORMATS = ("parquet", "delta", "iceberg")
Now = Callable[[], int]


def open_lake(kind: str, place: Place, now_ms: Now, catalog: Mapping[str, str] | None = None) -> Lake:
    """The lake at `place`, one of FORMATS; `catalog` is Iceberg's. ConfigurationError for another format, or one whose
    library is not installed; LakeError for a place that does not suit it.
    """
    if kind == PARQUET:
        return ParquetLake(place, now_ms)
    try:
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
    raise ConfigurationError(f"there is no lake format {kind!r}; there are {', '.join(FORMATS)}")
