"""Options that reads from brokers and from store directories share: columns, data loss, damaged messages."""

from __future__ import annotations

from dataclasses import dataclass

from orbitmq.runtime.options import option
from orbitmq.spark.bodies.options import RAW, BodyOptions
from orbitmq.spark.cluster_options import bad_option, parts


@dataclass(frozen=True)
class RowOptions(BodyOptions):
    """How messages become rows."""

    columns: str = option("columns", "", "Columns to read, separated by commas. Fewer columns are read faster.")
    include_properties: str = option(
        "includeProperties",
        "map",
        "The column `properties`: a map, the stored text (string), or no such column (none).",
        choices=("map", "string", "none"),
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        True,
        "Fail when messages of the range are gone. Otherwise read the rest and log how many are lost.",
    )
    on_corrupt_record: str = option(
        "onCorruptRecord",
        "fail",
        "What to do with a message that does not match its checksum or cannot be decoded: fail, skip it and log it, "
        "or return a row with the stored bytes in `body` and the reason in the column `corrupt` (raw).",
        choices=("fail", "skip", "raw"),
    )
    verify_crc: bool = option("verifyCrc", True, "Check the CRC of each body.")
    decompress: bool = option("decompress", True, "Decompress bodies.")
    available_now: bool = option(
        "availableNow",
        False,
        "Streams: read what exists when the query starts and nothing newer, in batches within the limits. For Spark "
        "4.0 and 4.1, where the trigger of that name makes one batch; end the query with processAllAvailable() and "
        "stop().",
    )

    @property
    def column_names(self) -> tuple[str, ...]:
        return parts(self.columns, ",")

    def check_bodies(self) -> None:
        """SourceError when bodies are to be parsed that are still compressed."""
        if self.body_format != RAW and not self.decompress:
            raise bad_option("option bodyFormat: bodies that stay compressed cannot be parsed; leave decompress out")
