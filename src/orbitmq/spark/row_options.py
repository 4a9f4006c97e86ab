"""Options of every read of messages, from brokers and from store directories: what becomes a column, and what of
messages that are lost or damaged. Must not know where messages are read."""

from __future__ import annotations

from dataclasses import dataclass

from orbitmq.runtime.options import Options, option
from orbitmq.spark.cluster_options import parts


@dataclass(frozen=True)
class RowOptions(Options):
    """How messages become rows."""

    columns: str = option("columns", "", "Columns to read, separated by commas. Fewer columns are read faster.")
    include_properties: str = option(
        "includeProperties",
        "map",
        "The column `properties`: a map, the stored text, or none.",
        choices=("map", "string", "none"),
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        True,
        "Fail when messages of the range are gone; otherwise read what is left and log how much is lost.",
    )
    on_corrupt_record: str = option(
        "onCorruptRecord",
        "fail",
        "What becomes of a message that does not match its checksum or cannot be decoded: an error, a line in the log, "
        "or a row with the bytes as stored in `body` and the reason in column `corrupt`.",
        choices=("fail", "skip", "raw"),
    )
    verify_crc: bool = option("verifyCrc", True, "Check the CRC of every body read.")
    decompress: bool = option("decompress", True, "Unpack compressed bodies.")

    @property
    def column_names(self) -> tuple[str, ...]:
        return parts(self.columns, ",")
