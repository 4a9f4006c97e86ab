"""Names of topics and groups: which are allowed, which belong to the system, which are derived from a group.

Pure text rules; the limits are those of the disk format (a topic's length is a signed byte).
"""

from __future__ import annotations

import re
from typing import Final

from orbitmq.errors import MessageIllegal

TOPIC_LENGTH_MAX: Final = 127
GROUP_LENGTH_MAX: Final = 255
ALLOWED_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
LMQ_PREFIX: Final = "%LMQ%"
CONSUMER_GROUP_LENGTH_MAX: Final = TOPIC_LENGTH_MAX - len(RETRY_PREFIX)  # 120: its retry topic is a topic, too
REPLY_TOPIC_SUFFIX: Final = "_REPLY_TOPIC"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
REVIVE_PREFIX: Final = "rmq_sys_REVIVE_LOG_"  # where a cluster's brokers record POP consumption
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"

ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"  # of a name server's settings: topic -> `broker:queues;broker:queues`
AUTO_CREATE_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANSACTION_CHECK_MAX_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"

SEND_FORBIDDEN_TOPICS: Final = frozenset(
    (
        SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_CHECK_MAX_TOPIC, SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
    )
)  # fmt: skip
SYSTEM_TOPICS: Final = SEND_FORBIDDEN_TOPICS - {TIMER_TOPIC} | {AUTO_CREATE_TOPIC, BENCHMARK_TOPIC, TRACE_TOPIC}
"""Of every broker, as RocketMQ 4.9 lists them."""
KEPT_TOPICS: Final = frozenset((SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, OP_HALF_TOPIC))  # the broker's, never removed

DEFAULT_PRODUCER_GROUP: Final = "DEFAULT_PRODUCER"
DEFAULT_CONSUMER_GROUP: Final = "DEFAULT_CONSUMER"
CLIENT_INNER_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"
TOOLS_CONSUMER_GROUP: Final = "TOOLS_CONSUMER"
FILTER_SERVER_GROUP: Final = "FILTERSRV_CONSUMER"
MONITOR_GROUP: Final = "__MONITOR_CONSUMER"
SELF_TEST_PRODUCER_GROUP: Final = "SELF_TEST_P_GROUP"
SELF_TEST_CONSUMER_GROUP: Final = "SELF_TEST_C_GROUP"
SCHEDULE_GROUP: Final = "SCHEDULE_CONSUMER"
TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
ONS_HTTP_PROXY_GROUP: Final = "CID_ONS-HTTP-PROXY"
ONS_API_PULL_GROUP: Final = "CID_ONSAPI_PULL"
ONS_API_PERMISSION_GROUP: Final = "CID_ONSAPI_PERMISSION"
ONS_API_OWNER_GROUP: Final = "CID_ONSAPI_OWNER"

SYSTEM_GROUPS: Final = frozenset(
    (
        TOOLS_CONSUMER_GROUP, FILTER_SERVER_GROUP, MONITOR_GROUP, SELF_TEST_CONSUMER_GROUP, ONS_HTTP_PROXY_GROUP,
        ONS_API_PULL_GROUP, ONS_API_PERMISSION_GROUP, ONS_API_OWNER_GROUP,
    )
)  # fmt: skip
"""Groups of tools, which have no common prefix; every broker has rules for them."""


def retry_topic(group: str) -> str:
    """Where messages wait that `group` could not consume."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Where messages end that `group` gave up on."""
    return DLQ_PREFIX + group


def reply_topic(cluster: str) -> str:
    """Where replies of the request-reply calls through `cluster` are stored."""
    return cluster + REPLY_TOPIC_SUFFIX


def is_system_topic(topic: str) -> bool:
    """System topics cannot be created or deleted by an administrator."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_system_group(group: str) -> bool:
    return group.startswith(SYSTEM_GROUP_PREFIX)


def is_lmq(name: str) -> bool:
    """Light queues exist without a topic configuration."""
    return name.startswith(LMQ_PREFIX)


def check_topic(topic: str | None) -> None:
    """MessageIllegal unless `topic` is a legal name."""
    _check_name(topic, "topic", TOPIC_LENGTH_MAX)


def check_group(group: str | None) -> None:
    """MessageIllegal unless `group` is a legal name."""
    _check_name(group, "group", GROUP_LENGTH_MAX)


def check_consumer_group(group: str | None) -> None:
    """MessageIllegal unless `group`, with its namespace, is a legal name for consumers."""
    check_group(group)
    check_retry_topic(group or "")


def check_retry_topic(group: str) -> None:
    """MessageIllegal unless messages of `group` can wait in a topic of their own: else each that fails would be lost.

    Brokers of RocketMQ check nothing more of a group that clients name.
    """
    size = len(group.encode("utf-8", "replace"))
    if size > CONSUMER_GROUP_LENGTH_MAX:
        raise MessageIllegal(
            f"the consumer group {group[:GROUP_LENGTH_MAX]!r} has {size} characters, at most "
            f"{CONSUMER_GROUP_LENGTH_MAX} are allowed, a namespace included: its retry topic {RETRY_PREFIX}<group> may "
            f"have {TOPIC_LENGTH_MAX}"
        )
    if not group.isprintable() or "/" in group:
        raise MessageIllegal(f"the consumer group {group!r} holds characters that no topic can have in its name")


def check_send_allowed(topic: str) -> None:
    """MessageIllegal for topics that only the broker itself writes."""
    if topic in SEND_FORBIDDEN_TOPICS or topic.startswith(REVIVE_PREFIX):
        raise MessageIllegal(f"sending to the system topic {topic} is not allowed")


def _check_name(name: str | None, kind: str, length_max: int) -> None:
    given: object = name
    if given is not None and not isinstance(given, str):
        raise MessageIllegal(f"the {kind} must be text, not {type(given).__name__}")
    if name is None or not name.strip():
        raise MessageIllegal(f"the {kind} is blank")
    if len(name) > length_max:
        raise MessageIllegal(f"the {kind} {name!r} is longer than {length_max} characters")
    if not ALLOWED_NAME.fullmatch(name):
        raise MessageIllegal(f"the {kind} {name!r} holds other characters than letters, digits, %, |, _ and -")
