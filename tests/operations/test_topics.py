"""Topics are created and deleted as Java's tools do it."""

from __future__ import annotations

import asyncio

from orbitmq.message.config import TopicConfig
from orbitmq.operations.statistics import DISPATCH_SECONDS
from orbitmq.operations.topics import (
    all_topics,
    create_topic,
    delete_topic,
    groups_of_topic,
    system_topics,
    topic_stats,
)
from orbitmq.wire.bodies import KVTable
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.header import from_ext
from orbitmq.wire.headers_admin import CreateTopicHeader
from orbitmq.wire.objects import encode
from orbitmq.wire.requests import RequestCode
from tests.support.loops import JumpingLoop, run
from tests.support.recorded import ADDRESS, Recorded, exchange


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
    assert found.remoting.asked.pop(0).code == RequestCode.GET_BROKER_RUNTIME_INFO  # its answer has no figures here
    found.assert_asked_as_java()


class Entering(Recorded):
    """A broker that is behind with entering messages into their queues; `figures` are its end and how far behind."""

    def __init__(self, *figures: tuple[int, int]) -> None:
        super().__init__()
        self.figures = iter(figures)

    async def call(self, address: str, command: Command, timeout_ms: float) -> Command:
        self.asked.append(command)
        answer = command.response(ResponseCode.SUCCESS)
        if command.code == RequestCode.GET_BROKER_RUNTIME_INFO:
            end, behind = next(self.figures)
            answer.body = encode(KVTable({"commitLogMaxOffset": str(end), "dispatchBehindBytes": str(behind)}))
        return answer


def test_a_topic_is_deleted_when_what_was_stored_before_is_in_its_queues() -> None:
    behind = Entering((1000, 300), (1200, 300), (1500, 400))  # others go on
    run(delete_topic(behind, ADDRESS, "Orders"), JumpingLoop)
    assert [command.code for command in behind.asked] == [RequestCode.GET_BROKER_RUNTIME_INFO] * 3 + [
        RequestCode.DELETE_TOPIC_IN_BROKER
    ]
    assert next(behind.figures, None) is None


def test_a_deletion_waits_no_longer_than_is_said() -> None:
    asked = Entering(*[(1000, 300)] * 1000)
    run(delete_topic(asked, ADDRESS, "Orders"), JumpingLoop)
    assert asked.asked[-1].code == RequestCode.DELETE_TOPIC_IN_BROKER
    assert 100 < len(asked.asked) <= DISPATCH_SECONDS / 0.01 + 2


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
