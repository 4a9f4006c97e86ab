"""The broker's options that are not the store's. Keys are RocketMQ's; `bindAddress` is orbitmq's own."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from orbitmq.message.delay import DEFAULT_DELAY_LEVELS
from orbitmq.message.topic_types import MessageType
from orbitmq.message.topics import TRACE_TOPIC
from orbitmq.runtime.options import Options, option


@dataclass(frozen=True)
class BrokerOptions(Options):
    """Identity, addresses and limits of a broker."""

    namesrv_addr: str = option("namesrvAddr", "", "Name servers to register with: host:port, several separated by `;`.")
    broker_name: str = option(
        "brokerName", "", "Name that a master and its slaves share. Empty means the host name of the machine."
    )
    broker_cluster_name: str = option("brokerClusterName", "DefaultCluster", "Cluster the broker belongs to.")
    broker_id: int = option(
        "brokerId", 0, "0 for the master of a broker name; each slave needs its own other number.", minimum=0
    )
    agreement: str = option(
        "agreement", "",
        "Where the brokers of this name agree on their master: `etcd://host:port,host:port`, or `etcds://` for TLS, "
        "or `kubernetes://namespace` for Leases of Kubernetes; without a namespace that of the pod. "
        "Empty: brokerRole says who the master is. Otherwise brokerRole only says who may be the first of all, and "
        "each broker needs a brokerId above 0 of its own.",
    )  # fmt: skip
    agreement_user: str = option("agreementUser", "", "User of the agreement store.")
    agreement_password_file: str = option("agreementPasswordFile", "", "File that has nothing but the password.")
    agreement_ca_file: str = option(
        "agreementCaFile", "", "Certificates in PEM that the agreement store is trusted by; empty is the system's."
    )
    agreement_lease_ms: int = option(
        "agreementLease", 3000,
        "How long a master may be silent at the agreement store before another one is elected.",
        unit="ms", minimum=2000, maximum=60_000,
    )  # fmt: skip
    min_in_sync_replicas: int = option(
        "minInSyncReplicas", 1,
        "With agreement: of fewer replicas in sync, the master among them, messages are refused.",
        minimum=1, maximum=16,
    )  # fmt: skip
    listen_port: int = option("listenPort", 10911, "Port for clients; 0 takes any free port.", minimum=0, maximum=65535)
    fast_listen_port: int = option(
        "fastListenPort",
        0,
        "Second port with the same service, for clients that use the VIP channel. 0 means listenPort - 2, where these "
        "clients connect; -1 disables it.",
        minimum=-1,
        maximum=65_535,
    )
    grpc_server_port: int = option(
        "grpcServerPort",
        -1,
        "Port for clients of RocketMQ 5, which speak gRPC, plain or encrypted; 0 takes any free port. -1: they are not "
        "served. RocketMQ's proxy has 8081.",
        minimum=-1,
        maximum=65_535,
    )
    max_delay_time_ms: int = option(
        "maxDelayTimeMills",
        86_400_000,
        "How far ahead clients that speak gRPC may have a message delivered; brokers limit all by timerMaxDelaySec.",
        unit="ms",
        minimum=0,
    )
    broker_ip1: str = option(
        "brokerIP1", "127.0.0.1", "Address that clients connect to; also the store host of every message."
    )
    broker_ip2: str = option("brokerIP2", "", "Address that slaves connect to. Empty means brokerIP1.")
    bind_address: str = option(
        "bindAddress",
        "",
        "Address to listen on. Empty means loopback if brokerIP1 is a loopback address, otherwise all addresses.",
    )
    broker_permission: int = option(
        "brokerPermission", 6, "4 read, 2 write, 6 both. Values other than 6 are registered for every topic.",
        minimum=0, maximum=7, changeable=True,
    )  # fmt: skip
    default_topic_queue_nums: int = option(
        "defaultTopicQueueNums", 8, "Queues of the template topic TBW102.", minimum=1, maximum=1024
    )
    auto_create_topic_enable: bool = option(
        "autoCreateTopicEnable", True, "Create a topic when the first message for it arrives.", changeable=True
    )
    auto_create_topic_message_type: str = option(
        "autoCreateTopicMessageType",
        MessageType.NORMAL.value,
        "Messages that topics created by sends take from 5.x clients; MIXED is all of them.",
        choices=MessageType,
        changeable=True,
    )
    enable_mixed_message_type: bool = option(
        "enableMixedMessageType", False, "Let administrators create topics of the type MIXED.", changeable=True
    )
    auto_create_subscription_group: bool = option(
        "autoCreateSubscriptionGroup", True, "Create a consumer group when its first member appears.", changeable=True
    )
    auto_created_topics_max: int = option(
        "autoCreatedTopicsMax",
        50_000,
        "Number of topics at which sends stop creating topics, so that clients cannot fill the memory of brokers and "
        "name servers. Administrators can create topics up to topicsMax.",
        minimum=1,
    )
    topics_max: int = option(
        "topicsMax",
        100_000,
        "Maximum number of topics, retry and dead letter topics included. While clients can create groups, a fifth is "
        "reserved for administrators.",
        minimum=1,
    )
    auto_created_groups_max: int = option(
        "autoCreatedGroupsMax",
        50_000,
        "Number of consumer groups at which heartbeats and pulls stop creating groups. Administrators can create "
        "groups up to groupsMax.",
        minimum=1,
    )
    groups_max: int = option("groupsMax", 100_000, "Maximum number of consumer groups.", minimum=1)
    consumer_offsets_max: int = option(
        "consumerOffsetsMax",
        1_000_000,
        "Maximum number of consumer offsets, one for each group and queue; the broker does not store further ones. A "
        "million takes up to 300 MB.",
        minimum=1,
    )
    cluster_topic_enable: bool = option(
        "clusterTopicEnable", True, "Let clients use the topic that has the name of the cluster."
    )
    broker_topic_enable: bool = option(
        "brokerTopicEnable", True, "Let clients use the topic that has the name of the broker."
    )
    trace_topic_enable: bool = option("traceTopicEnable", False, "Create the message trace topic at start.")
    msg_trace_topic_name: str = option("msgTraceTopicName", TRACE_TOPIC, "Name of the message trace topic.")
    trace_on: bool = option("traceOn", True, "Enable message traces in producers, by send responses.", changeable=True)
    region_id: str = option("regionId", "DefaultRegion", "Region that send responses carry.")
    acl_enable: bool = option(
        "aclEnable", False, "Check the account and the permissions of each request; see docs/security.md."
    )
    acl_file: str = option(
        "aclFile",
        "conf/plain_acl.yml",
        "Accounts and white list. A relative path is below rocketmqHome. All .yml files below conf/acl count as well.",
    )
    rocketmq_home: str = option(
        "rocketmqHome",
        "",
        "Directory of the access control files. Empty means ROCKETMQ_HOME of the environment, otherwise the parent "
        "directory of storePathRootDir.",
    )
    long_polling_enable: bool = option(
        "longPollingEnable",
        True,
        "Hold a pull that finds nothing until a message arrives (long polling).",
        changeable=True,
    )
    slave_read_enable: bool = option(
        "slaveReadEnable",
        False,
        "Direct consumers to a slave for messages that are no longer in the memory of this broker.",
        changeable=True,
    )
    short_polling_time_ms: int = option(
        "shortPollingTimeMills",
        1000,
        "How long a pull is held without long polling.",
        unit="ms",
        minimum=1,
        changeable=True,
    )
    store_reply_message_enable: bool = option(
        "storeReplyMessageEnable",
        True,
        "Also store replies in the reply topic when they are delivered.",
        changeable=True,
    )
    enable_property_filter: bool = option(
        "enablePropertyFilter", False, "Filter messages by SQL92 expressions over their properties.", changeable=True
    )
    filter_support_retry: bool = option(
        "filterSupportRetry",
        False,
        "Filter retries as well, by the SQL92 expression of their original topic.",
        changeable=True,
    )
    enable_calc_filter_bit_map: bool = option(
        "enableCalcFilterBitMap", False,
        "Record for each message, in the extension of its consume queue (enableConsumeQueueExt), which SQL92 "
        "expressions of its topic it matches. Pulls with other expressions then skip it without reading it.",
    )  # fmt: skip
    expect_consumer_num_use_filter: int = option(
        "expectConsumerNumUseFilter", 32,
        "Number of SQL92 subscriptions of a topic that its bitmaps are sized for. A new value resets the bitmaps and "
        "consumerFilter.json.", minimum=1, maximum=1000,
    )  # fmt: skip
    max_error_rate_of_bloom_filter: int = option(
        "maxErrorRateOfBloomFilter", 20, "Share of messages without a match that a bitmap of that size may pass.",
        unit="percent", minimum=1, maximum=99,
    )  # fmt: skip
    filter_data_clean_time_span_ms: int = option(
        "filterDataCleanTimeSpan", 86_400_000, "How long to keep the expressions of a group without members.",
        unit="ms", minimum=0, changeable=True,
    )  # fmt: skip
    disable_consume_if_consumer_read_slowly: bool = option(
        "disableConsumeIfConsumerReadSlowly",
        False,
        "Disable a consumer group when its lag exceeds consumerFallbehindThreshold.",
        changeable=True,
    )
    consumer_fallbehind_threshold: int = option(
        "consumerFallbehindThreshold", 16 << 30, "Maximum distance of a group from the end of the commit log.",
        unit="bytes", minimum=1, changeable=True,
    )  # fmt: skip
    broker_fast_failure_enable: bool = option(
        "brokerFastFailureEnable",
        True,
        "Refuse requests that waited too long for the event loop, so that the client tries another broker.",
    )
    wait_ms_in_send_queue: int = option(
        "waitTimeMillsInSendQueue", 200, "Maximum wait of a send or of a message sent back.", unit="ms",
        minimum=1,
    )  # fmt: skip
    wait_ms_in_pull_queue: int = option(
        "waitTimeMillsInPullQueue", 5000, "Maximum wait of a pull before it is handled.", unit="ms", minimum=1
    )
    wait_ms_in_heartbeat_queue: int = option(
        "waitTimeMillsInHeartbeatQueue", 31_000, "Maximum wait of a heartbeat.", unit="ms", minimum=1
    )
    wait_ms_in_transaction_queue: int = option(
        "waitTimeMillsInTransactionQueue", 3000, "Maximum wait of a request that ends a transaction.", unit="ms",
        minimum=1,
    )  # fmt: skip
    notify_consumer_ids_changed: bool = option(
        "notifyConsumerIdsChangedEnable",
        True,
        "Notify the members of a group when one joins or leaves.",
        changeable=True,
    )
    lock_max_live_ms: int = option(
        "rocketmq.broker.rebalance.lockMaxLiveTime", 60_000,
        "How long the lock of an orderly consumer on a queue lasts without a renewal; consumers renew it every 20,000.",
        unit="ms", minimum=1,
    )  # fmt: skip
    flush_consumer_offset_interval_ms: int = option(
        "flushConsumerOffsetInterval", 5000, "How often consumer offsets are saved.", unit="ms", minimum=10
    )
    flush_delay_offset_interval_ms: int = option(
        "flushDelayOffsetInterval",
        10_000,
        "How often the progress of delayed messages is saved.",
        unit="ms",
        minimum=10,
    )
    message_delay_level: str = option("messageDelayLevel", DEFAULT_DELAY_LEVELS, "Delay of each level, level 1 first.")
    timer_wheel_enable: bool = option(
        "timerWheelEnable", True, "Take messages that are to be delivered at a time which their sender names."
    )
    timer_max_delay_s: int = option(
        "timerMaxDelaySec",
        259_200,
        "How far ahead that time may be. A message that waits longer than commit log files are kept is copied to the "
        "end of the log when its file goes, so years are possible.",
        unit="s",
        minimum=1,
        changeable=True,
    )
    timer_congest_num_each_slot: int = option(
        "timerCongestNumEachSlot",
        (1 << 31) - 1,
        "How many messages may wait for one second before further ones are refused.",
        minimum=0,
        maximum=(1 << 31) - 1,
        changeable=True,
    )
    recall_message_enable: bool = option(
        "recallMessageEnable", False, "Let senders recall such messages by their handles.", changeable=True
    )
    transaction_timeout_ms: int = option(
        "transactionTimeOut",
        6000,
        "Age of a half message at which its producer is checked.",
        unit="ms",
        minimum=0,
        changeable=True,
    )
    transaction_check_interval_ms: int = option(
        "transactionCheckInterval", 60_000, "How often half messages are checked.", unit="ms",
        minimum=100, changeable=True,
    )  # fmt: skip
    transaction_check_max: int = option(
        "transactionCheckMax",
        15,
        "Number of checks after which a half message moves to TRANS_CHECK_MAX_TIME_TOPIC; so do half messages older "
        "than fileReservedTime.",
        minimum=0,
        changeable=True,
    )
    reject_transaction_message: bool = option(
        "rejectTransactionMessage", False, "Refuse messages that belong to a transaction.", changeable=True
    )
    archive_guard: bool = option(
        "archiveGuard",
        False,
        "Keep commit log files until archiveGuardGroup has read their messages. Only a nearly full disk "
        "(rocketmq.broker.diskSpaceCleanForciblyRatio) deletes them earlier; the log then names the lost messages.",
        changeable=True,
    )
    archive_guard_group: str = option(
        "archiveGuardGroup",
        "ORBITMQ_ARCHIVE",
        "Consumer group of the archive; messages before its offsets are archived.",
    )
    archive_guard_topics: str = option(
        "archiveGuardTopics",
        "*",
        "Topics to guard, separated by `;`, with `*` for any characters. Retry and dead letter topics need their "
        "own pattern, as in `*;%DLQ%*`.",
        changeable=True,
    )
    register_period_ms: int = option(
        "registerNameServerPeriod", 30_000, "How often the broker registers; limited to 10,000 to 60,000.", unit="ms",
        minimum=1,
    )  # fmt: skip
    register_timeout_ms: int = option(
        "registerBrokerTimeoutMills", 6000, "How long to wait for a response of a name server.", unit="ms", minimum=1
    )
    force_register: bool = option(
        "forceRegister", True, "Register all topics each time; otherwise only at name servers with an older version."
    )
    compressed_register: bool = option("compressedRegister", False, "Compress the registration.")
    start_accept_send_timestamp: int = option(
        "startAcceptSendRequestTimeStamp",
        0,
        "Refuse sends before this time.",
        unit="ms since the epoch",
        minimum=0,
        changeable=True,
    )

    @property
    def name_servers(self) -> list[str]:
        """The addresses in `namesrvAddr`."""
        return [address.strip() for address in self.namesrv_addr.split(";") if address.strip()]

    @property
    def listen_address(self) -> str:
        """`bindAddress`, otherwise loopback if brokerIP1 is a loopback address. Empty means all addresses."""
        if self.bind_address:
            return self.bind_address
        host = self.broker_ip1.strip("[]")  # of an IPv6 address
        try:
            local = ipaddress.ip_address(host).is_loopback
        except ValueError:
            local = host == "localhost"
        return host if local else ""
