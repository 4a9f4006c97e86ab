"""Sends are asked as the Java client asks them, and its broker's answers are understood."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from orbitmq.errors import BrokerError
from orbitmq.message.properties import encode_properties
from orbitmq.operations.sends import send, send_back, send_oneway
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.header import from_ext
from orbitmq.wire.headers import ConsumerSendMsgBackHeader, SendMessageV2Header
from orbitmq.wire.requests import RequestCode
from tests.support.recorded import ADDRESS, Exchange, exchange


def sent(found: Exchange) -> SendMessageV2Header:
    return from_ext(SendMessageV2Header, found.ext)


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE])
def test_a_stored_message_is_confirmed(code: RequestCode) -> None:
    found = exchange(code)
    reply = asyncio.run(send(found.remoting, ADDRESS, sent(found), found.question.body, timeout_ms=1234))
    found.assert_asked_as_java()
    assert found.remoting.timeout_ms == 1234
    assert found.remoting.answer
    ext = found.remoting.answer.ext or {}
    assert (reply.code, reply.offset_msg_id) == (0, ext["msgId"])
    assert (reply.queue_id, reply.queue_offset) == (int(ext["queueId"]), int(ext["queueOffset"]))
    assert (reply.region_id, reply.trace_on) == ("DefaultRegion", True)


def test_stored_without_confirmation_from_disk_is_stored() -> None:
    found = exchange(RequestCode.SEND_MESSAGE_V2, ResponseCode.FLUSH_DISK_TIMEOUT)
    reply = asyncio.run(send(found.remoting, ADDRESS, sent(found), b"x", timeout_ms=1))
    assert reply.code == ResponseCode.FLUSH_DISK_TIMEOUT
    assert reply.offset_msg_id


def test_a_refused_message_raises_what_the_broker_said() -> None:
    found = exchange(RequestCode.SEND_MESSAGE_V2, ResponseCode.MESSAGE_ILLEGAL)
    with pytest.raises(BrokerError) as raised:
        asyncio.run(send(found.remoting, ADDRESS, sent(found), b"x", timeout_ms=1))
    assert raised.value.code == ResponseCode.MESSAGE_ILLEGAL
    assert raised.value.address == ADDRESS
    assert found.remoting.answer
    assert raised.value.remark == found.remoting.answer.remark


def test_a_oneway_send_expects_no_answer() -> None:
    found = exchange(RequestCode.SEND_MESSAGE_V2, None)
    asyncio.run(send_oneway(found.remoting, ADDRESS, sent(found), found.question.body))
    found.assert_asked_as_java()


@pytest.mark.parametrize(
    ("properties", "code"),
    [
        ({"MSG_TYPE": "reply"}, RequestCode.SEND_REPLY_MESSAGE_V2),
        ({"a": "b", "MSG_TYPE": "reply", "c": "d"}, RequestCode.SEND_REPLY_MESSAGE_V2),
        ({"MSG_TYPE": "reply-sent"}, RequestCode.SEND_MESSAGE_V2),
        ({"ORDER_MSG_TYPE": "reply"}, RequestCode.SEND_MESSAGE_V2),
        ({}, RequestCode.SEND_MESSAGE_V2),
    ],
)
def test_only_the_property_of_replies_makes_one(properties: dict[str, str], code: RequestCode) -> None:
    found = exchange(RequestCode.SEND_MESSAGE_V2, None)
    header = msgspec.structs.replace(sent(found), properties=encode_properties(properties))
    asyncio.run(send_oneway(found.remoting, ADDRESS, header, b"x"))
    assert found.remoting.asked[0].code == code


def test_sending_back() -> None:
    found = exchange(RequestCode.CONSUMER_SEND_MSG_BACK)
    header = from_ext(ConsumerSendMsgBackHeader, found.ext)
    asyncio.run(send_back(found.remoting, ADDRESS, header))
    found.assert_asked_as_java()
