"""Topics are created and deleted as Java's tools do it."""

from __future__ import annotations

import asyncio

from orbitmq.message.config import TopicConfig
from orbitmq.operations.topics import (
    all_topics,
    create_topic,
    delete_topic,
    groups_of_topic,
    system_topics,
    topic_stats,
)
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.header import from_ext
from orbitmq.wire.headers_admin import CreateTopicHeader
from tests.support.recorded import ADDRESS, exchange


def test_a_topic_is_created() -> None:
    found = exchange(RequestCode.UPDATE_AND_CREATE_TOPIC)
    header = from_ext(CreateTopicHeader, found.ext)
    topic = TopicConfig(
        header.topic,
        header.read_queue_nums,
        header.write_queue_nums,
        header.perm,
        header.topic_filter_type,
        header.topic_sys_flag or 0,
        header.order,
    )
    asyncio.run(create_topic(found.remoting, ADDRESS, topic, template=header.default_topic))
    found.assert_asked_as_java()


def test_a_topic_is_deleted() -> None:
    found = exchange(RequestCode.DELETE_TOPIC_IN_BROKER)
    asyncio.run(delete_topic(found.remoting, ADDRESS, found.ext["topic"]))
    found.assert_asked_as_java()


def test_all_topics_of_a_broker() -> None:
    found = exchange(RequestCode.GET_ALL_TOPIC_CONFIG)
    assert "TBW102" in asyncio.run(all_topics(found.remoting, ADDRESS)).topics
    found.assert_asked_as_java()


def test_what_the_queues_of_a_topic_hold() -> None:
    found = exchange(RequestCode.GET_TOPIC_STATS_INFO)
    table = asyncio.run(topic_stats(found.remoting, ADDRESS, found.ext["topic"])).offset_table
    assert {queue.topic for queue in table} == {found.ext["topic"]}
    found.assert_asked_as_java()


def test_who_consumes_a_topic() -> None:
    found = exchange(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO)
    assert isinstance(asyncio.run(groups_of_topic(found.remoting, ADDRESS, found.ext["topic"])), list)
    found.assert_asked_as_java()


def test_topics_of_the_system() -> None:
    found = exchange(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    assert "TBW102" in asyncio.run(system_topics(found.remoting, ADDRESS))
    found.assert_asked_as_java()
