"""Topics of one broker: create, change, delete, list, and the limits of their queues."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType

from orbitmq.message.config import TopicConfig
from orbitmq.message.topic_types import changes_between, format_changes
from orbitmq.message.topics import AUTO_CREATE_TOPIC
from orbitmq.net.remoting import Remoting
from orbitmq.operations.call import call
from orbitmq.operations.statistics import wait_until_dispatched
from orbitmq.wire.bodies import GroupList, TopicList, TopicStatsTable, TopicTable
from orbitmq.wire.headers_admin import (
    CreateTopicHeader,
    DeleteTopicHeader,
    GetTopicConfigHeader,
    GetTopicStatsInfoHeader,
    QueryTopicConsumeByWhoHeader,
)
from orbitmq.wire.objects import decode
from orbitmq.wire.requests import RequestCode


async def create_topic(
    remoting: Remoting,
    address: str,
    topic: TopicConfig,
    *,
    template: str = AUTO_CREATE_TOPIC,
    known: Mapping[str, str] = MappingProxyType({}),
    timeout_ms: float = 6000,
) -> None:
    """UPDATE_AND_CREATE_TOPIC: create or replace the configuration of a topic. `known` are the attributes that the
    topic has at the broker now: changes of them are sent. RocketMQ 4.9 keeps none.
    """
    header = CreateTopicHeader(
        topic=topic.name,
        default_topic=template,
        read_queue_nums=topic.read_queues,
        write_queue_nums=topic.write_queues,
        perm=topic.perm,
        topic_filter_type=topic.filter_type,
        topic_sys_flag=topic.sys_flag,
        order=topic.order,
        attributes=format_changes(changes_between(known, topic.attributes)) or None,
    )
    await call(remoting, address, RequestCode.UPDATE_AND_CREATE_TOPIC, header, timeout_ms=timeout_ms)


async def delete_topic(remoting: Remoting, address: str, topic: str, *, timeout_ms: float = 6000) -> None:
    """DELETE_TOPIC_IN_BROKER: delete a topic, its queues and their messages.

    RocketMQ crashes with a segmentation fault if it deletes a queue while it dispatches a message to it. So this waits,
    at most `DISPATCH_SECONDS`, until earlier messages are dispatched.
    """
    await wait_until_dispatched(remoting, address, timeout_ms=timeout_ms)
    header = DeleteTopicHeader(topic=topic)
    await call(remoting, address, RequestCode.DELETE_TOPIC_IN_BROKER, header, timeout_ms=timeout_ms)


async def topic_config(remoting: Remoting, address: str, topic: str, *, timeout_ms: float = 6000) -> TopicConfig:
    """GET_TOPIC_CONFIG: one topic. BrokerError if there is none, or the broker is older than RocketMQ 5."""
    header = GetTopicConfigHeader(topic)
    response = await call(remoting, address, RequestCode.GET_TOPIC_CONFIG, header, timeout_ms=timeout_ms)
    return decode(TopicConfig, response.body)


async def all_topics(remoting: Remoting, address: str, *, timeout_ms: float = 6000) -> TopicTable:
    """GET_ALL_TOPIC_CONFIG: every topic of the broker, and the version of the table."""
    response = await call(remoting, address, RequestCode.GET_ALL_TOPIC_CONFIG, timeout_ms=timeout_ms)
    return await asyncio.to_thread(decode, TopicTable, response.body)


async def topic_stats(remoting: Remoting, address: str, topic: str, *, timeout_ms: float = 6000) -> TopicStatsTable:
    """GET_TOPIC_STATS_INFO: offsets and last store time of each queue of a topic."""
    header = GetTopicStatsInfoHeader(topic)
    response = await call(remoting, address, RequestCode.GET_TOPIC_STATS_INFO, header, timeout_ms=timeout_ms)
    return decode(TopicStatsTable, response.body)


async def groups_of_topic(remoting: Remoting, address: str, topic: str, *, timeout_ms: float = 6000) -> list[str]:
    """QUERY_TOPIC_CONSUME_BY_WHO: groups with members that subscribe the topic, and groups with offsets of it."""
    header = QueryTopicConsumeByWhoHeader(topic)
    response = await call(remoting, address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header, timeout_ms=timeout_ms)
    return decode(GroupList, response.body).group_list


async def system_topics(remoting: Remoting, address: str, *, timeout_ms: float = 6000) -> list[str]:
    """GET_SYSTEM_TOPIC_LIST_FROM_BROKER: the system topics of the broker."""
    code = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER
    response = await call(remoting, address, code, timeout_ms=timeout_ms)
    return decode(TopicList, response.body).topic_list
