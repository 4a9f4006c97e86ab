"""The bodies of requests and responses that are JSON texts, one declaration each.

`encode` and `decode` of `orbitmq.wire.objects` convert them. Python names are snake case; Java's names are their camel
case, or are declared. Integer and object keys are unquoted in the text; a body whose peer needs standard JSON uses
`encode_standard`. Must not know sockets, handlers or tables that hold state.

The compressed form of a broker's registration is in `orbitmq.wire.registration`.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct, field

from orbitmq.message.config import DataVersion, SubscriptionData, SubscriptionGroup, TopicConfig
from orbitmq.message.model import MessageQueue

# Enumerations: names and order are Java's, old C++ clients send the ordinal.


class ConsumeType(Enum):
    """Who pulls messages: the application itself, or the library for its listener."""

    CONSUME_ACTIVELY = 0
    CONSUME_PASSIVELY = 1
    CONSUME_POP = 2


class MessageModel(Enum):
    """Every consumer gets every message, or the members of a group share them."""

    BROADCASTING = 0
    """Every consumer gets every message."""
    CLUSTERING = 1
    """The members of a group share them."""


class ConsumeFromWhere(Enum):
    """Where a group without offsets starts."""

    CONSUME_FROM_LAST_OFFSET = 0
    """The offset after the last message; a broker that still has all messages of a young queue reports the first."""
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = 1
    """The same; only for configurations of old."""
    CONSUME_FROM_MIN_OFFSET = 2
    """The same; only for configurations of old."""
    CONSUME_FROM_MAX_OFFSET = 3
    """The same; only for configurations of old."""
    CONSUME_FROM_FIRST_OFFSET = 4
    """With the first message there is."""
    CONSUME_FROM_TIMESTAMP = 5
    """With the first message stored at `consume_timestamp` or later."""


class ConsumeResult(Enum):
    """The result of a listener for a message that was delivered directly."""

    CR_SUCCESS = 0
    CR_LATER = 1
    CR_ROLLBACK = 2
    CR_COMMIT = 3
    CR_THROW_EXCEPTION = 4
    CR_RETURN_NULL = 5


# Topics, routes and the cluster


class TopicTable(Struct, frozen=True):
    """All topics of a broker (Java: TopicConfigSerializeWrapper; also the file topics.json)."""

    data_version: DataVersion = field(default_factory=DataVersion)
    topics: dict[str, TopicConfig] = field(name="topicConfigTable", default_factory=dict)


class BrokerRegistration(Struct, frozen=True):
    """A broker's registration with a name server (Java: RegisterBrokerBody)."""

    filter_servers: list[str] = field(name="filterServerList", default_factory=list)
    topic_table: TopicTable = field(name="topicConfigSerializeWrapper", default_factory=TopicTable)


class QueueData(Struct, frozen=True):
    """The queues of one topic on one broker name."""

    broker_name: str
    perm: int
    read_queues: int = field(name="readQueueNums")
    write_queues: int = field(name="writeQueueNums")
    topic_sys_flag: int = 0


class BrokerData(Struct, frozen=True):
    """The addresses of one broker name: broker id -> `host:port`; id 0 is the master."""

    broker_name: str
    cluster: str = ""
    addresses: dict[int, str] = field(name="brokerAddrs", default_factory=dict)


class TopicRouteData(Struct, frozen=True):
    """The route of a topic."""

    broker_datas: list[BrokerData] = field(default_factory=list)
    filter_server_table: dict[str, list[str]] = field(default_factory=dict)
    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = field(default_factory=list)


class ClusterInfo(Struct, frozen=True):
    """All brokers a name server knows, by broker name and by cluster."""

    brokers: dict[str, BrokerData] = field(name="brokerAddrTable", default_factory=dict)
    clusters: dict[str, list[str]] = field(name="clusterAddrTable", default_factory=dict)


class KVTable(Struct, frozen=True):
    """Text pairs: runtime information of a broker, settings of one name-server namespace."""

    table: dict[str, str] = field(default_factory=dict)


class TopicList(Struct, frozen=True):
    """Topic names, and for system topics an address that has more."""

    broker_addr: str | None = None
    topic_list: list[str] = field(default_factory=list)


class TopicConfigList(Struct, frozen=True):
    """Topics to be created in one request (5.x tools)."""

    topic_config_list: list[TopicConfig] = field(default_factory=list)


# Consumer groups and their subscriptions


class SubscriptionGroupTable(Struct, frozen=True):
    """All consumer groups of a broker (Java: SubscriptionGroupWrapper; also the file subscriptionGroup.json)."""

    data_version: DataVersion = field(default_factory=DataVersion)
    groups: dict[str, SubscriptionGroup] = field(name="subscriptionGroupTable", default_factory=dict)


