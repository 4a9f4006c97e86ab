"""Topics of one broker: create, change, delete, list, and what their queues hold."""

from __future__ import annotations

import asyncio

from orbitmq.errors import BodyError, BrokerError
from orbitmq.message.config import TopicConfig
from orbitmq.message.topics import AUTO_CREATE_TOPIC
from orbitmq.net.remoting import Remoting
from orbitmq.operations.asking import ask
from orbitmq.operations.statistics import runtime_info
from orbitmq.wire.bodies import GroupList, TopicList, TopicStatsTable, TopicTable
from orbitmq.wire.headers_admin import (
    CreateTopicHeader,
    DeleteTopicHeader,
    GetTopicStatsInfoHeader,
    QueryTopicConsumeByWhoHeader,
)
from orbitmq.wire.objects import decode
from orbitmq.wire.requests import RequestCode

DISPATCH_SECONDS = 5.0
"""How long a deletion waits for a broker to enter what it has stored: one that is further behind has more of others'
messages to enter than a deletion should wait for.
"""


async def create_topic(
    remoting: Remoting,
    address: str,
    topic: TopicConfig,
    *,
    template: str = AUTO_CREATE_TOPIC,
    timeout_ms: float = 6000,
) -> None:
    """UPDATE_AND_CREATE_TOPIC: the topic has this configuration on that broker from now on."""
    header = CreateTopicHeader(
        topic=topic.name,
        default_topic=template,
        read_queue_nums=topic.read_queues,
        write_queue_nums=topic.write_queues,
        perm=topic.perm,
        topic_filter_type=topic.filter_type,
        topic_sys_flag=topic.sys_flag,
        order=topic.order,
    )
    await ask(remoting, address, RequestCode.UPDATE_AND_CREATE_TOPIC, header, timeout_ms=timeout_ms)


async def delete_topic(remoting: Remoting, address: str, topic: str, *, timeout_ms: float = 6000) -> None:
    """DELETE_TOPIC_IN_BROKER: topic, queues and their messages are gone.

    RocketMQ ends with a segmentation fault when the queue goes that it is just entering a message into. So this waits,
    for `DISPATCH_SECONDS` at most, until what was stored before is in its queue.
    """
    await _dispatched(remoting, address, timeout_ms)
    header = DeleteTopicHeader(topic=topic)
    await ask(remoting, address, RequestCode.DELETE_TOPIC_IN_BROKER, header, timeout_ms=timeout_ms)


async def _dispatched(remoting: Remoting, address: str, timeout_ms: float) -> None:
    clock = asyncio.get_running_loop().time
    deadline = clock() + DISPATCH_SECONDS
    stored = None
    while clock() < deadline:
        try:
            figures = await runtime_info(remoting, address, timeout_ms=timeout_ms)
            end, behind = int(figures["commitLogMaxOffset"]), int(figures["dispatchBehindBytes"])
        except (BrokerError, BodyError, KeyError, ValueError):
            return  # it does not say; who may delete need not be one who may look
        stored = end if stored is None else stored
        if behind <= 0 or end - behind >= stored:
            return
        await asyncio.sleep(0.01)


async def all_topics(remoting: Remoting, address: str, *, timeout_ms: float = 6000) -> TopicTable:
    """GET_ALL_TOPIC_CONFIG: every topic of the broker with the version of the table."""
    answer = await ask(remoting, address, RequestCode.GET_ALL_TOPIC_CONFIG, timeout_ms=timeout_ms)
    return await asyncio.to_thread(decode, TopicTable, answer.body)


async def topic_stats(remoting: Remoting, address: str, topic: str, *, timeout_ms: float = 6000) -> TopicStatsTable:
    """GET_TOPIC_STATS_INFO: what each queue of the topic holds on that broker."""
    header = GetTopicStatsInfoHeader(topic)
    answer = await ask(remoting, address, RequestCode.GET_TOPIC_STATS_INFO, header, timeout_ms=timeout_ms)
    return decode(TopicStatsTable, answer.body)


async def groups_of_topic(remoting: Remoting, address: str, topic: str, *, timeout_ms: float = 6000) -> list[str]:
    """QUERY_TOPIC_CONSUME_BY_WHO: groups that subscribe the topic now, and those that have offsets of it there."""
    header = QueryTopicConsumeByWhoHeader(topic)
    answer = await ask(remoting, address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header, timeout_ms=timeout_ms)
    return decode(GroupList, answer.body).group_list


async def system_topics(remoting: Remoting, address: str, *, timeout_ms: float = 6000) -> list[str]:
    """GET_SYSTEM_TOPIC_LIST_FROM_BROKER: topics that are the broker's own."""
    code = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER
    answer = await ask(remoting, address, code, timeout_ms=timeout_ms)
    return decode(TopicList, answer.body).topic_list
