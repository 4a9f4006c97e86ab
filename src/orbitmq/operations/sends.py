"""Send messages to a broker, or send one back for a retry."""

from __future__ import annotations

import msgspec

from orbitmq.message.properties import MSG_TYPE, NAME_END, REPLY, decode_properties
from orbitmq.net.connection import Waiter
from orbitmq.net.remoting import Remoting, RequestInFlight
from orbitmq.operations.call import LANGUAGE, call, checked, oneway, start_call
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, request
from orbitmq.wire.headers import (
    ConsumerSendMsgBackHeader,
    SendMessageResponseHeader,
    SendMessageV2Header,
)
from orbitmq.wire.headers_timer import RecallMessageHeader
from orbitmq.wire.requests import RequestCode

STORED = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)
"""All of these mean that the master has stored the message."""

_REPLY_PAIR = MSG_TYPE + NAME_END + REPLY
DEFAULT_REGION = "DefaultRegion"


class SendReply(msgspec.Struct, frozen=True, gc=False):
    """The result of a send that was stored; the ids of a batch are joined by commas."""

    code: int
    offset_msg_id: str
    queue_id: int
    queue_offset: int
    transaction_id: str | None
    region_id: str
    trace_on: bool
    recall_handle: str | None


async def send(
    remoting: Remoting, address: str, header: SendMessageV2Header, body: bytes, *, timeout_ms: float
) -> SendReply:
    """SEND_MESSAGE_V2, SEND_BATCH_MESSAGE for a batch, or SEND_REPLY_MESSAGE_V2 for a reply. BrokerError when the
    message was not stored, or the reply not delivered.
    """
    response = await call(remoting, address, _code(header), header, body, timeout_ms=timeout_ms, accept=STORED)
    return _reply(response)


def start_send(
    remoting: Remoting, address: str, header: SendMessageV2Header, body: bytes, timeout_ms: float, waiter: Waiter
) -> RequestInFlight | None:
    """`send` if that needs no wait, None otherwise. `waiter` gets the response, which `reply_of` reads."""
    return start_call(remoting, address, _code(header), header, body, timeout_ms=timeout_ms, waiter=waiter)


def reply_of(response: Command, address: str) -> SendReply:
    """The response of `start_send`. BrokerError as in `send`."""
    return _reply(checked(response, address, STORED))


async def send_oneway(remoting: Remoting, address: str, header: SendMessageV2Header, body: bytes) -> None:
    """`send` without a response."""
    await oneway(remoting, address, _code(header), header, body)


def send_oneway_nowait(remoting: Remoting, address: str, header: SendMessageV2Header, body: bytes) -> bool:
    """`send_oneway` if it needs no wait; returns whether it was sent."""
    command = request(_code(header), header, body, oneway=True, language=LANGUAGE)
    return remoting.oneway_nowait(address, command)


def _code(header: SendMessageV2Header) -> RequestCode:
    text = header.properties
    if text and _REPLY_PAIR in text and decode_properties(text).get(MSG_TYPE) == REPLY:
        return RequestCode.SEND_REPLY_MESSAGE_V2
    return RequestCode.SEND_BATCH_MESSAGE if header.batch else RequestCode.SEND_MESSAGE_V2


def _reply(response: Command) -> SendReply:
    header = response.header(SendMessageResponseHeader)
    ext = response.ext or {}
    return SendReply(
        response.code,
        header.msg_id,
        header.queue_id,
        header.queue_offset,
        header.transaction_id,
        ext.get("MSG_REGION") or DEFAULT_REGION,
        ext.get("TRACE_ON") != "false",
        ext.get("recallHandle"),
    )


async def recall(
    remoting: Remoting, address: str, topic: str, recall_handle: str, *, group: str = "", timeout_ms: float = 5000
) -> str:
    """RECALL_MESSAGE: have a message not delivered that waits for its time. Its unique id; BrokerError if it is too
    late, or the broker does not recall messages.
    """
    header = RecallMessageHeader(topic, recall_handle, group)
    response = await call(remoting, address, RequestCode.RECALL_MESSAGE, header, timeout_ms=timeout_ms)
    return (response.ext or {}).get("msgId", "")


async def send_back(
    remoting: Remoting, address: str, header: ConsumerSendMsgBackHeader, *, timeout_ms: float = 5000
) -> None:
    """CONSUMER_SEND_MSG_BACK: have the broker deliver a message again later, or move it to the dead letter topic."""
    await call(remoting, address, RequestCode.CONSUMER_SEND_MSG_BACK, header, timeout_ms=timeout_ms)
