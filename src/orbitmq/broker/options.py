"""The broker's options that are not the store's. Keys are RocketMQ's; `bindAddress` is orbitmq's own."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from orbitmq.message.delay import DEFAULT_DELAY_LEVELS
from orbitmq.message.topics import TRACE_TOPIC
from orbitmq.runtime.options import Options, option


@dataclass(frozen=True)
class BrokerOptions(Options):
    """Who the broker is, where it listens, what it allows."""

    namesrv_addr: str = option("namesrvAddr", "", "Name servers to register with: host:port, several separated by `;`.")
    broker_name: str = option(
        "brokerName", "", "Name that a master and its slaves share; empty is the machine's host name."
    )
    broker_cluster_name: str = option("brokerClusterName", "DefaultCluster", "Cluster the broker belongs to.")
    broker_id: int = option(
        "brokerId", 0, "0 is the master of its broker name; slaves have others, each its own.", minimum=0
    )
    listen_port: int = option("listenPort", 10911, "Port for clients; 0 takes any free port.", minimum=0, maximum=65535)
    fast_listen_port: int = option(
        "fastListenPort",
        0,
        "Second port with the same service, for clients that use the VIP channel; 0 is listenPort - 2, which is where "
        "they look for it, -1 is none.",
        minimum=-1,
        maximum=65_535,
    )
    broker_ip1: str = option("brokerIP1", "127.0.0.1", "Address clients are told, and the store host of every message.")
    broker_ip2: str = option("brokerIP2", "", "Address slaves are told; empty is brokerIP1.")
    bind_address: str = option(
        "bindAddress",
        "",
        "Address to listen on; empty is loopback while brokerIP1 is a loopback address, else every address.",
    )
    broker_permission: int = option(
        "brokerPermission", 6, "4 read, 2 write, 6 both; narrower permission is registered for every topic.",
        minimum=0, maximum=7, changeable=True,
    )  # fmt: skip
    default_topic_queue_nums: int = option(
        "defaultTopicQueueNums", 8, "Queues of the template topic TBW102.", minimum=1, maximum=1024
    )
    auto_create_topic_enable: bool = option(
        "autoCreateTopicEnable",
        True,
        "Create a topic when the first message for it arrives.",
        changeable=True,
    )
    auto_create_subscription_group: bool = option(
        "autoCreateSubscriptionGroup",
        True,
        "Create a consumer group when its first member appears.",
        changeable=True,
    )
    auto_created_topics_max: int = option(
        "autoCreatedTopicsMax",
        50_000,
        "Topics from which on a send creates no further one, so that nobody who invents names fills the memory, here "
        "and at the name servers. Administrators may go on to topicsMax.",
        minimum=1,
    )
    topics_max: int = option(
        "topicsMax",
        100_000,
        "Topics from which on nobody creates a further one; those for retries and dead letters count. Where clients "
        "create groups, a fifth is left to administrators.",
        minimum=1,
    )
    auto_created_groups_max: int = option(
        "autoCreatedGroupsMax",
        50_000,
        "Consumer groups from which on a heartbeat or a pull creates no further one. Administrators may go on to "
        "groupsMax.",
        minimum=1,
    )
    groups_max: int = option(
        "groupsMax", 100_000, "Consumer groups from which on nobody creates a further one.", minimum=1
    )
    consumer_offsets_max: int = option(
        "consumerOffsetsMax",
        1_000_000,
        "Offsets of consumer groups, one for each queue a group reads; further ones are not kept. A million takes up "
        "to 300 MB.",
        minimum=1,
    )
    cluster_topic_enable: bool = option("clusterTopicEnable", True, "Let clients use the topic named as the cluster.")
    broker_topic_enable: bool = option("brokerTopicEnable", True, "Let clients use the topic named as the broker.")
    trace_topic_enable: bool = option("traceTopicEnable", False, "Create the message trace topic at start.")
    msg_trace_topic_name: str = option("msgTraceTopicName", TRACE_TOPIC, "Name of the message trace topic.")
    trace_on: bool = option("traceOn", True, "Tell producers to write traces.", changeable=True)
    region_id: str = option("regionId", "DefaultRegion", "Region that send answers carry.")
    acl_enable: bool = option(
        "aclEnable", False, "Check who sends each request and what they may do; see docs/security.md."
    )
    acl_file: str = option(
        "aclFile",
        "conf/plain_acl.yml",
        "Accounts and white list; a relative path is below rocketmqHome. Each .yml file below conf/acl counts, too.",
    )
    rocketmq_home: str = option(
        "rocketmqHome",
        "",
        "Where access control files are; empty is ROCKETMQ_HOME of the environment, else the directory that "
        "storePathRootDir is in.",
    )
    long_polling_enable: bool = option(
        "longPollingEnable",
        True,
        "Hold a pull that finds nothing until a message comes.",
        changeable=True,
    )
    slave_read_enable: bool = option(
        "slaveReadEnable",
        False,
        "Tell consumers to read from a slave what is no longer in this broker's memory.",
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
        "storeReplyMessageEnable", True, "Store replies in the reply topic beside handing them over.", changeable=True
    )
    enable_property_filter: bool = option(
        "enablePropertyFilter",
        False,
        "Filter messages by SQL92 expressions over their properties.",
        changeable=True,
    )
    filter_support_retry: bool = option(
        "filterSupportRetry",
        False,
        "Filter what comes back for a retry, too, by the SQL92 expression of its topic.",
        changeable=True,
    )
    enable_calc_filter_bit_map: bool = option(
        "enableCalcFilterBitMap", False,
        "Note with each message, in the extension of its queue (enableConsumeQueueExt), which SQL92 expressions of its "
        "topic it matches; pulls of the others then pass it over unread.",
    )  # fmt: skip
    expect_consumer_num_use_filter: int = option(
        "expectConsumerNumUseFilter", 32,
        "SQL92 subscriptions of a topic that the bitmaps of its messages are made for; with a new size, bitmaps and "
        "consumerFilter.json begin anew.", minimum=1, maximum=1000,
    )  # fmt: skip
    max_error_rate_of_bloom_filter: int = option(
        "maxErrorRateOfBloomFilter", 20, "How many unwanted messages a bitmap of that size may let through to be read.",
        unit="percent", minimum=1, maximum=99,
    )  # fmt: skip
    filter_data_clean_time_span_ms: int = option(
        "filterDataCleanTimeSpan", 86_400_000, "How long the expression of a group that has gone is kept.", unit="ms",
        minimum=0, changeable=True,
    )  # fmt: skip
    disable_consume_if_consumer_read_slowly: bool = option(
        "disableConsumeIfConsumerReadSlowly",
        False,
        "Switch a consumer group off when it has fallen behind by consumerFallbehindThreshold.",
        changeable=True,
    )
    consumer_fallbehind_threshold: int = option(
        "consumerFallbehindThreshold", 16 << 30, "How far behind the end of the log a group may read.", unit="bytes",
        minimum=1, changeable=True,
    )  # fmt: skip
    broker_fast_failure_enable: bool = option(
        "brokerFastFailureEnable",
        True,
        "Refuse requests that have waited too long for the event loop, so that the client tries another broker.",
    )
    wait_ms_in_send_queue: int = option(
        "waitTimeMillsInSendQueue", 200, "How long a send, or a message sent back, may have waited.", unit="ms",
        minimum=1,
    )  # fmt: skip
    wait_ms_in_pull_queue: int = option(
        "waitTimeMillsInPullQueue", 5000, "How long a pull may have waited to be looked at.", unit="ms", minimum=1
    )
    wait_ms_in_heartbeat_queue: int = option(
        "waitTimeMillsInHeartbeatQueue", 31_000, "How long a heartbeat may have waited.", unit="ms", minimum=1
    )
    wait_ms_in_transaction_queue: int = option(
        "waitTimeMillsInTransactionQueue", 3000, "How long the end of a transaction may have waited.", unit="ms",
        minimum=1,
    )  # fmt: skip
    notify_consumer_ids_changed: bool = option(
        "notifyConsumerIdsChangedEnable",
        True,
        "Tell the members of a group when one joins or leaves.",
        changeable=True,
    )
    lock_max_live_ms: int = option(
        "rocketmq.broker.rebalance.lockMaxLiveTime", 60_000,
        "How long an orderly consumer owns a queue without renewing its lock, which it does every 20,000.", unit="ms",
        minimum=1,
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
    transaction_timeout_ms: int = option(
        "transactionTimeOut",
        6000,
        "Age from which the producer of an undecided message is asked about it.",
        unit="ms",
        minimum=0,
        changeable=True,
    )
    transaction_check_interval_ms: int = option(
        "transactionCheckInterval", 60_000, "How often producers of undecided messages are asked.", unit="ms",
        minimum=100, changeable=True,
    )  # fmt: skip
    transaction_check_max: int = option(
        "transactionCheckMax",
        15,
        "How often a producer is asked about a message before it moves to TRANS_CHECK_MAX_TIME_TOPIC; so do messages "
        "older than fileReservedTime.",
        minimum=0,
        changeable=True,
    )
    reject_transaction_message: bool = option(
        "rejectTransactionMessage", False, "Refuse messages that belong to a transaction.", changeable=True
    )
    archive_guard: bool = option(
        "archiveGuard",
        False,
        "Keep files of the log until archiveGuardGroup has read their messages. Only a disk that is nearly full "
        "(rocketmq.broker.diskSpaceCleanForciblyRatio) takes expired ones before, and the log names what is lost then.",
        changeable=True,
    )
    archive_guard_group: str = option(
        "archiveGuardGroup", "ORBITMQ_ARCHIVE", "Consumer group whose offsets tell how far the archive has come."
    )
    archive_guard_topics: str = option(
        "archiveGuardTopics",
        "*",
        "Topics to guard, several separated by `;`, `*` for any letters; those of retries and dead letters only where "
        "they are named, as in `*;%DLQ%*`.",
        changeable=True,
    )
    register_period_ms: int = option(
        "registerNameServerPeriod", 30_000, "How often the broker registers; held within 10,000 and 60,000.", unit="ms",
        minimum=1,
    )  # fmt: skip
    register_timeout_ms: int = option(
        "registerBrokerTimeoutMills", 6000, "How long a name server may take to answer.", unit="ms", minimum=1
    )
    force_register: bool = option(
        "forceRegister", True, "Tell all topics each time; otherwise only name servers that do not know them yet."
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
        """Loopback unless the operator made the broker reachable, by `bindAddress` or by the address it tells clients;
        empty is every address."""
        if self.bind_address:
            return self.bind_address
        host = self.broker_ip1.strip("[]")  # of an IPv6 address
        try:
            local = ipaddress.ip_address(host).is_loopback
        except ValueError:
            local = host == "localhost"
        return host if local else ""
