"""The headers of requests about timer messages."""

from __future__ import annotations

from orbitmq.wire.header import Header, Int32, Int64


class RecallMessageHeader(Header):
    """RECALL_MESSAGE (370), of RocketMQ 5."""

    topic: str
    recall_handle: str
    producer_group: str | None = None


class PendingTimersHeader(Header):
    """GET_PENDING_TIMERS (30004), orbitmq's own: those due at `due_ms` or later, in milliseconds since the epoch."""

    due_ms: Int64 = 0
    limit: Int32 = 100
