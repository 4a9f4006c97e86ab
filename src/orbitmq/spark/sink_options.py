"""The options of `df.write.format("orbitmq")` and `df.writeStream.format("orbitmq")`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orbitmq.errors import MessageIllegal, SourceError
from orbitmq.message.namespace import Namespace
from orbitmq.message.topics import check_send_allowed, check_topic
from orbitmq.runtime.options import option
from orbitmq.spark.bodies.options import BodyFormat
from orbitmq.spark.cluster_options import ClusterOptions, bad_option, parse_options, parts

EFFECTIVELY_ONCE = "effectively-once"
DEAD_LETTER = "dlq:"

# Option names of other sinks, and the hint for each.
FOREIGN_OPTIONS = {
    "kafka.bootstrap.servers": "use nameServer, the addresses of the name servers",
    "bootstrap.servers": "use nameServer, the addresses of the name servers",
    "subscribe": "that is an option of reads; use topic, or pass the topic to save()",
    "mode": 'call .mode("append") of the writer instead',
}
# Options of Spark that are passed along with those of the sink.
OF_SPARK = frozenset({"checkpointlocation", "queryname", "outputmode"})


@dataclass(frozen=True)
class WriteOptions(BodyFormat, ClusterOptions):
    """Options of writes."""

    namespace: str = option("namespace", "", "Namespace of the topics. Topic names are given without it.")
    topic: str = option(
        "topic",
        "",
        "Topic of all messages. The argument of `save` means the same. Without it, the column `topic` names the "
        "topic of each message.",
    )
    path: str = option("path", "", "The argument of `save`.")
    group: str = option("producerGroup", "spark-orbitmq", "Producer group of the messages.")
    guarantee: str = option(
        "deliveryGuarantee",
        "at-least-once",
        "What a repeated task does: at-least-once sends its messages again; effectively-once looks up which of them "
        "are stored and skips those.",
        choices=("at-least-once", EFFECTIVELY_ONCE),
    )
    job_id: str = option(
        "jobId",
        "",
        "Name of a batch write, part of its idempotency keys: the same write repeated under the same name has the "
        "same keys. Empty generates a name for each write. A stream uses the id of its query.",
    )
    expected_brokers: str = option(
        "expectBrokers",
        "",
        "Brokers, separated by commas, that must be available before a task of an effectively-once write starts. A "
        "query that is restarted while a broker is down may otherwise not know about that broker.",
    )
    key_place: str = option(
        "idempotencyKeyIn",
        "property",
        "Where messages carry their idempotency key: in the property ORBIT_IK (property), there and in their KEYS "
        "(keys), or nowhere (none).",
        choices=("property", "keys", "none"),
    )
    send_mode: str = option(
        "sendMode",
        "batch",
        "Many messages in a request, or one. Messages with a delay are always sent alone.",
        choices=("batch", "single"),
    )
    batch_size: int = option(
        "batchBytes", 1 << 20, "Maximum size of a request with several messages.", unit="bytes", minimum=1024
    )
    in_flight_max: int = option(
        "maxInFlight", 64, "Maximum requests of a task in flight at a time.", minimum=1, maximum=4096
    )
    rate_max: int = option(
        "maxRowsPerSecond", 0, "Maximum messages that a task sends in a second. 0 is no limit.", unit="1/s", minimum=0
    )
    send_timeout_ms: int = option(
        "sendTimeoutMs", 10_000, "How long to wait for the response to a request.", unit="ms", minimum=1
    )
    retries: int = option(
        "retryTimesWhenSendFailed",
        5,
        "How often a failed request is retried, after a pause that doubles from 0.1 s to 2 s.",
        minimum=0,
        maximum=1000,
    )
    busy_timeout_ms: int = option(
        "busyTimeoutMs",
        60_000,
        "How long a busy broker may reject a request before the task fails.",
        unit="ms",
        minimum=0,
    )
    wait_store_ok: bool = option(
        "waitStoreMsgOK",
        True,
        "Brokers respond only after they have flushed and replicated a message as they are configured to.",
    )
    ack_policy: str = option(
        "ackPolicy",
        "stored",
        "Which response is accepted: `stored` accepts every message that the master has stored, and counts those "
        "whose flush or replication was not confirmed; `safe` fails the task for those, so that Spark repeats it.",
        choices=("stored", "safe"),
    )
    selector: str = option(
        "queueSelector",
        "roundRobin",
        "Queue of a message: any queue (roundRobin), the queue of the hash of the column `queueKey`, or else of "
        "`shardingKey`, or else of `keys` (keyHash), or the queue that the columns `queueId` and `brokerName` name "
        "(fixed). The last two keep the order of rows within a task.",
        choices=("roundRobin", "keyHash", "fixed"),
    )
    size_max: int = option(
        "maxMessageSize", 4 << 20, "Largest body. Brokers have a limit of their own.", unit="bytes", minimum=1
    )
    on_oversize: str = option(
        "onOversize",
        "fail",
        "What to do with a larger message, or one with more than 32,255 bytes of properties: fail, or `dlq:<topic>` "
        "sends the first 64 KiB of its body to that topic, with a description of the message.",
        pattern=r"fail|dlq:.+",
    )
    report_path: str = option(
        "reportPath",
        "",
        "File on the driver to which each commit and each abort appends a line of JSON: counts, and the first and "
        "last offset of each queue.",
    )

    @property
    def names(self) -> Namespace:
        """The namespace of the topics."""
        return Namespace(self.namespace)

    @property
    def effectively_once(self) -> bool:
        return self.guarantee == EFFECTIVELY_ONCE

    @property
    def broker_names(self) -> frozenset[str]:
        """The brokers that must be available."""
        return frozenset(parts(self.expected_brokers, ","))

    @property
    def keeps_order(self) -> bool:
        """Whether requests to one queue are sent one after another."""
        return self.selector != "roundRobin"

    @property
    def dead_letter_topic(self) -> str:
        """The topic for messages that are too large. Empty fails the write."""
        return self.on_oversize.removeprefix(DEAD_LETTER) if self.on_oversize != "fail" else ""


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Parse the options of a write. Names are not case-sensitive. SourceError names the invalid option."""
    own = {key: value for key, value in given.items() if key.lower() not in OF_SPARK}
    options = parse_options(WriteOptions, own, FOREIGN_OPTIONS)
    if options.topic and options.path and options.topic != options.path:
        raise bad_option(f"option topic is {options.topic}, but save() got {options.path}; use one of them")
    options = options.replace(topic=options.topic or options.path)
    for name, topic in (("topic", options.topic), ("onOversize", options.dead_letter_topic)):
        if topic:
            require_topic(f"option {name}", topic)
    if options.expected_brokers and not options.effectively_once:
        raise bad_option("option expectBrokers needs deliveryGuarantee=effectively-once")
    if options.effectively_once and options.key_place == "none":
        raise bad_option("option idempotencyKeyIn: effectively-once needs the keys; set property or keys")
    if options.effectively_once and options.ack_policy == "safe":
        raise bad_option(
            "option ackPolicy: safe sends a stored but unconfirmed message again, which would duplicate it; "
            "effectively-once needs stored"
        )
    return options


def require_topic(where: str, topic: str) -> None:
    """SourceError unless messages may be sent to a topic of this name."""
    try:
        check_topic(topic)
        check_send_allowed(topic)
    except MessageIllegal as error:
        raise SourceError("ORBITMQ_BAD_OPTION", f"{where}: {error}") from error
