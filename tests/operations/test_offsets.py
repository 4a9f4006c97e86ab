"""Questions about offsets are asked as the Java client asks them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.errors import BrokerError
from orbitmq.message.model import MessageQueue
from orbitmq.message.unit import Unit, encode_unit
from orbitmq.net.remoting import Remoting
from orbitmq.operations import offsets
from orbitmq.wire.bodies import ConsumeQueueEntries, ConsumeQueueEntry
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers import GetMaxOffsetResponseHeader, SearchOffsetResponseHeader
from orbitmq.wire.objects import encode
from orbitmq.wire.requests import RequestCode
from tests.support.recorded import ADDRESS, Exchange, Recorded, exchange

Q = MessageQueue("T", "b", 1)
HOST = bytes(8)


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


class Times(Remoting):
    """A broker whose queue has messages of these times from `low` on, and which finds `nearest` for any time."""

    def __init__(self, low: int, times: Sequence[int], nearest: int, **answer: Any) -> None:
        super().__init__()
        self.low, self.times, self.nearest, self.answer = low, times, nearest, answer
        self.asked: list[Command] = []

    async def call(self, address: str, command: Command, timeout_ms: float) -> Command:
        self.asked.append(command)
        ext, end = command.ext or {}, self.low + len(self.times)
        if command.code == RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
            boundary = self.answer.get("boundary")
            answer = command.response(0, header=SearchOffsetResponseHeader(self.nearest, boundary))
            answer.version = self.answer.get("version", answer.version)
            return answer
        if command.code == RequestCode.QUERY_CONSUME_QUEUE:
            entry = ConsumeQueueEntry(physical_offset=int(ext["index"]))
            return command.response(0, body=encode(ConsumeQueueEntries(queue_data=[entry])))
        if command.code == RequestCode.VIEW_MESSAGE_BY_ID:
            time = self.times[int(ext["offset"]) - self.low]
            unit = Unit(0, 0, 0, 0, 0, 0, 0, 1, HOST, time, HOST, 0, 0, b"", "T", "")
            return command.response(0, body=encode_unit(unit))
        return command.response(0, header=GetMaxOffsetResponseHeader(self.low if command.code == 31 else end))


@given(
    st.lists(st.integers(0, 9), max_size=40).map(sorted), st.integers(0, 3), st.integers(-1, 11), st.integers(-5, 50)
)
@settings(max_examples=200)
def test_the_first_message_since_a_time_is_found_wherever_the_broker_looked(
    times: list[int], low: int, time: int, nearest: int
) -> None:
    remoting = Times(low, times, nearest)
    found = asyncio.run(offsets.search_offset(remoting, ADDRESS, Q, time))
    assert found == next((low + at for at, one in enumerate(times) if one >= time), low + len(times))


def test_an_answer_close_by_takes_few_questions() -> None:
    remoting = Times(0, list(range(1000)), 500)
    assert asyncio.run(offsets.search_offset(remoting, ADDRESS, Q, 500)) == 500
    assert len(remoting.asked) == 7, "the search, both limits, and two messages, found by two requests each"


@pytest.mark.parametrize("answer", [{"boundary": "LOWER"}, {"version": 479}])
def test_a_broker_that_finds_the_boundary_is_believed(answer: dict[str, Any]) -> None:
    remoting = Times(0, [1, 2, 3], 2, **answer)
    assert asyncio.run(offsets.search_offset(remoting, ADDRESS, Q, 1)) == 2
    assert len(remoting.asked) == 1
    as_java = exchange(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP).ext
    assert set(remoting.asked[0].ext or {}) == {*as_java, "bname", "boundaryType"}


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
    ("response", "update"), [(None, offsets.update_consumer_offset_oneway), (0, offsets.update_consumer_offset)]
)
def test_an_offset_is_stored(response: int | None, update: Callable[..., Awaitable[None]]) -> None:
    found = exchange(RequestCode.UPDATE_CONSUMER_OFFSET, response)

    async def updated(remoting: Remoting) -> None:
        await update(remoting, ADDRESS, found.ext["consumerGroup"], queue(found), int(found.ext["commitOffset"]))

    asyncio.run(updated(found.remoting))
    found.assert_asked_as_java(but=("bname",))
