"""Pull messages from a queue, or view one by its physical offset."""

from __future__ import annotations

from dataclasses import dataclass

from orbitmq.net.remoting import Remoting
from orbitmq.operations.call import call
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
"""Responses that carry the offsets of the queue."""


@dataclass(frozen=True, slots=True)
class PullReply:
    """The result of a pull; `body` holds message units, empty unless `code` is SUCCESS."""

    code: int
    next_begin_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int
    """The broker id to pull from next: 0 is the master, others are slaves."""
    body: bytes


async def pull(remoting: Remoting, address: str, header: PullMessageHeader, *, timeout_ms: float = 30_000) -> PullReply:
    """PULL_MESSAGE. A pull that may suspend returns when a message arrives or its suspend time is over."""
    response = await call(remoting, address, RequestCode.PULL_MESSAGE, header, timeout_ms=timeout_ms, accept=PULLED)
    found = response.header(PullMessageResponseHeader)
    return PullReply(
        response.code,
        found.next_begin_offset,
        found.min_offset,
        found.max_offset,
        found.suggest_which_broker_id,
        response.body,
    )


async def view_message(remoting: Remoting, address: str, physical_offset: int, *, timeout_ms: float = 6000) -> bytes:
    """VIEW_MESSAGE_BY_ID: the message unit at a physical offset. BrokerError when there is none."""
    header = ViewMessageHeader(offset=physical_offset)
    return (await call(remoting, address, RequestCode.VIEW_MESSAGE_BY_ID, header, timeout_ms=timeout_ms)).body
