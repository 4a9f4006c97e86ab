"""Who waits for a reply gets it once; who does not wait any more does not."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from orbitmq.client.replies import Replies
from orbitmq.errors import TooManyRequestsError
from orbitmq.message.properties import encode_properties
from orbitmq.runtime.clock import ManualClock
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command, request
from orbitmq.wire.headers_reply import PushReplyMessageHeader


class Peer:
    address = "127.0.0.1:10911"


def push(correlation_id: str) -> Command:
    properties = encode_properties({"CORRELATION_ID": correlation_id})
    header = PushReplyMessageHeader("g", "c_REPLY_TOPIC", "TBW102", 4, 0, 0, 5, 0, "h:1", "h:2", 6, properties)
    return request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, header, b"yes " + correlation_id.encode())


async def test_a_reply_ends_the_wait_for_it_alone() -> None:
    replies = Replies(ManualClock())
    peer = cast("Any", Peer())
    with replies.expected("a") as first, replies.expected("b") as second:
        assert replies.take(peer, push("b")).code == 0
        assert (await second).body == b"yes b"
        assert not first.done()
        assert replies.take(peer, push("b")).code == 0, "the same again"
    assert replies.take(peer, push("a")).code == 0, "too late"
    assert first.cancelled()
    assert replies._waiting == {}


async def test_so_many_may_wait() -> None:
    replies = Replies(ManualClock(), limit=1)
    with replies.expected("a"), pytest.raises(TooManyRequestsError), replies.expected("b"):
        await asyncio.sleep(0)
    with replies.expected("b"):
        pass
