"""Every setting of the clients, declared once: name, type, default, unit, check, one sentence.

The typed dictionaries are the keyword arguments of the constructors and the source of the reference page. Each setting
names the property of Apache RocketMQ's client that it corresponds to.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Annotated, Any, TypedDict, TypeVar, cast, get_args, get_type_hints

from orbitmq.client.core.identity import DEFAULT_INSTANCE
from orbitmq.client.core.latency import PROFILES
from orbitmq.client.core.retry import RETRY_CODES
from orbitmq.client.core.selection import LEAST_LATENCY, ROUND_ROBIN
from orbitmq.client.core.setting_checks import check, meant
from orbitmq.client.core.trace import CLOUD, LOCAL
from orbitmq.errors import ConfigurationError
from orbitmq.message.compression import COMPRESSION_FLAGS, ZLIB
from orbitmq.message.topics import AUTO_CREATE_TOPIC, TRACE_TOPIC
from orbitmq.runtime.options import Option

DAY_MS = 86_400_000

ASYNC, SYNC = "async", "sync"
"""Ways to commit offsets."""


def _profile_values(column: int) -> str:
    """The values of the profiles, as the settings write them."""
    values = {name: (profile.latency_max, profile.not_available)[column] for name, profile in PROFILES.items()}
    return ", ".join(f"{name} {' '.join(map(str, numbers))}" for name, numbers in values.items())


class ClientSettings(TypedDict, total=False):
    """Settings of every client."""

    namesrv_domain: Annotated[
        str,
        Option(
            "rocketmq.namesrv.domain",
            "",
            "Host (and port, default 8080) of a web server that publishes the addresses of the name servers at "
            "`/rocketmq/<namesrv_subgroup>`, for clients that are given none; read again every 2 min. RocketMQ's "
            "clients use `jmenv.tbsite.net` by default; orbitmq has no default.",
            from_environment=True,
        ),
    ]
    namesrv_subgroup: Annotated[
        str,
        Option(
            "rocketmq.namesrv.domain.subgroup",
            "nsaddr",
            "Last part of the path at which they are published.",
            from_environment=True,
        ),
    ]
    vip_channel: Annotated[
        bool,
        Option(
            "com.rocketmq.sendMessageWithVIPChannel",
            False,
            "Use the port two below a broker's for sends, and for requests about members and offsets. Pulls and "
            "heartbeats use the broker's port.",
            from_environment=True,
        ),
    ]
    enable_stream_request_type: Annotated[
        bool,
        Option(
            "enableStreamRequestType",
            False,
            "Mark requests as part of a stream (`ReqT`), and the client id with `@STREAM`; pull consumers always do.",
        ),
    ]
    access_channel: Annotated[
        str,
        Option(
            "accessChannel",
            LOCAL,
            "Where the brokers run. CLOUD changes only message traces: they go to `rmq_sys_TRACE_DATA_<region>`, in "
            "the format of the cloud.",
            choices=(LOCAL, CLOUD),
        ),
    ]
    client_ip: Annotated[
        str, Option("clientIP", "", "Address in client ids and message ids; empty chooses an address of this machine.")
    ]
    instance_name: Annotated[
        str,
        Option(
            "instanceName",
            DEFAULT_INSTANCE,
            "Clients of a process with the same name are one client to the brokers and share its connections. The "
            "default creates a unique name.",
            from_environment=True,
        ),
    ]
    unit_name: Annotated[str, Option("unitName", "", "Unit, in a deployment of several units; part of the client id.")]
    unit_mode: Annotated[
        bool,
        Option(
            "unitMode", False, "Declare that this client belongs to a unit; brokers mark the topics that it creates."
        ),
    ]
    namespace: Annotated[
        str,
        Option(
            "namespace",
            "",
            "Tenant of a shared cluster: brokers see topics and groups as `namespace%name`, your application does "
            "not. Empty takes it from a name server's address that begins with `MQ_INST_`, if any.",
            pattern=r"[a-zA-Z0-9_-]*",
        ),
    ]
    poll_namesrv_interval_ms: Annotated[
        int, Option("pollNameServerInterval", 30_000, "How often routes are refreshed.", "ms", 10, DAY_MS)
    ]
    heartbeat_interval_ms: Annotated[
        int,
        Option(
            "heartbeatBrokerInterval",
            30_000,
            "How often brokers get a heartbeat; they forget a client after 120 s.",
            "ms",
            10,
            DAY_MS,
        ),
    ]
    api_timeout_ms: Annotated[
        int, Option("mqClientApiTimeout", 3000, "Time for routes, heartbeats and member lists.", "ms", 1, DAY_MS)
    ]
    access_key: Annotated[
        str,
        Option(
            "accessKey", "", "Account that signs every request; empty sends requests unsigned.", from_environment=True
        ),
    ]
    secret_key: Annotated[str, Option("secretKey", "", "Secret of the account.", secret=True, from_environment=True)]
    security_token: Annotated[
        str,
        Option("securityToken", "", "Token of a temporary account.", secret=True, from_environment=True),
    ]
    tls: Annotated[bool, Option("useTLS", False, "Encrypt every connection.", from_environment=True)]
    tls_verify: Annotated[
        bool,
        Option(
            "tls.client.authServer",
            True,
            "Verify the certificates of servers. RocketMQ's client does not by default; without it, an attacker on "
            "the network can read and change everything.",
            from_environment=True,
        ),
    ]
    tls_check_host: Annotated[
        bool,
        Option(
            "tls.client.checkHost",
            True,
            "Verify also that a certificate is for the host connected to; RocketMQ's client never does.",
        ),
    ]
    tls_ca_file: Annotated[
        str,
        Option(
            "tls.client.trustCertPath",
            "",
            "Certificates of authorities that sign server certificates, PEM; empty uses the machine's trust store.",
            from_environment=True,
        ),
    ]
    tls_cert_file: Annotated[
        str,
        Option("tls.client.certPath", "", "Certificate chain of the client, PEM.", from_environment=True),
    ]
    tls_key_file: Annotated[
        str, Option("tls.client.keyPath", "", "Private key of the client certificate, PEM.", from_environment=True)
    ]
    tls_key_password: Annotated[
        str,
        Option("tls.client.keyPassword", "", "Password of that key.", secret=True, from_environment=True),
    ]
    schema_registry: Annotated[
        str,
        Option(
            "schemaRegistry",
            "",
            "URL of a schema registry with Confluent's REST interface, or several of one registry with commas between "
            "them: topics of `RegistryTopic` have their schemas there. Without it name servers keep the schemas.",
            from_environment=True,
        ),
    ]
    schema_registry_user: Annotated[
        str,
        Option(
            "schemaRegistryUser",
            "",
            "User there, with the secret as password; without a user the secret is a bearer token.",
            from_environment=True,
        ),
    ]
    schema_registry_secret: Annotated[
        str,
        Option("schemaRegistrySecret", "", "Password or token for it.", secret=True, from_environment=True),
    ]
    schema_registry_secret_file: Annotated[
        str,
        Option(
            "schemaRegistrySecretFile",
            "",
            "File with the password or token instead; read for each request, so that it may be replaced.",
            from_environment=True,
        ),
    ]
    schema_registry_ca_file: Annotated[
        str,
        Option(
            "schemaRegistryCaFile",
            "",
            "Certificates of authorities that sign the registry's, PEM; empty uses the machine's trust store.",
            from_environment=True,
        ),
    ]
    schema_registry_subject: Annotated[
        str,
        Option(
            "schemaRegistrySubject",
            "{topic}-value",
            "Subject of a topic there. `{topic}` is the topic's name without a namespace, `{record}` the name of the "
            "record, of the message, or the title of the schema.",
            from_environment=True,
            pattern=r".*\{(topic|record)\}.*",
        ),
    ]
    schema_registry_register: Annotated[
        bool,
        Option(
            "schemaRegistryRegister",
            True,
            "Register schemas that it does not have; otherwise they are only looked up there.",
            from_environment=True,
        ),
    ]
    schema_registry_timeout_ms: Annotated[
        int, Option("schemaRegistryTimeout", 5000, "Time limit of a request to it.", "ms", 1, DAY_MS)
    ]


class TraceSettings(ClientSettings, total=False):
    """Settings of clients that can write message traces."""

    enable_trace: Annotated[
        bool,
        Option("enableMsgTrace", False, "Write message traces: what was sent or consumed, when, where and how fast."),
    ]
    trace_topic: Annotated[str, Option("customizedTraceTopic", TRACE_TOPIC, "Topic for traces.")]


class ProducerSettings(TraceSettings, total=False):
    """Settings of a producer."""

    send_timeout_ms: Annotated[
        int, Option("sendMsgTimeout", 3000, "Time limit of a send, all its retries included.", "ms", 1, DAY_MS)
    ]
    retry_times: Annotated[
        int, Option("retryTimesWhenSendFailed", 2, "How often a failed send is retried.", "", 0, 1000)
    ]
    async_retry_times: Annotated[
        int,
        Option(
            "retryTimesWhenSendAsyncFailed",
            2,
            "How often a send of send_async is retried; only after network failures.",
            "",
            0,
            1000,
        ),
    ]
    retry_response_codes: Annotated[
        AbstractSet[int],
        Option(
            "retryResponseCodes",
            frozenset(map(int, RETRY_CODES)),
            "Response codes after which `send` tries another broker. Better leave SYSTEM_BUSY (2) out.",
        ),
    ]
    max_timeout_per_attempt_ms: Annotated[
        int,
        Option(
            "sendMsgMaxTimeoutPerRequest",
            -1,
            "Time limit of an attempt that may be retried; -1 gives each attempt all the time that is left.",
            "ms",
            -1,
            DAY_MS,
        ),
    ]
    retry_when_not_store_ok: Annotated[
        bool,
        Option(
            "retryAnotherBrokerWhenNotStoreOK",
            False,
            "Try another broker when flush or replication of a stored message is not confirmed; creates duplicates.",
        ),
    ]
    queue_strategy: Annotated[
        str,
        Option(
            "queueStrategy",
            ROUND_ROBIN,
            "Use queues in turn, or those of the broker with the lowest latency, which spreads messages unevenly.",
            choices=(ROUND_ROBIN, LEAST_LATENCY),
        ),
    ]
    latency_fault: Annotated[
        bool,
        Option("sendLatencyFaultEnable", False, "Avoid brokers that were slow or failed, for a while."),
    ]
    latency_profile: Annotated[
        str,
        Option(
            "latencyProfile",
            "v4",
            "Whose times and rules `latency_fault` follows: those of RocketMQ 4.9 (minutes; the newest response "
            "counts), or of 5.3 (seconds; an unreachable broker is avoided until a probe reaches it).",
            choices=tuple(PROFILES),
        ),
    ]
    latency_max: Annotated[
        str,
        Option(
            "latencyMax",
            "",
            "Latencies from which a broker counts as slow, in rising order; empty uses those of the profile: "
            f"{_profile_values(0)}.",
            "ms",
        ),
    ]
    not_available_duration: Annotated[
        str,
        Option(
            "notAvailableDuration",
            "",
            "How long it is avoided then, one for each of `latency_max`; empty uses those of the profile: "
            f"{_profile_values(1)}. A failure counts as 30 s (v4) or 10 s (v5).",
            "ms",
        ),
    ]
    max_message_size: Annotated[
        int, Option("maxMessageSize", 4 << 20, "Largest body, before compression.", "bytes", 1, 1 << 30)
    ]
    compress_threshold: Annotated[
        int,
        Option("compressMsgBodyOverHowmuch", 4096, "Bodies of this size and more are compressed.", "bytes", 1, 1 << 30),
    ]
    compress_type: Annotated[
        str, Option("compressType", ZLIB, "Compression of bodies.", choices=tuple(COMPRESSION_FLAGS))
    ]
    compress_level: Annotated[int, Option("compressLevel", 5, "Compression level.", "", 0, 9)]
    create_topic_key: Annotated[
        str,
        Option(
            "createTopicKey", AUTO_CREATE_TOPIC, "Topic from which an automatically created topic takes its settings."
        ),
    ]
    default_topic_queue_nums: Annotated[
        int, Option("defaultTopicQueueNums", 4, "Queues of an automatically created topic.", "", 1, 1024)
    ]
    linger_ms: Annotated[
        int,
        Option(
            "batchMaxDelayMs",
            0,
            "How long a message waits for others of its topic, to be sent in one request with those of its queue; 0 "
            "sends each in a request of its own.",
            "ms",
            0,
            60_000,
        ),
    ]
    batch_max_bytes: Annotated[
        int,
        Option(
            "batchMaxBytes",
            64 << 10,
            "With `linger_ms`: bodies and properties of one request; so many bytes that wait are sent at once.",
            "bytes",
            1,
            1 << 30,
        ),
    ]
    async_sends_max: Annotated[
        int,
        Option(
            "asyncSenderQueueCapacity",
            50_000,
            "Unfinished sends of send_async; further ones are rejected.",
            "",
            1,
            1 << 20,
        ),
    ]
    async_in_flight_max: Annotated[
        int,
        Option(
            "backPressureForAsyncSendNum",
            1000,
            "Sends in flight at a time, of any kind but oneway; others wait, and their `send_timeout_ms` starts when "
            "they are sent. With the 10,000 of RocketMQ 5.3 a burst makes itself time out.",
            "",
            1,
            1 << 20,
        ),
    ]
    async_in_flight_bytes_max: Annotated[
        int,
        Option(
            "backPressureForAsyncSendSize",
            100 << 20,
            "Total bytes of the bodies in flight; a larger body is sent alone.",
            "bytes",
            1 << 20,
            1 << 34,
        ),
    ]


class TransactionSettings(ProducerSettings, total=False):
    """Settings of a transaction producer."""

    check_threads: Annotated[
        int, Option("checkThreadPoolMinSize", 1, "Transaction checks that are processed at a time.", "", 1, 1000)
    ]
    check_queue: Annotated[
        int,
        Option(
            "checkRequestHoldMax",
            2000,
            "Transaction checks that wait; further ones are dropped, and the broker repeats them in its next round.",
            "",
            1,
            1 << 20,
        ),
    ]


class MemberSettings(ClientSettings, total=False):
    """Settings of every member of a consumer group."""

    persist_offset_interval_ms: Annotated[
        int, Option("persistConsumerOffsetInterval", 5000, "How often offsets are stored.", "ms", 10, DAY_MS)
    ]
    pull_from_broker_id: Annotated[
        int,
        Option(
            "defaultBrokerId",
            -1,
            "Node of each broker to read from, 0 for masters; -1 follows the advice of the brokers, which direct "
            "readers of old messages to slaves.",
            "",
            -1,
            2**31 - 1,
        ),
    ]
    local_offset_dir: Annotated[
        str,
        Option(
            "rocketmq.client.localOffsetStoreDir",
            "~/.rocketmq_offsets",
            "Directory in which broadcasting consumers keep their offsets.",
            from_environment=True,
        ),
    ]


class ConsumerSettings(MemberSettings, total=False):
    """Settings of consumers that fetch messages ahead."""

    offset_commit: Annotated[
        str,
        Option(
            "offsetCommit",
            ASYNC,
            "`sync` pulls the next messages of a queue when the broker has confirmed the offset of the last ones, and"
            " retries until it has: fewer messages are delivered twice, at the cost of a round trip per pull. `async`"
            " stores offsets in the background.",
            choices=(ASYNC, SYNC),
        ),
    ]
    pull_error_delay_ms: Annotated[
        int, Option("pullTimeDelayMillsWhenException", 1000, "Pause of a queue after a failed pull.", "ms", 1, DAY_MS)
    ]
    pull_threshold_for_queue: Annotated[
        int, Option("pullThresholdForQueue", 1000, "Messages of one queue to cache.", "", 1, 65_535)
    ]
    pull_threshold_size_for_queue: Annotated[
        int, Option("pullThresholdSizeForQueue", 100, "Bodies of one queue to cache.", "MiB", 1, 1024)
    ]
    consume_max_span: Annotated[
        int,
        Option(
            "consumeConcurrentlyMaxSpan", 2000, "Distance from the oldest to the newest cached offset.", "", 1, 65_535
        ),
    ]


class WaitingPullSettings(MemberSettings, total=False):
    """Settings of pulls that a broker holds until there are messages."""

    broker_suspend_max_ms: Annotated[
        int,
        Option(
            "brokerSuspendMaxTimeMillis", 20_000, "How long a broker may hold a pull without messages.", "ms", 0, DAY_MS
        ),
    ]
    pull_timeout_ms: Annotated[
        int,
        Option(
            "consumerTimeoutMillisWhenSuspend",
            30_000,
            "Time limit of a pull, including the time it is held.",
            "ms",
            1,
            DAY_MS,
        ),
    ]


class DrainSettings(TypedDict, total=False):
    """Settings of consumers that call your code."""

    await_termination_ms: Annotated[
        int,
        Option(
            "awaitTerminationMillisWhenShutdown",
            5000,
            "How long shutdown waits for running listeners and callbacks. Java waits 0 and interrupts them; Python "
            "threads cannot be interrupted, so later results are ignored and the messages are delivered again.",
            "ms",
            0,
            DAY_MS,
        ),
    ]


class PushSettings(ConsumerSettings, TraceSettings, DrainSettings, total=False):
    """Settings of a push consumer."""

    pull_batch_size: Annotated[int, Option("pullBatchSize", 32, "Messages requested by one pull.", "", 1, 1024)]
    pull_interval_ms: Annotated[int, Option("pullInterval", 0, "Pause between two pulls of a queue.", "ms", 0, 65_535)]
    pull_threshold_for_topic: Annotated[
        int,
        Option(
            "pullThresholdForTopic", -1, "Messages of all queues to cache together; -1 for no limit.", "", -1, 6_553_500
        ),
    ]
    pull_threshold_size_for_topic: Annotated[
        int,
        Option(
            "pullThresholdSizeForTopic",
            -1,
            "Bodies of all queues to cache together; -1 for no limit.",
            "MiB",
            -1,
            102_400,
        ),
    ]
    post_subscription_when_pull: Annotated[
        bool,
        Option(
            "postSubscriptionWhenPull",
            False,
            "Send the subscription with each pull instead of relying on the heartbeat.",
        ),
    ]
    consume_threads: Annotated[
        int, Option("consumeThreadMin", 20, "Concurrent calls of the listener, in threads or in tasks.", "", 1, 1000)
    ]
    consume_batch_max_size: Annotated[
        int, Option("consumeMessageBatchMaxSize", 1, "Messages passed to one call of the listener.", "", 1, 1024)
    ]
    consume_timeout_min: Annotated[
        int,
        Option("consumeTimeout", 15, "A message is delivered again when its listener takes longer.", "min", 1, 1440),
    ]
    max_reconsume_times: Annotated[
        int,
        Option(
            "maxReconsumeTimes",
            -1,
            "Deliveries of a failing message before it goes to the dead letter topic; -1 means 16.",
            "",
            -1,
            1 << 31,
        ),
    ]
    suspend_current_queue_ms: Annotated[
        int,
        Option(
            "suspendCurrentQueueTimeMillis",
            1000,
            "How long a queue pauses after an orderly listener failed.",
            "ms",
            10,
            30_000,
        ),
    ]


class LitePullSettings(ConsumerSettings, WaitingPullSettings, TraceSettings, total=False):
    """Settings of a lite pull consumer."""

    pull_batch_size: Annotated[int, Option("pullBatchSize", 10, "Messages requested by one pull.", "", 1, 1024)]
    pull_threshold_for_all: Annotated[
        int, Option("pullThresholdForAll", 10_000, "Messages of all queues to cache together.", "", 1, 6_553_500)
    ]
    auto_commit: Annotated[
        bool,
        Option("autoCommit", True, "Let poll commit the messages that earlier polls returned."),
    ]
    auto_commit_interval_ms: Annotated[
        int, Option("autoCommitIntervalMillis", 5000, "How often poll commits.", "ms", 1, DAY_MS)
    ]
    poll_timeout_ms: Annotated[int, Option("pollTimeoutMillis", 5000, "Default time that poll waits.", "ms", 0, DAY_MS)]


class PullSettings(WaitingPullSettings, DrainSettings, total=False):
    """Settings of a pull consumer. `await_termination_ms` and `pull_threads` matter to a pull schedule."""

    consumer_pull_timeout_ms: Annotated[
        int, Option("consumerPullTimeoutMillis", 10_000, "Time limit of a pull that does not wait.", "ms", 1, DAY_MS)
    ]
    max_reconsume_times: Annotated[
        int,
        Option(
            "maxReconsumeTimes",
            16,
            "Deliveries of a message that is sent back before it goes to the dead letter topic.",
            "",
            0,
            2**31 - 1,
        ),
    ]
    pull_threads: Annotated[
        int, Option("pullThreadNums", 20, "Concurrent callbacks of a schedule, in threads or in tasks.", "", 1, 1000)
    ]


class SimpleSettings(MemberSettings, total=False):
    """Settings of a simple consumer."""

    invisible_ms: Annotated[
        int,
        Option(
            "invisibleDuration",
            30_000,
            "How long a message is delivered to no other consumer, unless a call says so.",
            "ms",
            1,
            7 * DAY_MS,
        ),
    ]
    await_ms: Annotated[
        int,
        Option("awaitDuration", 5000, "How long receive waits for messages, unless a call says so.", "ms", 0, DAY_MS),
    ]
    max_reconsume_times: Annotated[
        int,
        Option(
            "maxReconsumeTimes",
            16,
            "How often a message is redelivered before it goes to the dead letter topic.",
            "",
            0,
            2**31 - 1,
        ),
    ]


S = TypeVar("S", bound=ClientSettings)


def options_of(kind: type[Any]) -> dict[str, Option]:
    """Setting -> its declaration, in the order of declaration."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: get_args(hint)[1] for name, hint in hints.items()}


def variable_of(name: str) -> str:
    """The environment variable for a setting."""
    return f"ORBITMQ_{name.upper()}"


def complete(kind: type[S], given: S, environment: Mapping[str, str] = os.environ) -> S:
    """`given`, then the variables of `environment`, then defaults. ConfigurationError names the setting or variable,
    its value and the allowed values.
    """
    declared = options_of(kind)
    settings: dict[str, object] = {name: option.default for name, option in declared.items()}
    for name, option in declared.items():
        if option.from_environment and name not in given and (text := environment.get(variable_of(name))):
            settings[name] = replace(option, key=variable_of(name)).parse(text)
    for name, value in cast("Mapping[str, object]", given).items():
        if name not in declared:
            raise ConfigurationError(f"{kind.__name__} has no setting {name!r}; {meant(name, declared)}")
        if isinstance(value, AbstractSet):
            value = frozenset(value)
        check(name, declared[name], value)
        settings[name] = value
    return cast("S", settings)
