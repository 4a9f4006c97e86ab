"""Pulls are asked as the Java client asks them; every answer with offsets is understood."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.errors import BrokerError
from orbitmq.message.unit import decode_unit, decode_units
from orbitmq.operations.pulls import PULLED, pull, view_message
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.header import from_ext
from orbitmq.wire.headers import PullMessageHeader
from orbitmq.wire.requests import RequestCode
from tests.support.recorded import ADDRESS, exchange


@pytest.mark.parametrize("code", sorted(PULLED))
def test_a_pull_brings_offsets_and_perhaps_messages(code: int) -> None:
    found = exchange(RequestCode.PULL_MESSAGE, code)
    reply = asyncio.run(pull(found.remoting, ADDRESS, from_ext(PullMessageHeader, found.ext)))
    found.assert_asked_as_java()
    assert found.remoting.answer
    ext = found.remoting.answer.ext or {}
    assert reply.code == code
    assert reply.next_begin_offset == int(ext["nextBeginOffset"])
    assert (reply.min_offset, reply.max_offset) == (int(ext["minOffset"]), int(ext["maxOffset"]))
    assert reply.suggested_broker_id == int(ext["suggestWhichBrokerId"])
    assert (len(decode_units(reply.body)) > 0) is (code == ResponseCode.SUCCESS)


def test_a_refused_pull_raises() -> None:
    found = exchange(RequestCode.PULL_MESSAGE, ResponseCode.SUBSCRIPTION_NOT_EXIST)
    with pytest.raises(BrokerError) as raised:
        asyncio.run(pull(found.remoting, ADDRESS, from_ext(PullMessageHeader, found.ext)))
    assert raised.value.code == ResponseCode.SUBSCRIPTION_NOT_EXIST


def test_a_message_is_viewed_by_its_place() -> None:
    found = exchange(RequestCode.VIEW_MESSAGE_BY_ID)
    unit = asyncio.run(view_message(found.remoting, ADDRESS, int(found.ext["offset"])))
    found.assert_asked_as_java()
    assert decode_unit(unit).physical_offset == int(found.ext["offset"])
