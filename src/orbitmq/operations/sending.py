"""Messages to a broker: send, send a batch, send back for a later retry. Knows no route and no retry."""

from __future__ import annotations

import msgspec

from orbitmq.message.properties import MSG_TYPE, NAME_END
from orbitmq.net.remoting import Remoting
from orbitmq.operations.asking import LANGUAGE, ask, tell
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, request
from orbitmq.wire.headers import ConsumerSendMsgBackHeader, SendMessageResponseHeader, SendMessageV2Header
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

REPLY_PAIR = MSG_TYPE + NAME_END + "reply"  # in the properties of a message that a broker hands on to its requester
DEFAULT_REGION = "DefaultRegion"


class SendReply(msgspec.Struct, frozen=True, gc=False):
    """The broker's answer to a send that was stored; of a batch the ids are joined by commas."""

    code: int
    offset_msg_id: str
    queue_id: int
    queue_offset: int
    transaction_id: str | None
    region_id: str
    trace_on: bool


async def send(
    remoting: Remoting, address: str, header: SendMessageV2Header, body: bytes, *, timeout_ms: float
) -> SendReply:
    """SEND_MESSAGE_V2, or SEND_BATCH_MESSAGE when the header says batch, or SEND_REPLY_MESSAGE_V2 when the properties
    say reply. BrokerError when it was not stored, or the reply reached nobody."""
    answer = await ask(remoting, address, _code(header), header, body, timeout_ms=timeout_ms, accept=STORED)
    return _reply(answer)


async def send_oneway(remoting: Remoting, address: str, header: SendMessageV2Header, body: bytes) -> None:
    """The same without an answer."""
    await tell(remoting, address, _code(header), header, body)


def send_oneway_at_once(remoting: Remoting, address: str, header: SendMessageV2Header, body: bytes) -> bool:
    """The same if nothing has to be waited for; whether it was."""
    command = request(_code(header), header, body, oneway=True, language=LANGUAGE)
    return remoting.oneway_at_once(address, command)


def _code(header: SendMessageV2Header) -> RequestCode:
    if REPLY_PAIR in (header.properties or ""):
        return RequestCode.SEND_REPLY_MESSAGE_V2
    return RequestCode.SEND_BATCH_MESSAGE if header.batch else RequestCode.SEND_MESSAGE_V2


def _reply(answer: Command) -> SendReply:
    header = answer.header(SendMessageResponseHeader)
    ext = answer.ext or {}
    return SendReply(
        answer.code,
        header.msg_id,
        header.queue_id,
        header.queue_offset,
        header.transaction_id,
        ext.get("MSG_REGION") or DEFAULT_REGION,
        ext.get("TRACE_ON") != "false",
    )


async def send_back(
    remoting: Remoting, address: str, header: ConsumerSendMsgBackHeader, *, timeout_ms: float = 5000
) -> None:
    """CONSUMER_SEND_MSG_BACK: let the broker deliver a message again later, or put it into the dead letter topic."""
    await ask(remoting, address, RequestCode.CONSUMER_SEND_MSG_BACK, header, timeout_ms=timeout_ms)
