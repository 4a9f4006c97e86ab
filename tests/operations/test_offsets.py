"""Questions about offsets are asked as the Java client asks them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from orbitmq.errors import BrokerError
from orbitmq.message.model import MessageQueue
from orbitmq.net.remoting import Remoting
from orbitmq.operations import offsets
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from tests.support.recorded import ADDRESS, Exchange, Recorded, exchange

Q = MessageQueue("T", "b", 1)


def queue(found: Exchange) -> MessageQueue:
    return MessageQueue(found.ext["topic"], found.ext.get("bname", ""), int(found.ext["queueId"]))


@pytest.mark.parametrize(
    ("code", "field", "ask"),
    [
        (RequestCode.GET_MAX_OFFSET, "offset", offsets.max_offset),
        (RequestCode.GET_MIN_OFFSET, "offset", offsets.min_offset),
        (RequestCode.GET_EARLIEST_MSG_STORETIME, "timestamp", offsets.earliest_store_time),
    ],
)
def test_limits_of_a_queue(code: RequestCode, field: str, ask: Callable[..., Awaitable[int]]) -> None:
    found = exchange(code)

    async def asked() -> int:
        return await ask(found.remoting, ADDRESS, queue(found))

    assert found.remoting.answer
    assert asyncio.run(asked()) == int((found.remoting.answer.ext or {})[field])
    found.assert_asked_as_java()


def test_offset_of_a_time() -> None:
    found = exchange(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
    time_ms = int(found.ext["timestamp"])
    offset = asyncio.run(offsets.search_offset(found.remoting, ADDRESS, queue(found), time_ms))
    assert found.remoting.answer
    assert offset == int((found.remoting.answer.ext or {})["offset"])
    found.assert_asked_as_java()


def test_a_group_with_and_without_an_offset() -> None:
    stored = exchange(RequestCode.QUERY_CONSUMER_OFFSET)
    group = stored.ext["consumerGroup"]
    assert stored.remoting.answer
    offset = asyncio.run(offsets.query_consumer_offset(stored.remoting, ADDRESS, group, queue(stored)))
    assert offset == int((stored.remoting.answer.ext or {})["offset"])
    stored.assert_asked_as_java()
    none = Recorded(Command(code=ResponseCode.QUERY_NOT_FOUND, remark="Not found", flag=1, opaque=1))
    assert asyncio.run(offsets.query_consumer_offset(none, ADDRESS, "g", Q)) is None


def test_a_refusal_is_not_taken_for_a_missing_offset() -> None:
    remoting = Recorded(Command(code=ResponseCode.SYSTEM_BUSY, flag=1, opaque=1))
    with pytest.raises(BrokerError):
        asyncio.run(offsets.query_consumer_offset(remoting, ADDRESS, "g", Q))


@pytest.mark.parametrize(
    ("response", "update"), [(None, offsets.tell_consumer_offset), (0, offsets.update_consumer_offset)]
)
def test_an_offset_is_stored(response: int | None, update: Callable[..., Awaitable[None]]) -> None:
    found = exchange(RequestCode.UPDATE_CONSUMER_OFFSET, response)

    async def updated(remoting: Remoting) -> None:
        await update(remoting, ADDRESS, found.ext["consumerGroup"], queue(found), int(found.ext["commitOffset"]))

    asyncio.run(updated(found.remoting))
    found.assert_asked_as_java(but=("bname",))
