"""Formats that several mqadmin commands print: widths, times, Java's way to print objects. Knows no command."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from orbitmq.cli.output import moment
from orbitmq.message.config import RetryPolicy, SubscriptionGroup, TopicConfig
from orbitmq.wire.objects import plain

_FLAGS = "RWX"


def cells(*columns: tuple[object, int]) -> str:
    """Values in columns of these widths, two blanks between; a negative width is flush left. Longer text is not cut."""
    return "  ".join(_cell(str(value), width) for value, width in columns)


def _cell(text: str, width: int) -> str:
    return text.ljust(-width) if width < 0 else text.rjust(width)


def second(at_ms: int) -> str:
    """`2026-11-22 06:14:00`, local time; the number itself for a time no calendar has."""
    return moment(at_ms)


def millisecond(at_ms: int) -> str:
    """`2026-11-22 06:14:00,059`, local time."""
    return f"{second(at_ms)},{at_ms % 1000:03}"


def truth(value: bool) -> str:
    return "true" if value else "false"


def settings(pairs: Mapping[str, str] | Iterable[tuple[str, str]], width: int = 50) -> list[str]:
    items = pairs.items() if isinstance(pairs, Mapping) else pairs
    return [f"{key:<{width}}=  {value}" for key, value in items]


def perm(value: int) -> str:
    """`RW-`, as Java writes a permission."""
    return "".join(sign if value & bit else "-" for sign, bit in zip(_FLAGS, (4, 2, 1), strict=True))


def topic_config(topic: TopicConfig) -> str:
    """As 4.9 prints it, and the attributes that were set as 5.x does."""
    attributes = ", ".join(f"+{name}={value}" for name, value in topic.attributes.items())
    return (
        f"TopicConfig [topicName={topic.name}, readQueueNums={topic.read_queues}, writeQueueNums={topic.write_queues}, "
        f"perm={perm(topic.perm)}, topicFilterType={topic.filter_type}, topicSysFlag={topic.sys_flag}, "
        f"order={truth(topic.order)}{f', attributes={{{attributes}}}' if attributes else ''}]"
    )


def group_fields(group: SubscriptionGroup) -> list[tuple[str, str]]:
    """As 4.9 prints it, and settings of 5.x that are not the default."""
    added = [("consumeMessageOrderly", "true")] if group.consume_orderly else []
    if group.retry_policy != RetryPolicy():
        added.append(("groupRetryPolicy", json.dumps(plain(group.retry_policy), separators=(",", ":"))))
    return [
        ("groupName", group.name),
        ("consumeEnable", truth(group.consume_enabled)),
        ("consumeFromMinEnable", truth(group.consume_from_min_enabled)),
        ("consumeBroadcastEnable", truth(group.consume_broadcast_enabled)),
        ("retryQueueNums", str(group.retry_queues)),
        ("retryMaxTimes", str(group.retry_max)),
        ("brokerId", str(group.broker_id)),
        ("whichBrokerWhenConsumeSlowly", str(group.broker_id_when_slow)),
        ("notifyConsumerIdsChangedEnable", truth(group.notify_consumer_ids_changed)),
        *added,
    ]


def pretty(value: object, depth: int = 0) -> str:
    """JSON in the layout of RocketMQ's tool: tabs, and keys that are numbers are not quoted."""
    inner, outer = "\t" * (depth + 1), "\t" * depth
    if isinstance(value, dict) and value:
        if all(isinstance(key, int) for key in value):
            return "{" + ",".join(f"{key}:{pretty(one, depth + 1)}" for key, one in value.items()) + f"\n{outer}}}"
        rows = (f'{inner}"{key}":{pretty(value[key], depth + 1)}' for key in sorted(value) if value[key] is not None)
        return "{\n" + ",\n".join(rows) + f"\n{outer}}}"
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f"{inner}{pretty(one, depth + 1)}" for one in value) + f"\n{outer}]"
    return json.dumps(value, ensure_ascii=False)
