"""Messages from a broker: pull from a queue, view one by its place in the log. Knows no queue's owner and no filter."""

from __future__ import annotations

from dataclasses import dataclass

from orbitmq.net.remoting import Remoting
from orbitmq.operations.asking import ask
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers import PullMessageHeader, PullMessageResponseHeader, ViewMessageHeader
from orbitmq.wire.requests import RequestCode

PULLED = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)
"""Answers that carry the four offsets of a queue."""


@dataclass(frozen=True, slots=True)
class PullReply:
    """What a pull brought; `body` holds message units, empty unless `code` is SUCCESS."""

    code: int
    next_begin_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int
    """The broker of this name to ask next time: 0 the master, others slaves."""
    body: bytes


async def pull(remoting: Remoting, address: str, header: PullMessageHeader, *, timeout_ms: float = 30_000) -> PullReply:
    """PULL_MESSAGE. A pull that may suspend is answered when a message comes or its suspend time is over."""
    answer = await ask(remoting, address, RequestCode.PULL_MESSAGE, header, timeout_ms=timeout_ms, accept=PULLED)
    found = answer.header(PullMessageResponseHeader)
    return PullReply(
        answer.code,
        found.next_begin_offset,
        found.min_offset,
        found.max_offset,
        found.suggest_which_broker_id,
        answer.body,
    )


async def view_message(remoting: Remoting, address: str, physical_offset: int, *, timeout_ms: float = 6000) -> bytes:
    """VIEW_MESSAGE_BY_ID: the message unit at this place of the commit log. BrokerError when there is none."""
    header = ViewMessageHeader(offset=physical_offset)
    return (await ask(remoting, address, RequestCode.VIEW_MESSAGE_BY_ID, header, timeout_ms=timeout_ms)).body
