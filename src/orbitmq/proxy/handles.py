"""Receipt handles: by them a RocketMQ 5 client acknowledges a message, or changes its invisible time. Pure.

A handle is the receipt of POP consumption, with the message's offset in the commit log as its ninth part:

    start offset, pop time ms, invisible time ms, revive queue, kind, broker name, queue id, queue offset, log offset

separated by one space. Kind is 0 for a normal topic, 1 and 2 for a retry topic. Clients return it unread.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from orbitmq.errors import StatusError
from orbitmq.message.pop import ORDERLY_REVIVE_QUEUE, Receipt
from orbitmq.wire.v2.enums import Code

NO_LOG_OFFSET: Final = -1
_INT32_MAX: Final = (1 << 31) - 1
_INT64_MAX: Final = (1 << 63) - 1
# A broker's name is part of paths and addresses; none is near 255 characters.
_HANDLE: Final = re.compile(
    r"([0-9]{1,19}) ([0-9]{1,19}) ([0-9]{1,19}) ([0-9]{1,10}) ([012]) ([^\s\x00-\x1f\x7f]{1,255}) ([0-9]{1,10}) "
    r"([0-9]{1,19})(?: (-1|[0-9]{1,19}))?"
)


class Handle(NamedTuple):
    """A receipt, and where the message is in the broker's commit log, `NO_LOG_OFFSET` if the handle does not say."""

    receipt: Receipt
    log_offset: int

    def encode(self) -> str:
        return handle_text(self.receipt.encode(), self.log_offset)

    @property
    def is_orderly(self) -> bool:
        return self.receipt.revive_queue == ORDERLY_REVIVE_QUEUE

    def is_expired(self, now_ms: int) -> bool:
        """Whether the message is visible to others again."""
        return self.receipt.pop_ms + self.receipt.invisible_ms <= now_ms


def handle_text(receipt: str, log_offset: int) -> str:
    """The handle of a message that has this receipt, the text POP_CK."""
    return f"{receipt} {log_offset}"


def parse_handle(text: str) -> Handle:
    """StatusError for what no broker can have written."""
    found = _HANDLE.fullmatch(text)
    if found is None:
        raise _invalid(text)
    start, pop_ms, invisible_ms, revive_queue, kind, broker_name, queue_id, offset, log_offset = found.groups()
    receipt = Receipt(
        int(start), int(pop_ms), int(invisible_ms), int(revive_queue), kind, broker_name, int(queue_id), int(offset)
    )
    handle = Handle(receipt, NO_LOG_OFFSET if log_offset is None else int(log_offset))
    if (
        max(receipt.revive_queue, receipt.queue_id) > _INT32_MAX
        or max(receipt.start, receipt.pop_ms, receipt.invisible_ms, receipt.offset, handle.log_offset) > _INT64_MAX
    ):
        raise _invalid(text)
    return handle


def valid_handle(text: str, now_ms: int) -> Handle:
    """The handle of a message that still belongs to the client. StatusError if it has expired, and as above."""
    handle = parse_handle(text)
    if handle.is_expired(now_ms):
        raise StatusError(
            Code.INVALID_RECEIPT_HANDLE,
            "the receipt handle has expired, so the message is delivered again: acknowledge it earlier, or receive "
            "with a longer invisible time",
        )
    return handle


def check_log_offset(handle: Handle) -> None:
    """A message is forwarded to the dead letter queue by its place in the log."""
    if handle.log_offset == NO_LOG_OFFSET:
        raise StatusError(
            Code.INVALID_RECEIPT_HANDLE,
            "the receipt handle does not say where the message is stored: return it as it was received",
        )


def _invalid(text: str) -> StatusError:
    # RocketMQ's code, which does not say that it is the client's fault.
    return StatusError(
        Code.INTERNAL_SERVER_ERROR, f"this is no receipt handle: {text[:100]!r}; return it as it was received"
    )