class SubscriptionGroupList(Struct, frozen=True):
    """Groups to be created in one request (5.x tools)."""

    group_config_list: list[SubscriptionGroup] = field(default_factory=list)


class GroupList(Struct, frozen=True):
    """Names of consumer groups."""

    group_list: list[str] = field(default_factory=list)


class CheckClientRequest(Struct, frozen=True):
    """A consumer checks whether its expression compiles."""

    client_id: str = ""
    group: str = ""
    subscription_data: SubscriptionData | None = None


class GroupSubscription(Struct, frozen=True):
    """What one group subscribes of one topic (5.x QUERY_SUBSCRIPTION_BY_CONSUMER)."""

    group: str
    topic: str
    subscription_data: SubscriptionData | None = None


# Clients


class ProducerData(Struct, frozen=True):
    """One producer group of a client."""

    group_name: str


class ConsumerData(Struct, frozen=True):
    """One consumer group of a client with all it subscribes."""

    group_name: str
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    subscription_data_set: list[SubscriptionData] = field(default_factory=list)
    unit_mode: bool = False


class HeartbeatData(Struct, frozen=True):
    """A client's groups. 5.x clients add members that nothing here depends on."""

    client_id: str = field(name="clientID", default="")
    consumer_data_set: list[ConsumerData] = field(default_factory=list)
    producer_data_set: list[ProducerData] = field(default_factory=list)


class ConsumerIdList(Struct, frozen=True):
    """The client ids of a group (Java: GetConsumerListByGroupResponseBody)."""

    consumer_id_list: list[str] = field(default_factory=list)


class ClientConnection(Struct, frozen=True):
    """One connected client, as tools see it (Java: Connection)."""

    client_addr: str | None = None
    client_id: str | None = None
    language: str | None = None
    version: int = 0


class ConsumerConnection(Struct, frozen=True):
    """The members of a consumer group and their subscriptions.

    `differing` is orbitmq's own and present only if members subscribe differently: client id -> topic -> expression.
    """

    connection_set: list[ClientConnection] = field(default_factory=list)
    consume_from_where: ConsumeFromWhere | None = None
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)
    differing: dict[str, dict[str, str]] | None = field(name="subscriptionsByClient", default=None)


class ProducerConnection(Struct, frozen=True):
    """The members of a producer group."""

    connection_set: list[ClientConnection] = field(default_factory=list)


class ProducerInfo(Struct, frozen=True):
    """One member of a producer group; `remote_ip` is `/host:port`."""

    client_id: str | None = None
    language: str | None = None
    last_update_timestamp: int = 0
    remote_ip: str | None = field(name="remoteIP", default=None)
    version: int = 0


class ProducerTableInfo(Struct, frozen=True):
    """All producer groups of a broker."""

    data: dict[str, list[ProducerInfo]] = field(default_factory=dict)


# Queue locks


class QueueLockRequest(Struct, frozen=True):
    """The queues that a client locks or unlocks (Java: LockBatchRequestBody, UnlockBatchRequestBody)."""

    client_id: str = ""
    consumer_group: str = ""
    mq_set: list[MessageQueue] = field(default_factory=list)


class LockedQueues(Struct, frozen=True):
    """The requested queues that the client now owns (Java: LockBatchResponseBody)."""

    locked: list[MessageQueue] = field(name="lockOKMQSet", default_factory=list)


# Offsets and progress


class ConsumerOffsetTable(Struct, frozen=True):
    """`topic@group` -> queue id -> offset (Java: ConsumerOffsetSerializeWrapper; also consumerOffset.json)."""

    data_version: DataVersion | None = None  # written by 5.x only
    offset_table: dict[str, dict[int, int]] = field(default_factory=dict)
    lmq_offset_table: dict[str, int] | None = None  # of light groups; in lmqConsumerOffset.json only


class SavedOffsetTable(ConsumerOffsetTable, frozen=True):
    """consumerOffset.json of a slave: also `topic@group` -> queue ids with an offset to report to its master."""

    committed_here: dict[str, list[int]] | None = None


class PendingTimer(Struct, frozen=True):
    """A message that waits until `due_ms`, by its place in the commit log."""

    due_ms: int
    physical_offset: int


class PendingTimers(Struct, frozen=True):
    """A page of timer messages, in the order in which they are due; `waiting` counts all of the broker, which may not
    know all before it `is_complete`, soon after a start.
    """

    waiting: int
    is_complete: bool
    timers: list[PendingTimer]


