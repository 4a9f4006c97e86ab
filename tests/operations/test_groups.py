"""Groups are asked about and moved as Java's tools do it."""

from __future__ import annotations

import asyncio

from orbitmq.message.config import SubscriptionGroup
from orbitmq.message.model import MessageQueue
from orbitmq.operations import groups
from orbitmq.operations.membership import running_info
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.objects import decode
from orbitmq.wire.requests import RequestCode
from tests.support.recorded import ADDRESS, exchange


def test_a_group_is_created() -> None:
    found = exchange(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
    group = decode(SubscriptionGroup, found.question.body)
    asyncio.run(groups.create_group(found.remoting, ADDRESS, group))
    found.assert_asked_as_java()


def test_a_group_is_deleted() -> None:
    found = exchange(RequestCode.DELETE_SUBSCRIPTIONGROUP)
    with_offsets = found.ext["removeOffset"] == "true"
    asyncio.run(groups.delete_group(found.remoting, ADDRESS, found.ext["groupName"], with_offsets=with_offsets))
    found.assert_asked_as_java(but=("cleanOffset",))


def test_members_are_listed_and_nobody_online_is_no_error() -> None:
    found = exchange(RequestCode.GET_CONSUMER_CONNECTION_LIST)
    members = asyncio.run(groups.consumer_connections(found.remoting, ADDRESS, found.ext["consumerGroup"]))
    assert members is not None
    assert members.connection_set[0].client_id
    found.assert_asked_as_java()
    nobody = exchange(RequestCode.GET_CONSUMER_CONNECTION_LIST, ResponseCode.CONSUMER_NOT_ONLINE)
    assert asyncio.run(groups.consumer_connections(nobody.remoting, ADDRESS, nobody.ext["consumerGroup"])) is None


def test_producers_are_listed() -> None:
    found = exchange(RequestCode.GET_PRODUCER_CONNECTION_LIST)
    members = asyncio.run(groups.producer_connections(found.remoting, ADDRESS, found.ext["producerGroup"]))
    assert members[0].client_id
    found.assert_asked_as_java()
    everybody = exchange(RequestCode.GET_ALL_PRODUCER_INFO)
    assert asyncio.run(groups.all_producers(everybody.remoting, ADDRESS))


def test_progress_and_its_times() -> None:
    found = exchange(RequestCode.GET_CONSUME_STATS)
    ext = found.ext
    stats = asyncio.run(groups.consume_stats(found.remoting, ADDRESS, ext["consumerGroup"], ext.get("topic")))
    assert all(isinstance(queue, MessageQueue) for queue in stats.offset_table)
    found.assert_asked_as_java()
    times = exchange(RequestCode.QUERY_CONSUME_TIME_SPAN)
    spans = asyncio.run(groups.time_spans(times.remoting, ADDRESS, times.ext["group"], times.ext["topic"]))
    assert all(span.message_queue is not None for span in spans)
    times.assert_asked_as_java()


def test_a_group_is_moved_in_time() -> None:
    found = exchange(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
    ext = found.ext
    told = asyncio.run(
        groups.reset_offsets(
            found.remoting, ADDRESS, ext["group"], ext["topic"], int(ext["timestamp"]), force=ext["isForce"] == "true"
        )
    )
    assert told
    found.assert_asked_as_java(but=("queueId", "offset"))


def test_a_member_is_asked_for_its_stacks_only_where_they_are_wanted() -> None:
    for stacks in (True, False):
        found = exchange(RequestCode.GET_CONSUMER_RUNNING_INFO)
        ext = found.ext
        work = running_info(found.remoting, ADDRESS, ext["consumerGroup"], ext["clientId"], stacks=stacks)
        asyncio.run(work)
        assert (found.remoting.asked[0].ext or {})["jstackEnable"] == ("true" if stacks else "false")


def test_positions_of_members() -> None:
    found = exchange(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS)
    ext = found.ext
    assert asyncio.run(groups.consumer_positions(found.remoting, ADDRESS, ext["group"], ext["topic"]))
    found.assert_asked_as_java(but=("clientAddr",))  # Java's tool names it, empty, when it asks every member
