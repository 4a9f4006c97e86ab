"""Receives whose client goes away, and brokers where too many wait."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest

from orbitmq.errors import BrokerError
from orbitmq.message.config import SubscriptionGroup
from orbitmq.net.grpc import Call
from orbitmq.operations.pops import pop_request, pop_units
from orbitmq.proxy.receiving import GIVEN_BACK_MS
from orbitmq.proxy.statuses import status_of
from orbitmq.runtime.clock import ManualClock
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers_pop import PopMessageHeader
from orbitmq.wire.http2 import frames
from orbitmq.wire.http2.frames import CANCEL
from orbitmq.wire.v2.enums import ClientType, Code
from orbitmq.wire.v2.methods import SERVICE
from tests.net.test_grpc import bare, data, headers
from tests.proxy.test_live_front import GROUP, TOPIC, begin, front, topic
from tests.support.five import Five
from tests.support.loops import until

RECEIVE = f"/{SERVICE}/ReceiveMessage"


class Full:
    """A broker where too many wait."""

    async def call(self, _address: str, command: Command, _timeout_ms: float) -> Command:
        return command.response(ResponseCode.POLLING_FULL)


async def test_a_client_waits_when_too_many_wait_at_the_broker() -> None:
    header = PopMessageHeader("g", "t", -1, 1, 30_000, 5000, 0, 1)
    full: Any = Full()
    with pytest.raises(BrokerError) as raised:
        await pop_units(full, "a:1", header, pop_request(header), timeout_ms=1000)
    assert status_of(raised.value, "ReceiveMessage").code == Code.TOO_MANY_REQUESTS


async def test_messages_after_one_that_was_not_taken_are_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    async with front(tmp_path, clock) as (broker, made):
        client = Five(made)
        await client.consume(GROUP, TOPIC, kind=ClientType.PUSH_CONSUMER)
        begin(broker)
        for number in range(4):
            await client.send(TOPIC, b"%d" % number)
        send, sent = Call.send, []

        def taken(call: Call, message: bytes) -> None:
            sent.append(message)
            if len(sent) == 3:  # the status and one message
                call.connection.http.reset(call._stream, CANCEL)
                call.cut_off()
            send(call, message)

        with monkeypatch.context() as patched:
            patched.setattr(Call, "send", taken)
            with pytest.raises(grpc.aio.AioRpcError):
                await client.receive(GROUP, TOPIC, renew=True)
        five = broker.front
        assert five is not None
        await until(lambda: not five._tasks, "the others to be given back")
        assert len(five.receiving.renewal) == 1, "of the one that was sent"
        clock.advance(GIVEN_BACK_MS + 10)
        await until(lambda: len(broker.journal.in_flight) == 1, "the others to be redelivered")
        got = await client.receive(GROUP, TOPIC, renew=True)
        assert sorted(one.body for one in got) == [b"1", b"2", b"3"]


async def test_messages_that_wait_for_a_client_are_given_back_when_it_goes(tmp_path: Path) -> None:
    clock = ManualClock()
    async with front(tmp_path, clock) as (broker, made):
        client = Five(made)
        await client.consume(GROUP, TOPIC, kind=ClientType.PUSH_CONSUMER)
        begin(broker)
        for number in range(4):
            await client.send(TOPIC, b"%d" % number * 1000)
        five = broker.front
        assert five is not None
        window = {frames.INITIAL_WINDOW_SIZE: 2000}  # the status, one message and a part of the next
        async with bare(f"127.0.0.1:{five.port}", window) as peer:
            request = client.to_receive(GROUP, TOPIC, renew=True).SerializeToString()
            peer.send(headers(1, RECEIVE, *client.metadata) + data(1, request))
            await until(lambda: len(five.receiving.renewal) == 4, "all to be delivered")
            peer.send(frames.rst_stream(1, frames.CANCEL))
            await until(lambda: len(five.receiving.renewal) == 1, "renewal of what was not sent to end")
        await until(lambda: not five._tasks, "the others to be given back")
        clock.advance(GIVEN_BACK_MS + 10)
        await until(lambda: len(broker.journal.in_flight) == 1, "the others to be redelivered")
        got = await client.receive(GROUP, TOPIC, renew=True)
        assert sorted(one.body[:1] for one in got) == [b"1", b"2", b"3"]


async def test_a_client_in_order_is_told_how_often_it_had_a_message(tmp_path: Path) -> None:
    clock = ManualClock()
    async with front(tmp_path, clock) as (broker, made):
        topic(broker, "Ordered", "FIFO")
        broker.groups.put(SubscriptionGroup(GROUP, consume_orderly=True, retry_max=1))
        client = Five(made)
        await client.consume(GROUP, "Ordered", kind=ClientType.PUSH_CONSUMER)
        begin(broker, "Ordered")
        for body in (b"poison", b"next"):
            await client.send("Ordered", body, message_group="customer")
        for attempt in (1, 2):
            (got,) = await client.receive(GROUP, "Ordered", 1, queue=0)
            assert (got.body, got.system_properties.delivery_attempt) == (b"poison", attempt)
            clock.advance(30_001)
        assert await client.receive(GROUP, "Ordered", 1, queue=0) == []
        assert broker.store.max_offset(f"%DLQ%{GROUP}", 0) == 1
        (got,) = await client.receive(GROUP, "Ordered", 1, queue=0)
        assert got.body == b"next"
