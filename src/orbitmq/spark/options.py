"""The options of `spark.read.format("orbitmq")`. Names are those of Spark's Kafka source where it has the option."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orbitmq.errors import ExpressionIllegal, MessageIllegal, SourceError
from orbitmq.filter.sql92 import compile_sql92
from orbitmq.filter.tags import tag_subscription
from orbitmq.message.config import SQL92, SUBSCRIBE_ALL, TAG
from orbitmq.message.namespace import Namespace
from orbitmq.message.topics import TOOLS_CONSUMER_GROUP, check_retry_topic
from orbitmq.runtime.options import option
from orbitmq.spark.bodies.options import RAW
from orbitmq.spark.cluster_options import ClusterOptions, bad_option, parse_options, parts
from orbitmq.spark.row_options import RowOptions

# Option names of other sources, and the hint for each.
FOREIGN_OPTIONS = {
    "kafka.bootstrap.servers": "use nameServer, the addresses of the name servers",
    "bootstrap.servers": "use nameServer, the addresses of the name servers",
    "kafka.group.id": "use groupId",
    "groupidprefix": "no group is generated; use groupId",
    "includeheaders": "the column properties has them; see includeProperties",
    "topic": "use subscribe, or pass the topic to load()",
}
GROUP = "group"  # a word of startingOffsets
# Aliases of options, in lower case.
ALIASES = {"orbitmq.nameservers": "nameServer", "maxrowspertrigger": "maxOffsetsPerTrigger"}

NAMES_SHOWN = 5  # of topics and of name servers, in a description

DURATION = r"(\d+)\s*(ms|s|m|min|h|d|)"
MILLISECONDS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True)
class ReadOptions(RowOptions, ClusterOptions):
    """Options of reads, for batches and streams."""

    namespace: str = option(
        "namespace",
        "",
        "Namespace of the topics and of groupId. Options and rows use names without the namespace, checkpoints use "
        "full names.",
    )
    subscribe: str = option(
        "subscribe", "", "Topics to read, separated by commas. The argument of `load` means the same."
    )
    subscribe_pattern: str = option(
        "subscribePattern",
        "",
        "Regular expression. Reads the topics whose whole name matches, in addition to those of subscribe. Streams "
        "look for new topics at each batch.",
    )
    assign: str = option(
        "assign",
        "",
        "Queues to read, and no others: JSON topic -> broker -> list of queues. For a topic on one broker you can "
        "leave out the broker level.",
    )
    schema_registry: str = option(
        "schemaRegistry",
        "",
        "URL of a schema registry with Confluent's REST interface, several of one registry with commas. "
        "bodySchema=topic then means the schemas of the topic's subject, and bodies are as Confluent's serializers "
        "write them. The driver alone asks it, with the account that its environment has for clients.",
    )
    schema_registry_subject: str = option(
        "schemaRegistrySubject", "", "The subject; empty means that of clients, `{topic}-value` at first."
    )
    path: str = option("path", "", "The argument of `load`.")
    system_topics: bool = option(
        "includeSystemTopics",
        False,
        "Whether subscribePattern also matches topics of brokers and groups: retries, dead letters, schedules, traces.",
    )
    expected_brokers: str = option(
        "expectBrokers",
        "",
        "Brokers, separated by commas, that must have a queue of the read. A broker that is down is missing in the "
        "route of its topics, so that a read cannot know of its messages. A batch fails then, and so does the first "
        "start of a stream; later, a stream waits as for any broker that does not respond.",
    )
    starting_offsets: str = option(
        "startingOffsets",
        "",
        "Where to start: earliest, latest (streams only), group (the committed offsets of groupId), or JSON topic -> "
        "broker -> queue -> offset, where -2 is earliest and -1 is latest. For a topic on one broker you can leave "
        "out the broker level. Queues that are not listed start at earliest. Without this option batches start at "
        "earliest, streams at latest.",
    )
    archived_offsets: str = option(
        "archivedOffsets",
        "",
        "Where the archive of each queue ended, as orbitmq.spark.history sets it: JSON topic -> broker -> queue -> "
        "offset. Each queue starts there, or at startingTimestamp if that is later. Queues that are not listed start "
        "at earliest. Queues that do not exist are no error; in a stream they start there when they come. Not with "
        "startingOffsets or startingOffsetsByTimestamp.",
    )
    ending_offsets: str = option(
        "endingOffsets",
        "latest",
        "Batches: where to end, exclusive: latest, or JSON as for startingOffsets, where -1 is latest.",
    )
    starting_timestamp: int = option(
        "startingTimestamp",
        -1,
        "Start with the first message stored at or after this time. Takes precedence over startingOffsetsByTimestamp.",
        unit="ms since 1970",
        minimum=-1,
    )
    starting_timestamps: str = option(
        "startingOffsetsByTimestamp",
        "",
        "The same for each queue: JSON topic -> broker -> queue -> ms since 1970. Queues that are not listed start "
        "at earliest. Takes precedence over startingOffsets.",
    )
    ending_timestamp: int = option(
        "endingTimestamp",
        -1,
        "Batches: end before the first message stored at or after this time. Takes precedence over "
        "endingOffsetsByTimestamp.",
        unit="ms since 1970",
        minimum=-1,
    )
    ending_timestamps: str = option(
        "endingOffsetsByTimestamp",
        "",
        "Batches: the same for each queue: JSON topic -> broker -> queue -> ms since 1970. Queues that are not "
        "listed end at latest. Takes precedence over endingOffsets.",
    )
    late_start: str = option(
        "startingOffsetsByTimestampStrategy",
        "error",
        "What to do when a queue has no message at or after the starting time: fail (error), or start at its end "
        "(latest).",
        choices=("error", "latest"),
    )
    rows_max: int = option(
        "maxOffsetsPerTrigger",
        0,
        "Streams: maximum messages of a batch, divided among the queues in proportion to their backlog, at least one "
        "each. 0 is no limit. Alias: maxRowsPerTrigger.",
        minimum=0,
    )
    bytes_max: int = option(
        "maxBytesPerTrigger",
        0,
        "Streams: maximum stored bytes of a batch, estimated from the mean size of sampled messages. 0 is no limit.",
        unit="bytes",
        minimum=0,
    )
    rows_min: int = option(
        "minOffsetsPerTrigger",
        0,
        "Streams: wait for this many messages before a batch starts. Ignored with the trigger availableNow.",
        minimum=0,
    )
    delay_max: str = option(
        "maxTriggerDelay",
        "15m",
        "Streams: the longest wait for minOffsetsPerTrigger, such as `500ms`, `30s`, `15m`, `2h`.",
        pattern=DURATION,
    )
    partitions_min: int = option(
        "minPartitions",
        0,
        "Have about this many partitions if there are so many queues with messages, or queues that are long enough to "
        "split: each part keeps at least 20,000 messages.",
        minimum=0,
    )
    partitions_max: int = option(
        "maxPartitions",
        0,
        "Have at most this many partitions, but at least one for each broker. 0 is no limit: then queues share a "
        "partition up to about 20,000 messages or 64 MiB.",
        minimum=0,
    )
    partition_records_max: int = option(
        "maxRecordsPerPartition",
        0,
        "Split queues so that no partition has more messages than this. 0 is no limit. Not with maxPartitions.",
        minimum=0,
    )
    group_id: str = option(
        "groupId",
        "",
        "Consumer group of the pull requests, of startingOffsets=group and of commitOffsets. The reader never joins "
        f"it. Without it, pulls use {TOOLS_CONSUMER_GROUP}, a group that every broker has.",
    )
    commit_offsets: bool = option(
        "commitOffsets",
        False,
        "Streams: commit the progress of the query to the brokers as offsets of groupId, so that tools show its lag. "
        "The query itself resumes from its checkpoint. The group must have no running consumers.",
    )
    sub_expression: str = option(
        "subExpression",
        "*",
        "Tags to read, such as `TagA || TagB`, or with filterType=SQL92 a condition such as `price > 100 AND TAGS = "
        "'TagA'`. `*` reads all messages. A filter leaves gaps between offsets.",
    )
    filter_type: str = option(
        "filterType",
        TAG,
        "Type of subExpression: TAG, or SQL92 for an expression over the properties.",
        choices=(TAG, SQL92),
    )
    filter_side: str = option(
        "filterSide",
        "broker",
        "Where subExpression is applied: by the broker, or by each task, which then reads all messages and detects "
        "data loss. Brokers apply SQL92 only with enablePropertyFilter; tasks need the package lark for it.",
        choices=("broker", "task"),
    )
    pushes_filters: bool = option(
        "filterPushdown",
        False,
        "Batches: let conditions of the query reduce what is read (topic, brokerName, queueId, queueOffset, "
        "storeTimestamp, tags, keys). Requires spark.sql.python.filterPushdown.enabled=true, and a separate "
        "DataFrame for each query: Spark applies the conditions of one query to all others of the same DataFrame.",
    )
    form: str = option(
        "schema",
        "native",
        "The columns: those of orbitmq, of Spark's Kafka source, or of the connector rocketmq-spark.",
        choices=("native", "kafka", "rocketmq-spark"),
    )
    pull_batch_size: int = option(
        "pullBatchSize",
        1024,
        "Messages requested by one pull. A broker returns fewer: of orbitmq as many as 256 KiB hold, of RocketMQ 32.",
        minimum=1,
        maximum=32_000,
    )
    pull_pipeline: int = option("pullPipeline", 8, "Pull requests in flight for one partition.", minimum=1, maximum=256)
    pull_timeout_ms: int = option(
        "pullTimeoutMs",
        30_000,
        "How long to wait for a response before the next address is tried.",
        unit="ms",
        minimum=1,
    )
    slaves: str = option(
        "readFromSlave",
        "auto",
        "Where tasks read: auto reads from the master, and from a slave when the master does not respond; always "
        "starts with a slave; never reads from the master only.",
        choices=("auto", "always", "never"),
    )
    unavailable: str = option(
        "brokerUnavailable",
        "hold",
        "Streams: when a broker does not respond while a batch is planned, hold its queues at their offsets and "
        "continue with the others, or fail. Batches always fail.",
        choices=("hold", "fail"),
    )
    unavailable_timeout_ms: int = option(
        "brokerUnavailableTimeoutMs",
        600_000,
        "Streams: how long queues are held before the query fails.",
        unit="ms",
        minimum=0,
    )
    fetch_retries: int = option(
        "fetchOffset.numRetries", 3, "How often a failed request for routes and offsets is retried.", minimum=0
    )
    fetch_retry_interval_ms: int = option(
        "fetchOffset.retryIntervalMs", 1000, "Pause before such a retry.", unit="ms", minimum=0
    )

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics named one by one, as brokers know them."""
        return tuple(map(self.names.wrap, parts(self.subscribe or self.path, ",")))

    @property
    def names(self) -> Namespace:
        """The namespace of topics and groups."""
        return Namespace(self.namespace)

    @property
    def broker_names(self) -> frozenset[str]:
        """The brokers that must have a queue of the read."""
        return frozenset(parts(self.expected_brokers, ","))

    @property
    def group(self) -> str:
        """The group of `group_id` as brokers know it."""
        return self.names.wrap(self.group_id)

    @property
    def description(self) -> str:
        """The topics and the name servers, for people: `orbitmq topic orders, from 127.0.0.1:9876`."""
        named = list(self.topics)
        what = [f"topic{'s' if len(named) > 1 else ''} {listed(named)}"] if named else []
        if self.subscribe_pattern:
            what.append(f"topics that match {self.subscribe_pattern}")
        if self.assign:
            what.append("assigned queues")
        return f"orbitmq {' and '.join(what)}, from {listed(self.name_servers)}"

    @property
    def pulling_group(self) -> str:
        return self.group or TOOLS_CONSUMER_GROUP

    @property
    def delay_max_ms(self) -> int:
        found = re.fullmatch(DURATION, self.delay_max)
        assert found is not None, "the option's pattern"
        return int(found[1]) * MILLISECONDS[found[2]]

    @property
    def tags(self) -> frozenset[str]:
        """The tags of `sub_expression`, empty for all messages. Brokers also return other tags with an equal hash."""
        if self.filter_type != TAG:
            return frozenset()
        try:
            return tag_subscription("", self.sub_expression).tags
        except MessageIllegal as error:
            raise bad_option(f"option subExpression: {error}") from error


def listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Parse the options of a read. Names are not case-sensitive. SourceError names the invalid option."""
    options = parse_options(ReadOptions, {ALIASES.get(key.lower(), key): given[key] for key in given}, FOREIGN_OPTIONS)
    if options.subscribe and options.path and options.subscribe != options.path:
        raise bad_option(f"option subscribe is {options.subscribe}, but load() got {options.path}; use one of them")
    chosen = {"subscribe": options.topics, "subscribePattern": options.subscribe_pattern, "assign": options.assign}
    named = [name for name, value in chosen.items() if value]
    if not named:
        raise bad_option("no topic; set option subscribe, subscribePattern or assign, or pass the topic to load()")
    if options.assign and len(named) > 1:
        raise bad_option(f"options {' and '.join(named)} exclude each other; use one of them")
    if options.on_corrupt_record == "raw" and options.form != "native":
        raise bad_option(f"option onCorruptRecord: raw needs a column that schema={options.form} does not have")
    if options.body_format != RAW and options.form != "native":
        raise bad_option(f"option bodyFormat is for schema=native; schema={options.form} has the bodies as bytes")
    options.check_bodies()
    if options.archived_offsets and (options.starting_offsets or options.starting_timestamps):
        raise bad_option("option archivedOffsets excludes startingOffsets and startingOffsetsByTimestamp")
    _check_partitions(options)
    _check_group(options)
    _check_expression(options)
    return options


def _check_partitions(options: ReadOptions) -> None:
    if options.partitions_max and options.partition_records_max:
        raise bad_option("options maxPartitions and maxRecordsPerPartition exclude each other; use one of them")
    if 0 < options.partitions_max < options.partitions_min:
        raise bad_option(
            f"option minPartitions is {options.partitions_min}, but maxPartitions {options.partitions_max}; raise "
            "maxPartitions or lower minPartitions"
        )


def _check_expression(options: ReadOptions) -> None:
    """SourceError for an invalid expression. Without the parser only the broker can tell."""
    _ = options.tags
    if options.filter_type != SQL92 or options.sub_expression == SUBSCRIBE_ALL:
        return
    try:
        compile_sql92(options.sub_expression)
    except ExpressionIllegal as error:
        raise bad_option(f"option subExpression: {error}") from error
    except ImportError as error:
        if options.filter_side == "task":
            text = f"filterSide=task with filterType=SQL92 needs the package lark: {error}"
            raise SourceError("ORBITMQ_WORKER_PYTHON", text) from error


def _check_group(options: ReadOptions) -> None:
    if options.group_id:
        try:
            check_retry_topic(options.group_id)  # brokers serve no other group
        except MessageIllegal as error:
            raise bad_option(f"option groupId: {error}") from error
        return
    if options.starting_offsets.strip().lower() == GROUP:
        raise bad_option("option startingOffsets is group; set groupId to its name")
    if options.commit_offsets:
        raise bad_option("option commitOffsets needs groupId, the group to commit offsets for")


def check_stream(options: ReadOptions) -> None:
    """SourceError for options that a stream cannot have."""
    ends = ReadOptions.table()
    for key in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
        name, declared = ends[key]
        if getattr(options, name) != declared.default:
            raise bad_option(f"option {key}: a stream has no end; read a batch, or use the trigger availableNow")
