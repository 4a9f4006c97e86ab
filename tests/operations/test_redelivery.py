"""A message is handed to a consumer as Java's tools have it done."""

from __future__ import annotations

import asyncio

from orbitmq.operations.redelivery import consume_directly
from orbitmq.wire.bodies import ConsumeResult
from orbitmq.wire.requests import RequestCode
from tests.support.recorded import ADDRESS, exchange


def test_what_the_listener_made_of_it_is_told() -> None:
    found = exchange(RequestCode.CONSUME_MESSAGE_DIRECTLY)
    ext = found.ext
    result = asyncio.run(consume_directly(found.remoting, ADDRESS, ext["consumerGroup"], ext["clientId"], ext["msgId"]))
    assert result.consume_result is ConsumeResult.CR_SUCCESS
    found.assert_asked_as_java()
