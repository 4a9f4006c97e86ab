"""What a consumer reports to an operator. Read-only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from orbitmq.client.core.process_queue import ProcessQueue
from orbitmq.client.settings import options_of
from orbitmq.message.model import MessageQueue
from orbitmq.runtime.options import HIDDEN, as_text
from orbitmq.wire.bodies import ConsumerData, ProcessQueueInfo
from orbitmq.wire.codes import VERSION, version_name

MEBIBYTE = 1 << 20
ERROR_CHARS_MAX = 500
"""Characters of an exception's text that are reported: it may quote a whole message, and tools poll it."""
QUEUES_MAX = 50
"""Paused queues that are listed."""


def properties(
    kind: type[Any],
    settings: Mapping[str, Any],
    member: ConsumerData,
    *,
    name_servers: Iterable[str],
    workers: int,
    started_ms: int,
    is_orderly: bool = False,
) -> dict[str, str]:
    """Every setting under Java's name, and the values that Java's tools read. Secrets are hidden: brokers, operators
    and the other members of the group read this.
    """
    assert member.consume_type is not None
    assert member.message_model is not None
    assert member.consume_from_where is not None
    found = {
        option.key: HIDDEN if option.secret and settings[name] else as_text(settings[name])
        for name, option in options_of(kind).items()
    }
    return found | {
        "consumerGroup": member.group_name,
        "messageModel": member.message_model.name,
        "consumeFromWhere": member.consume_from_where.name,
        "PROP_NAMESERVER_ADDR": "".join(address + ";" for address in name_servers),
        "PROP_CONSUME_TYPE": member.consume_type.name,
        "PROP_CLIENT_VERSION": version_name(VERSION),
        "PROP_CONSUMEORDERLY": as_text(is_orderly),
        "PROP_THREADPOOL_CORE_SIZE": str(workers),
        "PROP_CONSUMER_START_TIMESTAMP": str(started_ms),
    }


def error_text(error: BaseException | None) -> str:
    """Why a listener failed, in one line."""
    if error is None:
        return "no exception: the listener asked for the messages again"
    return " ".join(repr(error).split())[:ERROR_CHARS_MAX]


def paused_text(queues: Iterable[MessageQueue]) -> str:
    return " ".join(f"{one.topic}/{one.broker_name}/{one.queue_id}" for one in sorted(queues)[:QUEUES_MAX])


def queue_info(cached: ProcessQueue, commit_offset: int, *, is_locked: bool) -> ProcessQueueInfo:
    """One queue: what is cached, what is committed, when something last happened; `is_locked` of one read in order."""
    low, high = cached.bounds()
    return ProcessQueueInfo(
        cached_msg_count=cached.count,
        cached_msg_min_offset=low,
        cached_msg_max_offset=high,
        cached_msg_size_in_mib=cached.size // MEBIBYTE,
        commit_offset=commit_offset,
        dropped=cached.dropped,
        locked=is_locked,
        last_consume_timestamp=cached.last_consume_ms,
        last_pull_timestamp=cached.last_pull_ms,
    )
