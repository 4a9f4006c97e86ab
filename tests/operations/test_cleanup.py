"""Brokers are told to clean up as Java's tools do it."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.operations.cleanup import clean_expired_queues, clean_unused_topics, delete_expired_log
from orbitmq.wire.requests import RequestCode
from tests.support.recorded import ADDRESS, exchange

ASKED = {
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: clean_expired_queues,
    RequestCode.CLEAN_UNUSED_TOPIC: clean_unused_topics,
    RequestCode.DELETE_EXPIRED_COMMITLOG: delete_expired_log,
}


@pytest.mark.parametrize("code", ASKED, ids=lambda code: code.name)
def test_a_broker_is_told_to_clean_up(code: RequestCode) -> None:
    found = exchange(code)
    asyncio.run(ASKED[code](found.remoting, ADDRESS))
    found.assert_asked_as_java()