class TimerCount(Struct, frozen=True):
    """How many timer messages wait for a topic, and when that changed last."""

    count: int
    time_stamp: int


class TimerMetricsVersion(Struct, frozen=True):
    """A data version with the member that RocketMQ 5 has added."""

    counter: int
    state_version: int
    timestamp: int


class TimerMetrics(Struct, frozen=True):
    """How many timer messages wait for each topic, as slaves of RocketMQ 5 copy it."""

    data_version: TimerMetricsVersion
    timing_count: dict[str, TimerCount]


class TimerProgress(Struct, frozen=True):
    """How far a broker has delivered timer messages; also timerProgress.json. Places are physical offsets.

    Of the messages that lie below `known`, those are done that are due at `done_due_ms` or before, and whose place is
    not in `late`. All below `moved` are done: they lie further back in the log again. The messages of the log from
    `log_end` on say what was done since. `lowest` is where the first file of the log begins in which one waits, -1
    without one.
    """

    known: int = 0
    done_due_ms: int = 0
    late: tuple[int, ...] = ()
    moved: int = 0
    log_end: int = 0
    lowest: int = -1

    def is_done(self, place: int, due_ms: int) -> bool:
        """Whether a message was delivered or moved."""
        if place < self.moved:
            return True
        return place < self.known and due_ms <= self.done_due_ms and place not in self.late

    @property
    def needed_from(self) -> int:
        """The first place at which a message may wait."""
        return max(self.moved, self.lowest if self.lowest >= 0 else self.known)


class DelayOffsetTable(Struct, frozen=True):
    """Delay level -> offset (Java: DelayOffsetSerializeWrapper; also delayOffset.json)."""

    data_version: DataVersion | None = None  # written by 5.x only
    offset_table: dict[int, int] = field(default_factory=dict)
    timers: TimerProgress | None = None  # of a broker of orbitmq, for its slaves


class QueueOffsets(Struct, frozen=True):
    """Queue -> offset to be set (Java: ResetOffsetBody)."""

    offset_table: dict[MessageQueue, int] = field(default_factory=dict)


class QueueOffset(Struct, frozen=True):
    """One entry of the list form below."""

    broker_name: str
    offset: int
    queue_id: int
    topic: str


class QueueOffsetList(Struct, frozen=True):
    """The same for C++ clients (Java: ResetOffsetBodyForC)."""

    offset_table: list[QueueOffset] = field(default_factory=list)


class ConsumerStatus(Struct, frozen=True):
    """A consumer's offsets: its own, or those of every client of the group (Java: GetConsumerStatusBody)."""

    consumer_table: dict[str, dict[MessageQueue, int]] = field(default_factory=dict)
    message_queue_table: dict[MessageQueue, int] = field(default_factory=dict)


class CorrectionOffsets(Struct, frozen=True):
    """Queue id -> smallest offset over the other groups (Java: QueryCorrectionOffsetBody)."""

    correction_offsets: dict[int, int] = field(default_factory=dict)


class QueueProgress(Struct, frozen=True):
    """How far a group is behind in one queue; `last_timestamp` in ms (Java: OffsetWrapper)."""

    broker_offset: int = 0
    consumer_offset: int = 0
    last_timestamp: int = 0


class ConsumeStats(Struct, frozen=True):
    """A group's progress in all its queues."""

    consume_tps: float = 0.0
    offset_table: dict[MessageQueue, QueueProgress] = field(default_factory=dict)


class ConsumeStatsList(Struct, frozen=True):
    """The progress of all groups of a broker, one single-member map a group."""

    broker_addr: str | None = None
    consume_stats_list: list[dict[str, list[ConsumeStats]]] = field(default_factory=list)
    total_diff: int = 0


class QueueRange(Struct, frozen=True):
    """The offsets of a queue; `last_update_timestamp` in ms, 0 if it is empty (Java: TopicOffset)."""

    last_update_timestamp: int = 0
    max_offset: int = 0
    min_offset: int = 0


class TopicStatsTable(Struct, frozen=True):
    """The ranges of all queues of a topic."""

    offset_table: dict[MessageQueue, QueueRange] = field(default_factory=dict)


class QueueTimeSpan(Struct, frozen=True):
    """Store times of a queue's first, last and last consumed message, and the delay, all in ms."""

    consume_time_stamp: int = 0
    delay_time: int = 0
    max_time_stamp: int = 0
    message_queue: MessageQueue | None = None
    min_time_stamp: int = 0


class ConsumeTimeSpans(Struct, frozen=True):
    """The time spans of all queues of a topic for one group (Java: QueryConsumeTimeSpanBody)."""

    consume_time_span_set: list[QueueTimeSpan] = field(default_factory=list)


