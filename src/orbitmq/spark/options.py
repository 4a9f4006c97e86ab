"""The options of `spark.read.format("orbitmq")`, one declaration each; names are those of Spark's Kafka source
where it has the option. Must not know how a read is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orbitmq.errors import MessageIllegal
from orbitmq.filter.tags import tag_subscription
from orbitmq.runtime.options import option
from orbitmq.spark.connecting import ConnectionOptions, bad_option, parse_options, parts

# What users of other sources write, and what they mean here.
FOREIGN_OPTIONS = {
    "kafka.bootstrap.servers": "give nameServer, the addresses of the name servers",
    "bootstrap.servers": "give nameServer, the addresses of the name servers",
    "topic": "give subscribe, or the topic to load()",
}


@dataclass(frozen=True)
class ReadOptions(ConnectionOptions):
    """How a topic is read."""

    subscribe: str = option(
        "subscribe", "", "Topics to read, separated by commas; the argument of `load` means the same."
    )
    path: str = option("path", "", "What `load` was given.")
    starting_offsets: str = option(
        "startingOffsets",
        "earliest",
        "Where to begin: earliest, or JSON topic -> broker -> queue -> offset, -2 for earliest. "
        "A topic on one broker needs no broker level; queues left out begin at earliest.",
    )
    ending_offsets: str = option(
        "endingOffsets",
        "latest",
        "Where to end, exclusive: latest, or JSON as for startingOffsets, -1 for latest.",
    )
    starting_timestamp: int = option(
        "startingTimestamp",
        -1,
        "Begin with the first message stored at or after this time; goes before startingOffsets.",
        unit="ms since 1970",
        minimum=-1,
    )
    ending_timestamp: int = option(
        "endingTimestamp",
        -1,
        "End before the first message stored at or after this time; goes before endingOffsets.",
        unit="ms since 1970",
        minimum=-1,
    )
    late_start: str = option(
        "startingOffsetsByTimestampStrategy",
        "error",
        "When a queue has no message at or after startingTimestamp: fail, or begin at its end.",
        choices=("error", "latest"),
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        True,
        "Fail when messages of the range are gone; otherwise read what is left and log the count.",
    )
    partitions_min: int = option(
        "minPartitions",
        0,
        "Split long queues until there are about this many partitions; pieces keep at least 20,000 messages.",
        minimum=0,
    )
    partition_records_max: int = option(
        "maxRecordsPerPartition", 0, "Split queues so that no partition has more messages; 0 for no limit.", minimum=0
    )
    group_id: str = option(
        "groupId",
        "TOOLS_CONSUMER",
        "Consumer group the pulls name. It is never joined and its offsets never change. "
        "The default is a group every broker has.",
    )
    sub_expression: str = option(
        "subExpression", "*", "Tags to read, `TagA || TagB`, filtered by the broker; `*` for all messages."
    )
    columns: str = option("columns", "", "Columns to read, separated by commas. Fewer columns are read faster.")
    include_properties: str = option(
        "includeProperties",
        "map",
        "The column `properties`: a map, the stored text, or none.",
        choices=("map", "string", "none"),
    )
    pull_batch_size: int = option(
        "pullBatchSize",
        1024,
        "Messages asked for at once; brokers answer fewer when they limit pulls.",
        minimum=1,
        maximum=32_000,
    )
    pull_pipeline: int = option(
        "pullPipeline", 8, "Pulls in flight at a time for one partition.", minimum=1, maximum=256
    )
    pull_timeout_ms: int = option(
        "pullTimeoutMs", 30_000, "How long to wait for an answer before another address is tried.", unit="ms", minimum=1
    )
    fetch_retries: int = option(
        "fetchOffset.numRetries", 3, "How often a failed question for routes and offsets is repeated.", minimum=0
    )
    fetch_retry_interval_ms: int = option(
        "fetchOffset.retryIntervalMs", 1000, "The pause before it is repeated.", unit="ms", minimum=0
    )
    verify_crc: bool = option("verifyCrc", True, "Check the CRC of every body read.")
    decompress: bool = option("decompress", True, "Unpack compressed bodies.")

    @property
    def topics(self) -> tuple[str, ...]:
        return parts(self.subscribe or self.path, ",")

    @property
    def tags(self) -> frozenset[str]:
        """The tags of `sub_expression`, empty for all messages; a broker lets some others of equal hash through."""
        try:
            return tag_subscription(self.topics[0], self.sub_expression).tags
        except MessageIllegal as error:
            raise bad_option(f"option subExpression: {error}") from error

    @property
    def column_names(self) -> tuple[str, ...]:
        return parts(self.columns, ",")


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Parse the options of a read; names are not case-sensitive. SourceError names the option at fault."""
    options = parse_options(ReadOptions, given, FOREIGN_OPTIONS)
    if not options.topics:
        raise bad_option("no topic is named; give option subscribe, or the topic to load()")
    if options.subscribe and options.path and options.subscribe != options.path:
        raise bad_option(f"option subscribe names {options.subscribe}, load() names {options.path}; give one of them")
    return options
