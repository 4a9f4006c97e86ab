"""Who waits for a reply gets it once; who does not wait any more does not."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from orbitmq.client.replies import PendingReplies
from orbitmq.errors import TooManyRequestsError
from orbitmq.message.properties import encode_properties
from orbitmq.runtime.clock import ManualClock
from orbitmq.wire.command import Command, request
from orbitmq.wire.headers_reply import PushReplyMessageHeader
from orbitmq.wire.requests import RequestCode


class Peer:
    address = "127.0.0.1:10911"


def push(correlation_id: str) -> Command:
    properties = encode_properties({"CORRELATION_ID": correlation_id})
    header = PushReplyMessageHeader("g", "c_REPLY_TOPIC", "TBW102", 4, 0, 0, 5, 0, "h:1", "h:2", 6, properties)
    return request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, header, b"yes " + correlation_id.encode())


SOON = float("inf")


async def _expect(replies: PendingReplies, correlation_id: str) -> None:
    async with replies.expected(correlation_id, asyncio.get_running_loop().time() + 60):
        pass


async def test_a_reply_ends_the_wait_for_it_alone() -> None:
    replies = PendingReplies(ManualClock())
    peer = cast("Any", Peer())
    async with replies.expected("a", SOON) as first, replies.expected("b", SOON) as second:
        assert replies.take(peer, push("b")).code == 0
        assert (await second).body == b"yes b"
        assert not first.done()
        assert replies.take(peer, push("b")).code == 0, "the same again"
    assert replies.take(peer, push("a")).code == 0, "too late"
    assert first.cancelled()
    assert replies._waiting == {}


async def test_so_many_may_wait_and_others_for_their_turn_until_their_time_is_over() -> None:
    replies = PendingReplies(ManualClock(), limit=1)
    now = asyncio.get_running_loop().time()
    async with replies.expected("a", now):
        with pytest.raises(TooManyRequestsError, match="nothing was sent: 1 of at most 1 are in flight"):
            async with replies.expected("b", now):
                pass
        second = asyncio.create_task(_expect(replies, "c"))
        await asyncio.sleep(0)
        assert not second.done()
    await second
    async with replies.expected("d", now):
        pass
