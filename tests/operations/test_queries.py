"""Queries are asked as the Java client asks them; found or not, the answer is understood."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.errors import BrokerError
from orbitmq.message.unit import decode_units
from orbitmq.operations.queries import QueryReply, query_messages, queue_entries
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.requests import RequestCode
from tests.support.recorded import ADDRESS, Exchange, exchange


def asked(found: Exchange) -> QueryReply:
    ext = found.ext
    return asyncio.run(
        query_messages(
            found.remoting, ADDRESS, ext["topic"], ext["key"], int(ext["maxNum"]), int(ext["beginTimestamp"]),
            int(ext["endTimestamp"]), unique=ext["_UNIQUE_KEY_QUERY"] == "true",
        )
    )  # fmt: skip


@pytest.mark.parametrize("unique", ["true", "false"])
def test_messages_come_with_the_end_of_the_index(unique: str) -> None:
    found = exchange(RequestCode.QUERY_MESSAGE, _UNIQUE_KEY_QUERY=unique)
    reply = asked(found)
    found.assert_asked_as_java()
    assert found.remoting.answer
    ext = found.remoting.answer.ext or {}
    assert reply.index_last_update_timestamp == int(ext["indexLastUpdateTimestamp"]) > 0
    assert reply.index_last_update_offset == int(ext["indexLastUpdatePhyoffset"])
    assert {unit.topic for unit in decode_units(reply.body)} == {found.ext["topic"]}


def test_nothing_found_is_no_error_and_anything_else_is() -> None:
    found = exchange(RequestCode.QUERY_MESSAGE)
    assert found.remoting.answer
    found.remoting.answer.code = ResponseCode.QUERY_NOT_FOUND
    assert asked(found) == QueryReply(b"")
    found.remoting.answer.code = ResponseCode.SYSTEM_ERROR
    with pytest.raises(BrokerError):
        asked(found)


def test_entries_of_a_queue_tell_places_and_tag_codes() -> None:
    found = exchange(RequestCode.QUERY_CONSUME_QUEUE)
    ext = found.ext
    entries = asyncio.run(
        queue_entries(
            found.remoting, ADDRESS, ext["topic"], int(ext["queueId"]), int(ext["index"]), int(ext["count"]),
            group=ext["consumerGroup"],
        )
    )  # fmt: skip
    found.assert_asked_as_java()
    assert entries.max_queue_index == len(entries.queue_data) == int(ext["count"])
    places = [one.physical_offset for one in entries.queue_data]
    assert places == sorted(places)
    assert entries.queue_data[0].tags_code == 2598920, "the hash of TagB"
