"""Every setting of the clients, declared once: name, type, default, unit, check, one sentence.

The declarations are the keyword arguments of the constructors (typed dictionaries) and the reference page at the same
time. Each names the property of Apache RocketMQ's client it stands for.
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


def _profile_figures(column: int) -> str:
    """What the profiles say, as the settings write it."""
    figures = {name: (profile.latency_max, profile.not_available)[column] for name, profile in PROFILES.items()}
    return ", ".join(f"{name} {' '.join(map(str, numbers))}" for name, numbers in figures.items())


class ClientSettings(TypedDict, total=False):
    """Settings of every client."""

    namesrv_domain: Annotated[
        str,
        Option(
            "rocketmq.namesrv.domain",
            "",
            "Host (and port, else 8080) of a web server that tells the name servers at `/rocketmq/<namesrv_subgroup>` "
            "to clients that are given none; asked again every 2 min. RocketMQ's clients ask `jmenv.tbsite.net` when "
            "nothing is given, here nobody is asked unasked.",
            from_environment=True,
        ),
    ]
    namesrv_subgroup: Annotated[
        str,
        Option(
            "rocketmq.namesrv.domain.subgroup", "nsaddr", "End of the path they are told at.", from_environment=True
        ),
    ]
    vip_channel: Annotated[
        bool,
        Option(
            "com.rocketmq.sendMessageWithVIPChannel",
            False,
            "Send, and ask for members and offsets, at the port two below a broker's. Pulls and heartbeats stay.",
            from_environment=True,
        ),
    ]
    enable_stream_request_type: Annotated[
        bool,
        Option(
            "enableStreamRequestType",
            False,
            "Mark every request as one of a stream (`ReqT`), and the client id by `@STREAM`; pull consumers always do.",
        ),
    ]
    access_channel: Annotated[
        str,
        Option(
            "accessChannel",
            LOCAL,
            "Where brokers are. CLOUD changes message traces only: they go to `rmq_sys_TRACE_DATA_<region>`, in the "
            "cloud's form.",
            choices=(LOCAL, CLOUD),
        ),
    ]
    client_ip: Annotated[
        str, Option("clientIP", "", "Address that stands in client and message ids; empty finds one of this machine.")
    ]
    instance_name: Annotated[
        str,
        Option(
            "instanceName",
            DEFAULT_INSTANCE,
            "Clients of a process with the same name are one client to the brokers and share its connections. The "
            "default makes a name that nobody else has.",
            from_environment=True,
        ),
    ]
    unit_name: Annotated[str, Option("unitName", "", "Unit of a deployment in units; part of the client id.")]
    unit_mode: Annotated[
        bool,
        Option(
            "unitMode", False, "Tell brokers that this client belongs to a unit; they mark topics they create by it."
        ),
    ]
    namespace: Annotated[
        str,
        Option(
            "namespace",
            "",
            "Tenant of a shared cluster: brokers see topics and groups as `namespace%name`, applications do not. Empty "
            "takes it from a name server's address that begins with `MQ_INST_`, else there is none.",
            pattern=r"[a-zA-Z0-9_-]*",
        ),
    ]
    poll_namesrv_interval_ms: Annotated[
        int, Option("pollNameServerInterval", 30_000, "How often routes are refreshed.", "ms", 10, DAY_MS)
    ]
    heartbeat_interval_ms: Annotated[
        int,
        Option(
            "heartbeatBrokerInterval", 30_000, "How often brokers hear from us; they forget at 120 s.", "ms", 10, DAY_MS
        ),
    ]
    api_timeout_ms: Annotated[
        int, Option("mqClientApiTimeout", 3000, "Time for routes, heartbeats and member lists.", "ms", 1, DAY_MS)
    ]
    access_key: Annotated[
        str,
        Option("accessKey", "", "Account that signs every request; empty signs none.", from_environment=True),
    ]
    secret_key: Annotated[str, Option("secretKey", "", "The account's secret.", secret=True, from_environment=True)]
    security_token: Annotated[
        str,
        Option("securityToken", "", "Token that goes with a temporary account.", secret=True, from_environment=True),
    ]
    tls: Annotated[bool, Option("useTLS", False, "Encrypt every connection.", from_environment=True)]
    tls_verify: Annotated[
        bool,
        Option(
            "tls.client.authServer",
            True,
            "Check the certificates of servers. RocketMQ's client does not unless told; without it anybody in between "
            "can read and change everything.",
            from_environment=True,
        ),
    ]
    tls_check_host: Annotated[
        bool,
        Option(
            "tls.client.checkHost",
            True,
            "Their certificates must be for the host that is asked, too; RocketMQ's client never looks at that.",
        ),
    ]
    tls_ca_file: Annotated[
        str,
        Option(
            "tls.client.trustCertPath",
            "",
            "Certificates of those who may sign servers' ones, PEM; empty trusts whom this machine trusts.",
            from_environment=True,
        ),
    ]
    tls_cert_file: Annotated[
        str,
        Option("tls.client.certPath", "", "Certificate chain to show to servers, PEM.", from_environment=True),
    ]
    tls_key_file: Annotated[str, Option("tls.client.keyPath", "", "Its private key, PEM.", from_environment=True)]
    tls_key_password: Annotated[
        str,
        Option("tls.client.keyPassword", "", "Password of that key.", secret=True, from_environment=True),
    ]


class TraceSettings(ClientSettings, total=False):
    """Settings of those who can write message traces."""

    enable_trace: Annotated[
        bool, Option("enableMsgTrace", False, "Write message traces: what was sent or consumed when, where, how fast.")
    ]
    trace_topic: Annotated[str, Option("customizedTraceTopic", TRACE_TOPIC, "Topic that traces go to.")]


class ProducerSettings(TraceSettings, total=False):
    """Settings of a producer."""

    send_timeout_ms: Annotated[
        int, Option("sendMsgTimeout", 3000, "Time for a send with all its retries together.", "ms", 1, DAY_MS)
    ]
    retry_times: Annotated[
        int, Option("retryTimesWhenSendFailed", 2, "How often a failed send is tried again.", "", 0, 1000)
    ]
    async_retry_times: Annotated[
        int,
        Option(
            "retryTimesWhenSendAsyncFailed",
            2,
            "How often a send of send_async is tried again; only after failures of the network.",
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
            "Answers of a broker after which `send` tries another one; SYSTEM_BUSY (2) is better not among them.",
        ),
    ]
    max_timeout_per_attempt_ms: Annotated[
        int,
        Option(
            "sendMsgMaxTimeoutPerRequest",
            -1,
            "Time for an attempt that another one may follow; -1 gives each attempt all that is left.",
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
            "Try another broker when a message is stored but flush or replication was not confirmed; makes duplicates.",
        ),
    ]
    queue_strategy: Annotated[
        str,
        Option(
            "queueStrategy",
            ROUND_ROBIN,
            "Queues in turn, or those of the broker that answers fastest; the second spreads unevenly.",
            choices=(ROUND_ROBIN, LEAST_LATENCY),
        ),
    ]
    latency_fault: Annotated[
        bool,
        Option("sendLatencyFaultEnable", False, "Leave brokers out for a while that were slow or failed."),
    ]
    latency_profile: Annotated[
        str,
        Option(
            "latencyProfile",
            "v4",
            "Whose figures and rules `latency_fault` follows: RocketMQ 4.9's (minutes, the newest answer counts), or "
            "5.3's (seconds, and a broker the network does not reach is left out until a probe reaches it).",
            choices=tuple(PROFILES),
        ),
    ]
    latency_max: Annotated[
        str,
        Option(
            "latencyMax",
            "",
            f"Times from which on a broker counts as slow, rising; empty takes the profile's: {_profile_figures(0)}.",
            "ms",
        ),
    ]
    not_available_duration: Annotated[
        str,
        Option(
            "notAvailableDuration",
            "",
            "How long it is left out then, one for each of `latency_max`; empty takes the profile's: "
            f"{_profile_figures(1)}. A failure counts as 30 s (v4) or 10 s (v5).",
            "ms",
        ),
    ]
    max_message_size: Annotated[
        int, Option("maxMessageSize", 4 << 20, "Largest body, before compression.", "bytes", 1, 1 << 30)
    ]
    compress_threshold: Annotated[
        int, Option("compressMsgBodyOverHowmuch", 4096, "Bodies from this size on are compressed.", "bytes", 1, 1 << 30)
    ]
    compress_type: Annotated[
        str, Option("compressType", ZLIB, "How bodies are compressed.", choices=tuple(COMPRESSION_FLAGS))
    ]
    compress_level: Annotated[int, Option("compressLevel", 5, "Effort of the compression.", "", 0, 9)]
    create_topic_key: Annotated[
        str, Option("createTopicKey", AUTO_CREATE_TOPIC, "Topic whose settings an automatically created topic gets.")
    ]
    default_topic_queue_nums: Annotated[
        int, Option("defaultTopicQueueNums", 4, "Queues of an automatically created topic.", "", 1, 1024)
    ]
    async_sends_max: Annotated[
        int,
        Option(
            "asyncSenderQueueCapacity",
            50_000,
            "Sends of send_async that are not finished; one more is refused.",
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
            "Sends of any kind, oneway ones aside, that are at the brokers at a time; the others wait, and "
            "`send_timeout_ms` begins when their turn comes. RocketMQ 5.3's 10,000 makes a burst time out by itself.",
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
            "Bytes of their bodies together; a larger one goes alone.",
            "bytes",
            1 << 20,
            1 << 34,
        ),
    ]


class TransactionSettings(ProducerSettings, total=False):
    """Settings of a transaction producer."""

    check_threads: Annotated[
        int, Option("checkThreadPoolMinSize", 1, "Questions of brokers that are answered at a time.", "", 1, 1000)
    ]
    check_queue: Annotated[
        int,
        Option(
            "checkRequestHoldMax",
            2000,
            "Questions that wait; further ones are dropped, and asked again in the broker's next round.",
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
            "Node of every broker to read from, 0 for masters; -1 follows the brokers' advice, which sends readers of "
            "old messages to slaves.",
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
            "Where broadcasting consumers keep their offsets.",
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
            "`sync` takes the next messages of a queue when the broker has confirmed the offset of the last ones, and "
            "asks until it has: fewer messages come twice, at the price of a round trip a pull. `async` stores offsets "
            "beside the work.",
            choices=(ASYNC, SYNC),
        ),
    ]
    pull_error_delay_ms: Annotated[
        int, Option("pullTimeDelayMillsWhenException", 1000, "Pause of a queue after a failed pull.", "ms", 1, DAY_MS)
    ]
    pull_threshold_for_queue: Annotated[
        int, Option("pullThresholdForQueue", 1000, "Messages cached of one queue.", "", 1, 65_535)
    ]
    pull_threshold_size_for_queue: Annotated[
        int, Option("pullThresholdSizeForQueue", 100, "Bodies cached of one queue.", "MiB", 1, 1024)
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
        Option("consumerTimeoutMillisWhenSuspend", 30_000, "Time for a pull, the holding included.", "ms", 1, DAY_MS),
    ]


class DrainSettings(TypedDict, total=False):
    """Settings of those who call the application."""

    await_termination_ms: Annotated[
        int,
        Option(
            "awaitTerminationMillisWhenShutdown",
            5000,
            "How long shutdown waits for running listeners and callbacks. Java waits 0 and interrupts them; threads of "
            "Python cannot be interrupted, so results that come later are ignored and their messages delivered again.",
            "ms",
            0,
            DAY_MS,
        ),
    ]


class PushSettings(ConsumerSettings, TraceSettings, DrainSettings, total=False):
    """Settings of a push consumer."""

    pull_batch_size: Annotated[int, Option("pullBatchSize", 32, "Messages asked for by one pull.", "", 1, 1024)]
    pull_interval_ms: Annotated[int, Option("pullInterval", 0, "Pause between two pulls of a queue.", "ms", 0, 65_535)]
    pull_threshold_for_topic: Annotated[
        int,
        Option(
            "pullThresholdForTopic", -1, "Messages cached of all queues together; -1 for no limit.", "", -1, 6_553_500
        ),
    ]
    pull_threshold_size_for_topic: Annotated[
        int,
        Option(
            "pullThresholdSizeForTopic",
            -1,
            "Bodies cached of all queues together; -1 for no limit.",
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
        int, Option("consumeThreadMin", 20, "Listener calls at a time, as threads or as tasks.", "", 1, 1000)
    ]
    consume_batch_max_size: Annotated[
        int, Option("consumeMessageBatchMaxSize", 1, "Messages a listener gets at once.", "", 1, 1024)
    ]
    consume_timeout_min: Annotated[
        int,
        Option(
            "consumeTimeout", 15, "A message whose listener takes longer is delivered again as well.", "min", 1, 1440
        ),
    ]
    max_reconsume_times: Annotated[
        int,
        Option(
            "maxReconsumeTimes",
            -1,
            "Deliveries of a failing message before the dead letter topic; -1 is 16.",
            "",
            -1,
            1 << 31,
        ),
    ]
    suspend_current_queue_ms: Annotated[
        int,
        Option(
            "suspendCurrentQueueTimeMillis", 1000, "How long a queue rests after a failure in order.", "ms", 10, 30_000
        ),
    ]


class LitePullSettings(ConsumerSettings, WaitingPullSettings, TraceSettings, total=False):
    """Settings of a lite pull consumer."""

    pull_batch_size: Annotated[int, Option("pullBatchSize", 10, "Messages asked for by one pull.", "", 1, 1024)]
    pull_threshold_for_all: Annotated[
        int, Option("pullThresholdForAll", 10_000, "Messages cached of all queues together.", "", 1, 6_553_500)
    ]
    auto_commit: Annotated[
        bool,
        Option("autoCommit", True, "Let poll commit what earlier polls returned."),
    ]
    auto_commit_interval_ms: Annotated[
        int, Option("autoCommitIntervalMillis", 5000, "How often poll commits.", "ms", 1, DAY_MS)
    ]
    poll_timeout_ms: Annotated[
        int, Option("pollTimeoutMillis", 5000, "How long poll waits when it is not told.", "ms", 0, DAY_MS)
    ]


class PullSettings(WaitingPullSettings, DrainSettings, total=False):
    """Settings of a pull consumer. `await_termination_ms` and `pull_threads` matter to a pull schedule."""

    consumer_pull_timeout_ms: Annotated[
        int, Option("consumerPullTimeoutMillis", 10_000, "Time for a pull that does not wait.", "ms", 1, DAY_MS)
    ]
    max_reconsume_times: Annotated[
        int,
        Option(
            "maxReconsumeTimes",
            16,
            "Deliveries of a message that is sent back before the dead letter topic.",
            "",
            0,
            2**31 - 1,
        ),
    ]
    pull_threads: Annotated[
        int, Option("pullThreadNums", 20, "Callbacks of a schedule at a time, as threads or as tasks.", "", 1, 1000)
    ]


S = TypeVar("S", bound=ClientSettings)


def options_of(kind: type[Any]) -> dict[str, Option]:
    """Setting -> its declaration, in the order of declaration."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: get_args(hint)[1] for name, hint in hints.items()}


def variable_of(name: str) -> str:
    """The environment variable that may give a setting."""
    return f"ORBITMQ_{name.upper()}"


def complete(kind: type[S], given: S, environment: Mapping[str, str] = os.environ) -> S:
    """`given`, then what `environment` says, then defaults. ConfigurationError names setting or variable, value and
    what is allowed.
    """
    declared = options_of(kind)
    settings: dict[str, object] = {name: option.default for name, option in declared.items()}
    for name, option in declared.items():
        if option.from_environment and name not in given and (text := environment.get(variable_of(name))):
            settings[name] = replace(option, key=variable_of(name)).parse(text)
    for name, value in cast("Mapping[str, object]", given).items():
        if name not in declared:
            raise ConfigurationError(f"{kind.__name__} knows no setting {name!r}; {meant(name, declared)}")
        if isinstance(value, AbstractSet):
            value = frozenset(value)
        check(name, declared[name], value)
        settings[name] = value
    return cast("S", settings)