# A running consumer


class ProcessQueueInfo(Struct, frozen=True):
    """The state of one queue inside a consumer. `droped` is the protocol's spelling."""

    cached_msg_count: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_size_in_mib: int = field(name="cachedMsgSizeInMiB", default=0)
    commit_offset: int = 0
    dropped: bool = field(name="droped", default=False)
    last_consume_timestamp: int = 0
    last_lock_timestamp: int = 0
    last_pull_timestamp: int = 0
    locked: bool = False
    transaction_msg_count: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_min_offset: int = 0
    try_unlock_times: int = 0


class ConsumeStatus(Struct, frozen=True):
    """Rates (1/s) and times (ms) of one topic inside a consumer."""

    consume_failed_msgs: int = 0
    consume_failed_tps: float = field(name="consumeFailedTPS", default=0.0)
    consume_ok_tps: float = field(name="consumeOKTPS", default=0.0)
    consume_rt: float = field(name="consumeRT", default=0.0)
    pull_rt: float = field(name="pullRT", default=0.0)
    pull_tps: float = field(name="pullTPS", default=0.0)


# Properties that orbitmq's consumers report in addition to RocketMQ's.
SUSPENDED = "suspended"
"""`true`, or the queues that are paused as `topic/broker/queue`, joined by blanks; missing while it pulls."""
LAST_ERROR, LAST_ERROR_AT = "lastConsumeError", "lastConsumeErrorAt"
"""Why the listener failed last, and when: milliseconds since the epoch. Missing while it never has."""


class ConsumerRunningInfo(Struct, frozen=True):
    """A consumer's report about itself."""

    jstack: str | None = None
    mq_table: dict[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    status_table: dict[str, ConsumeStatus] = field(default_factory=dict)
    subscription_set: list[SubscriptionData] = field(default_factory=list)


class ConsumeDirectlyResult(Struct, frozen=True):
    """The outcome of handing a message to a listener directly (Java: ConsumeMessageDirectlyResult)."""

    auto_commit: bool = True
    consume_result: ConsumeResult | None = None
    order: bool = False
    remark: str | None = None
    spent_time_ms: int = field(name="spentTimeMills", default=0)


# A broker's statistics


class StatsItem(Struct, frozen=True):
    """One window: number of calls `sum` per second is `tps`, the mean of the counted value is `avgpt`."""

    avgpt: float = 0.0
    sum: int = 0
    tps: float = 0.0


class BrokerStatsData(Struct, frozen=True):
    """One statistic over the last minute, hour and day."""

    stats_day: StatsItem = field(default_factory=StatsItem)
    stats_hour: StatsItem = field(default_factory=StatsItem)
    stats_minute: StatsItem = field(default_factory=StatsItem)


class ConsumeQueueEntry(Struct, frozen=True):
    """One entry of a consume queue as QUERY_CONSUME_QUEUE shows it."""

    bit_map: str | None = None
    eval: bool = False
    extend_data_json: str | None = None
    msg: str | None = None
    physical_offset: int = field(name="physicOffset", default=0)
    physical_size: int = field(name="physicSize", default=0)
    tags_code: int = 0


class ConsumeQueueEntries(Struct, frozen=True):
    """A stretch of a consume queue (Java: QueryConsumeQueueResponseBody)."""

    filter_data: str | None = None
    max_queue_index: int = 0
    min_queue_index: int = 0
    queue_data: list[ConsumeQueueEntry] = field(default_factory=list)
    subscription_data: SubscriptionData | None = None


# Access control 1.0


class BloomBits(Struct, frozen=True):
    """The bits of a subscription in the bitmaps of messages, and how many bits those have."""

    bit_num: int = 0
    bit_pos: list[int] = field(default_factory=list)


class GroupFilter(Struct, frozen=True):
    """The subscription of one group to one topic. Times are in ms; `dead_time` is 0 while the group subscribes."""

    consumer_group: str
    topic: str
    expression: str
    expression_type: str
    born_time: int = 0
    dead_time: int = 0
    client_version: int = 0
    bloom_filter_data: BloomBits | None = None
    dead: bool = False  # written for people, not read


class TopicFilters(Struct, frozen=True):
    """The subscriptions of one topic by group."""

    topic: str = ""
    group_filter_data: dict[str, GroupFilter] = field(default_factory=dict)


class FilterTable(Struct, frozen=True):
    """The file consumerFilter.json: the SQL92 subscriptions that a broker keeps over a restart, by topic
    (Java: ConsumerFilterManager as it serializes itself).
    """

    filter_data_by_topic: dict[str, TopicFilters] = field(default_factory=dict)
